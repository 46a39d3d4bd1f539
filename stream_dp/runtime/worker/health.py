"""Liveness, readiness and metrics of a worker, with the reason why it is not ready."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stream_dp.errors import AddressError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.faust.delivery import OF_A_PROCESS
from stream_dp.runtime.faust.letters import LETTERS_DROPPED
from stream_dp.windows.effects import ROWS_LOADED

if TYPE_CHECKING:
    from stream_dp.runtime.worker.assembly import Worker
    from stream_dp.runtime.worker.process import Stop

log = logging.getLogger("stream_dp.worker")

START_SECONDS = 300.0
SAY_SECONDS = 10.0
LOOK_SECONDS = 0.2


class Start:
    """Reason why a start waits, and the time since when that has not changed."""

    def __init__(self, within_s: float = START_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin.

        Args:
            within_s: how long it may wait for one thing; a recovery that goes on is never waited for too long.
            clock: seconds that only grow.
        """
        self.within_s = within_s
        self._clock = clock
        self._words: Callable[[], str] = lambda: "the machine"
        self._last = ""
        self._since = self._said = clock()

    @property
    def waiting_for(self) -> str:
        """Reason why it waits, in words."""
        return self._words()

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Note what it waits for from now on; as a function, words that change with the progress made."""
        self._words = what if callable(what) else lambda: what

    def look(self) -> bool:
        """Say what it waits for, now and then; whether there is still time."""
        words, now = self.waiting_for, self._clock()
        if words != self._last:
            self._last, self._since = words, now
        if now - self._said >= SAY_SECONDS:
            self._said = now
            log.info("waiting for %s", words)
        return now - self._since < self.within_s

    async def overdue(self) -> None:
        """Return when it has waited too long for one thing."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.look():
                return


class Health:
    """Health of a process for probes, from its beginning to its end.

    Attributes:
        start: what it waits for until there is a worker.
        worker: the worker, None until it is made.
        lag: records that are not counted yet, by source and partition, as last reported; empty if the broker is silent.
    """

    def __init__(self, start: Start, stop: Stop | None = None) -> None:
        """Begin.

        Args:
            start: is told what the process waits for.
            stop: the order to stop, None if there will be none.
        """
        self.start = start
        self.worker: Worker | None = None
        self.lag: Mapping[tuple[str, int], int] = {}
        self._stop = stop

    @property
    def is_alive(self) -> bool:
        """True if no crash is under way; that somebody answers says that the event loop runs."""
        return self.worker is None or self.worker.crash_reason() is None

    @property
    def is_silent(self) -> bool:
        """True if the worker waits for a broker that does not answer."""
        return self.worker is not None and self.worker.app.outage.is_silent

    @property
    def now_ms(self) -> int:
        """The time: by the broker's clock, as soon as the worker knows what that shows."""
        log_ms = None if self.worker is None else self.worker.clock.log_ms()
        return wall_clock_ms() if log_ms is None else log_ms

    @property
    def clock_ahead_ms(self) -> int:
        """Lead of the worker's clock over the broker's (below 0: lag), if that is too large; else 0."""
        if self.worker is None or not self.worker.clock.is_wrong:
            return 0
        return self.worker.clock.difference().ahead_ms

    @property
    def waiting_for(self) -> str:
        """Reason why it is not ready, in words; empty if it has joined, recovered, a right clock, and is online."""
        if not self.is_alive:
            return "its end, since it has crashed"
        if self._stop is not None and self._stop.given:
            return "its end, since it was told to stop"
        if self.worker is None:
            return self.start.waiting_for
        if self.is_silent:
            return f"the broker at {self.worker.app.outage.address}, which does not answer"
        return self.worker.words() or self.worker.timers.words


PREFIX = "stream_dp_"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
STEP_SECONDS = 10.0
"""Time that a page is cached: reading more often costs nothing, and shows no finer when something was done."""


class CounterHelp(NamedTuple):
    """Help text of a counter, and the names of its labels."""

    meaning: str
    labels: tuple[str, ...] = ("partition",)


_OF_A_VIEW = ("view", "partition")

