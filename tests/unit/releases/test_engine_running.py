"""The release engine on windows of which a total is told at the end of every pane: one charge, few noisy blocks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from stream_dp.control.grant_records import Order
from stream_dp.records.models import Release
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing, PrfKey
from stream_dp.releases.rows import BLOCK, BUCKET, WINDOW, AudienceState
from stream_dp.windows.encoding import text, window_start
from tests.support.given import there
from tests.support.laplace_laws import half_width
from tests.support.machine import newest
from tests.support.releasing import COARSE, FINE, MIDDLE, Desk, buckets_of
from tests.support.running import (
    first_of,
    give_panes,
    kept_blocks,
    newest_totals,
    refusals,
    running,
    spent,
    terms,
    total,
)

STARTS = range(0, 12000, 1000)
COUNTS: Mapping[int, Mapping[str, int]] = {
    start: {"home": 40 + n * n, "cart": 12 - n, "rare": n % 2, "unlisted": 7} for n, start in enumerate(STARTS)
}
give = partial(give_panes, counts=COUNTS)
AMPLE = running()
NAMES = ["coarse", "middle", "fine"]


def expected(desk: Desk, levels: Mapping[int, int]) -> dict[int, tuple[str, dict[str, int]]]:
    """What an audience should have, by the level of every pane."""
    view = desk.plan.views["pages"]
    return {start: (NAMES[level], total(view, start, level, COUNTS)) for start, level in levels.items()}


# -- what is told ----------------------------------------------------------------------------------------------------


def test_the_total_at_the_end_of_every_pane_is_the_sum_of_its_blocks_and_a_window_is_charged_once() -> None:
    desk = Desk(AMPLE)
    paid = []
    for start in STARTS:
        give(desk, starts=[start])
        paid.append(spent(desk))
    view = desk.plan.views["pages"]
    for audience, level in view.audiences.items():
        assert newest_totals(desk, audience) == expected(desk, dict.fromkeys(STARTS, level))
        assert {record.revision for record in desk.records("pages", audience)} == {1}
    once = view.cost(view.start_level)
    assert paid == [once] * 6 + [once * 2] * 6
    (ledger,) = read_ledgers(desk.machine.rows.items()).values()
    assert dict(ledger.readers) == {name: view.cost(level) * 2 for name, level in view.audiences.items()}
    assert [(entry.window.start_ms, entry.window.end_ms) for entry in desk.entries()] == [(0, 6000), (6000, 12000)]


def test_a_record_says_which_panes_it_is_about_and_what_the_noise_of_its_blocks_is() -> None:
    desk = Desk(AMPLE, audit=False)
    give(desk, starts=STARTS)
    view = desk.plan.views["pages"]
    for record, start in zip(desk.records("pages", "staff"), STARTS, strict=True):
        assert isinstance(record, Release)
        assert (record.window.start_ms, record.window.end_ms) == (first_of(start), start + 1000)
        blocks = ((start - first_of(start)) // 1000 + 1).bit_count()
        assert record.blocks == blocks
        assert record.noise_interval_95 == view.levels[MIDDLE].interval_of(blocks)
        assert record.noise_interval_95 == half_width(there(record.noise.ratio).value, blocks)
        assert there(record.level.epsilon).exact == str(view.levels[MIDDLE].epsilon)
        assert record.privacy.window.cost == view.cost(MIDDLE)
        assert record.privacy.period.cost == view.cost(MIDDLE) * (1 + start // 6000)
    assert len({message.key for message in desk.published() if message.topic.endswith("staff")}) == len(STARTS)


def test_exact_counts_are_kept_of_the_blocks_that_later_panes_need_and_erased_with_their_last_use() -> None:
    desk = Desk(AMPLE)
    kept = []
    for start in STARTS:
        give(desk, starts=[start])
        kept.append({at // 1000 for at in kept_blocks(desk)})
        assert desk.machine.unerased(BLOCK) == desk.machine.unerased(BUCKET) == []
    assert kept == [{0}, {1}, {1, 2}, set(), {4}, set(), {6}, {7}, {7, 8}, set(), {10}, set()]


# -- grants and refusals, cut anywhere -------------------------------------------------------------------------------

SCARCE = running(('epsilon: "40"', 'epsilon: "5"'))
"""A period pays for two windows at middle, and for no difference to fine beside them."""


def play(desk: Desk) -> Desk:
    """Two windows; grants in the midst of each."""
    give(desk, starts=STARTS[:3])
    desk.grant(5, "public", "middle")
    give(desk, starts=STARTS[3:9])
    desk.grant(6, "partner", "fine")
    give(desk, starts=STARTS[9:])
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


RUNS = {name: play(Desk(plan)) for name, plan in (("ample", AMPLE), ("scarce", SCARCE))}


def test_a_grant_in_mid_window_charges_the_difference_once_and_tells_all_its_totals_again_finer() -> None:
    desk = RUNS["ample"]
    view = desk.plan.views["pages"]
    for audience, level in (("public", MIDDLE), ("partner", FINE), ("staff", MIDDLE)):
        assert newest_totals(desk, audience) == expected(desk, dict.fromkeys(STARTS, level))
    assert spent(desk) == view.cost(FINE) * 2
    revisions = {
        audience: [
            [record.revision for record in desk.records("pages", audience) if record.window.end_ms == start + 1000]
            for start in STARTS
        ]
        for audience in ("public", "partner")
    }
    assert revisions["public"] == [[1, 2]] * 3 + [[1]] * 9
    assert revisions["partner"] == [[1, 2]] * 9 + [[1]] * 3
    (ledger,) = read_ledgers(desk.machine.rows.items()).values()
    assert dict(ledger.readers) == {
        "public": view.cost(MIDDLE) * 2,
        "partner": view.cost(FINE) * 2,
        "staff": view.cost(MIDDLE) * 2,
    }


def test_where_the_difference_cannot_be_paid_the_window_goes_on_at_the_level_that_was() -> None:
    desk = RUNS["scarce"]
    assert newest_totals(desk, "partner") == expected(desk, dict.fromkeys(STARTS, COARSE))
    assert refusals(desk, "partner") == {0: "budget", 6000: "budget"}
    assert terms(desk, "partner") == {("sharpening", False)}
    assert spent(desk) == desk.plan.views["pages"].cost(MIDDLE) * 2


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(2, 31, 3))])
@pytest.mark.parametrize(
    "whole", [pytest.param(RUNS["ample"], marks=pytest.mark.slow), RUNS["scarce"]], ids=["ample", "scarce"]
)
def test_a_run_of_totals_that_is_cut_ends_with_the_rows_and_the_records_of_an_uncut_one(
    whole: Desk, first: int
) -> None:
    for cut in range(first, whole.machine.points, 31):
        cuts = [cut, *([3] if cut % 4 else [])]
        desk = play(Desk(whole.plan, cuts=cuts, back=5 * (cut % 3 // 2), compacts=cut % 8 > 3))
        assert desk.machine.rows == whole.machine.rows
        assert newest(desk.published()) == newest(whole.published())
        assert desk.machine.unerased(BLOCK) == []
        assert newest_totals(desk, "partner") == newest_totals(whole, "partner")


def test_a_pane_that_is_released_while_a_grant_waits_gets_as_fine_as_the_others_of_its_window() -> None:
    """Releasing goes first, so the pane has the level that its window has, and the grant does not know of it."""
    desk = Desk(AMPLE)
    give(desk, starts=STARTS[:2])
    machine, engine = desk.machine, desk.made(ReleaseEngine)
    buckets = buckets_of(desk.plan.views["pages"], 2000, COUNTS[2000])
    machine.carry_out(engine.load(machine, now_ms=0))
    machine.carry_out(engine.buckets([message.value for message in buckets]))
    machine.carry_out(engine.order(Order(1, "public", "fine"), now_ms=0))
    while engine.waits:
        machine.carry_out(engine.due())
    assert [desk.row("pages", start).states["public"] for start in STARTS[:3]] == [
        AudienceState(2, FINE, steps=[0, FINE])
    ] * 3
    desk.reader.restart()
    assert newest_totals(desk, "public") == expected(desk, dict.fromkeys(STARTS[:3], FINE))


def test_a_window_that_the_ledger_cannot_pay_for_is_refused_at_every_pane() -> None:
    desk = Desk(running(('epsilon: "40"', 'epsilon: "3"')))
    give(desk, starts=STARTS)
    view = desk.plan.views["pages"]
    assert newest_totals(desk, "staff") == expected(desk, dict.fromkeys(STARTS[:6], MIDDLE))
    assert refusals(desk, "staff") == dict.fromkeys(STARTS[6:], "budget")
    assert terms(desk, "staff") == {("window", True)}
    assert {record.requested.cost for record in desk.records("pages", "staff")[6:]} == {view.cost(MIDDLE)}  # type: ignore[union-attr]
    assert [entry.type for entry in desk.entries()] == ["charge", "refusal"]
    assert spent(desk) == view.cost(MIDDLE)
    assert kept_blocks(desk) == set()
    desk.grant(1, "staff", "fine")
    assert spent(desk) == view.cost(MIDDLE)


@pytest.mark.parametrize("level", ["coarse", "none"])
def test_a_grant_below_what_an_audience_has_holds_from_the_next_pane_on(level: str) -> None:
    desk = Desk(AMPLE)
    give(desk, starts=STARTS[:2])
    desk.grant(1, "staff", level)
    give(desk, starts=STARTS[2:])
    levels = dict.fromkeys(STARTS[:2], MIDDLE) | dict.fromkeys(STARTS[2:] if level == "coarse" else [], COARSE)
    assert newest_totals(desk, "staff") == expected(desk, levels)


@pytest.mark.parametrize("restarts", [False, True])
def test_who_may_see_nothing_until_a_window_has_begun_gets_the_next_one_and_no_refusal(*, restarts: bool) -> None:
    desk = Desk(running(("audiences: {partner: coarse, public: coarse, staff: middle}", "audiences: {public: coarse}")))
    desk.grant(1, "public", "none")
    give(desk, starts=STARTS[:2])
    desk.grant(2, "public", "coarse")
    if restarts:
        desk.reader.restart()
    give(desk, starts=STARTS[2:])
    assert refusals(desk, "public") == {}
    assert newest_totals(desk, "public") == expected(desk, dict.fromkeys(STARTS[6:], COARSE))
    assert kept_blocks(desk) <= {*STARTS[6:]}
    assert spent(desk) == desk.plan.views["pages"].cost(COARSE)


# -- panes that are not there ----------------------------------------------------------------------------------------


def test_a_window_of_which_a_pane_is_lost_is_refused_from_there_to_its_end_and_the_next_begins_anew() -> None:
    desk = Desk(running(), unknown_before={"pages": 2000})
    give(desk, starts=STARTS)
    assert refusals(desk, "public") == dict.fromkeys(STARTS[:6], "lost")
    assert newest_totals(desk, "public") == expected(desk, dict.fromkeys(STARTS[6:], COARSE))
    assert spent(desk) == desk.plan.views["pages"].cost(MIDDLE)
    assert kept_blocks(desk) == set()


def test_a_window_whose_counts_are_lost_in_its_midst_keeps_what_was_told_and_tells_no_more() -> None:
    desk = Desk(AMPLE)
    give(desk, starts=STARTS[:3])
    assert kept_blocks(desk) == {1000, 2000}
    desk.unknown_before = {"pages": 4000}
    desk.reader.restart()
    give(desk, starts=STARTS[4:7])
    assert newest_totals(desk, "public") == expected(desk, dict.fromkeys([*STARTS[:3], 6000], COARSE))
    assert refusals(desk, "public") == dict.fromkeys(STARTS[3:6], "lost")
    assert terms(desk, "public") == {("window", True)}
    assert kept_blocks(desk) == {6000}
    assert desk.machine.unerased(BLOCK) == []


def test_a_window_of_which_a_block_cannot_be_read_any_more_is_refused_from_there_on() -> None:
    """The key of its first panes is retired while it lasts."""
    desk = Desk(AMPLE)
    give(desk, starts=STARTS[:2])
    (former,) = desk.keys.keys
    desk.keys = KeyRing((PrfKey(former.id, None), PrfKey.of(bytes(range(1, 33)))))
    desk.reader.restart()
    give(desk, starts=STARTS[2:7])
    assert refusals(desk, "public") == dict.fromkeys(STARTS[2:6], "lost")
    assert newest_totals(desk, "public").keys() == {*STARTS[:2], 6000}
    assert kept_blocks(desk) == {6000}


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_panes_are_kept_with_the_first_of_their_window_and_no_longer_than_their_retention_asks_for() -> None:
    desk = Desk(running(("retention: 1h", "retention: 1s")))
    give(desk, starts=STARTS)
    kept = sorted(
        window_start(WINDOW, "pages", key) for key in desk.machine.rows if key.startswith(WINDOW + text("pages"))
    )
    assert kept == [*STARTS[5:]]
    desk.grant(1, "public", "fine")
    assert newest_totals(desk, "public") == expected(desk, {s: FINE if s >= 6000 else COARSE for s in STARTS})


def test_an_audience_that_comes_in_mid_window_gets_all_its_totals_where_that_is_free() -> None:
    buckets = "retention: 1h\n    buckets: 2"
    desk = Desk(running((buckets, f"{buckets}\n    audiences: [public, staff]")))
    give(desk, starts=STARTS[:4])
    before = spent(desk)
    desk.change(AMPLE)
    give(desk, starts=STARTS[4:6])
    assert spent(desk) == before
    assert newest_totals(desk, "partner") == expected(desk, dict.fromkeys(STARTS[:6], COARSE))


@pytest.mark.parametrize("left_over", [0, 2, 8])
def test_state_that_was_lost_is_charged_at_worst_once_a_window_and_the_window_is_told_of_no_more(
    left_over: int,
) -> None:
    """Readers have all of the first window and three panes of the second; the changelog lost what came behind some."""
    left = Desk(AMPLE, audit=False)
    give(left, starts=STARTS[:left_over])
    desk = Desk(AMPLE, audit=False, accepts_loss=True)
    give(desk, starts=STARTS[:9])
    published = [*desk.machine.sent]
    desk.machine.rows.clear()
    desk.machine.rows.update(left.machine.rows)
    desk.machine.changelog[:] = left.machine.rows.items()
    desk.machine.sent[:] = published
    desk.reader.restart()
    view = desk.plan.views["pages"]
    assert spent(desk) == (view.cost(FINE) * 2 if left_over < 6 else view.cost(FINE) + view.cost(MIDDLE))
    assert kept_blocks(desk) == set()
    give(desk, starts=STARTS[9:])
    assert refusals(desk, "public") == dict.fromkeys(STARTS[9:], "lost")
    assert not desk.ledger().reserved
