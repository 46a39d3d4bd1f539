"""The metrics of a worker as Prometheus reads them: ways through the pipeline and how it is, never content.

The counters are exact, also while a window is open, so who may read them is inside the trust boundary, as who may read
`counters.json` is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stream_dp.config.plan import Plan
from stream_dp.runtime.health import Health
from stream_dp.windows.effects import ROWS_LOADED

PREFIX = "stream_dp_"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STEP_SECONDS = 10.0
"""How long a page stays as it is: who reads more often costs nothing, and sees no finer when something was done."""


class Counted(NamedTuple):
    """What a counter counts, and the names of its labels."""

    meaning: str
    labels: tuple[str, ...] = ()


COUNTERS = MappingProxyType(
    {
        "events_consumed": Counted("Records read from the source topics, watermarks and refused ones among them."),
        "events_replayed": Counted("Records that were read again after a restart and had been counted before."),
        "events_counted": Counted("Contributions of events to windows.", ("view",)),
        "events_refused": Counted("Records and events that were not counted.", ("reason", "view")),
        "events_unknown": Counted("Counted events whose key is on no public list, when a window is over.", ("view",)),
        "watermarks_read": Counted("Watermark records read from the source topics."),
        "partials_repeated": Counted("Partial counts that came again after a crash and were passed over."),
        ROWS_LOADED: Counted("Stored rows that were read back into memory."),
        "windows_closed": Counted("Windows closed, once for every partition of the source.", ("view",)),
        "windows_released": Counted("Windows released.", ("view",)),
        "windows_refused": Counted("Windows refused, since the ledger did not cover them.", ("view",)),
        "windows_lost": Counted("Windows that are not released, since state was lost.", ("view",)),
        "windows_sharpened": Counted("Released windows that were released sharper to an audience.", ("view",)),
        "sharpenings_refused": Counted("Those that were not, since the ledger did not cover it.", ("view",)),
        "releases_late": Counted("Windows that left at a later slot than their own.", ("view",)),
    }
)
"""Every counter of the pipeline (`stream_dp.windows.effects.Increment`)."""


class Exposition:
    """The page of a worker. It is made from its state when somebody asks, and stays as it is for `STEP_SECONDS`."""

    def __init__(self, plan: Plan, health: Health, clock: Callable[[], float] = time.monotonic) -> None:
        """Set up the page.

        Args:
            plan: the configuration, whose views and ledgers are the values of labels.
            health: knows the worker as soon as there is one.
            clock: seconds that only grow.
        """
        self._views = sorted(plan.views)
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
        for name, counted in COUNTERS.items():
            yield self._counter(name, counted, worker.counters.by_labels(name))

    def _counter(self, name: str, counted: Counted, amounts: dict[tuple[tuple[str, str], ...], int]) -> Metric:
        """A counter; it begins at 0 where all its labels are known, so that its first increase is one."""
        family = CounterMetricFamily(PREFIX + name, counted.meaning, labels=counted.labels)
        if counted.labels == ("view",):
            amounts = {(("view", view),): 0 for view in self._views} | amounts
        elif not counted.labels:
            amounts = {(): 0} | amounts
        for labels, amount in sorted(amounts.items()):
            family.add_metric([value for _, value in labels], amount)
        return family


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)
