"""The windows that are over when a view begins: counted, priced, and asked about."""

from __future__ import annotations

import pytest

from stream_dp.config.forecast import backlog_faults, closed, covered, withdrawal_faults, withdrawn
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.windows.durations import parse_time
from tests.support.releasing import plan_of

DAY_MS = 86_400_000
BEGAN_MS = parse_time("2013-01-01T00:00:00Z")
TEXT = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "3", delta: "1/5", period: 7d, start: 2012-12-30T00:00:00Z}
ladders:
  one: [{level: coarse, epsilon: "1/2"}, {level: fine, epsilon: "1"}]
audiences: {public: coarse, staff: fine}
views:
  pages:
    source: visits
    item: page
    kind: catalogue
    catalogue: [home, cart]
    items_per_user: 1
    window: {size: 1d, start: 2013-01-01T00:00:00Z, grace: 1h}
    ledger: visitors
    ladder: one
"""
START = ", start: 2013-01-01T00:00:00Z"


def pages(*changes: tuple[str, str]) -> tuple[Plan, ViewPlan]:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    plan = plan_of(text)
    return plan, plan.views["pages"]


@pytest.mark.parametrize(
    ("after_ms", "count"),
    [(-DAY_MS, 0), (0, 0), (DAY_MS + 3_599_999, 0), (DAY_MS + 3_600_000, 1), (10 * DAY_MS, 9), (10 * DAY_MS + 1, 9)],
)
def test_a_window_is_over_when_its_grace_is(after_ms: int, count: int) -> None:
    _, view = pages()
    assert closed(view, BEGAN_MS + after_ms) == count


def test_a_view_without_a_start_begins_now_and_has_no_windows_behind_it() -> None:
    plan, view = pages((START, ""))
    assert closed(view, BEGAN_MS + 1000 * DAY_MS) == 0
    assert not [*backlog_faults(plan, ["pages"], BEGAN_MS + 1000 * DAY_MS)]


@pytest.mark.parametrize("epsilon", ["3", "7", "100"])
def test_what_the_ledger_pays_for_is_counted_period_by_period(epsilon: str) -> None:
    """Against counting one window after another. The first period has five days of the view."""
    _, view = pages(('epsilon: "3"', f'epsilon: "{epsilon}"'))
    shape, periods = view.window.shape, view.ledger.periods
    paid: dict[int, int] = {}
    for count in range(40):
        assert covered(view, count) == sum(min(number, int(epsilon)) for number in paid.values())
        period = periods.start_of(shape.next(BEGAN_MS, count))
        paid[period] = paid.get(period, 0) + 1


def test_every_view_that_would_begin_is_told_of_with_its_windows_their_cost_and_the_ways_out() -> None:
    plan, _ = pages()
    (fault,) = backlog_faults(plan, ["pages"], parse_time("2013-01-20T12:00:00Z"))
    assert str(fault) == (
        "views.pages.window.start: the first window began 2013-01-01T00:00:00Z, so 19 windows are over already; they "
        "would be released at once, empty or not, and charged epsilon 19 and delta 0 at worst to ledger visitors, "
        "which pays for 9 of them if nothing is spent and the view is alone. Where that is meant, start once with "
        "--backfill, after the history is in the topic (`stream-dp feed`); else write a later start, or none: then the "
        "view begins with the window of its first start"
    )
    assert not [*backlog_faults(plan, [], parse_time("2013-01-20T12:00:00Z"))]


def test_a_clock_of_watermarks_only_puts_it_off() -> None:
    plan, _ = pages(("grace: 1h", "grace: 1h, clock: event, idle: 5m"))
    (fault,) = backlog_faults(plan, ["pages"], parse_time("2013-01-02T12:00:00Z"))
    assert "so 1 window is over already" in fault.message
    assert (
        "released as watermarks pass them; without watermarks for 5m, as fast as the wall clock, empty" in fault.message
    )


@pytest.mark.parametrize(
    ("retention", "now", "gone"),
    [("1d", "2013-01-20T12:00:00Z", 17), ("17d", "2013-01-20T12:00:00Z", 1), ("18d", "2013-01-20T12:00:00Z", 0)],
)
def test_what_would_be_withdrawn_at_once_is_told_with_the_retention_that_keeps_it(
    retention: str, now: str, gone: int
) -> None:
    plan, view = pages(("items_per_user: 1", f"items_per_user: 1\n    retention: {retention}"))
    now_ms = parse_time(now)
    starts = [BEGAN_MS + number * DAY_MS for number in range(closed(view, now_ms))]
    assert withdrawn(view, now_ms) == sum(start + view.window.kept_ms < starts[-1] for start in starts) == gone
    faults = [str(one) for one in withdrawal_faults(plan, ["pages"], now_ms)]
    assert faults == [
        f"views.pages.retention: {gone} of 19 windows that are over would be withdrawn as soon as they are released, "
        f"and stay paid for: a window is withdrawn when one is released that begins more than {retention} (retention) "
        "later; write retention: 18d or more, or a later window.start"
    ] * bool(gone)
    (asked,) = backlog_faults(plan, ["pages"], now_ms)
    assert (f" {gone} of them would be withdrawn at once: a window is" in asked.message) is bool(gone)
    assert not [*withdrawal_faults(plan, [], now_ms)]


def test_of_windows_that_only_watermarks_close_as_many_are_withdrawn_as_the_stream_closes() -> None:
    changes = (("items_per_user: 1", "items_per_user: 1\n    retention: 1d"), ("grace: 1h", "grace: 1h, clock: event"))
    now_ms, end_ms = parse_time("2026-01-01T00:00:00Z"), parse_time("2013-01-20T12:00:00Z")
    plan, _ = pages(*changes)
    (soon,) = withdrawal_faults(plan, ["pages"], now_ms, end_ms)
    assert "4,745 of 4,747 windows" in soon.message
    plan, _ = pages(*changes, ("clock: event", "clock: event, idle: 36500d"))
    (last,) = withdrawal_faults(plan, ["pages"], now_ms, end_ms)
    assert "17 of 19 windows" in last.message
    assert not [*withdrawal_faults(plan, ["pages"], now_ms)]
    (asked,) = backlog_faults(plan, ["pages"], now_ms)
    assert "withdrawn" not in asked.message
