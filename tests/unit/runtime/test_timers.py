"""The timers: who is told the time, who is greeted, and when they keep still."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from faust.types import TP

from stream_dp.runtime.fence import PartitionLostError
from stream_dp.runtime.memory import MemoryLog
from stream_dp.runtime.timers import HEARTBEAT, Timers, beat_seconds
from stream_dp.runtime.topics import COUNTS, MERGES, RELEASES
from stream_dp.runtime.worker import Worker

EVERY = [0, 1, 2]


def log_of(worker: Worker) -> MemoryLog:
    assert worker.app.memory_log is not None
    return worker.app.memory_log


def sent_to(worker: Worker, topic: str) -> Callable[[], list[int]]:
    """How many records each partition of a topic has got since this was called."""
    log = log_of(worker)
    before = [log.end(TP(topic, partition)) for partition in EVERY]
    return lambda: [log.end(TP(topic, partition)) - before[partition] for partition in EVERY]


async def test_tick_tells_the_time_to_every_partition_and_greets_each_once(worker: Worker) -> None:
    timers, topics = Timers(worker.app, worker.host), worker.host.topics
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
    assert abs(int(last.value or b"") - worker.host.clock_ms()) < 60_000
    greeting = log_of(worker).records[TP(topics.partials, 1)][-1]
    assert (greeting.key, greeting.value) == (HEARTBEAT, None)


async def test_renewal_finds_out_that_a_partition_has_another_owner(worker: Worker) -> None:
    timers, changelogs = Timers(worker.app, worker.host), worker.host.topics.changelog
    await timers.renew()
    await worker.app.claim(TP(changelogs(MERGES), 1))

    with pytest.raises(PartitionLostError, match=f"partition 1 of {changelogs(MERGES)} was taken over"):
        await timers.renew()


async def test_timers_send_nothing_during_a_rebalance(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    timers, topics = Timers(worker.app, worker.host), worker.host.topics
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

    await Timers(worker.app, worker.host).beat()

    assert [found() for found in sent] == [[1, 1, 1]] * 4
    assert counts() == [0, 0, 0]
    assert worker.tables[MERGES].rows(2).get(HEARTBEAT) is not None


@pytest.mark.parametrize(("erase_within_ms", "seconds"), [(20_000, 1.25), (900_000, 56.25), (10_000, 1.0)])
def test_four_beats_fall_into_a_segment(erase_within_ms: int, seconds: float) -> None:
    assert beat_seconds(erase_within_ms) == seconds
