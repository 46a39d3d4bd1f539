"""The demo from the first event to the last record: a broker, a worker, a year with a tune, then three grants."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stream_dp.agents import AGENTS
from stream_dp.cli.demo.frames import Screen, sharper_frame, tune_lines, unlock_line, verdict, year_frame, year_line
from stream_dp.cli.demo.runs import DESTINATIONS, DemoRun, Feed, Flights
from stream_dp.cli.demo.state import DemoState, tune_carriers
from stream_dp.config.access import MEMORY
from stream_dp.control.grants import Grant
from stream_dp.errors import StateError
from stream_dp.records.codec import decode, decode_entry
from stream_dp.runtime import localkafka
from stream_dp.runtime.bootstrap import prepare
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.faust.embedded import MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import write_grant
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.localkafka.state import carries, spawn_detached, terminate
from stream_dp.runtime.worker.process import running
from stream_dp.runtime.worker.worker import Options, Worker


@dataclass(frozen=True, slots=True)
class Choice:
    """A broker to run on.

    Attributes:
        broker: as a configuration names it.
        words: which one it is, what it cannot do, and what to do for another one, in one line.
        local: the local Kafka, if it is that.
    """

    broker: str
    words: str
    local: localkafka.LocalKafka | None = None

    @property
    def embedded(self) -> bool:
        """Whether it is the embedded log."""
        return self.broker == MEMORY


@contextmanager
def chosen_broker(say: Callable[[str], None], *, keep_running: bool) -> Iterator[Choice]:
    """The cluster that STREAM_DP_BROKER names, else a local Kafka, else, without Java or Maven, the embedded log.

    A local Kafka that was started here is stopped at the end unless it is to be kept; one that ran before is left as
    it is.

    Args:
        say: told in one line what is about to take a while.
        keep_running: leave a Kafka that was started here running.

    Raises:
        BrokerError: the local Kafka does not start.
    """
    named = localkafka.external_broker()
    if named is not None:
        yield _named(named)
        return
    problem = localkafka.local_kafka_problem()
    if problem is not None:
        yield Choice(MEMORY, f"Broker: the embedded log. {_EMBEDDED} No real Kafka: {problem}.")
        return
    found = localkafka.start(say=say)
    try:
        yield Choice(f"kafka://{found.address}", _LOCAL.format(address=found.address), found)
    finally:
        if found.started and not keep_running:
            say("Stopping Kafka")
            localkafka.stop()


_EMBEDDED = "It serves this one process and forgets everything at its end."
_LOCAL = (
    f"Broker: Apache Kafka {localkafka.KAFKA_VERSION} on this machine, {{address}}: one node, no authentication; "
    "STREAM_DP_BROKER names another."
)


def _named(broker: str) -> Choice:
    if broker == MEMORY:
        kafka = "Unset it for a real Kafka, which needs Java 17 and Maven."
        return Choice(MEMORY, f"Broker: the embedded log, as STREAM_DP_BROKER says. {_EMBEDDED} {kafka}")
    address = broker.removeprefix("kafka://")
    return Choice(
        f"kafka://{address}",
        f"Broker: the Kafka at {address} that STREAM_DP_BROKER names. Nothing of it is cleaned "
        "up: the topics of this run stay.",
    )


STOP_SECONDS = 30.0
LOG_LINES = 15


class RunningWorker(Protocol):
    """A worker that was started."""

    pid: int | None
    """Its process, None when it is this one."""

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it does not; the message says why.
        """


