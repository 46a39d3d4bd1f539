"""What comes later, in the configuration: schedules, what they cost, and every fault in them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.explanation import describe
from stream_dp.config.plan import SharpenPlan, Unlock
from stream_dp.config.planner import load_plan
from stream_dp.config.shares import Shares, asked
from stream_dp.errors import ConfigError
from stream_dp.windows.shapes.shape import Interval
from tests.support.panes import CATALOGUE
from tests.support.releasing import COARSE, DELTA, FINE, MIDDLE, ONLY_PAGES, SHOP, plan

PUBLIC = "public: coarse"
SCHEDULE = "public: {level: coarse, unlock: [{level: middle, after: 1m}, {level: fine, after: 1h}]}"
RETENTION = "retention: 1h\n    buckets: 2"


@pytest.fixture
def faults(tmp_path: Path) -> Callable[..., list[str]]:
    """The faults of a shop with one view and some of its text replaced."""

    def found(*changes: tuple[str, str]) -> list[str]:
        text = SHOP
        for old, new in (ONLY_PAGES, *changes):
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "shop.yaml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_plan(file, {})
        return [str(fault) for fault in caught.value.faults]

    return found


def test_an_audience_has_a_schedule_and_a_view_may_have_another() -> None:
    view = plan((PUBLIC, SCHEDULE)).views["pages"]
    assert view.audiences == {"partner": COARSE, "public": COARSE, "staff": MIDDLE}
    assert view.unlocks == {"public": (Unlock(MIDDLE, 60_000), Unlock(FINE, 3_600_000))}
    assert (view.start_level, view.planned_level) == (MIDDLE, FINE)
    own = f"{RETENTION}\n    unlock: {{public: [], partner: [{{level: middle, after: 5s}}]}}"
    views = plan((PUBLIC, SCHEDULE), (RETENTION, own)).views
    assert views["pages"].unlocks == {"partner": (Unlock(MIDDLE, 5000),)}
    assert views["tops"].unlocks == view.unlocks


def test_a_schedule_is_in_no_fingerprint() -> None:
    sharpen = f"{RETENTION}\n    sharpen: {{audience: staff, level: fine, every: 1m}}"
    changed = plan((PUBLIC, SCHEDULE), (RETENTION, sharpen))
    assert {v.fingerprint for v in changed.views.values()} == {v.fingerprint for v in plan().views.values()}


def test_every_window_is_reckoned_at_the_last_level_of_the_schedule(faults: Callable[..., list[str]]) -> None:
    before, view = plan(ONLY_PAGES).views["pages"], plan(ONLY_PAGES, (PUBLIC, SCHEDULE)).views["pages"]
    assert asked(before, Interval(0, 4000)) == Cost(Fraction(4 * 2), 4 * DELTA)
    assert asked(view, Interval(0, 4000)) == Cost(Fraction(4 * 4), 4 * DELTA)
    assert Shares.of(view.ledger.budget, Interval(0, 4000), [view]).kept["pages"] == asked(view, Interval(0, 4000))
    (ledger,) = describe(plan(ONLY_PAGES, (PUBLIC, SCHEDULE))).ledgers
    assert (ledger.shares[0].level, ledger.shares[0].cost.epsilon.exact) == ("fine", "4")
    (short,) = describe(plan(ONLY_PAGES, (PUBLIC, SCHEDULE), ('epsilon: "40"', 'epsilon: "8"'))).ledgers
    assert (short.affords_schedule, short.lasts) == (False, "2s")
    assert faults((PUBLIC, SCHEDULE), ('epsilon: "40"', 'epsilon: "3"'))[0].startswith(
        "views.pages.ledger: ledger 'visitors' affords no window: one costs epsilon 4"
    )


def test_check_says_what_comes_later_and_what_one_window_costs() -> None:
    sharpen = f'{RETENTION}\n    sharpen: {{audience: staff, level: fine, reserve: "1/4", every: 1m}}'
    (view,) = describe(plan(ONLY_PAGES, (PUBLIC, SCHEDULE))).views
    assert view.unlocks == {
        "public": "public sees middle 1m, fine 1h after the end of a window. The ledger reserves the cost "
        "of all unlocks for every window, epsilon 2 more than at the start."
    }
    assert view.sharpening is None
    (view,) = describe(plan(ONLY_PAGES, (RETENTION, sharpen))).views
    assert view.sharpening == (
        "Every 1m, leftover budget of ledger visitors sharpens the newest windows of staff to level fine, "
        "at epsilon 2 more per window than middle. Reserved: 1/4 of the budget and the cost of windows to "
        "come."
    )
    planned = plan(ONLY_PAGES, (RETENTION, sharpen)).views["pages"].sharpen
    assert planned == SharpenPlan("staff", FINE, Fraction(1, 4), 60_000)


def test_every_fault_of_a_schedule_is_listed(faults: Callable[..., list[str]]) -> None:
    wrong = (
        "{level: middle, unlock: [{level: coarse, after: 5m}, {level: finest, after: 5m}, {level: fine, after: 2h}]}"
    )
    assert faults((PUBLIC, f"public: {wrong}")) == [
        "audiences.public.unlock[0].level: view pages: 'coarse' is not finer than 'middle' before it",
        "audiences.public.unlock[1].level: view pages: ladder 'three' has no level 'finest'; did you mean 'fine'?",
        "audiences.public.unlock[1].after: view pages: 5m is not later than the 5m before it",
        "audiences.public.unlock[2].after: view pages: 2h is longer than its retention, 1h; lower `after`, or raise "
        "the retention",
    ]
    own = f"{RETENTION}\n    audiences: [public]\n    unlock: {{staff: [], public: [{{level: coarse, after: 1m}}]}}"
    assert faults((RETENTION, own)) == [
        "views.pages.unlock.staff: does not read the view; known: public",
        "views.pages.unlock.public[0].level: 'coarse' is not finer than 'coarse' before it",
    ]
    assert faults((PUBLIC, "public: {level: coarse, unlok: []}")) == [
        "audiences.public.unlok: unknown key; did you mean 'unlock'?"
    ]
    assert faults((PUBLIC, "public: {level: coarse, unlock: [{level: fine, afetr: 1m}]}")) == [
        "audiences.public.unlock[0].after: is required",
        "audiences.public.unlock[0].afetr: unknown key; did you mean 'after'?",
    ]
    assert faults((PUBLIC, "public: 7")) == [
        "audiences.public: must be the level it starts with, or `level` and `unlock`"
    ]


def test_every_fault_of_what_is_done_with_what_is_left_is_listed(faults: Callable[..., list[str]]) -> None:
    def said(settings: str) -> list[str]:
        return faults((RETENTION, f"{RETENTION}\n    sharpen: {settings}"))

    assert said("{audience: stuff, level: finest, every: 2h}") == [
        "views.pages.sharpen.audience: 'stuff' does not read the view; did you mean 'staff'?",
        "views.pages.sharpen.level: ladder 'three' has no such level; did you mean 'fine'?",
        "views.pages.sharpen.every: 2h is longer than the view's retention, 1h; write less",
    ]
    assert said("{audience: staff, level: middle, every: 1m}") == [
        "views.pages.sharpen.level: 'middle' is not finer than 'middle', which staff has"
    ]
    assert said('{audience: staff, level: fine, reserve: "1", every: 1m}') == [
        'views.pages.sharpen.reserve: must be below 1, as "1/4"'
    ]
    assert said("{audience: staff, level: fine, evry: 1m}") == [
        "views.pages.sharpen.every: is required",
        "views.pages.sharpen.evry: unknown key; did you mean 'every'?",
    ]


def test_what_is_left_is_not_spent_on_windows_with_panes(faults: Callable[..., list[str]]) -> None:
    sharpen = f"{RETENTION}\n    sharpen: {{audience: staff, level: fine, every: 1m}}"
    (fault,) = faults(*CATALOGUE[1:], ("{size: 1s,", "{size: 2s, pane: 1s,"), (RETENTION, sharpen))
    assert fault.startswith("views.pages.sharpen: cannot be combined with `window.pane`")
