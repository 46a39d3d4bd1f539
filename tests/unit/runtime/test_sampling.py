"""A sample is counted as a worker counts that reads the records as they come, or that finds them all at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.runtime.sources.sampling import Sample, Trial, count_sample
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.samples import sample_of

NOW = 1_790_000_000_000
DAY = 86_400_000


@pytest.fixture
def view(planned: Callable[..., Plan]) -> ViewPlan:
    """One view with windows of a day and an hour of grace, by the wall clock, whose first window is not configured."""
    made = planned().views["destinations"]
    window = replace(made.window, shape=Tiling(DAY), first_ms=None, clock="wall", grace_ms=3_600_000, max_ahead_ms=DAY)
    return replace(made, window=window, items_per_user=1)


def count(view: ViewPlan, sample: Sample, began_ms: int | None = None) -> Trial:
    return count_sample(view.source, [view], sample, {} if began_ms is None else {view.name: began_ms}, NOW)


def reasons(view: ViewPlan, trial: Trial) -> dict[str, int]:
    return {reason: len(places) for reason, places in trial.views[view.name].refused.items()}


MIDNIGHT = NOW - NOW % DAY - DAY
IN_TIME, LATE = (MIDNIGHT - 1, MIDNIGHT + 3_600_000 - 2000), (MIDNIGHT - 1, MIDNIGHT + 3_600_000 + 2000)


def test_events_are_late_that_were_written_when_the_grace_of_their_window_was_over(view: ViewPlan) -> None:
    early = [(MIDNIGHT - 1000, MIDNIGHT)] * 8
    trial = count(
        view, sample_of(view.source, *early, *[IN_TIME] * 8, *[LATE] * 8, *[(LATE[1], LATE[1])] * 8, *[LATE] * 8)
    )
    assert reasons(view, trial) == {"late": 16}
    assert trial.views[view.name].counted == 24
    assert not trial.faulty(view.name)


def test_a_view_that_begins_with_its_configured_start_finds_all_at_once(view: ViewPlan) -> None:
    started = replace(view, window=replace(view.window, first_ms=MIDNIGHT - DAY))
    sample = sample_of(view.source, *[(NOW, NOW)] * 8, *[LATE] * 8, *[(MIDNIGHT - DAY - 1, NOW)] * 3)
    trial = count(started, sample)
    assert trial.views[view.name].counted == 16
    assert reasons(view, trial) == {"before_start": 3}
    assert not trial.faulty(view.name)
    begun = count(started, sample, began_ms=MIDNIGHT - DAY)
    assert reasons(view, begun).keys() == {"late", "before_start"}


def test_events_ahead_of_their_records_are_a_fault(view: ViewPlan) -> None:
    trial = count(view, sample_of(view.source, *[(NOW, NOW)] * 5, *[(NOW + DAY + 1000, NOW)] * 7))
    assert reasons(view, trial) == {"future": 7}
    assert len(trial.faulty(view.name)) == 7


def test_records_ahead_of_this_machine_bear_its_time_at_most(view: ViewPlan) -> None:
    ahead = NOW + 3 * DAY
    trial = count(view, sample_of(view.source, *[(ahead, ahead)] * 5, *[(NOW - DAY // 2, ahead)] * 3))
    assert reasons(view, trial) == {"future": 5}
    assert trial.views[view.name].counted == 3


def test_watermarks_make_events_late_and_are_no_events(view: ViewPlan) -> None:
    by_events = replace(view, window=replace(view.window, clock="event"))
    acts = [(MIDNIGHT - 1, MIDNIGHT + 2 * DAY)] * 12
    mark = (MIDNIGHT + 3_600_000, 3)
    trial = count(by_events, sample_of(view.source, *acts, marks=(mark,)))
    assert reasons(view, trial) == {"late": 8}
    assert dict(trial.watermarks) == dict.fromkeys(range(view.source.partitions), 1)
    assert trial.events == 12
    assert reasons(view, count(by_events, sample_of(view.source, *acts))) == {}


# -- records without a timestamp, and times that nobody meant -------------------------------------------------------


def test_records_without_a_timestamp_are_judged_by_their_events(view: ViewPlan) -> None:
    """-1 is Kafka's "no timestamp": it says nothing about the unit of the times, nor when a record came."""
    times = [NOW - DAY, NOW - 2 * DAY, NOW - 3_600_000]
    trial = count(view, sample_of(view.source, *[(at, -1) for at in times] * 10), began_ms=MIDNIGHT - 10 * DAY)
    assert (trial.unit, trial.mistimed, trial.lags_ms) == ("", [], [])
    assert not trial.faulty(view.name)
    assert trial.views[view.name].counted == 30


def test_the_unit_of_times_is_found_without_timestamps(view: ViewPlan) -> None:
    trial = count(view, sample_of(view.source, *[(NOW // 1000 - at, -1) for at in range(30)]))
    assert (trial.unit, len(trial.mistimed)) == ("s", 30)


def test_a_record_without_any_time_has_a_reason_of_its_own(view: ViewPlan) -> None:
    untimed = replace(view, source=replace(view.source, time_field=None))
    trial = count(untimed, sample_of(untimed.source, *[(NOW, -1)] * 30))
    assert {reason: len(places) for reason, places in trial.refused.items()} == {"no_timestamp": 30}


def test_watermarks_in_a_wrong_unit_are_not_believed(view: ViewPlan) -> None:
    by_events = replace(view, window=replace(view.window, clock="event"))
    marks = tuple((number, 3) for number in (NOW // 1000, NOW * 1000, NOW * 1000 + 1, 10**30))
    trial = count(by_events, sample_of(view.source, *[(NOW - 1, NOW)] * 12, marks=marks))
    partitions = view.source.partitions
    assert trial.watermarks.total() == 0
    assert trial.bad_watermarks == {"seconds": partitions, "microseconds": 2 * partitions, "": partitions}
    assert trial.reached_ms is None
    assert trial.views[view.name].counted == 12


def test_one_odd_time_does_not_decide_where_a_view_begins(view: ViewPlan) -> None:
    odd = [(-(10**30), NOW), (10**30, NOW), (0, NOW)]
    trial = count(view, sample_of(view.source, *[(NOW - 1, NOW)] * 12, *odd))
    assert trial.views[view.name].counted == 12
    assert [one.span.events for one in trial.spread.outlying()] == [2, 1]
