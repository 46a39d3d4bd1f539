"""The release engine on windows that are made of panes: panes are charged once, windows are sums that cost nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dp.accounting import Cost
from stream_dp.control.grant_records import Scope
from stream_dp.records.history import History
from stream_dp.records.models import Refusal, Release
from stream_dp.releases import panes
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.publication import extent_of
from stream_dp.releases.rows import WINDOW
from stream_dp.windows.encoding import text, window_start
from tests.support.chosen import spread
from tests.support.given import there
from tests.support.laplace_laws import half_width
from tests.support.machine import newest
from tests.support.panes import COUNTS, PaneOracle, give_all, newest_windows, paned, said
from tests.support.releasing import COARSE, FINE, MIDDLE, Desk

SECONDS = range(0, 8000, 1000)
COUNTED = {start: COUNTS[start // 1000] for start in SECONDS}


def spent(desk: Desk) -> Cost:
    return sum((ledger.spent for ledger in read_ledgers(desk.machine.rows.items()).values()), Cost.ZERO)


def found(desk: Desk, audience: str) -> dict[tuple[int, int], dict[str, object]]:
    """What holds of every window."""
    return {window: said(record) for window, record in newest_windows(desk.records("pages", audience)).items()}


def windows(size: int, step: int, until: int = 8) -> list[tuple[int, int]]:
    """Start and end of the windows that end at a step and have all their panes, in ms."""
    ends = range(step, until + 1, step)
    return [(1000 * (end - size), 1000 * end) for end in ends if end >= size]


@pytest.mark.parametrize(("size", "step"), [(3, 1), (4, 2), (3, 2), (2, 2)])
def test_a_window_of_panes_is_the_sum_of_its_panes_at_each_step_and_costs_nothing_more(size: int, step: int) -> None:
    desk = Desk(paned(size, step))
    give_all(desk, SECONDS)
    view = desk.plan.views["pages"]
    for audience, level in view.audiences.items():
        oracle = PaneOracle(view, dict.fromkeys(SECONDS, level), COUNTED)
        expected = {(start, end): oracle.window(range(start, end, 1000)) for start, end in windows(size, step)}
        assert found(desk, audience) == expected
        assert {record.revision for record in desk.records("pages", audience)} == {1}
    assert spent(desk) == view.cost(view.start_level) * 8


# -- grants and refusals, cut anywhere ------------------------------------------------------------------------------

SCARCE = paned(3, 1, ('epsilon: "40"', 'epsilon: "9"'))
"""A period of four panes pays for all of them at the start, 8, and for no pane that is sharpened to fine, 2 more."""
LIMITED = paned(3, 1, ('epsilon: "40"', 'epsilon: "7"'), ("staff: middle", "staff: fine"))
"""A period pays for one pane, 4, and no other."""
AMPLE = paned(3, 1)


def play(desk: Desk) -> Desk:
    """Eight panes; grants behind the fourth, for one that began coarse, and behind the last."""
    give_all(desk, SECONDS[:4])
    desk.grant(5, "public", "middle")
    give_all(desk, SECONDS[4:6])
    desk.grant(6, "partner", "fine")
    give_all(desk, SECONDS[6:])
    desk.grant(7, "public", "fine")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


RUNS = {name: play(Desk(plan)) for name, plan in (("ample", AMPLE), ("scarce", SCARCE))}


def test_a_grant_charges_each_pane_once_and_publishes_every_window_again_that_got_finer() -> None:
    desk = RUNS["ample"]
    view = desk.plan.views["pages"]
    for audience, level in (("public", FINE), ("partner", FINE), ("staff", MIDDLE)):
        oracle = PaneOracle(view, dict.fromkeys(SECONDS, level), COUNTED)
        expected = {(start, end): oracle.window(range(start, end, 1000)) for start, end in windows(3, 1)}
        assert found(desk, audience) == expected
    assert spent(desk) == view.cost(FINE) * 8
    revisions = {
        window: [
            (record.revision, record.level.name)
            for record in desk.records("pages", "public")
            if (record.window.start_ms, record.window.end_ms) == window
        ]
        for window in windows(3, 1)
    }
    assert revisions == {
        **{key: [(1, "coarse"), (2, "middle"), (3, "fine")] for key in windows(3, 1, 4)},
        **{key: [(1, "middle"), (2, "fine")] for key in [(2000, 5000), (3000, 6000), (4000, 7000), (5000, 8000)]},
    }
    ledgers = read_ledgers(desk.machine.rows.items()).values()
    assert [dict(ledger.readers) for ledger in ledgers] == [
        {"public": view.cost(FINE) * 4, "partner": view.cost(FINE) * 4, "staff": view.cost(MIDDLE) * 4}
    ] * 2


def test_a_record_says_what_the_noise_and_the_cost_of_all_panes_are() -> None:
    desk = RUNS["ample"]
    view = desk.plan.views["pages"]
    for record in desk.records("pages", "public"):
        assert isinstance(record, Release)
        level = next(level for level in view.levels if level.name == record.level.name)
        assert record.panes == 3
        assert record.noise_interval_95 == level.interval_of(3) > level.noise_interval
        assert record.noise_interval_95 == half_width(there(record.noise.ratio).value, 3)
        assert there(record.level.epsilon).exact == str(3 * level.epsilon)
        assert record.privacy.window.cost.epsilon >= 3 * level.epsilon
        assert record.privacy.period.cost.epsilon <= 4 * view.levels[FINE].epsilon
        assert record.ledger.period.end_ms >= record.window.end_ms > record.ledger.period.start_ms


def test_what_a_period_cannot_pay_for_stays_coarse_and_each_window_says_so_once_for_a_grant() -> None:
    """Of four panes at middle, 8 of 9 are spent: no pane can be had at fine, and the next period's are charged at
    fine from the start as long as they fit: two, 8, and the others are refused."""
    desk = RUNS["scarce"]
    view = desk.plan.views["pages"]
    levels = {**dict.fromkeys(SECONDS[:4], COARSE), **dict.fromkeys(SECONDS[4:6], FINE)}
    oracle = PaneOracle(view, levels, COUNTED)
    holding = found(desk, "partner")
    assert holding.keys() == {*windows(3, 1)}
    for window, record in holding.items():  # the loss grew after the record of a window with both
        expected = oracle.window(range(*window, 1000))
        assert {**record, "loss": None} == {**expected, "loss": None}
    refusals = [record for record in desk.records("pages", "partner") if isinstance(record, Refusal)]
    assert {record.reason for record in refusals} == {"budget"}
    assert {(record.revision, record.refuses, record.final) for record in refusals} == {
        (2, "sharpening", False),
        (1, "window", True),
    }
    assert [(record.window.start_ms, record.revision) for record in refusals] == [
        *((start, 2) for start in (0, 1000, 2000, 3000)),
        (4000, 1),
        (5000, 1),
    ]


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(3, 30, 3))])
@pytest.mark.parametrize(
    "whole", [pytest.param(RUNS["ample"], marks=pytest.mark.slow), RUNS["scarce"]], ids=["ample", "scarce"]
)
def test_a_run_of_panes_that_is_cut_ends_with_the_rows_and_the_records_of_an_uncut_one(whole: Desk, first: int) -> None:
    for cut in range(first, whole.machine.points, 29):
        cuts = [cut, *([3] if cut % 4 else [])]
        desk = play(Desk(whole.plan, cuts=cuts, back=5 * (cut % 3 // 2), compacts=cut % 8 > 3))
        assert desk.machine.rows == whole.machine.rows
        assert newest(desk.published()) == newest(whole.published())
        assert newest_windows(desk.records("pages", "public")) == newest_windows(whole.records("pages", "public"))


@pytest.mark.parametrize("cut", spread(3, [None, *range(7, 120, 13)]))
def test_a_window_follows_whichever_of_its_panes_became_finer_last(cut: int | None) -> None:
    """A grant makes the later panes finer, and then one the earlier: windows of both are as fine as all their panes."""
    desk = Desk(paned(3, 1, ('epsilon: "40"', 'epsilon: "400"')))
    give_all(desk, SECONDS[:6])
    desk.grant(1, "public", "fine", scope=Scope(from_ms=3000))
    assert {
        window: said(record)["level"] for window, record in newest_windows(desk.records("pages", "public")).items()
    } == {
        (0, 3000): "coarse",
        (1000, 4000): "coarse",
        (2000, 5000): "coarse",
        (3000, 6000): "fine",
    }
    desk.machine.cut_after = cut
    desk.grant(2, "public", "fine", scope=Scope(until_ms=3000))
    oracle = PaneOracle(desk.plan.views["pages"], dict.fromkeys(SECONDS, FINE), COUNTED)
    assert found(desk, "public") == {window: oracle.window(range(*window, 1000)) for window in windows(3, 1, 6)}
    assert spent(desk) == desk.plan.views["pages"].cost(FINE) * 6
    desk.machine.cut_after = None
    before = newest(desk.published())
    desk.reader.restart()
    assert newest(desk.published()) == before


def test_a_window_follows_a_pane_that_was_a_window_by_itself_when_it_was_released() -> None:
    """By its age that is unlocked before the others are; a grant has made these as fine."""
    aging = (
        ('epsilon: "40"', 'epsilon: "400"'),
        ("public: coarse", "public: {level: coarse, unlock: [{level: fine, after: 10s}]}"),
    )
    desk = Desk(paned(1, 1, *aging))
    give_all(desk, SECONDS[:2])
    desk.change(paned(3, 1, *aging))
    give_all(desk, SECONDS[2:4])
    desk.grant(1, "public", "fine", scope=Scope(from_ms=1000))

    def levels() -> dict[tuple[int, int], object]:
        return {at: said(record)["level"] for at, record in newest_windows(desk.records("pages", "public")).items()}

    assert levels() == {(0, 1000): "coarse", (1000, 2000): "fine", (0, 3000): "coarse", (1000, 4000): "fine"}
    desk.tell(11_000)
    assert levels() == dict.fromkeys([(0, 1000), (1000, 2000), (0, 3000), (1000, 4000)], "fine")


# -- panes that are not there ---------------------------------------------------------------------------------------


def test_a_pane_that_was_refused_or_lost_makes_the_windows_with_it_refusals_with_its_reason() -> None:
    for desk, reason, gone in (
        (Desk(LIMITED, audit=False), "budget", [start for start in SECONDS if start % 4000]),
        (Desk(AMPLE, audit=False, unknown_before={"pages": 2000}), "lost", [0, 1000]),
    ):
        give_all(desk, SECONDS)
        for record in desk.records("pages", "staff"):
            of = range(record.window.start_ms, record.window.end_ms, 1000)
            lacking = set(of) & set(gone)
            assert isinstance(record, Refusal) == bool(lacking)
            if isinstance(record, Refusal):
                assert (record.reason, record.refuses, record.final) == (reason, "window", True)
                one = desk.plan.views["pages"].cost(FINE).epsilon
                assert record.requested.cost.epsilon == (3 * one if reason == "budget" else 0)
        assert [record.window.start_ms for record in desk.records("pages", "staff")] == [*SECONDS[:6]]


def test_a_view_goes_on_with_windows_of_another_size_and_step_without_a_charge_or_a_new_draw() -> None:
    """What was published stays, and is sharpened, as the windows that it was published as."""
    desk = Desk(paned(2, 2))
    fingerprint = desk.plan.views["pages"].fingerprint
    give_all(desk, SECONDS[:4])
    for plan, seconds in ((paned(3, 1), SECONDS[4:6]), (paned(1, 1), SECONDS[6:7]), (paned(4, 4), SECONDS[7:])):
        desk.change(plan)
        assert plan.views["pages"].fingerprint == fingerprint
        give_all(desk, seconds)
    desk.grant(1, "public", "fine")
    expected = [(0, 2000), (2000, 4000), (2000, 5000), (3000, 6000), (6000, 7000), (4000, 8000)]
    oracle = PaneOracle(desk.plan.views["pages"], dict.fromkeys(SECONDS, FINE), COUNTED)
    assert found(desk, "public") == {window: oracle.window(range(*window, 1000)) for window in expected}
    keys = {message.key for message in desk.published() if message.topic.endswith("public")}
    assert len(keys) == len(expected)
    history = History()
    for record in desk.records("pages", "public"):
        assert history.take(record) is not None
    assert {
        start: said(seen.release) for start, seen in history.windows("pages", "public").items() if seen.release
    } == {start: oracle.window(range(start, end, 1000)) for start, end in sorted(expected)}
    assert spent(desk) == desk.plan.views["pages"].cost(FINE) * 8


def test_panes_are_kept_as_long_as_a_retained_window_needs_them_and_no_longer() -> None:
    desk = Desk(paned(3, 1, ("retention: 1h", "retention: 2s")))
    give_all(desk, SECONDS)
    kept = sorted(
        window_start(WINDOW, "pages", key) for key in desk.machine.rows if key.startswith(WINDOW + text("pages"))
    )
    assert kept == [3000, 4000, 5000, 6000, 7000]
    desk.grant(1, "public", "fine")
    last = {window: said(record)["level"] for window, record in newest_windows(desk.records("pages", "public")).items()}
    assert [level for _, level in sorted(last.items())] == ["coarse"] * 3 + ["fine"] * 3


def test_an_audience_that_came_later_gets_the_windows_of_which_it_may_have_every_pane() -> None:
    buckets = "retention: 1h\n    buckets: 2"
    desk = Desk(paned(3, 1, (buckets, f"{buckets}\n    audiences: [public, staff]")))
    give_all(desk, SECONDS[:5])
    before = spent(desk)
    desk.change(AMPLE)
    assert spent(desk) == before
    oracle = PaneOracle(desk.plan.views["pages"], dict.fromkeys(SECONDS, COARSE), COUNTED)
    assert found(desk, "partner") == {w: oracle.window(range(*w, 1000)) for w in windows(3, 1, 5)}
    desk.change(paned(3, 1, ("partner: coarse", "partner: fine")))
    assert found(desk, "partner") == {w: oracle.window(range(*w, 1000)) for w in windows(3, 1, 5)}


@pytest.mark.parametrize("left_over", [0, 3, 5])
def test_state_that_was_lost_is_found_by_the_windows_of_panes_and_charged_at_worst(left_over: int) -> None:
    """The changelog lost what came behind so many panes. Readers have windows with the last two of those that are left:
    for all that is known, these were sharpened as well."""
    left = Desk(AMPLE, audit=False)
    give_all(left, SECONDS[:left_over])
    desk = Desk(AMPLE, audit=False, accepts_loss=True)
    give_all(desk, SECONDS)
    published = [*desk.machine.sent]
    desk.machine.rows.clear()
    desk.machine.rows.update(left.machine.rows)
    desk.machine.changelog[:] = left.machine.rows.items()
    desk.machine.sent[:] = published
    desk.reader.restart()
    view, intact = desk.plan.views["pages"], max(0, left_over - 2)
    assert spent(desk) == view.cost(view.start_level) * intact + view.cost(FINE) * (8 - intact)


def test_a_window_is_as_fine_as_its_coarsest_pane_until_a_grant_makes_that_finer() -> None:
    """A clearance that is raised in the file holds for panes to come. The windows across get finer with the grant,
    though their last pane has the level already."""
    desk = Desk(paned(3, 1))
    give_all(desk, SECONDS[:4])
    desk.change(paned(3, 1, ("public: coarse", "public: fine")))
    give_all(desk, SECONDS[4:])
    view = desk.plan.views["pages"]
    oracle = PaneOracle(view, {**dict.fromkeys(SECONDS[:4], COARSE), **dict.fromkeys(SECONDS[4:], FINE)}, COUNTED)
    assert found(desk, "public") == {w: oracle.window(range(*w, 1000)) for w in windows(3, 1)}
    assert oracle.window(range(3000, 6000, 1000))["level"] == "coarse"
    desk.grant(1, "public", "fine")
    oracle = PaneOracle(view, dict.fromkeys(SECONDS, FINE), COUNTED)
    assert found(desk, "public") == {w: oracle.window(range(*w, 1000)) for w in windows(3, 1)}
    assert spent(desk) == view.cost(FINE) * 8


def test_what_is_remembered_of_panes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panes, "REMEMBERED", 5)
    desk = play(Desk(AMPLE))
    assert newest(desk.published()) == newest(RUNS["ample"].published())
    assert desk.machine.rows == RUNS["ample"].machine.rows


def test_a_window_is_of_the_edition_that_holds_for_its_last_pane() -> None:
    """Where the size changes, the first window of the new size reaches back over panes of the edition before."""
    view = paned(3, 1).views["pages"].begun(0)
    view = replace(view, editions=(*view.editions, view.as_edition(2, 4000)))
    found = [
        (extent_of(view, start, 3)["edition"], extent_of(view, start, 3)["window"].end_ms) for start in SECONDS[:4]
    ]
    assert found == [(1, 3000), (1, 4000), (2, 5000), (2, 6000)]
