"""A machine that is too slow for a window of strict noise is refused before anything is made or counted."""

from __future__ import annotations

from itertools import count

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.operations.check import check_plan
from stream_dp.runtime import strict_noise
from stream_dp.runtime.capacity import Computing
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.settled import prepare
from tests.kinds.one_level import ONE_LEVEL
from tests.support.releasing import plan_of

STRICT = [name for name in ONE_LEVEL if name not in {"histogram truncated", "keys", "pure_topk"}]
SECONDS = 5


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every window takes so long."""
    ticks = count(step=SECONDS)
    monkeypatch.setattr("stream_dp.runtime.strict_noise.thread_time", lambda: next(ticks))


def started(name: str, offset: str) -> tuple[Plan, MemoryLog]:
    """A plan with that release.offset, and a broker that has its source only."""
    text = ONE_LEVEL[name].text("400")
    plan = plan_of(f"release: {{slot: 1s, offset: {offset}}}\n{text}")
    log = MemoryLog()
    for view in plan.views.values():
        log.create(view.source.topic, view.source.partitions)
    return plan, log


async def settle(plan: Plan, log: MemoryLog) -> None:
    await prepare(plan, MemoryClient(log), lambda: "0" * 16, backfill=True)


@pytest.mark.parametrize("name", STRICT)
async def test_windows_that_miss_their_slots_are_refused_before_anything_is_made(name: str, slow: None) -> None:
    """With the rest of a slot at most: a window that ends just behind one has that time besides the offset."""
    plan, log = started(name, "3s999ms")
    topics = dict(log.partitions)
    with pytest.raises(ConfigError) as raised:
        await settle(plan, log)
    (view,) = plan.views
    (fault,) = raised.value.faults
    assert fault.path == f"views.{view}"
    assert "takes 5 s to compute" in fault.message
    assert "leave it 4s999ms" in fault.message
    assert log.partitions == topics
    assert not any(log.records.values())


@pytest.mark.parametrize(("took_ms", "warned"), [(2000.0, False), (2001.0, True)])
def test_check_warns_where_a_window_takes_more_than_half_of_the_offset(
    monkeypatch: pytest.MonkeyPatch, took_ms: float, warned: bool
) -> None:
    """And says nothing of a number of keys, which changes nothing."""
    plan, _ = started("lookup", "4s")
    (view,) = plan.views
    measured = Computing(view=view, milliseconds_a_window=took_ms, is_constant=True)
    monkeypatch.setattr("stream_dp.operations.check.measure", lambda plan: [measured])
    monkeypatch.setattr("stream_dp.operations.check.rates", lambda plan, found: [])
    said = [words for words in check_plan(plan).on_this_machine if words.startswith(f"view {view}: ")]
    assert [words.partition(": ")[2] for words in said] == [
        "the noise of a window takes 2,001 ms, and release.offset is 4s. Raise release.offset to at least 2 times as "
        "much, or make the view smaller."
    ] * warned


def test_the_made_up_window_is_a_full_one() -> None:
    rows = {name: [view.kind.made_up_keys for view in started(name, "0s")[0].views.values()] for name in STRICT}
    assert rows == {"catalogue strict": [0], "histogram strict": [101], "lookup": [101]}


@pytest.mark.parametrize("name", STRICT)
async def test_windows_that_may_be_in_time_are_not_refused(name: str, slow: None) -> None:
    await settle(*started(name, "4s"))


async def test_no_window_is_made_up_where_the_time_depends_on_the_counts(slow: None) -> None:
    plan, log = started("pure_topk", "0s")
    assert [strict_noise.strict_seconds(view, {}) for view in plan.views.values()] == [None]
    await settle(plan, log)
