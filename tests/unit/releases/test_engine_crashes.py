"""The release engine cut at every point: nothing is drawn twice, nothing shown that is not paid for, nothing lost.

At every point of every run the auditor compares what readers have with what the surviving ledger holds, and every
record with its earlier copies (`tests.support.releasing.Auditor`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.records.codec import AnyRecord
from stream_dp.releases.accounts import ledger_key
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.rows import ANNOUNCED, BUCKET, LEDGER, PROMISE, PUBLISHED, TABLE, TOTALS, VIEW, WINDOW
from stream_dp.windows.encoding import text, window_key
from tests.support.chosen import ordinarily
from tests.support.machine import newest
from tests.support.releasing import FINE, ONLY_PAGES, POOL, Desk, plan, totals

SCARCE = plan(('epsilon: "40"', 'epsilon: "159/10"'), ("period: 4s", "period: 3s"))
"""A period pays for two windows of both views at the start, 12.04, and for one that is sharpened to fine, 2."""
POOLED = plan(POOL, ("period: 4s", "period: 3s"), ('"39"', '"33"'), ('"41"', '"35"'))
"""So does this one, of rho 17.1: a window costs 1.52 or 1.77 at the start, and 8 more when it is sharpened to fine."""
HOME = {"home": 40, "cart": 12, "rare": 1}


def play(desk: Desk) -> Desk:
    """Two windows, one empty; two grants, the second paid for once; a refused window; a window of the next period."""
    desk.give("tops", 0, HOME)
    desk.give("pages", 0, HOME)
    desk.give("tops", 1000, HOME)
    desk.give("pages", 1000, {})
    desk.grant(5, "partner", "middle")
    desk.grant(6, "partner", "fine")
    for start in (2000, 3000):
        desk.give("pages", start, HOME)
        desk.give("tops", start, HOME)
    desk.grant(7, "public", "middle")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


class FreshEntropy:
    """Entropy that never repeats, and that must not be asked about a window that is stored."""

    def __init__(self, planned: Plan, cuts: list[int], back: int) -> None:
        self.calls = count()
        self.desk = Desk(planned, self, cuts=cuts, back=back)

    def __call__(self, context: bytes) -> BitSource:
        (name, start), *others = (
            (view.name, int.from_bytes(context.partition(view.query_id)[2], "big") - (1 << 63))
            for view in self.desk.plan.views.values()
            if view.query_id in context
        )
        assert not others
        assert window_key(WINDOW, name, start) not in self.desk.machine.rows, "a stored window is drawn again"
        return KeyedBits(b"fresh %d" % next(self.calls), context)


def releases(desk: Desk) -> dict[tuple[str, int, bytes | None], bytes | None]:
    return newest(desk.published())


RUNS = {"one account": play(Desk(SCARCE)), "pool": play(Desk(POOLED))}
WHOLE = RUNS["one account"]


def stride(whole: Desk, points: int) -> int:
    """Every so many points, and fewer of a run with a pool: the steps are the same."""
    return points if whole is WHOLE else 4 * points + 1


either = pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)


@either
def test_the_uncut_run_releases_refuses_sharpens_and_begins_a_new_period(whole: Desk) -> None:
    whole.auditor.settled()
    found = {
        (record.view, record.window.start_ms, record.revision, record.type, record.level.name)
        for view in ("pages", "tops")
        for record in whole.records(view, "partner")
    }
    both = ("pages", "tops")
    assert found == {
        *((view, start, 1, "release", "coarse") for view in both for start in (0, 1000)),
        *((view, start, 2, "release", "middle") for view in both for start in (0, 1000)),
        ("pages", 0, 3, "release", "fine"),
        *((view, start, 3, "refusal", "fine") for view, start in (("pages", 1000), ("tops", 0), ("tops", 1000))),
        *((view, 2000, 1, "refusal", "fine") for view in both),
        *((view, 3000, 1, "release", "fine") for view in both),
    }
    assert whole.reader.standing() == set()
    views = Counter((record.type, record.revision == 1, view) for view in both for record in every(whole, view))
    names = {
        ("release", True): "windows_released",
        ("refusal", True): "windows_refused",
        ("release", False): "windows_sharpened",
        ("refusal", False): "sharpenings_refused",
    }
    audiences = len(whole.plan.views["pages"].audiences)
    assert totals(whole.machine) == {
        (names[kind, first], view): number // (audiences if first else 1)
        for (kind, first, view), number in views.items()
    }


def every(desk: Desk, view: str) -> list[AnyRecord]:
    """All records of a view, of all audiences."""
    return [record for audience in desk.plan.views[view].audiences for record in desk.records(view, audience)]


@pytest.mark.parametrize("first", ordinarily(1, [0, 7, 14, 21]))
@pytest.mark.parametrize(
    "whole", [pytest.param(RUNS["one account"], marks=pytest.mark.slow), RUNS["pool"]], ids=["one account", "pool"]
)
def test_a_run_that_is_cut_ends_with_the_rows_and_the_records_of_an_uncut_one(whole: Desk, first: int) -> None:
    """Every seventh point in all; the next test takes more of them."""
    for cut in range(first, whole.machine.points, stride(whole, 28)):
        desk = play(Desk(whole.plan, cuts=[cut], back=5 * (cut % 4 // 2), compacts=cut % 8 > 3))
        desk.auditor.settled()
        assert desk.machine.rows == whole.machine.rows
        assert releases(desk) == releases(whole)


@pytest.mark.parametrize("first", ordinarily(1, range(30)))
@pytest.mark.parametrize(
    "whole", [pytest.param(RUNS["one account"], marks=pytest.mark.slow), RUNS["pool"]], ids=["one account", "pool"]
)
def test_a_run_cut_anywhere_draws_each_stored_window_once(whole: Desk, first: int) -> None:
    """With entropy that never repeats, equal bytes prove that nothing is drawn behind the commit point."""
    for cut in range(first, whole.machine.points, stride(whole, 30)):
        desk = play(FreshEntropy(whole.plan, [cut], back=5 * ((cut + 1) % 2)).desk)
        desk.auditor.settled()
        assert releases(desk).keys() == releases(whole).keys()


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 23])
@either
def test_a_run_whose_recovery_is_cut_as_well_ends_as_an_uncut_one(whole: Desk, first: int) -> None:
    for cut in range(first, whole.machine.points, stride(whole, 46)):
        for second in (0, 1, 3, 6):
            desk = play(Desk(whole.plan, cuts=[cut, second], back=cut % 4))
            desk.auditor.settled()
            assert desk.machine.rows == whole.machine.rows
            assert releases(desk) == releases(whole)


def test_a_run_that_is_cut_again_and_again_makes_progress_and_ends_as_an_uncut_one() -> None:
    """Every restart gets a little further than the largest step."""
    desk = play(Desk(SCARCE, cuts=[40] * 50, back=1))
    desk.auditor.settled()
    assert desk.machine.rows == WHOLE.machine.rows
    assert releases(desk) == releases(WHOLE)


# -- what is erased -------------------------------------------------------------------------------------------------


def cut_runs(back: int, step: int) -> Iterator[Desk]:
    planned = plan(ONLY_PAGES)

    def brief(desk: Desk) -> Desk:
        for start in (0, 1000):
            desk.give("pages", start, HOME)
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    for cut in range(0, brief(Desk(planned, at_once=1)).machine.points, step):
        yield brief(Desk(planned, cuts=[cut], back=back, at_once=1, compacts=back > 0))


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("back", ordinarily(1, [0, 5]))
def test_a_run_cut_anywhere_leaves_no_counts_in_the_table(back: int, step: int) -> None:
    for desk in cut_runs(back, step):
        assert [key for key in desk.machine.rows if key.startswith(BUCKET)] == []


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("back", ordinarily(1, [0, 5]))
def test_a_run_cut_anywhere_leaves_no_counts_in_the_files(back: int, step: int) -> None:
    """Rows deleted by a commit whose `Erase` a crash prevented have to be erased after the restart."""
    for desk in cut_runs(back, step):
        assert desk.machine.unerased(BUCKET) == []


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("back", ordinarily(1, [0, 5]))
def test_a_run_cut_anywhere_leaves_no_counts_in_the_topic_they_came_by(back: int, step: int) -> None:
    """A bucket is withdrawn before its row is forgotten: after a crash only the row tells that it stands there."""
    for desk in cut_runs(back, step):
        assert desk.reader.standing() == set()


# -- a restart with another configuration ---------------------------------------------------------------------------


class ProcessEndedError(Exception):
    """The process ended, and is not started again before something was changed."""


def ended(start: int, kind: bytes) -> Desk:
    """A desk whose process ends right behind the write of a row of the window at `start`; earlier ones are released."""
    desk = Desk(plan(ONLY_PAGES), audit=False)
    for earlier in range(0, start, 1000):
        desk.give("pages", earlier, HOME)

    def watch() -> None:
        if any(key.startswith(window_key(kind, "pages", start)) for key in desk.machine.rows):
            raise ProcessEndedError

    desk.machine.watch = watch
    with pytest.raises(ProcessEndedError):
        desk.give("pages", start, HOME)
    desk.machine.watch = desk.auditor
    desk.auditor()
    return desk


CHEAPER = plan(ONLY_PAGES, ('middle, epsilon: "2"', 'middle, epsilon: "3/2"'))


def test_a_changed_view_is_refused_before_a_charge_is_settled_at_its_prices() -> None:
    """The window is stored and its charge is not: settled with the cheaper plan, the ledger would hold too little."""
    desk = ended(1000, WINDOW)
    former = desk.plan
    with pytest.raises(ConfigError, match=r"views\.pages"):
        desk.change(CHEAPER)

    desk.change(former)
    desk.auditor.settled()


@pytest.mark.parametrize("changed", ["plan", "key"])
def test_a_change_after_a_crash_in_the_very_first_window_is_refused(changed: str) -> None:
    """What says how a view is released must be stored before its first window, or with another key or other prices
    the window is settled, published and sharpened as if it had been made with them."""
    desk = ended(0, WINDOW)
    desk.machine.watch = lambda: None
    if changed == "key":
        desk.keys = KeyRing.of(bytes(32))
    with pytest.raises(ConfigError, match="key_file" if changed == "key" else r"views\.pages"):
        desk.change(desk.plan if changed == "key" else CHEAPER)


def test_a_reservation_without_a_window_is_dropped_so_that_a_window_can_ask_for_another_level() -> None:
    """Clearances may change between two starts, and with them what the window has to reserve."""
    desk = ended(1000, TABLE)
    assert len(desk.ledger().reserved) == 1
    desk.change(plan(ONLY_PAGES, ("staff: middle", "staff: fine")))
    assert desk.row("pages", 1000).states["staff"].level == FINE
    desk.auditor.settled()


def test_a_view_that_is_gone_keeps_what_it_had_reserved_and_settles_it_when_it_is_back() -> None:
    desk = ended(1000, WINDOW)
    former, desk.machine.watch = desk.plan, lambda: None
    key = ledger_key(former.views["pages"], 0)
    before = desk.machine.rows[key]
    desk.change(plan(ONLY_PAGES, ("  pages:", "  others:")))
    assert desk.machine.rows[key] == before

    desk.machine.watch = desk.auditor
    desk.change(former)
    desk.auditor.settled()


@pytest.mark.slow
def test_a_grant_after_a_crash_in_the_deletion_of_old_windows_is_carried_out() -> None:
    """The row of an outdated window whose table is deleted already must not stop every later grant."""
    planned = plan(ONLY_PAGES, ("retention: 1h", "retention: 1s"))

    def run(cut: int) -> Desk:
        desk = Desk(planned, cuts=[cut])
        for start in (0, 1000, 2000):
            desk.give("pages", start, HOME)
        desk.machine.cut_after = None
        desk.grant(1, "public", "fine")
        return desk

    for cut in range(run(1000).machine.points):
        desk = run(cut)
        desk.auditor.settled()
        assert [desk.row("pages", start).states["public"].level for start in (1000, 2000)] == [FINE, FINE]


@pytest.mark.slow
def test_what_an_audience_came_later_than_is_given_once_wherever_the_process_ends() -> None:
    buckets = "retention: 1h\n    buckets: 2"
    former = plan(ONLY_PAGES, (buckets, f"{buckets}\n    audiences: [public, staff]"))

    def run(cuts: list[int]) -> Desk:
        desk = Desk(former, cuts=cuts, compacts=len(cuts) > 1)
        for start in (0, 1000, 2000):
            desk.give("pages", start, HOME)
        desk.change(plan(ONLY_PAGES))
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    whole = run([])
    assert len(whole.records("pages", "partner")) == 3
    for cut in range(whole.machine.points):
        desk = run([cut, *([3] if cut % 2 else [])])
        desk.auditor.settled()
        assert desk.machine.rows == whole.machine.rows
        assert releases(desk) == releases(whole)


def test_the_row_that_a_release_is_made_with_is_stored_beside_every_window() -> None:
    rows = {key[:1] for key in WHOLE.machine.rows}
    assert rows == {PROMISE, LEDGER, TABLE, VIEW, WINDOW, TOTALS, ANNOUNCED, PUBLISHED, b"c"}
    assert {VIEW + text("pages"), VIEW + text("tops")} <= WHOLE.machine.rows.keys()