class WorkerProcess:
    """The `stream-dp worker` command in a process that belongs to no terminal, recognised by its configuration file."""

    def __init__(self, run: DemoRun) -> None:
        """Start it."""
        self._run = run
        self._marker = str(run.file)
        command = [sys.executable, "-m", "stream_dp.cli", "worker", self._marker]
        self.pid: int | None = spawn_detached(command, run.folder, run.log_file)

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it does not; the message ends with what it said last.
        """
        if self.pid is None or not carries(self.pid, self._marker):
            raise StateError(f"the worker has ended; the end of {self._run.log_file}:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        try:
            said = self._run.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            said = []
        return "\n".join(f"  {line[:240]}" for line in said[-LOG_LINES:])

    def stop(self) -> None:
        """Ask it to finish the chunk at hand and end; blocks until it has."""
        if self.pid is not None:
            terminate(self.pid, self._marker, STOP_SECONDS)


class WorkerHere:
    """A worker of the embedded log, in this process."""

    pid: int | None = None

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it has crashed.
        """
        reason = self._worker.crash_reason()
        if reason is not None:
            raise StateError(f"the worker has crashed: {type(reason).__name__}: {reason}") from reason


@asynccontextmanager
async def started_worker(
    run: DemoRun, client: Client, log: MemoryLog | None, *, keep_running: bool
) -> AsyncIterator[RunningWorker]:
    """The worker of a run. Leaving the context stops it, unless it is to be kept and nothing went wrong.

    Args:
        run: the run; its source topic exists.
        client: a client of its broker.
        log: the embedded log, None on Kafka.
        keep_running: whether it is to be kept.
    """
    if log is not None:
        async with running(run.plan, client, AGENTS, Options(log=log)) as worker:
            yield WorkerHere(worker)
        return
    process = WorkerProcess(run)
    try:
        yield process
    except BaseException:  # Ctrl-C as well
        await asyncio.to_thread(process.stop)
        raise
    if not keep_running:
        await asyncio.to_thread(process.stop)


PARTNER, INTERNAL = "partner", "internal"
PATIENCE_SECONDS = 90.0
"""Without any news for so long, something is wrong."""

T = TypeVar("T")


@dataclass
class Outcome:
    """What a run of the demo came to.

    Attributes:
        state: all that is known at the end.
        began: when the worker was started, by the monotonic clock, seconds.
        first_release: when the first release was read, by the same clock.
        worker_pid: the worker's process, None inside this one.
    """

    state: DemoState
    began: float
    first_release: float
    worker_pid: int | None


async def play(run: DemoRun, flights: Flights, screen: Screen, *, pace_s: float, keep_running: bool) -> Outcome:
    """Create the topics, start the worker, feed the year, tune a view meanwhile, grant three times; show all of it.

    Args:
        run: the run, on any broker.
        flights: what is fed.
        screen: where it is shown.
        pace_s: how long the year takes at least, seconds.
        keep_running: leave the worker running, where it is a process of its own.

    Raises:
        StreamDPError: the broker failed, the worker ended, or nothing happened for `PATIENCE_SECONDS`.
    """
    plan = run.plan
    log = MemoryLog() if plan.broker.is_embedded else None
    source = run.view(DESTINATIONS).source
    async with connect(plan.broker, log) as client:
        await client.create([TopicSpec(source.topic, source.partitions)])
        await prepare(plan, client, lambda: load_keys(plan.key_file).application, backfill=True)
        began = time.monotonic()
        async with started_worker(run, client, log, keep_running=keep_running) as worker:
            walkthrough = _Walkthrough(DemoState(run, Feed(flights, source, pace_s)), client, worker, screen, began)
            return await walkthrough.run()


