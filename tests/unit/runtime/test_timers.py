"""The timers: who is told the time, who is greeted, and when they keep still."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

import pytest
from faust.types import TP

from stream_dp.errors import ConfigError, OutageError
from stream_dp.runtime.adoption import Adoption
from stream_dp.runtime.clock import Clock, Tick, wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka import outages as outage
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.timers import ASK_EVERY, ASKED_MS, HEARTBEAT, Timers, beat_seconds
from stream_dp.windows.encoding import decode

EVERY = [0, 1, 2]


def log_of(worker: Worker) -> MemoryLog:
    assert worker.app.memory_log is not None
    return worker.app.memory_log


def sent_to(worker: Worker, topic: str) -> Callable[[], list[int]]:
    """How many records each partition of a topic has got since this was called."""
    log = log_of(worker)
    before = [log.end(TP(topic, partition)) for partition in EVERY]
    return lambda: [log.end(TP(topic, partition)) - before[partition] for partition in EVERY]


def timers_of(worker: Worker, client: MemoryClient | None = None, clock: Clock | None = None) -> Timers:
    reads = client or MemoryClient(log_of(worker))
    clock = clock or Clock()
    adoption = Adoption(
        Settled(worker.plan, topics=worker.host.claims),
        reads,
        "",
        worker.app.outage,
        lambda _: None,
        clock,
        lambda: False,
    )
    return Timers(worker.app, worker.host, reads, adoption, clock)


async def test_tick_tells_the_time_to_every_partition_and_greets_each_once(worker: Worker) -> None:
    timers, topics = timers_of(worker), worker.host.topics
    ticks, partials, merged = (sent_to(worker, topic) for topic in (topics.ticks, topics.partials, topics.merged))

    await timers.tick()
    assert ticks() == partials() == merged() == [1, 1, 1]
    await timers.tick()
    assert ticks() == [2, 2, 2]
    assert partials() == merged() == [1, 1, 1]
    timers.forget()
    await timers.tick()
    assert partials() == merged() == [2, 2, 2]

    last = log_of(worker).records[TP(topics.ticks, 1)][-1]
    assert last.key is None
    said = decode(Tick, last.value or b"")
    assert abs(said.now_ms - worker.host.clock_ms()) < 60_000
    assert said.ends == {source_of(worker): 0}
    greeting = log_of(worker).records[TP(topics.partials, 1)][-1]
    assert (greeting.key, greeting.value) == (HEARTBEAT, None)


async def test_no_tick_is_made_while_accepted_settings_cannot_be_used(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers, topics = timers_of(worker), worker.host.topics
    ticks, partials = (sent_to(worker, topic) for topic in (topics.ticks, topics.partials))
    with monkeypatch.context() as patched:
        patched.setattr(Adoption, "is_blocked", True)
        await timers.tick()
    assert ticks() == partials() == [0, 0, 0]
    assert timers.ticked_ms is None
    await timers.tick()
    assert ticks() == partials() == [1, 1, 1]


async def test_renewal_finds_out_that_a_partition_has_another_owner(worker: Worker) -> None:
    timers, changelogs = timers_of(worker), worker.host.topics.changelog
    await timers.renew()
    await worker.app.claim(TP(changelogs(MERGES), 1))

    with pytest.raises(PartitionLostError, match=f"partition 1 of {changelogs(MERGES)} was taken over"):
        await timers.renew()


def source_of(worker: Worker) -> str:
    (topic,) = {view.source.topic for view in worker.plan.views.values()}
    return topic


async def test_tick_says_where_its_partition_of_the_source_ends_behind_the_clock(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood in the log when the clock was read is before the end, and what arrives meanwhile may be."""
    source, log = source_of(worker), log_of(worker)
    log.append(source, 1, b"u", b"x")

    def clock() -> int:
        log.append(source, 2, b"u", b"x")
        return 1_000

    monkeypatch.setattr(worker.host, "clock_ms", clock)
    await timers_of(worker).tick()
    log.append(source, 0, b"u", b"x")

    ticks = [log.records[TP(worker.host.topics.ticks, partition)][-1].value or b"" for partition in EVERY]
    assert [decode(Tick, value) for value in ticks] == [Tick(1_000, {source: end}, None, 1) for end in (0, 1, 1)]


class Asked(MemoryClient):
    """A client that runs something before it says where partitions end."""

    def __init__(self, worker: Worker, first: Callable[[], None]) -> None:
        super().__init__(log_of(worker))
        self._first = first

    async def ends(self, places: Collection[TP]) -> Mapping[TP, int]:
        self._first()
        return await super().ends(places)


async def test_tick_waits_until_the_broker_says_where_the_sources_end_and_tells_the_time_of_then(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.001)
    clock = count(1_000)
    monkeypatch.setattr(worker.host, "clock_ms", lambda: next(clock))

    def refuse() -> None:
        if refusing:
            refusing.pop()
            raise OutageError("the cluster does not answer")

    timers, topics = timers_of(worker, Asked(worker, refuse)), worker.host.topics
    sent = [sent_to(worker, topic) for topic in (topics.ticks, topics.partials, topics.merged)]

    refusing = [True] * 5
    await timers.tick()
    assert [counts() for counts in sent] == [[1, 1, 1]] * 3
    (*_, last) = log_of(worker).records[TP(topics.ticks, 0)]
    assert decode(Tick, last.value or b"").now_ms == 1_005


