"""Any clocks of the workers: windows close when they are over by the log, with all that reached it before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_dp.runtime.clock import Clock, Tick, read_tick
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.worker import timers
from stream_dp.runtime.worker.timers import HEARTBEAT, Timers
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import decode, encode
from tests.support.counting import Entry, Oracle, counter, event, handed_on, view
from tests.support.feeding import SOURCE, TICKS, Feed
from tests.support.phases import PHASES

BOUND_MS, BEGIN_MS, WORKERS = 50, 1000, 3
CONTROL = TP("control", 0)
LONGEST_MS = 10
"""That an answer takes; the broker's clock is not known better."""
VIEW = view("wall", length_ms=10, grace_ms=3, first_ms=BEGIN_MS, items_per_user=100)


@dataclass
class Broker:
    """Its clock, and the logs of one partition of the source and of the ticks."""

    now_ms: int = BEGIN_MS
    source: list[Entry] = field(default_factory=list)
    ticks: list[Entry] = field(default_factory=list)
    workers: list[OneWorker] = field(default_factory=list)
    owner: int = 0

    def tell(self, tick: bytes) -> int:
        """Append a tick, which every worker reads; returns its append time."""
        self.ticks.append(Entry(len(self.ticks), None, tick, self.now_ms))
        said = read_tick(self.ticks[-1], BOUND_MS)
        for worker in self.workers:
            worker.asked |= dict.fromkeys(said.asks, said.now_ms)
        return self.now_ms

    def come(self, item: str, ago_ms: int) -> None:
        """Append an event of some time ago."""
        at = len(self.source)
        made = event(at, f"u{at}", item, max(BEGIN_MS, self.now_ms - ago_ms))
        self.source.append(replace(made, timestamp=self.now_ms))

    async def describe(self, _: Collection[str]) -> Mapping[str, Any]:
        return {}

    async def ends(self, places: Collection[TP]) -> Mapping[TP, int]:
        return {place: 0 if place == CONTROL else len(self.source) for place in places}


class OneWorker:
    """The real timers of a worker on made-up clocks, and as little of the rest as they need."""

    def __init__(self, broker: Broker, number: int) -> None:
        self.broker = broker
        self.number = number
        self.off_ms = 0
        self.delays = (0, 0)
        self.asked: dict[int, int] = {}
        self.restart()

    def restart(self) -> None:
        def steady_ms() -> int:
            return self.broker.now_ms - 300 * self.number

        clock = Clock(lambda: self.broker.now_ms + self.off_ms, BOUND_MS, steady_ms)
        app: Any = SimpleNamespace(outage=Outage("here"), rebalancing=False, consumer=self, sources=[SOURCE.topic])
        host: Any = SimpleNamespace(
            topics=SimpleNamespace(ticks=TICKS.topic, partials="partials", merged="merged"),
            clock_ms=clock,
            asked=self.asked,
            counted_to=dict,
            send=self.send,
        )
        plan = SimpleNamespace(settings=1, partitions=1, views={})
        adoption: Any = SimpleNamespace(plan=plan, place=CONTROL, is_blocked=False, advance=self.advance)
        self.timers = Timers(app, host, self.broker, adoption, clock)  # type: ignore[arg-type]
        self.clock = clock

    def assignment(self) -> set[TP]:
        return {TICKS} if self.broker.owner == self.number else set()

    async def advance(self, end: int | None) -> bool:
        return False

    async def send(self, messages: Sequence[Message]) -> list[int]:
        there, back = self.delays
        for _ in range(there):
            self.broker.now_ms += 1
            self.broker.come("d", VIEW.grace_ms + 1)
        told = [message.value or b"" for message in messages if message.key != HEARTBEAT]
        assert abs(self.off_ms) <= BOUND_MS + LONGEST_MS or not any(decode(Tick, one).ends for one in told)
        appended = [self.broker.tell(one) for one in told]
        self.broker.now_ms += back
        return appended