class _Walkthrough:
    def __init__(self, state: DemoState, client: Client, worker: RunningWorker, screen: Screen, began: float) -> None:
        self._state = state
        self._client = client
        self._worker = worker
        self._screen = screen
        self._began = began
        self._news_at = time.monotonic()
        self._news: tuple[int, int] = (0, 0)
        self._first_release: float | None = None
        self._told: set[Hashable] = set()

    async def run(self) -> Outcome:
        """Go through it."""
        state = self._state
        window = state.run.view(DESTINATIONS).window
        end_ms = window.shape.end(state.starts[-1]) + window.grace_ms
        self._screen.watch = self._watch
        feed = state.feed.run(self._client, tuned_ms=state.tuned_ms, end_ms=end_ms)
        await _beside(self._acts(), self._read(), self._tune(), feed)
        return Outcome(state, self._began, self._first_release or self._began, self._worker.pid)

    async def _acts(self) -> None:
        state, screen = self._state, self._screen
        await screen.act(lambda size: year_frame(state, size), self._year_is_over, self._year_lines)
        state.note("the year")
        await screen.hold()
        view = state.run.view(DESTINATIONS)
        names = [level.name for level in view.levels]
        await self._grant(PARTNER, names[view.audiences[PARTNER] + 1])
        await screen.hold()
        await self._grant(INTERNAL, names[view.audiences[INTERNAL] + 1])
        await screen.hold()
        await self._grant(INTERNAL, names[-1])

    async def _tune(self) -> None:
        """Change a setting behind the first release; the feed waits for it ahead of the windows that it is about."""
        state = self._state
        await state.feed.opened.wait()
        state.tuned = await tune_carriers(state.run, self._client, state.tuned_ms)
        state.feed.tuned.set()

    async def _grant(self, audience: str, level: str) -> None:
        state, screen = self._state, self._screen
        windows, act = len(list(state.all_seen(audience))), f"{audience}: {level}"
        start = state.full_windows()[-1]
        screen.say()
        screen.say(f"$ stream-dp grant flights.yaml {audience} --level {level}", style="bold")
        await write_grant(state.run.plan, self._client, Grant(audience=audience, level=level))
        await screen.act(
            lambda size: sharper_frame(state, audience, level, act, start, size),
            lambda: state.at_level(audience, level) == windows,
            lambda: (),
        )
        state.note(act)
        screen.say(verdict(state, audience))

    async def _read(self) -> None:
        """Take every record of every release topic and every entry of the accounts; the first record opens the feed."""
        state, topics = self._state, Topics.of(self._state.run.plan)
        public = [topics.release(view.name, name) for view in state.run.plan.views.values() for name in view.audiences]
        async for record in self._client.follow([*public, topics.accounts]):
            if record.value is None:
                continue
            if record.topic == topics.accounts:
                state.take_entry(decode_entry(record.value))
                continue
            state.take(decode(record.value))
            if self._first_release is None:
                self._first_release = time.monotonic()
                state.feed.opened.set()

    def _year_is_over(self) -> bool:
        return len(self._state.complete()) == len(self._state.starts) and self._state.all_unlocked()

    def _year_lines(self) -> Iterator[str]:
        state = self._state
        for start in state.complete():
            if self._is_news(start):
                yield year_line(state, start)
        for audience in state.unlocks:
            for start in state.unlocked(audience):
                if self._is_news((audience, start)):
                    yield unlock_line(state, audience, start)
        yield from filter(self._is_news, tune_lines(state))

    def _is_news(self, what: Hashable) -> bool:
        """Whether something was not told before."""
        fresh = what not in self._told
        self._told.add(what)
        return fresh

    def _watch(self) -> None:
        """Notice when the worker has died or nothing comes any more."""
        self._worker.check()
        news = (self._state.feed.sent, self._state.records)
        now = time.monotonic()
        if news != self._news:
            self._news, self._news_at = news, now
        elif now - self._news_at > PATIENCE_SECONDS:
            raise StateError(
                f"nothing came for {PATIENCE_SECONDS:g} s, though the worker runs; see {self._state.run.log_file}"
            )


async def _beside(main: Awaitable[T], *helpers: Awaitable[None]) -> T:
    """The outcome of a main task with helpers beside it; the first failure of any of them ends all."""
    running = asyncio.ensure_future(main)
    pending: set[asyncio.Future[T] | asyncio.Future[None]] = {running, *map(asyncio.ensure_future, helpers)}
    tasks = list(pending)
    try:
        while not running.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        return running.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