async def test_tick_that_waits_for_the_broker_ends_with_the_rebalance_that_begins_meanwhile(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.001)

    def refuse() -> None:
        monkeypatch.setattr(worker.app, "rebalancing", True)
        raise OutageError("the cluster does not answer")

    sent = sent_to(worker, worker.host.topics.ticks)
    await timers_of(worker, Asked(worker, refuse)).tick()

    assert sent() == [0, 0, 0]


async def test_tick_is_left_out_if_a_rebalance_begins_before_the_ends_are_known(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = sent_to(worker, worker.host.topics.ticks)

    await timers_of(worker, Asked(worker, lambda: monkeypatch.setattr(worker.app, "rebalancing", True))).tick()

    assert sent() == [0, 0, 0]


async def test_a_log_that_ends_before_what_was_counted_of_it_stops_the_worker(worker: Worker) -> None:
    """Its offsets begin again: what is new would be taken for what was counted."""
    source, log, timers = source_of(worker), log_of(worker), timers_of(worker)
    for value in (b"x", b"y"):
        log.append(source, 1, b"u", value)
    counter = await worker.host.part(source, 1)
    records: list[Any] = log.records[TP(source, 1)]
    await worker.host.carry_out(counter.chunk(records, 0), worker.tables[COUNTS], 1)
    await timers.tick()
    ticks = sent_to(worker, worker.host.topics.ticks)

    records.pop()

    with pytest.raises(ConfigError, match=f"topic {source}: is shorter than what was counted of it.*made anew"):
        await timers.tick()
    assert ticks() == [0, 0, 0]


async def test_timers_send_nothing_during_a_rebalance(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    timers, topics = timers_of(worker), worker.host.topics
    sent = [sent_to(worker, topic) for topic in (topics.ticks, topics.partials, topics.changelog(COUNTS))]
    monkeypatch.setattr(worker.app, "rebalancing", True)

    await timers.tick()
    await timers.beat()
    await timers.renew()

    assert [counts() for counts in sent] == [[0, 0, 0]] * 3


async def test_beat_reaches_every_compacted_topic_that_holds_counts_but_has_no_ticks_of_its_own(worker: Worker) -> None:
    """The table of counts gets a marker with every tick; the others may be silent for longer than a segment lasts."""
    topics = worker.host.topics
    quiet = [topics.partials, topics.merged, topics.changelog(MERGES), topics.changelog(RELEASES)]
    sent = [sent_to(worker, topic) for topic in quiet]
    counts = sent_to(worker, topics.changelog(COUNTS))

    await timers_of(worker).beat()

    assert [found() for found in sent] == [[1, 1, 1]] * 4
    assert counts() == [0, 0, 0]
    assert worker.tables[MERGES].rows(2).get(HEARTBEAT) is not None


@pytest.mark.parametrize(("erase_within_ms", "seconds"), [(20_000, 1.25), (900_000, 56.25), (10_000, 1.0)])
def test_four_beats_fall_into_a_segment(erase_within_ms: int, seconds: float) -> None:
    assert beat_seconds(erase_within_ms) == seconds


class Wrong(Clock):
    """A clock that is wrong as long as a test says so."""

    off_ms = 3_600_000

    def __init__(self) -> None:
        super().__init__(lambda: wall_clock_ms() + self.off_ms)


async def test_a_worker_whose_clock_is_wrong_asks_for_ticks_instead_of_making_them_and_greets_all_the_same(
    worker: Worker,
) -> None:
    clock, topics = Wrong(), worker.host.topics
    timers = timers_of(worker, clock=clock)
    await timers.compare_clocks()
    ticks, partials = sent_to(worker, topics.ticks), sent_to(worker, topics.partials)

    for _ in range(ASK_EVERY):
        await timers.tick()

    assert timers.ticked_ms is None
    assert partials() == [1, 1, 1]
    compared, asked = log_of(worker).records[TP(topics.ticks, 1)][-2:]
    assert ticks() == [2, 2, 2]
    assert [said.ends for said in map(said_in, (compared, asked))] == [{}, {}]
    assert [said.asks for said in map(said_in, (compared, asked))] == [(), (0, 1, 2)]
    assert abs(said_in(asked).now_ms - wall_clock_ms()) < 60_000
    assert timers.words.startswith("clocks that agree: the clock of this machine is 1h ahead of that of the broker ")

    clock.off_ms = 0
    await timers.tick()
    assert ticks() == [3, 3, 3]
    assert said_in(log_of(worker).records[TP(topics.ticks, 1)][-1]).ends == {source_of(worker): 0}
    assert timers.words == ""


def said_in(record: Any) -> Tick:
    return decode(Tick, record.value or b"")


async def test_who_is_asked_for_ticks_makes_them_for_half_a_minute(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a partition that it does not have; one that there is not is passed over."""
    now_ms = wall_clock_ms()
    ticks = sent_to(worker, worker.host.topics.ticks)
    here = {TP(worker.host.topics.ticks, 2)}
    monkeypatch.setattr(worker.app.consumer, "assignment", lambda: here)
    monkeypatch.setattr(worker.host, "clock_ms", lambda: now_ms)
    monkeypatch.setattr(worker.host, "asked", {0: now_ms - ASKED_MS, 1: now_ms - ASKED_MS + 1, 7: now_ms})

    await timers_of(worker).tick()

    assert ticks() == [0, 1, 1]
