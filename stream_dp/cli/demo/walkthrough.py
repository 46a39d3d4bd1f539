"""The demo from the first event to the last record: a year with unlocks and a tune, then three grants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from stream_dp.cli.demo.flights import Feed, Flights
from stream_dp.cli.demo.runs import DESTINATIONS, DemoRun
from stream_dp.cli.demo.screen import Screen
from stream_dp.cli.demo.sharper import sharper_frame, verdict
from stream_dp.cli.demo.state import DemoState
from stream_dp.cli.demo.tuning import tune_carriers
from stream_dp.cli.demo.workers import RunningWorker, started_worker
from stream_dp.cli.demo.year import tune_lines, unlock_line, year_frame, year_line
from stream_dp.control.grants import Grant
from stream_dp.errors import StateError
from stream_dp.records.codec import decode, decode_entry
from stream_dp.runtime.bootstrap import prepare
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.faust.embedded import MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import write_grant
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import load_keys

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
