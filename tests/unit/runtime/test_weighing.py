"""A bound that leaves out much is weighed against the noise of a higher one, with the numbers of the sample."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.runtime.embedded import LogRecord
from stream_dp.runtime.factory import partitioner
from stream_dp.runtime.sources.sampling import Sample, Taken, count_sample
from stream_dp.runtime.sources.survey import weighed
from stream_dp.windows.durations import parse_time
from tests.support.chosen import ordinarily

Planner = Callable[..., Plan]
NOW = parse_time("2013-01-20T00:00:00Z")
EVENT_MS = parse_time("2013-01-16T00:00:00Z")


def said(plan: Plan, view: ViewPlan, users: int, items: int) -> str:
    """What is said where each of some users has each of some items, in one window."""
    place = partitioner(view.source)
    assert place is not None
    found: defaultdict[int, list[LogRecord]] = defaultdict(list)
    for number in range(users * items):
        user = b"u%d" % (number // items)
        value = {"tailnum": user.decode(), "dest": f"D{number % items}", "time_hour": EVENT_MS}
        (at,) = place([user])
        found[at].append(LogRecord("flights", at, len(found[at]), user, json.dumps(value).encode(), EVENT_MS))
    sample = Sample(dict(found))

    def count(one: ViewPlan) -> Taken:
        return count_sample(one.source, [one], sample, {}, NOW).views[one.name]

    return weighed(plan, view, count(view), count)


SIDE = (
    "With items_per_user: {}, {} % of the contributions are dropped. At level detailed the error of a count is "
    "up to {} (95 %), and keys are shown from {} on. In this sample, {} keys of a window reach {}; the largest count "
    "is {}"
)


@pytest.mark.parametrize(
    ("users", "now", "then", "verdict"),
    [
        (
            10,
            (4, 22, 0),
            (15, 88, 0),
            "Neither shows a key of this sample: take more records (--sample=N)",
        ),
        (
            40,
            (4, 22, 5),
            (15, 88, 0),
            "Keep it, unless windows are much larger than this sample: a higher value would hide keys",
        ),
    ],
)
def test_both_sides_are_told_with_what_to_do(
    planned: Planner, users: int, now: tuple[int, ...], then: tuple[int, ...], verdict: str
) -> None:
    plan = planned()
    words = said(plan, plan.views["destinations"], users, 20)
    sides = [
        SIDE.format(bound, percent, noise, least, keys, least, users)
        for bound, percent, (noise, least, keys) in ((5, 75, now), (20, 0, then))
    ]
    assert words == f"{'. '.join(sides)}. {verdict}"


@pytest.mark.parametrize("users", ordinarily(2, [100, 400, 2000]))
def test_a_higher_bound_is_advised_only_where_no_audience_loses_keys(planned: Planner, users: int) -> None:
    """Against what the plan says itself of each level."""
    plan = planned()
    view = plan.views["destinations"]
    higher = planned(("items_per_user: 5\n    window: {size: 7d, start: 2013-01-01T00:00:00Z, grace", HIGHER)).views[
        "destinations"
    ]
    words = said(plan, view, users, 20)
    least = [(view.kind.least_shown(at) or 0, higher.kind.least_shown(at) or 0) for at in view.audiences.values()]
    shown = [(5 * (users >= now), 20 * (users >= then)) for now, then in sorted(least, reverse=True)]
    now, then = next(one for one in shown if one[0])
    assert ("Keep it" in words, "Raise it to 20" in words) == (then < now, then > now)


HIGHER = "items_per_user: 20\n    window: {size: 7d, start: 2013-01-01T00:00:00Z, grace"


def test_without_a_threshold_counts_are_compared_with_the_noise(planned: Planner) -> None:
    plan = planned()
    words = said(plan, plan.views["busiest"], 100, 20)
    assert "5 keys of a window are above the noise; the largest count is 100. With items_per_user: 20, " in words
    assert " shown from " not in words


def test_a_bound_that_cannot_be_planned_is_told_with_the_reason(planned: Planner) -> None:
    plan = planned(('epsilon: "0.25"', 'epsilon: "0.0075"'))
    assert "10 is not possible: level 'overview' has epsilon 3/400" in said(plan, plan.views["destinations"], 40, 20)