Act = tuple[str, int, int]
OFFSETS = st.sampled_from([0, 0, 20, -20, BOUND_MS - 1, BOUND_MS + 1, -BOUND_MS - 1, 300, -300, 3_600_000, -3_600_000])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("event"), st.integers(0, 3), st.integers(-5, 20)),
        st.tuples(st.just("jump"), st.integers(0, WORKERS - 1), OFFSETS),
        st.tuples(st.just("own"), st.integers(0, WORKERS - 1), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, WORKERS - 1), st.just(0)),
        st.tuples(st.just("delay"), st.integers(0, WORKERS - 1), st.integers(0, LONGEST_MS**2)),
        st.tuples(st.just("tick"), st.integers(0, WORKERS - 1), st.just(0)),
        st.tuples(st.just("tick"), st.integers(0, WORKERS - 1), st.just(0)),
        st.tuples(st.just("forge"), st.just(0), st.integers(BOUND_MS + 1, 4000)),
    ),
    max_size=60,
)


async def played(acts: Sequence[Act]) -> Broker:
    """What the logs hold when all is done, and at least the clocks of others than the owner have become right."""
    broker = Broker()
    broker.workers += [OneWorker(broker, number) for number in range(WORKERS)]
    for worker in broker.workers:
        await worker.timers.compare_clocks()
    for what, one, amount in acts:
        worker = broker.workers[one % WORKERS]
        match what:
            case "wait":
                broker.now_ms += one
            case "event":
                broker.come("abcd"[one], amount)
            case "jump":
                worker.off_ms = amount
            case "own":
                broker.owner = one
                worker.timers.forget()
            case "restart":
                worker.restart()
                await worker.timers.compare_clocks()
            case "delay":
                worker.delays = (amount // LONGEST_MS, amount % (LONGEST_MS + 1))
            case "tick":
                await worker.timers.tick()
            case "forge":
                broker.tell(encode(Tick(broker.now_ms + amount, {SOURCE.topic: len(broker.source)})))
    for worker in broker.workers:
        worker.off_ms, worker.delays = worker.off_ms if worker.number == broker.owner else 0, (0, 0)
    broker.now_ms += 1000
    for _ in range(4):
        broker.now_ms += 10
        for worker in broker.workers:
            await worker.timers.tick()
    return broker


@pytest.mark.slow
@given(ACTS)
@example([("jump", 0, 49), ("delay", 0, 100), ("wait", 7, 0), ("tick", 0, 0), ("tick", 0, 0), ("tick", 0, 0)])
@example([("delay", 0, 100), ("tick", 0, 0), ("wait", 17, 0), ("tick", 0, 0), ("wait", 3, 0), ("tick", 0, 0)])
@settings(max_examples=300, deadline=None, phases=PHASES)
def test_windows_close_when_they_are_over_by_the_log_with_all_that_reached_it_before(acts: list[Act]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timers, "ASK_EVERY", 2)
        broker = asyncio.run(played(acts))
    feed = Feed(broker.source, [], lambda: counter(VIEW), said=broker.ticks, bound_ms=BOUND_MS)
    feed.settle()

    said = [(read_tick(record, BOUND_MS), record.timestamp) for record in broker.ticks]
    told = [(tick.now_ms, tick.ends[SOURCE.topic]) for tick, _ in said if SOURCE.topic in tick.ends]
    assert all(tick.now_ms <= append_ms for tick, append_ms in said)
    far_ahead = [decode(Tick, record.value or b"").now_ms > record.timestamp + BOUND_MS for record in broker.ticks]
    assert not any(tick.ends for (tick, _), far in zip(said, far_ahead, strict=True) if far)
    oracle = Oracle.of([VIEW]).follow(broker.source, told)
    (one,) = oracle.views
    assert handed_on(feed.machine.sent)["wall"] == {start: one.counts(start) for start in one.closed_windows()}
    for offset, reason, _ in oracle.refused:
        late = broker.source[offset]
        time_ms = json.loads(late.value or b"")["at"]
        end_ms = VIEW.windows.end(VIEW.windows.start_of(time_ms))
        assert reason == "late"
        assert late.timestamp >= end_ms + VIEW.grace_ms
    assert one.clock >= broker.now_ms - 20
