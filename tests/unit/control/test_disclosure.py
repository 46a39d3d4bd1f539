"""Which level of a former ladder a level of today comes to, and what holds for every edition."""

from __future__ import annotations

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.editions import level_indices
from tests.support.editions import holding
from tests.support.releasing import COARSE, FINE, MIDDLE, ONLY_PAGES, plan

NOTHING = -1
LADDER = '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]'
AUDIENCES = "audiences: {partner: coarse, public: coarse, staff: middle}"
BUCKETS = "retention: 1h\n    buckets: 2"
BOUND = ("items_per_user: 1", "items_per_user: 2")


def shop(*edits: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, *edits)


def ladder(*levels: tuple[str, str]) -> tuple[str, str]:
    return LADDER, "[" + ", ".join(f'{{level: {name}, epsilon: "{epsilon}"}}' for name, epsilon in levels) + "]"


@pytest.mark.parametrize(
    ("now", "wanted", "comes_to"),
    [
        ((("coarse", "1"), ("middle", "3"), ("fine", "9")), "middle", MIDDLE),
        ((("coarse", "1"), ("middle", "3"), ("fine", "9")), "fine", FINE),
        ((("low", "1"), ("high", "3")), "low", COARSE),
        ((("low", "1"), ("high", "3")), "high", MIDDLE),
        ((("low", "1/2"), ("high", "3")), "low", NOTHING),
        ((("coarse", "1"), ("between", "5"), ("fine", "9")), "between", MIDDLE),
        ((("coarse", "1"), ("beyond", "10")), "beyond", FINE),
        ((("coarse", "1"), ("fine", "2"), ("finest", "3")), "finest", MIDDLE),
        ((("middle", "1"), ("fine", "2")), "coarse", COARSE),
    ],
)
def test_a_level_is_found_by_its_name_else_it_is_no_finer_in_cost_and_in_order(
    now: tuple[tuple[str, str], ...], wanted: str, comes_to: int
) -> None:
    audiences = (AUDIENCES, f"audiences: {{public: {now[0][0]}}}")
    found = level_indices(shop().views["pages"], shop(ladder(*now), audiences).views["pages"])
    assert found[wanted] == comes_to


def definitions(*begun: tuple[int, Plan]) -> list[ViewPlan]:
    return [*holding(*begun).views.values()]


def test_the_newest_disclosure_holds_for_every_definition() -> None:
    unlocked = (AUDIENCES, "audiences: {public: {level: coarse, unlock: [{level: fine, after: 1m}]}, staff: middle}")
    sharpened = (BUCKETS, f"{BUCKETS}\n    sharpen: {{audience: staff, level: fine, every: 50s}}")
    kept = ("retention: 1h", "retention: 2h")
    first, second = definitions((0, shop()), (3, shop(BOUND, unlocked, sharpened, kept)))
    for one in (first, second):
        assert one.audiences == {"public": COARSE, "staff": MIDDLE}
        assert [(step.level, step.after_ms) for step in one.unlocks["public"]] == [(FINE, 60_000)]
        assert one.sharpen is not None
        assert (one.sharpen.audience, one.sharpen.level) == ("staff", FINE)
        assert one.window.retention_ms == 7_200_000
        assert {*one.readers} == {"partner", "public", "staff"}
        assert not one.is_removed


def test_steps_that_come_to_one_level_of_a_former_ladder_are_one_step() -> None:
    now = ladder(("coarse", "1"), ("some", "5/2"), ("more", "3"), ("most", "5"))
    steps = "[{level: some, after: 1m}, {level: more, after: 2m}, {level: most, after: 3m}]"
    unlocked = (AUDIENCES, f"audiences: {{public: {{level: coarse, unlock: {steps}}}}}")
    first, _ = definitions((0, shop()), (3, shop(now, unlocked)))
    assert [(step.level, step.after_ms) for step in first.unlocks["public"]] == [(MIDDLE, 60_000), (FINE, 180_000)]


def test_nothing_is_sharpened_by_what_is_left_where_that_comes_to_no_finer_level() -> None:
    now = ladder(("coarse", "1"), ("some", "5/2"))
    sharpened = (BUCKETS, f"{BUCKETS}\n    sharpen: {{audience: staff, level: some, every: 50s}}")
    fewer = (AUDIENCES, "audiences: {public: coarse, staff: coarse}")
    first, second = definitions((0, shop()), (3, shop(now, sharpened, fewer)))
    assert first.sharpen is not None
    assert first.sharpen.level == MIDDLE
    assert second.sharpen is not None
    raised = ladder(("coarse", "1"), ("middle", "2"), ("some", "5/2"))
    first, _ = definitions((0, shop()), (3, shop(raised, sharpened)))
    assert first.sharpen is None, "staff has middle, and some comes to middle"


def test_a_view_that_was_taken_out_keeps_its_audiences_for_its_last_windows_and_nothing_else() -> None:
    unlocked = (AUDIENCES, "audiences: {public: {level: coarse, unlock: [{level: fine, after: 1m}]}, staff: middle}")
    last = plan(("\n  pages:\n", "\n  clicks:\n"), (AUDIENCES, "audiences: {staff: middle}"), ONLY_PAGES)
    holds = holding((0, shop(unlocked)), (3, last))
    pages = holds.views["pages"]
    assert pages.is_removed
    assert (pages.audiences, pages.unlocks, pages.sharpen) == ({}, {}, None)
    assert pages.at(0).audiences == {"staff": MIDDLE}
    assert (pages.start_level, pages.planned_level) == (MIDDLE, MIDDLE)
    assert not holds.views["clicks"].is_removed


def test_it_is_the_same_from_the_log_wherever_it_is_worked_out() -> None:
    known = (0, shop()), (3, shop(BOUND)), (5, shop())
    assert holding(*known) == holding(*known)
    assert [one.name for one in definitions(*known)] == ["pages", "pages@2", "pages@3"]


def test_audience_joined_with_the_settings_that_last_added_it() -> None:
    """A change of its level does not count, nor how many settings a worker took up at once."""
    without = (AUDIENCES, "audiences: {public: coarse, staff: middle}")
    raised = (AUDIENCES, "audiences: {partner: middle, public: coarse, staff: middle}")
    known = [(0, shop()), (3, shop(without)), (5, shop()), (7, shop(raised))]
    accepted_ms = {0: 10, 3: 20, 5: 30, 7: 40}
    joined = {"public": 10, "staff": 10}
    assert holding(*known[:2], accepted_ms=accepted_ms).joined_ms["pages"] == {**joined, "partner": 10}
    assert holding(*known, accepted_ms=accepted_ms).joined_ms["pages"] == {**joined, "partner": 30}
    assert holding(*known, accepted_ms=accepted_ms).disclosed_ms["pages"]["partner"] == 40
