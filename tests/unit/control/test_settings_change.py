"""What new settings mean: from which window on they hold, what they cost, and every reason why they cannot."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.control.editions import Posted, editions, first_record, next_record, plan_holding, plan_of
from stream_dp.control.settings_change import LEAD_MS, Lasting, SettingsChange, Situation, boundary, propose, starved
from stream_dp.errors import ConfigError
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.published import VISITS
from tests.support.releasing import plan_of as plan_from
from tests.unit.cli.test_ledger import Office

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 20_000 * DAY + 9 * HOUR + 30 * MINUTE
"""Half past nine of a day."""
TODAY = 20_000 * DAY
EVENT = ("{size: 1d}", "{size: 1d, clock: event}")
WITHOUT = (VISITS[VISITS.index("  searches:\n    {source") :], "")
"""Takes a view out."""
Planner = Callable[..., Plan]


@pytest.fixture
def planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planner:
    """Plans the application about visits with some of its text replaced, each time it stands there."""
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)

    def plan(*changes: tuple[str, str]) -> Plan:
        text = VISITS
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        file = tmp_path / "visits.yaml"
        file.write_text(text, encoding="utf-8")
        return load_plan(file)

    return plan


class Desk:
    """Somebody who posts settings one after another, as the command does, at a time of day."""

    def __init__(self, plan: Plan, now_ms: int = NOW) -> None:
        self.now_ms = now_ms
        self.known: list[Posted] = [first_record(plan, now_ms)]

    def situation(self, plan: Plan, **more: object) -> Situation:
        return Situation(self.now_ms, plan_holding(self.known, plan), **more)  # type: ignore[arg-type]

    def asks(self, plan: Plan, *, from_ms: int | None = None, backfill: bool = False, **more: object) -> SettingsChange:
        before = plan_of(self.known[-1], plan)
        return propose(before, plan, self.situation(plan, **more), from_ms=from_ms, backfill=backfill)

    def posts(self, plan: Plan, *, from_ms: int | None = None) -> SettingsChange:
        found = self.asks(plan, from_ms=from_ms)
        found.check()
        self.known.append(next_record(self.known, plan, found.begins, found.ends, self.now_ms))
        return found


def reasons(found: SettingsChange) -> list[str]:
    return [str(fault) for fault in found.faults]


# -- from which window on -------------------------------------------------------------------------------------------


def test_a_change_begins_with_the_first_window_that_is_far_enough_ahead(planner: Planner) -> None:
    desk = Desk(planner())
    assert desk.asks(planner(("k: 3", "k: 4"))).begins == {"searches": TODAY + DAY}
    desk.now_ms = TODAY + DAY - LEAD_MS
    assert desk.asks(planner(("k: 3", "k: 4"))).begins == {"searches": TODAY + DAY}
    desk.now_ms += 1
    assert desk.asks(planner(("k: 3", "k: 4"))).begins == {"searches": TODAY + 2 * DAY}


@pytest.mark.parametrize("size", ["1h", "6h", "12h", "2d", "5d"])
def test_another_size_begins_where_a_former_window_ends_and_cuts_none(planner: Planner, size: str) -> None:
    before, after = planner(), planner(("window: {size: 1d}", f"window: {{size: {size}}}"))
    found = Desk(before).asks(after).begins
    for view in ("pages", "searches"):
        former, latter = before.views[view].window.shape, after.views[view].window.shape
        ahead = [at for at in range(TODAY, NOW + 12 * DAY, HOUR) if at >= NOW + LEAD_MS]
        expected = next(at for at in ahead if former.start_of(at) == at == latter.start_of(at))
        assert found[view] == expected


@pytest.mark.parametrize("one", [Tiling(6, 1), Tiling(4, 3), Tiling(10), Tiling(7, -5), Tiling(1)])
@pytest.mark.parametrize("other", [Tiling(9, 4), Tiling(6, 5), Tiling(4), Tiling(35, 2), Tiling(1)])
def test_common_starts_are_those_that_both_have_and_no_others(one: Tiling, other: Tiling) -> None:
    both = [at for at in range(-500, 500) if one.start_of(at) == at == other.start_of(at)]
    found = one.common(other)
    assert ([] if found is None else [at for at in range(-500, 500) if found.start_of(at) == at]) == both


def test_windows_that_never_meet_are_refused_with_the_remedy(planner: Planner) -> None:
    shifted = ("window: {size: 1d},", "window: {size: 1d, start: 2031-01-01T07:00:00Z},")
    moved = ("period: 10d", "period: 10d, start: 1970-01-01T07:00:00Z")
    found = Desk(planner()).asks(planner(shifted, moved))
    assert [fault.path for fault in found.faults] == ["views.pages.window", "views.searches.window"]
    assert "some would be cut; choose a size and a start so that they meet" in found.faults[0].message


def test_a_named_time_is_rounded_up_to_a_window_and_a_past_one_is_refused(planner: Planner) -> None:
    desk, after = Desk(planner()), planner(("k: 3", "k: 4"))
    assert desk.asks(after, from_ms=TODAY + 3 * DAY).begins == {"searches": TODAY + 3 * DAY}
    assert desk.asks(after, from_ms=TODAY + 3 * DAY + 1).begins == {"searches": TODAY + 4 * DAY}
    found = desk.asks(after, from_ms=NOW - 1)
    assert [fault.path for fault in found.faults] == ["views.searches"]
    assert "is past, its clock shows 2024-10-04T09:30:00Z" in found.faults[0].message
    assert found.begins == {}


def test_where_watermarks_move_the_clock_a_change_is_ahead_of_what_it_shows(planner: Planner) -> None:
    plan, after = planner(EVENT), planner(EVENT, ("k: 3", "k: 4"))
    desk = Desk(plan, now_ms=3 * DAY)
    desk.now_ms = NOW
    assert desk.asks(after, clocks={"searches": 5 * DAY}).begins == {"searches": 6 * DAY}
    silent = desk.asks(after)
    assert reasons(silent) == [
        "views.searches: watermarks move its clock, and no worker reports it; say when to begin: --from TIME"
    ]
    assert desk.asks(after, from_ms=8 * DAY).begins == {"searches": 8 * DAY}
    assert "is past" in reasons(desk.asks(after, from_ms=8 * DAY, clocks={"searches": 9 * DAY}))[0]


def test_a_view_that_nobody_counts_begins_behind_all_that_may_have_been_read(planner: Planner) -> None:
    """By the clock of its source, since its own stopped when it was taken out; `max_ahead` of it is a day."""
    plan, without = planner(EVENT), planner(WITHOUT, EVENT)
    desk = Desk(plan, now_ms=3 * DAY)
    desk.now_ms = NOW
    shown = {"pages": 5 * DAY, "searches": 5 * DAY}
    desk.known.append(next_record(desk.known, without, {}, {"searches": 6 * DAY}, NOW))
    assert desk.asks(plan, clocks=shown | {"pages": 9 * DAY}).begins == {"searches": 11 * DAY}
    assert desk.asks(plan, clocks=shown | {"pages": 9 * DAY - LEAD_MS}).begins == {"searches": 10 * DAY}


def test_a_view_that_is_put_back_begins_behind_its_former_end_though_clocks_are_told_late(planner: Planner) -> None:
    """Workers release up to the end, and may not have said yet that they came so far."""
    plan, without = planner(EVENT), planner(WITHOUT, EVENT)
    desk = Desk(plan, now_ms=3 * DAY)
    desk.now_ms = NOW
    shown = {"pages": 5 * DAY, "searches": 5 * DAY}
    desk.known.append(next_record(desk.known, without, {}, {"searches": 90 * DAY}, NOW))
    assert desk.asks(plan, clocks=shown).begins == {"searches": 90 * DAY}
    assert desk.asks(plan, clocks=shown | {"pages": 95 * DAY}).begins == {"searches": 97 * DAY}


def test_a_change_may_come_before_one_that_was_decided_and_takes_its_place(planner: Planner) -> None:
    desk = Desk(planner())
    desk.posts(planner(("k: 3", "k: 4")), from_ms=TODAY + 7 * DAY)
    assert desk.posts(planner(("k: 3", "k: 5"))).begins == {"searches": TODAY + DAY}
    held = [one for one in editions(desk.known) if one.view == "searches"]
    assert [(one.edition, one.settings, one.from_ms, one.until_ms, one.never_holds) for one in held] == [
        (1, 1, TODAY, TODAY + DAY, False),
        (2, 2, TODAY + 7 * DAY, TODAY + DAY, True),
        (3, 3, TODAY + DAY, None, False),
    ]


@pytest.mark.parametrize(
    ("from_days", "days"),
    [(1, 6), (5, 6), (6, 6), (7, 8)],
    ids=["before the pending size, whose windows it meets first", "where that begins", "behind", "later"],
)
def test_a_change_meets_the_windows_that_there_are_by_then(planner: Planner, from_days: int, days: int) -> None:
    """Of 5 days, from the fifth on of one day; windows of two days meet the former every ten days only."""
    days_of = "window: {size: 1d}"
    desk = Desk(planner((days_of, "window: {size: 5d}")))
    assert desk.posts(planner(), from_ms=TODAY + DAY).begins["pages"] == TODAY + 5 * DAY
    found = desk.asks(planner((days_of, "window: {size: 2d}")), from_ms=TODAY + from_days * DAY)
    assert found.begins == dict.fromkeys(("pages", "searches"), TODAY + days * DAY)


def test_a_view_that_was_taken_out_begins_again_whatever_its_former_windows_were(planner: Planner) -> None:
    desk = Desk(planner())
    desk.posts(planner(WITHOUT), from_ms=TODAY + DAY)
    desk.now_ms = TODAY + 2 * DAY + HOUR
    back = desk.asks(planner(("window: {size: 1d}", "window: {size: 6h}")))
    assert back.begins["searches"] == TODAY + 2 * DAY + 6 * HOUR


def test_a_view_that_is_to_be_taken_out_begins_again_behind_its_end_where_its_windows_never_meet_before(
    planner: Planner,
) -> None:
    days_of = "window: {size: 1d}"
    desk = Desk(planner((days_of, "window: {size: 5d}")))
    taken = desk.posts(planner(WITHOUT, (days_of, "window: {size: 5d}")), from_ms=TODAY + DAY)
    assert taken.ends == {"searches": TODAY + 5 * DAY}
    back = desk.asks(planner((days_of, "window: {size: 2d}")), from_ms=TODAY + DAY)
    assert back.begins["searches"] == TODAY + 6 * DAY


def test_a_view_that_is_taken_out_ends_with_a_window_and_begins_again_behind_it(planner: Planner) -> None:
    whole, less = planner(), planner(WITHOUT)
    desk = Desk(whole)
    taken = desk.posts(less, from_ms=TODAY + 3 * DAY)
    assert (taken.begins, taken.ends) == ({}, {"searches": TODAY + 3 * DAY})
    assert [(one.change, one.day_after) for one in taken.views] == [("removed", None)]
    desk.now_ms = TODAY + 5 * DAY + HOUR
    back = desk.posts(planner())
    assert (back.begins, back.ends) == ({"searches": TODAY + 6 * DAY}, {})
    held = [one for one in editions(desk.known) if one.view == "searches"]
    assert [(one.edition, one.from_ms, one.until_ms) for one in held] == [
        (1, TODAY, TODAY + 3 * DAY),
        (2, TODAY + 6 * DAY, None),
    ]


def test_a_new_view_begins_with_a_whole_window_or_where_it_says(planner: Planner) -> None:
    more = (
        "views:\n",
        'views:\n  ids:\n    {source: visits, item: id, kind: histogram, items_per_user: 1, delta: "1e-6",'
        " window: {size: 6h}, ledger: visitors, ladder: pages}\n",
    )
    wide = ('epsilon: "30"', 'epsilon: "60"')
    desk = Desk(planner(wide))
    assert desk.asks(planner(wide, more)).begins == {"ids": TODAY + 12 * HOUR}
    later = (more[0], more[1].replace("{size: 6h}", "{size: 6h, start: 2031-01-01T00:00:00Z}"))
    assert desk.asks(planner(wide, later)).begins == {"ids": 1_924_992_000_000}
    past = (more[0], more[1].replace("{size: 6h}", "{size: 6h, start: 2024-10-01T00:00:00Z}"))
    refused = desk.asks(planner(wide, past))
    assert [fault.path for fault in refused.faults] == ["views.ids.window.start"]
    assert (
        "apply it with --backfill; windows of what workers have read of the topic already are refused"
        in reasons(refused)[0]
    )
    filled = desk.asks(planner(wide, past), backfill=True)
    assert (filled.begins, filled.faults) == ({"ids": TODAY - 3 * DAY}, ())


# -- what it costs --------------------------------------------------------------------------------------------------


PAGES = "window: {size: 1d},\n     ledger: visitors, ladder: pages"


def test_a_day_costs_what_its_windows_cost_and_the_noise_is_told_level_by_level(planner: Planner) -> None:
    after = planner(
        (PAGES, PAGES.replace("1d", "6h")), ('coarse, epsilon: "1/3"', 'coarse, epsilon: "1/2"'), ("k: 3", "k: 4")
    )
    desk = Desk(before := planner())
    found = desk.asks(after)
    pages, searches = found.views
    # A day of pages is one window at fine, which is epsilon 1 and delta 1e-6; then it is four.
    assert pages.day_before == Cost(Fraction(1), Fraction(1, 10**6))
    assert pages.day_after == Cost(Fraction(4), Fraction(4, 10**6))
    was, becomes = (plan.views["searches"].cost(1) for plan in (before, after))
    assert (searches.day_before, searches.day_after) == (was, becomes)
    # 1 - 2 a^(m + 1) / (1 + a) is at least 0.95 from m = 9 on for a = exp(-1/3), and from m = 6 on for a = exp(-1/2).
    assert [(one.level, one.before, one.after) for one in pages.levels] == [
        ("coarse", 9, 6),
        ("fine", 3, 3),
        ("finest", 1, 1),
    ]
    (ledger,) = found.ledgers
    assert (ledger.day_before, ledger.day_after) == (pages.day_before + was, pages.day_after + becomes)
    assert ledger.lasts_before == Lasting(10 * DAY, None, is_whole=True)
    paid = next(n for n in range(100) if n + 1 + (n // 4 + 1) * becomes.epsilon > 30)
    assert ledger.lasts_after == Lasting(paid * 6 * HOUR, None, is_whole=False)


def test_a_week_long_window_has_a_seventh_of_its_price_a_day(planner: Planner) -> None:
    period = ("period: 10d", "period: 70d")
    weekly = (PAGES, PAGES.replace("1d", "7d"))
    wide = ('epsilon: "30"', 'epsilon: "300"')
    found = Desk(planner(period, wide)).asks(planner(period, wide, weekly))
    (pages,) = found.views
    assert pages.day_after == Cost(Fraction(1, 7), Fraction(1, 7 * 10**6))


def test_a_longer_window_of_the_same_panes_costs_the_same_and_its_counts_are_noisier(planner: Planner) -> None:
    """By convolution, 95 % of the noise of 6 and of 24 panes lies within these."""
    kind = (
        'kind: histogram, items_per_user: 1, delta: "1e-6"',
        "kind: catalogue, catalogue: [a, b], items_per_user: 1",
    )
    short, long = (PAGES.replace("{size: 1d}", f"{{size: {size}, pane: 1h}}") for size in ("6h", "24h"))
    (pages,) = Desk(planner(kind, (PAGES, short))).asks(planner(kind, (PAGES, long))).views
    assert pages.goes_on
    assert pages.day_before == pages.day_after == Cost(Fraction(24), Fraction(0))
    assert [(one.level, one.before, one.after) for one in pages.levels] == [
        ("coarse", 21, 41),
        ("fine", 7, 13),
        ("finest", 3, 6),
    ]


def test_what_the_ledger_says_is_left_is_what_lasts(planner: Planner) -> None:
    plan = planner()
    office = Office(plan)
    for number in range(2):
        office.release("pages", number)
        office.release("searches", number)
    desk = Desk(plan, now_ms=DAY + HOUR)
    desk.now_ms = 2 * DAY + HOUR
    after = planner(('epsilon: "1"}', 'epsilon: "4"}'), ('epsilon: "2"}', 'epsilon: "5"}'))
    (ledger,) = desk.asks(after, statements=[office.statement()]).ledgers
    assert ledger.lasts_before is not None
    assert (ledger.lasts_before.until_ms, ledger.lasts_before.is_whole) == (10 * DAY, True)
    # Left are 30 - 2 * (1 + s), s what a day of searches takes, of which 8 * s stay kept for searches.
    left = office.statement().left.epsilon - 8 * plan.views["searches"].cost(1).epsilon
    days = left // 4
    assert days < 8
    assert ledger.lasts_after is not None
    assert ledger.lasts_after.until_ms is not None
    assert ledger.lasts_after.until_ms // DAY == 2 + days
    assert ledger.lasts_after.for_ms == ledger.lasts_after.until_ms - desk.now_ms


DEAR = ("k: 3", "k: 3, share: SHARE"), ('selection: {epsilon: "1/10"', 'selection: {epsilon: "2"')


def test_a_price_that_other_views_would_pay_is_refused_and_they_are_named(planner: Planner) -> None:
    share, dear = DEAR
    desk = Desk(planner())
    refused = desk.asks(planner(dear))
    assert [fault.path for fault in refused.faults] == ["views.searches"]
    (words,) = reasons(refused)
    assert "it would take windows from other views of ledger visitors in every new period: 5 of 10 of pages; " in words
    for remedy in ((share[0], share[1].replace("SHARE", '"1/2"')), ('epsilon: "30"', 'epsilon: "600"')):
        assert desk.asks(planner(dear, remedy)).faults == ()
    cheaper = (dear[1], dear[1].replace("2", "1"))
    assert Desk(planner(dear)).asks(planner(dear, cheaper)).faults == (), "a view may become cheaper in any ledger"


def test_a_view_that_is_new_takes_nothing_from_the_others_either(planner: Planner) -> None:
    more = (
        "views:\n",
        'views:\n  ids: {source: visits, item: id, kind: histogram, items_per_user: 1, delta: "1e-6",'
        " window: {size: 1d}, ledger: visitors, ladder: pages}\n",
    )
    assert Desk(planner()).asks(planner(more)).faults == ()
    tight = ('epsilon: "30"', 'epsilon: "20"')
    refused = Desk(planner(tight)).asks(planner(tight, more))
    assert [fault.path for fault in refused.faults] == ["views.ids"]


HOURS = (
    "name: shop\nbroker: memory://\ndata_dir: state\nkey_file: key\nsources: {visits: {topic: visits, partitions: 1}}\n"
    'ledgers: {visitors: {population: visitors, epsilon: "EPSILON", delta: "0", period: 10h}}\n'
    'ladders:\n  half: [{level: all, epsilon: "1/2"}]\n'
    '  one: [{level: all, epsilon: "1"}]\n  nine: [{level: all, epsilon: "9"}]\n'
    "audiences: {public: all}\nviews:\n"
)
"""Periods of ten hours."""


def hours(epsilon: int, **views: tuple[str, str]) -> Plan:
    """Views, each with its ladder and the size of its windows."""
    lines = [
        f"  {name}: {{source: visits, item: page, kind: catalogue, catalogue: [a], items_per_user: 1, "
        f"ledger: visitors, ladder: {ladder}, window: {{size: {size}}}}}\n"
        for name, (ladder, size) in views.items()
    ]
    return plan_from("".join([HOURS.replace("EPSILON", str(epsilon)), *lines]))


ONE, HALF = ("one", "1h"), ("half", "1h")


def test_a_few_windows_that_cost_more_each_take_from_others_though_they_cost_less_together() -> None:
    (fault,) = starved(hours(10, pages=ONE, other=ONE), hours(10, pages=ONE, other=("nine", "10h")))
    assert fault.path == "views.other"
    assert "4 of 5 of pages" in fault.message


def test_what_others_do_not_have_today_nobody_takes_from_them() -> None:
    """Of ten windows in a period five are paid for: a renamed view changes nothing, nor do two that swap their prices.

    A budget that is raised may pay for more views instead of more windows.
    """
    tight = hours(10, pages=ONE, other=ONE)
    assert not [*starved(tight, hours(10, pages=ONE, renamed=ONE))]
    swapped = hours(10, pages=ONE, other=ONE, third=HALF), hours(10, pages=ONE, other=HALF, third=ONE)
    assert not [*starved(*swapped)]
    assert not [*starved(tight, hours(15, pages=ONE, other=ONE, third=ONE))]
    assert [*starved(tight, hours(14, pages=ONE, other=ONE, third=ONE))]
    assert [*starved(tight, hours(10, pages=ONE, renamed=("nine", "10h")))]


def test_a_view_that_begins_in_the_middle_of_a_period_is_paid_for_from_there_on(planner: Planner) -> None:
    budget = ('epsilon: "30"', 'epsilon: "22"')
    plan = planner(budget)
    office = Office(plan)
    for number in range(3):
        office.release("pages", number)
        office.release("searches", number)
    desk = Desk(plan, now_ms=HOUR)
    desk.now_ms = 3 * DAY + HOUR

    def lasts(share: str) -> Lasting | None:
        view = (
            'kind: histogram, items_per_user: 1, delta: "1e-6", window: {size: 1d}, ledger: visitors, ladder: pages, '
            f'share: "{share}"'
        )
        more = ("views:\n", f"views:\n  ids: {{source: visits, item: id, {view}}}\n")
        found = desk.asks(planner(budget, more), statements=[office.statement()])
        assert found.begins == {"ids": 4 * DAY}
        return found.ledgers[0].lasts_after

    # It has six windows of epsilon 1 in the period, of which 3/11 of 22 pay for all, and a little less for five.
    assert lasts("3/11") == Lasting(10 * DAY - desk.now_ms, 10 * DAY, is_whole=True)
    assert lasts("0.27") == Lasting(9 * DAY - desk.now_ms, 9 * DAY, is_whole=False)


def test_a_change_of_nothing_that_is_counted_or_noised_goes_on_with_what_is_stored(planner: Planner) -> None:
    desk = Desk(planner())
    same = desk.asks(planner(("staff: fine", "staff: coarse"), ("ladder: pages}", "ladder: pages, retention: 2d}")))
    assert {(one.view, one.goes_on) for one in same.views} == {("pages", True), ("searches", True)}
    for change in (("{size: 1d}", "{size: 1d, grace: 1m}"), ("items_per_user: 1", "items_per_user: 2")):
        assert {one.goes_on for one in desk.asks(planner(change)).views} == {False}


def test_the_history_with_a_proposal_is_a_plan_that_changes_at_its_windows(planner: Planner) -> None:
    desk = Desk(planner())
    desk.posts(planner(("k: 3", "k: 4")))
    desk.now_ms += DAY
    desk.posts(planner())
    plan = plan_holding(desk.known, planner())
    assert [(name, one.begins_ms, one.until_ms) for name, one in plan.views.items() if one.view == "searches"] == [
        ("searches", TODAY, TODAY + DAY),
        ("searches@2", TODAY + DAY, TODAY + 2 * DAY),
        ("searches@3", TODAY + 2 * DAY, None),
    ]


# -- what cannot be -------------------------------------------------------------------------------------------------


def test_sources_and_populations_change_only_while_no_worker_runs(planner: Planner) -> None:
    desk = Desk(planner())
    after = planner(("topic: visits", "topic: views"), ("population: visitors", "population: readers"))
    found = desk.asks(after, workers=True)
    assert [fault.path for fault in found.faults] == ["sources.visits", "ledgers.visitors.population"]
    assert "it differs from what the workers read, and they subscribe to topics when they start" in reasons(found)[0]
    assert desk.asks(after).faults == ()


def test_a_source_that_no_view_used_is_not_read_by_workers_that_run(planner: Planner) -> None:
    another = ("sources:\n", "sources:\n  clicks: {topic: clicks, partitions: 2}\n")
    moved = ("{source: visits, item: query", "{source: clicks, item: query")
    desk = Desk(planner(another))
    found = desk.asks(planner(another, moved), workers=True)
    assert [fault.path for fault in found.faults] == ["sources.clicks"]
    assert "it is read by no worker yet" in reasons(found)[0]


def test_a_source_of_a_view_that_was_taken_out_is_still_read(planner: Planner) -> None:
    another = ("sources:\n", "sources:\n  clicks: {topic: clicks, partitions: 2}\n")
    moved = ("{source: visits, item: query", "{source: clicks, item: query")
    without = (WITHOUT[0].replace(*moved), "")
    desk = Desk(planner(another, moved))
    desk.posts(planner(another, moved, without))
    assert desk.asks(planner(another, moved), workers=True).faults == ()


def test_every_reason_is_told_at_once(planner: Planner) -> None:
    past = (
        "views:\n",
        'views:\n  ids:\n    {source: visits, item: id, kind: histogram, items_per_user: 1, delta: "1e-6",'
        " window: {size: 6h, start: 2024-10-01T00:00:00Z}, ledger: visitors, ladder: pages}\n",
    )
    after = planner(past, ("population: visitors", "population: readers"), ("k: 3", "k: 4"))
    found = Desk(planner()).asks(after, workers=True, from_ms=NOW - DAY)
    assert [fault.path for fault in found.faults] == [
        "ledgers.visitors.population",
        "views.ids",
        "views.pages",
        "views.searches",
        "views.ids.window.start",
        "views.ids",
        "views.searches",
    ]
    with pytest.raises(ConfigError) as refused:
        found.check()
    assert len(refused.value.faults) == 7


def test_a_list_of_keys_that_changed_in_a_file_of_the_same_name_is_refused(planner: Planner, tmp_path: Path) -> None:
    listed = (
        'kind: histogram, items_per_user: 1, delta: "1e-6"',
        "kind: catalogue, catalogue: {file: keys.txt}, items_per_user: 1",
    )
    (tmp_path / "keys.txt").write_text("/1\n/2\n")
    desk = Desk(planner(listed))
    (tmp_path / "keys.txt").write_text("/1\n/2\n/3\n")
    with pytest.raises(ConfigError, match="give a new list a file of its own name"):
        desk.asks(planner(listed))
    (tmp_path / "more.txt").write_text("/1\n/2\n/3\n")
    (tmp_path / "keys.txt").write_text("/1\n/2\n")
    renamed = desk.asks(planner((listed[0], listed[1].replace("keys.txt", "more.txt"))))
    assert (renamed.begins, renamed.faults) == ({"pages": TODAY + DAY}, ())


def test_nothing_that_differs_means_nothing(planner: Planner) -> None:
    found = Desk(planner()).asks(planner(("{size: 1d}", "{size: 24h, grace: 300s}")))
    assert (found.settings, found.views, found.ledgers, found.faults, found.warnings) == ((), (), (), (), ())


def test_warnings_are_those_that_the_former_settings_had_not(planner: Planner) -> None:
    found = Desk(planner()).asks(planner(("period: 10d", "period: 30d")))
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("ledger visitors: budget too small")


def test_a_pool_that_comes_or_goes_is_warned_of(planner: Planner) -> None:
    """Periods that have begun keep what they have, so they refuse the windows that are charged otherwise."""
    pool = ("period: 10d", 'period: 10d, zcdp: {epsilon: "29", slack: "1e-4"}')
    come, gone = Desk(planner()).asks(planner(pool)), Desk(planner(pool)).asks(planner())
    assert come.warnings[0].startswith(
        "ledger visitors: a period that has begun has no pool, and refuses what is charged"
    )
    assert gone.warnings[0].startswith(
        "ledger visitors: a period that has begun has a pool, and refuses what is charged"
    )


def test_a_boundary_of_a_view_that_is_to_be_is_asked_for_alone(planner: Planner) -> None:
    desk, after = Desk(planner()), planner(("k: 3", "k: 4"))
    assert boundary(after.views["searches"], desk.situation(after)) == TODAY + DAY