COUNTERS = MappingProxyType(
    {
        "events_consumed": CounterHelp("Records read from the source topics, watermarks and refused ones among them."),
        "events_replayed": CounterHelp("Records that were read again after a restart and had been counted before.", ()),
        "events_counted": CounterHelp("Contributions of events to windows that are closed.", _OF_A_VIEW),
        "events_refused": CounterHelp("Records and events that were not counted.", ("reason", *_OF_A_VIEW)),
        "events_unknown": CounterHelp("Contributions whose key is not on the view's list.", _OF_A_VIEW),
        "watermarks_read": CounterHelp("Watermark records read from the source topics."),
        "records_missing": CounterHelp("Records of the source topics that were deleted before they were counted."),
        "partials_repeated": CounterHelp("Partial counts that came again after a crash and were passed over.", ()),
        LETTERS_DROPPED: CounterHelp("Dead letters that were dropped because their topic did not take them.", ()),
        ROWS_LOADED: CounterHelp("Stored rows that were read back into memory.", ()),
        "windows_closed": CounterHelp("Windows closed, once for every partition of the source.", _OF_A_VIEW),
        "windows_released": CounterHelp("Windows released.", _OF_A_VIEW),
        "windows_refused": CounterHelp("Windows refused, since the ledger did not cover them.", _OF_A_VIEW),
        "windows_lost": CounterHelp(
            "Windows that are not released, since state or source records were lost.", _OF_A_VIEW
        ),
        "windows_sharpened": CounterHelp("Released windows that were released sharper to an audience.", _OF_A_VIEW),
        "sharpenings_refused": CounterHelp("Those that were not, since the ledger did not cover it.", _OF_A_VIEW),
        "releases_late": CounterHelp("Windows that left at a later slot than their own.", _OF_A_VIEW),
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
        ready, silent = not self._health.waiting_for, self._health.is_silent
        yield _gauge("ready", "1 if the worker has joined, has recovered and is not cut off, else 0.", ready)
        yield _gauge("broker_silent", "1 if the worker waits for a broker that does not answer, else 0.", silent)
        if worker is None:
            return
        yield _gauge("partitions", "Partitions of every source.", worker.plan.partitions)
        served = set(worker.partitions)
        yield _gauge("partitions_owned", "Partitions that the worker serves.", len(served))
        wrong = "1 if the worker's clock does not agree with the broker's, so that it makes no ticks, else 0."
        yield _gauge("clock_wrong", wrong, worker.clock.is_wrong)
        yield _gauge("recovering", "1 if the worker recovers its tables, else 0.", worker.is_recovering)
        yield _gauge("recovery_remaining_records", "Rows of the changelogs to go.", worker.rows_to_recover)
        yield _gauge("copies", "Partitions of other workers that it keeps a copy of.", len(worker.copies.partitions))
        if (rows := worker.copies.behind) is not None:
            yield _gauge("copies_behind_records", "Rows of the changelogs that its copies lack.", rows)
        if (ticked_ms := worker.timers.ticked_ms) is not None:
            words = "When it sent its last tick, since the epoch."
            yield _gauge("last_tick_timestamp_seconds", words, ticked_ms // 1000)
        left = GaugeMetricFamily(
            f"{PREFIX}budget_remaining_ratio",
            "Share of a ledger's budget that its newest period has left, by the accounts published last.",
            labels=["ledger"],
        )
        for ledger, ratio in worker.host.balances.ratios().items():
            left.add_metric([ledger], ratio)
        yield left
        behind = GaugeMetricFamily(
            f"{PREFIX}source_lag_records", "Records that are not counted yet.", labels=["source", "partition"]
        )
        for (source, partition), records in self._health.lag.items():
            if partition in served:  # another worker shows it otherwise, from its next report on
                behind.add_metric([source, str(partition)], records)
        yield behind
        with suppress(OSError):
            disk = shutil.disk_usage(worker.plan.data_dir)
            yield _gauge("data_dir_free_bytes", "Room on the disk of the data folder.", disk.free)
            yield _gauge("data_dir_size_bytes", "Size of that disk.", disk.total)
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


LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
"""At once; one more is closed as it comes. Each takes a descriptor that the broker and the files of the worker need."""
IDLE_SECONDS = 10.0
"""Time that a connection may stay without a whole request."""
CLOSE_SECONDS = 1.0
"""Time that an answer may take that is on its way when the port is closed."""


class Address(NamedTuple):
    """Where to listen; port 0 stands for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@asynccontextmanager
async def serving(address: Address, health: Health, metrics: Exposition) -> AsyncIterator[Address]:
    """Answer at an address until the context is left; yields the address with its port.

    Args:
        address: where to listen.
        health: what the probes are told.
        metrics: the page of metrics.

    Raises:
        AddressError: nobody can listen there.
    """

    async def livez(_request: web.Request) -> web.Response:
        return _answer("" if health.is_alive else "the worker has crashed; its process ends")

    async def readyz(_request: web.Request) -> web.Response:
        return _answer(f"waiting for {words}" if (words := health.waiting_for) else "")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS, keepalive_timeout=IDLE_SECONDS)
    await runner.setup()
    answering = runner.server
    assert answering is not None  # noqa: S101  (it is set up)

    def connected() -> asyncio.Protocol:
        return answering() if len(answering.connections) < MOST_CONNECTIONS else _Refusal()

    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                connected, address.host, address.port, backlog=MOST_CONNECTIONS
            )
        except OSError as error:
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
            raise AddressError(f"the worker cannot listen on {address}: {why}; give --http another address") from error
        try:
            yield Address(address.host, server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()


class _Refusal(asyncio.Protocol):
    """A connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        cast("asyncio.WriteTransport", transport).abort()


def _answer(fault: str) -> web.Response:
    return web.Response(text=f"{fault}\n", status=503) if fault else web.Response(text="ok\n")
