"""Every reason has a remedy in the words of the file, and shares are told coarsely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stream_dp.config.plan import Plan
from stream_dp.runtime.sources.findings import NO_FAULTS, OF_RECORDS, remedy, share_words
from tests.support.reasons import REASONS


@pytest.fixture
def plan(planned: Callable[..., Plan]) -> Plan:
    return planned()


@pytest.mark.parametrize("reason", sorted(REASONS - {"duplicate"}))
def test_every_reason_has_a_remedy(plan: Plan, reason: str) -> None:
    views = list(plan.views.values())
    words = remedy(reason, views[0].source, views)
    assert words[:1].islower()
    assert not words.endswith(".")
    assert reason in NO_FAULTS or "; " in words


def test_a_remedy_names_the_settings_that_it_is_about(plan: Plan) -> None:
    views = list(plan.views.values())
    source = views[0].source
    assert "views.destinations.window.grace, views.busiest.window.grace (1h, 5m)" in remedy("late", source, views)
    assert "views.destinations.items_per_user" in remedy("clipped", source, views)
    fields = remedy("missing_field", source, views[:1])
    assert "'tailnum' (sources.flights.user), 'time_hour' (sources.flights.time.field)" in fields
    assert "'dest' (views.destinations.item)" in fields
    assert "partitioner: crc32" in remedy("wrong_partition", source, views)
    assert "partitioner: murmur2" in remedy("wrong_partition", replace(source, partitioner="crc32"), views)


def test_a_backlog_is_named_before_the_unit_of_the_times_which_new_events_alone_put_in_doubt(plan: Plan) -> None:
    view = next(iter(plan.views.values()))
    backlog, _, unit = remedy("before_start", view.source, [view]).partition(". ")
    assert backlog.endswith("so a backlog is not counted; to release it, set window.start and begin with --backfill")
    assert unit == "If only new events are refused like this, correct sources.flights.time.unit"
    assert "time.unit" not in remedy("before_start", replace(view.source, time_field=None), [view])


def test_a_wrong_partition_is_the_same_for_every_view() -> None:
    assert OF_RECORDS <= REASONS


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (0, 0, "none"),
        (0, 9, "none"),
        (1, 1000, "some"),
        (99, 1000, "some"),
        (100, 1000, "about 10 %"),
        (149, 1000, "about 10 %"),
        (150, 1000, "about 20 %"),
        (333, 1000, "about 30 %"),
        (949, 1000, "about 90 %"),
        (950, 1000, "nearly all"),
        (1, 1, "nearly all"),
    ],
)
def test_a_share_is_told_coarsely(part: int, whole: int, words: str) -> None:
    assert share_words(part, whole) == words
