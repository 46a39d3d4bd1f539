"""What a sample has that somebody should mend, and how clocks agree, in words."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest

from stream_dp.config.plan import Plan
from stream_dp.runtime.sources.findings import clocks, findings
from stream_dp.runtime.sources.sampling import Sample, count_sample
from stream_dp.windows.events import Partitioner
from tests.support.samples import sample_of

NOW = 1_790_000_000_000
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000


@pytest.fixture
def plan(planned: Callable[..., Plan]) -> Plan:
    return planned()


def told(plan: Plan, sample: Sample) -> tuple[list[str], list[tuple[str, str]]]:
    """What is said of clocks; path and message of every finding, but for missing watermarks."""
    views = list(plan.views.values())
    source = views[0].source
    trial = count_sample(source, views, sample, {}, NOW)
    found = [(one.path, one.message) for one in findings(source, views, trial, NOW, with_names=True)]
    return list(clocks(source, trial, NOW)), [one for one in found if "watermark" not in one[1]]


@pytest.mark.parametrize(
    ("time", "written", "said"),
    [
        (-5 * SECOND, 0, ["mostly agree with record times", "written just now"]),
        (
            -20 * SECOND,
            -10 * SECOND,
            ["are mostly about 10 seconds behind record times", "written about 10 seconds ago"],
        ),
        (-DAY, 0, ["are mostly about 1 day behind record times", "written just now"]),
        (DAY - SECOND, 0, ["are mostly about 1 day ahead of record times", "written just now"]),
        (-5 * HOUR, -3 * HOUR, ["are mostly about 2 hours behind record times", "written about 3 hours ago"]),
        (2 * DAY, 2 * DAY, ["mostly agree with record times", "is about 2 days ahead of this machine"]),
    ],
)
def test_how_far_the_clocks_are_apart_is_told_coarsely(plan: Plan, time: int, written: int, said: list[str]) -> None:
    source = plan.views["destinations"].source
    words, _ = told(plan, sample_of(source, *[(NOW + time, NOW + written)] * 30))
    assert len(words) == 2
    for one, expected in zip(words, said, strict=True):
        assert expected in one


def test_records_that_are_ahead_of_this_machine_are_found(plan: Plan) -> None:
    source = plan.views["destinations"].source
    _, found = told(plan, sample_of(source, *[(NOW + 2 * HOUR, NOW + 2 * HOUR)] * 30))
    assert found == [
        ("sources.flights", "the time of the newest record is about 2 hours ahead of this machine; set the clocks")
    ]


def test_an_empty_sample_says_nothing(plan: Plan) -> None:
    assert told(plan, Sample({})) == ([], [])


ONE = "their users are not in the partitions that partitioner murmur2 gives them"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (lambda users: [crc32(user) % 4 for user in users], f"{ONE}, but in those of crc32; set partitioner: crc32"),
        (
            lambda users: [len(user) % 4 for user in users],
            f"{ONE}, and neither murmur2 nor crc32 fits; let the producers use one of them",
        ),
    ],
)
def test_a_partitioner_that_does_not_fit_is_told_with_the_one_that_does(
    plan: Plan, place: Partitioner, said: str
) -> None:
    source = plan.views["destinations"].source
    _, found = told(plan, sample_of(source, *[(NOW, NOW)] * 120, place=place))
    assert found == [("sources.flights.partitioner", said)]


def test_times_in_microseconds_are_told_to_have_no_unit(plan: Plan) -> None:
    source = plan.views["destinations"].source
    _, found = told(plan, sample_of(source, *[(NOW * 1000, NOW)] * 30))
    assert found == [
        (
            "sources.flights.time.unit",
            "read as ms, their times are many years away from those of their records; read as microseconds, they "
            "agree; let the producers write ms; microseconds cannot be read",
        )
    ]


# -- history -----------------------------------------------------------------------------------------------------

NO_FIELD = (", time: {field: time_hour, unit: ms}", "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [],
            "with --backfill, those that are in the topic before the first start are counted, and no others. If such",
        ),
        (
            [("371d, start: 2013", "371d, start: 1970"), ("{size: 7d, start: 2013-01-01T00:00:00Z", "{size: 7d")],
            "windows begin with the first start, so they are not counted; to release history, set window.start. If",
        ),
    ],
)
def test_history_under_a_clock_of_the_wall_is_told(
    planned: Callable[..., Plan], changes: list[tuple[str, str]], said: str
) -> None:
    plan = planned(("clock: event", "clock: wall"), *changes)
    source = plan.views["destinations"].source
    _, found = told(plan, sample_of(source, *[(NOW - 100 * DAY, NOW)] * 30))
    messages = {path: message for path, message in found if path.endswith("window.clock")}
    assert set(messages) == {"views.destinations.window.clock", "views.busiest.window.clock"}
    assert all(said in message and "set clock: event" in message for message in messages.values())
    assert not [path for path, _ in told(plan, sample_of(source, *[(NOW, NOW)] * 30))[1] if path.endswith("clock")]


@pytest.mark.parametrize(("unit", "time"), [("ms", NOW - 400 * DAY), ("s", (NOW - 400 * DAY) // 1000), ("iso", None)])
def test_a_forgotten_time_is_told_by_the_field_that_looks_like_one(
    planned: Callable[..., Plan], unit: str, time: int | None
) -> None:
    plan = planned(NO_FIELD)
    source = plan.views["destinations"].source
    written: object = "2025-08-18T13:33:20Z" if time is None else time
    _, found = told(plan, sample_of(source, *[(written, NOW)] * 30))  # type: ignore[arg-type]
    assert found == [
        (
            "sources.flights.time",
            "no time field is set, so the time of the record is used; field 'time_hour' looks like a time, "
            f"mostly about 1 year before it. If events happened then, set time: {{field: time_hour, unit: {unit}}}",
        )
    ]
    live = sample_of(source, *[(NOW - SECOND, NOW)] * 30)
    assert told(plan, live)[1] == []


# -- times that nobody meant -------------------------------------------------------------------------------------


def all_told(plan: Plan, sample: Sample, *, with_names: bool = True) -> list[tuple[str, str]]:
    """Path and message of every finding."""
    views = list(plan.views.values())
    source = views[0].source
    trial = count_sample(source, views, sample, {}, NOW)
    return [(one.path, one.message) for one in findings(source, views, trial, NOW, with_names=with_names)]


def test_unit_of_watermarks_is_reported(plan: Plan) -> None:
    source = plan.views["destinations"].source
    found = all_told(plan, sample_of(source, *[(NOW - 1, NOW)] * 30, marks=((NOW // 1000, 3),)))
    assert any(path == "sources.flights" and "look like seconds" in words for path, words in found)


def test_outlying_times_are_reported_by_offset_to_operators(plan: Plan) -> None:
    source = plan.views["destinations"].source
    sample = sample_of(source, *[(NOW - 1, NOW)] * 30, (NOW - 5000 * DAY, NOW))
    (message,) = [words for _, words in all_told(plan, sample) if "far before the others" in words]
    (place,) = [(one.partition, one.offset) for one in sample if one.key == b"u30"]
    assert f"partition {place[0]} offset {place[1]}" in message
    assert not any("far before" in words for _, words in all_told(plan, sample, with_names=False))


def test_records_without_timestamp_are_reported(plan: Plan) -> None:
    source = plan.views["destinations"].source
    words, found = told(plan, sample_of(source, *[(NOW - 1, -1)] * 30))
    assert (words, found) == (["the records have no timestamp"], [])
