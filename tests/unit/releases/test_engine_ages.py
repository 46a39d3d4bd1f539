"""Unlocks of windows of panes and of running totals, and unlocks by the clock of the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.editions import next_record, plan_holding
from stream_dp.control.grant_records import Scope
from stream_dp.windows.effects import Message
from tests.support.chosen import kept_ordinary
from tests.support.expiring import standing
from tests.support.machine import newest
from tests.support.panes import COUNTS, PaneOracle, newest_windows, paned, said
from tests.support.releasing import COARSE, FINE, MIDDLE, ONLY_PAGES, Desk, buckets_of, plan
from tests.support.running import newest_totals, running, spent, total

SECONDS = range(0, 8000, 1000)
COUNTED: Mapping[int, Mapping[str, int]] = {
    start: COUNTS[start // 1000 % len(COUNTS)] for start in range(0, 24000, 1000)
}
UNLOCKS = (
    "public: coarse",
    "public: {level: coarse, unlock: [{level: middle, after: 3s}, {level: fine, after: 6s}]}",
)
EVENT = ("grace: 0s}", "grace: 0s, clock: event}")
SPENDS = ("buckets: 2", "buckets: 2\n    sharpen: {audience: staff, level: fine, every: 4s}")
RICH = ('epsilon: "40"', 'epsilon: "400"')


def give(desk: Desk, starts: Sequence[int]) -> Desk:
    for start in starts:
        desk.give("pages", start, COUNTED[start])
    return desk


def revisions(desk: Desk, audience: str) -> list[tuple[int, int, str]]:
    """End, revision and level of everything that was published; a refusal has its level in brackets."""
    return [
        (r.window.end_ms, r.revision, r.level.name if r.type == "release" else f"({r.level.name})")
        for r in desk.records("pages", audience)
    ]


# -- windows of panes -----------------------------------------------------------------------------------------------


def test_a_window_of_panes_is_unlocked_by_its_own_age_and_each_pane_is_charged_once() -> None:
    desk = give(Desk(paned(3, 1, UNLOCKS, RICH)), SECONDS[:5])
    view, before = desk.plan.views["pages"], spent(desk)
    desk.tell(5999)
    assert [one for one in revisions(desk, "public") if one[1] > 1] == []
    desk.tell(6999)
    assert [one for one in revisions(desk, "public") if one[1] > 1] == [(3000, 2, "middle")]
    assert spent(desk) == before, "staff has that level"
    desk.tell(9000)
    fine = [one for one in revisions(desk, "public") if one[2] == "fine"]
    assert fine == [(3000, 3, "fine")]
    assert spent(desk) == before + (view.counts(FINE) - view.counts(MIDDLE)) * 3
    desk.tell(20_000)
    oracle = PaneOracle(view, dict.fromkeys(SECONDS, FINE), COUNTED)
    for (start, end), record in newest_windows(desk.records("pages", "public")).items():
        assert said(record) == {**oracle.window(range(start, end, 1000))}
    assert spent(desk) == view.cost(FINE) * 5


SCARCE = paned(2, 1, UNLOCKS, ('epsilon: "40"', 'epsilon: "12"'), ("retention: 1h", "retention: 8s"))
"""A period of four panes pays for all of them, 8, and for two that are unlocked to fine, 2 each."""


def test_windows_whose_panes_cannot_be_unlocked_are_refused_once_each_wherever_a_crash_cuts_and_expire() -> None:
    def run(cut: int | None) -> Desk:
        desk = give(Desk(SCARCE, cuts=[] if cut is None else [cut]), SECONDS[:4])
        for now_ms in (8500, 9500, 30_000):
            desk.tell(now_ms)
        return desk

    whole = run(None)
    last = [one for one in revisions(whole, "public") if one[2] in ("fine", "(fine)")]
    assert sorted(last) == [(2000, 2, "fine"), (3000, 3, "(fine)"), (4000, 3, "(fine)")]
    for cut in range(5, whole.machine.points, 41):
        desk = run(cut)
        assert newest(desk.published()) == newest(whole.published())
        assert desk.machine.rows == whole.machine.rows
    give(whole, range(4000, 18_000, 1000))
    assert {int(key.split(b"-")[1].split(b"/")[0]) for key in standing(whole)} == {*range(9000, 19_000, 1000)}


def test_the_refusal_of_an_unlock_expires_with_its_window() -> None:
    """A period pays for four windows at middle, and nothing more."""
    retention = ("retention: 1h\n    buckets", "retention: 8s\n    buckets")
    desk = give(Desk(plan(ONLY_PAGES, UNLOCKS, ('epsilon: "40"', 'epsilon: "8"'), retention)), SECONDS[:4])
    desk.tell(7000)
    assert (1000, 2, "(fine)") in revisions(desk, "public")
    assert b"pages/public/0/refusal" in standing(desk)
    give(desk, range(4000, 10_000, 1000))
    assert {int(key.split(b"/")[2]) for key in standing(desk)} == {*range(1000, 10_000, 1000)}


# -- totals ---------------------------------------------------------------------------------------------------------


def test_totals_are_unlocked_when_their_window_is_so_old_all_at_once_and_for_one_charge() -> None:
    desk = give(Desk(running(UNLOCKS, RICH)), SECONDS)
    view, before = desk.plan.views["pages"], spent(desk)
    desk.tell(11_999)
    assert {level for level, _ in newest_totals(desk, "public").values()} == {"coarse", "middle"}
    desk.tell(12_000)
    expected = {
        start: ("fine" if start < 6000 else "coarse", total(view, start, FINE if start < 6000 else COARSE, COUNTED))
        for start in SECONDS
    }
    assert newest_totals(desk, "public") == expected
    assert spent(desk) == before + view.counts(FINE) - view.counts(MIDDLE)


def test_the_scope_of_a_grant_has_all_totals_of_a_window_or_none() -> None:
    desk = give(Desk(running(RICH)), SECONDS)
    desk.grant(1, "public", "fine", scope=Scope(from_ms=3000, until_ms=6001))
    levels = {start: level for start, (level, _) in newest_totals(desk, "public").items()}
    assert levels == {start: "coarse" if start < 6000 else "fine" for start in SECONDS}
    give(desk, [8000])
    assert newest_totals(desk, "public")[8000][0] == "fine"


# -- by the clock of the stream -------------------------------------------------------------------------------------

STREAMS: Mapping[str, Plan] = {
    "tumbling": plan(ONLY_PAGES, UNLOCKS, EVENT, RICH, ('"1/5"', '"9/10"'), SPENDS),
    "panes": paned(3, 1, UNLOCKS, EVENT, RICH),
    "totals": running(UNLOCKS, EVENT, RICH),
}
STARTS = range(0, 24_000, 1000)


def streamed(name: str, *, together: bool = False, published_ms: int = 0, cuts: Sequence[int] = ()) -> Desk:
    """A view whose windows come one by one, or all together long after; whatever the wall clock shows."""
    planned = STREAMS[name]
    desk = Desk(planned, cuts=cuts, at_once=30 if together else 3)
    if together:
        messages: list[Message] = []
        for start in STARTS:
            messages += buckets_of(planned.views["pages"], start, COUNTED[start])
        desk.reader.write(messages)
    else:
        for start in STARTS:
            desk.give("pages", start, COUNTED[start])
            if published_ms:
                desk.tell(published_ms + start)
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


@pytest.mark.parametrize("name", kept_ordinary(["totals"], STREAMS))
def test_by_the_event_clock_windows_are_unlocked_as_the_stream_moves_on_whenever_and_however_it_is_read(
    name: str,
) -> None:
    whole = streamed(name)
    shown = {audience: revisions(whole, audience) for audience in whole.plan.audiences}
    for other in (
        streamed(name, together=True),
        streamed(name, published_ms=10**12),
        *(streamed(name, together=bool(cut % 2), cuts=[cut, 7]) for cut in range(11, whole.machine.points, 1499)),
    ):
        assert newest(other.published()) == newest(whole.published())
        assert other.machine.rows == whole.machine.rows
        if not other.cuts:
            assert {audience: sorted(revisions(other, audience)) for audience in shown} == {
                audience: sorted(records) for audience, records in shown.items()
            }


def test_the_time_of_a_stream_is_the_end_of_its_newest_window() -> None:
    desk = Desk(STREAMS["tumbling"])
    seen = []
    for start in STARTS[:8]:
        before = len(revisions(desk, "public"))
        desk.give("pages", start, COUNTED[start])
        seen.append(sorted(revisions(desk, "public")[before:]))
    assert seen[:3] == [[(1000, 1, "coarse")], [(2000, 1, "coarse")], [(3000, 1, "coarse")]]
    assert seen[3] == [(1000, 2, "middle"), (4000, 1, "coarse")]
    assert seen[6] == [(1000, 3, "fine"), (4000, 2, "middle"), (7000, 1, "coarse")]
    fine = [end for end, _, level in revisions(desk, "staff") if level == "fine"]
    assert sorted(fine) == [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000], "at 4 s and at 8 s, all there is"
    assert sorted(fine[:4]) == [1000, 2000, 3000, 4000]
    desk.tell(10**12)
    assert len(revisions(desk, "public")) == sum(map(len, seen)), "the wall clock makes nothing older"


def test_settings_of_windows_to_come_make_no_window_older() -> None:
    """Another definition of an hour later is decided, and the stream is where it was."""
    changes = (ONLY_PAGES, UNLOCKS, RICH, EVENT)
    former, latter = plan(*changes), plan(*changes, ('fine, epsilon: "4"', 'fine, epsilon: "5"'))
    first = next_record((), former, {"pages": 0}, {}, 0)
    second = next_record([first], latter, {"pages": 3_600_000}, {}, 0)
    desk = give(Desk(plan_holding([first], former)), SECONDS[:3])
    desk.change(plan_holding([first, second], former))
    assert revisions(desk, "public") == [(1000, 1, "coarse"), (2000, 1, "coarse"), (3000, 1, "coarse")]
    give(desk, SECONDS[3:4])
    assert sorted(revisions(desk, "public")[3:]) == [(1000, 2, "middle"), (4000, 1, "coarse")]
