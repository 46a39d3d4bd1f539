"""Which editions a change of what is disclosed concerns: those whose windows may still be there, or are to come."""

from __future__ import annotations

from stream_dp.config.plan import Plan
from stream_dp.control.settings_change import Disclosed, Situation, former_editions
from tests.support.editions import holding
from tests.support.releasing import ONLY_PAGES, plan

AUDIENCES = "audiences: {partner: coarse, public: coarse, staff: middle}"
SHORT = ("retention: 1h", "retention: 5s")
BOUND = ("items_per_user: 1", "items_per_user: 2")
SHARPENED = ("buckets: 2", "buckets: 2\n    sharpen: {audience: staff, level: fine, every: 4s}")
FEWER = (AUDIENCES, "audiences: {partner: coarse, staff: coarse}")


def shop(*edits: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, SHORT, *edits)


def shown(now_ms: int, *begun: tuple[int, Plan]) -> list[tuple[str, int, int, int | None]]:
    before, after = holding(*begun[:-1]), holding(*begun)
    found = former_editions(Situation(now_ms, before), after)
    return [(one.view, one.edition, one.from_ms, one.until_ms) for one in found]


def test_every_edition_is_shown_whose_windows_may_be_retained_and_no_other() -> None:
    known = (0, shop()), (3, shop(BOUND)), (6, shop()), (8, shop(FEWER))
    first, second, third = ("pages", 1, 0, 3000), ("pages", 2, 3000, 6000), ("pages", 3, 6000, 8000)
    assert shown(8999, *known) == [first, second, third]
    assert shown(9000, *known) == [second, third], "its newest window began 7 s ago, and is kept 5 s"
    assert shown(12_000, *known) == [third]
    assert shown(60_000, (0, shop()), (3, shop(BOUND))) == []


def test_what_changes_is_said_of_audiences_sharpening_and_retention() -> None:
    before = holding((0, shop(SHARPENED)))
    after = holding((0, shop(SHARPENED)), (3, shop(FEWER, ("retention: 5s", "retention: 7s"))))
    (found,) = former_editions(Situation(0, before), after)
    assert found.changes == (
        Disclosed("audience public", "coarse", None),
        Disclosed("audience staff", "middle", "coarse"),
        Disclosed("sharpen", "staff to fine every 4s", None),
        Disclosed("retention", "5s", "7s"),
    )


def test_of_a_view_that_is_taken_out_everything_ends_but_its_retention() -> None:
    known = (0, plan(SHORT)), (3, plan(ONLY_PAGES, SHORT))
    (found,) = former_editions(Situation(0, holding(*known[:1])), holding(*known))
    assert (found.view, found.until_ms) == ("tops", 3000)
    assert [(one.what, one.after) for one in found.changes] == [
        ("audience partner", None),
        ("audience public", None),
        ("audience staff", None),
    ]
