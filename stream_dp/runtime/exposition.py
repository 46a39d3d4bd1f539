"""The metrics of a worker as Prometheus reads them: ways through the pipeline and how it is, never content.

The counters are exact, so who may read them is inside the trust boundary, as who may read `counters.json` is. None is a
count of a window that is open. What became of the data is told by partition, by the worker that has it, and goes on at
the next one where this one ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stream_dp.runtime.health import Health
from stream_dp.runtime.metrics import OF_A_PROCESS
from stream_dp.windows.effects import ROWS_LOADED

if TYPE_CHECKING:
    from stream_dp.runtime.worker import Worker

PREFIX = "stream_dp_"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STEP_SECONDS = 10.0
"""How long a page stays as it is: who reads more often costs nothing, and sees no finer when something was done."""


class Counted(NamedTuple):
    """What a counter counts, and the names of its labels."""

    meaning: str
    labels: tuple[str, ...] = ("partition",)


_OF_A_VIEW = ("view", "partition")

COUNTERS = MappingProxyType(
    {
        "events_consumed": Counted("Records read from the source topics, watermarks and refused ones among them."),
        "events_replayed": Counted("Records that were read again after a restart and had been counted before.", ()),
        "events_counted": Counted("Contributions of events to windows that are closed.", _OF_A_VIEW),
        "events_refused": Counted("Records and events that were not counted.", ("reason", *_OF_A_VIEW)),
        "events_unknown": Counted("Those of them whose key is on no public list.", _OF_A_VIEW),
        "watermarks_read": Counted("Watermark records read from the source topics."),
        "records_missing": Counted("Records of the source topics that were deleted before they were counted."),
        "partials_repeated": Counted("Partial counts that came again after a crash and were passed over.", ()),
        ROWS_LOADED: Counted("Stored rows that were read back into memory.", ()),
        "windows_closed": Counted("Windows closed, once for every partition of the source.", _OF_A_VIEW),
        "windows_released": Counted("Windows released.", _OF_A_VIEW),
        "windows_refused": Counted("Windows refused, since the ledger did not cover them.", _OF_A_VIEW),
        "windows_lost": Counted("Windows that are not released, since state or source records were lost.", _OF_A_VIEW),
        "windows_sharpened": Counted("Released windows that were released sharper to an audience.", _OF_A_VIEW),
        "sharpenings_refused": Counted("Those that were not, since the ledger did not cover it.", _OF_A_VIEW),
        "releases_late": Counted("Windows that left at a later slot than their own.", _OF_A_VIEW),
    }
)
"""Every counter of the pipeline (`stream_dp.windows.effects.Increment`)."""


class Exposition:
    """The page of a worker. It is made from its state when somebody asks, and stays as it is for `STEP_SECONDS`."""

    def __init__(self, health: Health, clock: Callable[[], float] = time.monotonic) -> None:
        """Set up the page.

        Args:
            health: knows the worker as soon as there is one.
            clock: seconds that only grow.
        """
        self._health = health
        self._clock = clock
        self._page = b""
        self._until = clock()

    def page(self) -> bytes:
        """The page, in the text format of Prometheus."""
        now = self._clock()
        if now >= self._until:
            self._page, self._until = generate_latest(self), now + STEP_SECONDS
        return self._page

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they are now."""
        worker = self._health.worker
        ready, silent = not self._health.waits_for, self._health.is_silent
        yield _gauge("ready", "1 if the worker has joined, has recovered and is not cut off, else 0.", ready)
        yield _gauge("broker_silent", "1 if the worker waits for a broker that does not answer, else 0.", silent)
        if worker is None:
            return
        yield _gauge("partitions_owned", "Partitions that the worker serves.", len(worker.partitions))
        wrong = "1 if the worker's clock does not agree with the broker's, so that it makes no ticks, else 0."
        yield _gauge("clock_wrong", wrong, bool(worker.clock_words))
        yield _gauge("recovering", "1 if the worker recovers its tables, else 0.", worker.is_recovering)
        yield _gauge("recovery_remaining_records", "Rows of the changelogs to go.", worker.rows_to_recover)
        if worker.ticked_s is not None:
            yield _gauge("last_tick_timestamp_seconds", "When it sent its last tick, since the epoch.", worker.ticked_s)
        left = GaugeMetricFamily(
            f"{PREFIX}budget_remaining_ratio",
            "Share of a ledger's budget that its newest period has left, by the accounts published last.",
            labels=["ledger"],
        )
        for ledger, ratio in worker.host.balances.ratios().items():
            left.add_metric([ledger], ratio)
        yield left
        yield from _counters(worker)


def _counters(worker: Worker) -> Iterator[Metric]:
    """The counters; those of the process begin at 0, so that their first increase is one."""
    families = {
        name: CounterMetricFamily(PREFIX + name, counted.meaning, labels=counted.labels)
        for name, counted in COUNTERS.items()
    }
    for partition, standing in worker.standings().items():
        for total in standing.totals:
            families[total.name].add_metric([*dict(total.labels).values(), str(partition)], total.amount)
    for name in OF_A_PROCESS & families.keys():
        families[name].add_metric([], worker.counters.total(name))
    yield from families.values()


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)
