"""Before a worker starts: sources are there, topics are made, and every worker agrees where windows begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.crosschecks import OWNERS_TOPIC
from stream_dp.config.plan import Plan
from stream_dp.errors import ClockError, ConfigError, Fault
from stream_dp.runtime.clock import CLOCK_BOUND_MS
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.control_topic import read_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.settled import prepare
from stream_dp.testing import plan_from
from stream_dp.windows.effects import Message
from tests.support.clocks import WrongClock

KEY_ID = "0" * 16
START = ", start: 2024-01-01T00:00:00Z"
START_MS = 1_704_067_200_000
TWO_SOURCES = (
    "sources:\n",
    "sources:\n  clicks: {topic: NAME.clicks, partitions: 3, user: user, time: {field: at}}\n",
)
TWO_VIEWS = (
    "views:\n",
    "views:\n  NAME-clicks: {kind: histogram, source: clicks, item: page, items_per_user: 1, window: {size: 2m}, "
    'delta: "1e-4", ledger: visitors, ladder: standard}\n',
)


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    """Two sources, two views whose first window is not configured."""
    return plan_from(visits(TWO_SOURCES, TWO_VIEWS, (START, "")), tmp_path)


@pytest.fixture
def log(plan: Plan) -> MemoryLog:
    made = MemoryLog()
    for view in plan.views.values():
        made.create(view.source.topic, view.source.partitions)
    return made


def written(log: MemoryLog) -> dict[str, int]:
    """How many records stand in each topic; the claims of the topics themselves left out."""
    return {
        tp.topic: len(records) for tp, records in log.records.items() if records and not tp.topic.endswith(OWNERS_TOPIC)
    }


def starts_of(settled: Settled) -> dict[str, int]:
    return {view.view: view.begins_ms for view in settled.plan.views.values()}


def names(plan: Plan) -> list[str]:
    return [view.name for view in plan.views.values()]


async def test_topics_are_made_and_the_first_windows_begin_at_full_sizes(plan: Plan, log: MemoryLog) -> None:
    starts = starts_of(await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: 1_700_000_123_456))

    assert starts == dict(zip(names(plan), (1_700_000_040_000, 1_700_000_100_000), strict=True))
    assert {spec.name: spec.partitions for spec in Topics.of(plan).all(plan)}.items() <= log.partitions.items()


async def test_later_starts_find_what_the_first_one_settled(plan: Plan, log: MemoryLog) -> None:
    first = await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: 1_700_000_123_456)
    later = await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: 1_800_000_000_000)

    assert later == first
    assert written(log) == {Topics.of(plan).control: 3}, "the settings, the verdict on them, and that they are used"


async def test_a_configured_start_is_where_the_first_window_begins(visits: Callable[..., str], tmp_path: Path) -> None:
    plan = plan_from(visits(), tmp_path)
    log = MemoryLog()
    (view,) = plan.views.values()
    log.create(view.source.topic, 3)

    assert starts_of(await prepare(plan, MemoryClient(log), lambda: KEY_ID, backfill=True)) == {
        view.name: 1_704_067_200_000
    }


async def test_of_two_workers_that_start_at_once_the_first_in_the_log_settles_it_for_both(
    plan: Plan, log: MemoryLog
) -> None:
    """Each finds no settings, then both post their file: another worker's record gets in before the slower one's."""

    class Racing(MemoryClient):
        async def publish(self, records: Iterable[Message]) -> list[int | None]:
            listed = list(records)
            if not raced and any(record.topic == Topics.of(plan).control for record in listed):
                raced.append(await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: 1_700_000_123_456))
            return await super().publish(listed)

    raced: list[Any] = []
    settled = await prepare(plan, Racing(log), lambda: KEY_ID, now_ms=lambda: 1_700_009_999_999)

    assert settled == raced[0]
    assert set(starts_of(settled).values()) == {1_700_000_040_000, 1_700_000_100_000}


async def test_every_fault_of_the_sources_is_told_at_once_and_nothing_is_created(plan: Plan) -> None:
    missing, narrow = (view.source for view in plan.views.values())
    log = MemoryLog()
    log.create(narrow.topic, 2)

    with pytest.raises(ConfigError) as caught:
        await prepare(plan, MemoryClient(log), lambda: KEY_ID)

    assert caught.value.faults == (
        Fault(
            "sources.clicks.topic",
            f"the broker has no topic {missing.topic}; create it with 3 partitions, or write history: `stream-dp feed "
            "FILE clicks --from EVENTS` creates the topic",
        ),
        Fault("sources.visits.partitions", f"topic {narrow.topic} has 2, not 3"),
    )
    assert log.partitions == {narrow.topic: 2}


async def test_foreign_and_withdrawn_records_of_the_control_topic_are_no_settings(plan: Plan, log: MemoryLog) -> None:
    control = Topics.of(plan).control
    log.create(control, 1)
    log.append(control, 0, b"grant/partner", b'{"type":"grant"}')
    log.append(control, 0, b"settings/1/x", None)
    log.append(control, 0, None, b"?")

    starts = starts_of(await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: 1_700_000_123_456))

    assert set(starts) == set(names(plan))


async def test_the_first_start_of_a_view_asks_before_it_releases_windows_that_are_over_and_later_ones_do_not(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    plan, log = plan_from(visits(), tmp_path), MemoryLog()
    (view,) = plan.views.values()
    log.create(view.source.topic, 3)
    now = START_MS + 10 * 60_000

    with pytest.raises(ConfigError) as caught:
        await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: now)
    assert [fault.path for fault in caught.value.faults] == [f"views.{view.name}.window.start"]
    assert "so 9 windows are over already" in caught.value.faults[0].message
    assert log.partitions == {view.source.topic: 3}

    begun = await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: now, backfill=True)
    assert starts_of(begun) == {view.name: START_MS}
    assert await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: now + 10**9) == begun


async def test_the_first_start_of_a_view_in_its_first_window_asks_nothing(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    plan, log = plan_from(visits(), tmp_path), MemoryLog()
    (view,) = plan.views.values()
    log.create(view.source.topic, 3)

    starts = starts_of(await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: START_MS + 69_999))

    assert starts == {view.name: START_MS}


@pytest.mark.parametrize(("off_ms", "words"), [(3_600_000, "1h ahead of"), (-300_000, "5m behind")])
async def test_a_first_start_by_a_wrong_clock_settles_nothing(
    plan: Plan, log: MemoryLog, off_ms: int, words: str
) -> None:
    client, ahead = MemoryClient(log), WrongClock(off_ms)
    with pytest.raises(ClockError, match=f"the clock of this machine is {words} .*; set the clocks and start again"):
        await prepare(plan, client, lambda: KEY_ID, now_ms=ahead, clock_bound_ms=CLOCK_BOUND_MS)
    assert await read_accepted(plan, client) == []

    await prepare(plan, client, lambda: KEY_ID, clock_bound_ms=CLOCK_BOUND_MS)
    assert len(await read_accepted(plan, client)) == 1
    await prepare(plan, client, lambda: KEY_ID, now_ms=ahead, clock_bound_ms=CLOCK_BOUND_MS)  # it has begun
