"""Windows of former and of newer definitions are released in order, each once, and paid for by one ledger.

`test_engine_stories` has all orders of windows, grants and editions; here is what each of them comes to.
"""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.releases.rows import BUCKET, TABLE, WINDOW, WindowRow
from stream_dp.windows.encoding import decode, text
from tests.support.editions import holding
from tests.support.expiring import standing
from tests.support.machine import newest
from tests.support.oracle import expected_records
from tests.support.releasing import KEY, ONLY_PAGES, Desk, keyed, plan

RICH = ('epsilon: "40", delta: "1/5", period: 4s', 'epsilon: "4000", delta: "9/10", period: 100s')
FIRST = plan(RICH)
FINER = ('fine, epsilon: "4"', 'fine, epsilon: "5"')
SECOND = plan(RICH, FINER)
SECONDS = 9
COUNTS = [{"home": 40, "cart": 12 + number, "rare": 1} for number in range(SECONDS)]


def give(desk: Desk, view: str, *seconds: int) -> None:
    for second in seconds:
        desk.give(view, 1000 * second, COUNTS[second])


def told(desk: Desk, audience: str = "public", view: str = "pages") -> list[tuple[int, int, int, int]]:
    """Start and end of the windows in seconds, edition and revision, in the order in which they were published."""
    records = desk.records(view, audience)
    return [(r.window.start_ms // 1000, r.window.end_ms // 1000, r.edition, r.revision) for r in records]


def test_windows_leave_in_their_order_whichever_definition_is_complete_first() -> None:
    desk = Desk(holding((0, FIRST), (3, SECOND)))
    give(desk, "pages@2", 3)
    assert desk.records("pages", "public") == []
    give(desk, "pages", 0, 1, 2)
    assert told(desk) == [(0, 1, 1, 1), (1, 2, 1, 1), (2, 3, 1, 1), (3, 4, 2, 1)]


def test_windows_of_ten_definitions_that_leave_at_one_slot_leave_in_their_order() -> None:
    ladders = [(FINER[0], f'fine, epsilon: "{4 + second}"') for second in range(11)]
    desk = Desk(holding(*((second, plan(RICH, ladder)) for second, ladder in enumerate(ladders))), until_ms=0)
    for second, name in enumerate(desk.plan.views):
        desk.give(name, 1000 * second, COUNTS[0], 20_000)
    desk.slot(30_000)
    assert [edition for *_, edition, _ in told(desk)] == [*range(1, 12)]


def test_counts_of_a_former_definition_behind_its_end_are_nobodys() -> None:
    desk = Desk(holding((0, FIRST)))
    give(desk, "pages", 3)
    desk.change(holding((0, FIRST), (3, SECOND)))
    give(desk, "pages", 0, 1, 2, 4)
    assert [start for start, *_ in told(desk)] == [0, 1, 2]
    assert not [key for key in desk.machine.rows if key.startswith(BUCKET)]


def test_windows_that_hop_end_with_their_edition_and_none_is_of_two() -> None:
    """The last of the former edition ends where the first of the next one begins, and each has its own noise."""
    hops = ONLY_PAGES, RICH, ("window: {size: 1s,", "window: {size: 2s, step: 1s,")
    desk = Desk(holding((0, plan(*hops)), (4, plan(*hops, FINER))))
    assert desk.plan.views["pages"].until_ms == 3000
    give(desk, "pages@2", 4, 5)
    give(desk, "pages", 0, 1, 2, 3)
    desk.grant(1, "public", "fine")
    former, latter = [(0, 2), (1, 3), (2, 4)], [(4, 6), (5, 7)]
    assert sorted(told(desk)) == sorted(
        (*window, edition, revision)
        for edition, windows in ((1, former), (2, latter))
        for window in windows
        for revision in (1, 2)
    )
    for name, seconds in (("pages", (0, 1, 2)), ("pages@2", (4, 5))):
        view = desk.plan.views[name]
        windows = {1000 * second: COUNTS[second] for second in seconds}
        expected = expected_records(view, windows, prf_key=KEY, entropy=keyed)["staff"]
        found = [record for record in desk.records("pages", "staff") if record.window.start_ms in windows]
        assert [one.model_dump(exclude={"privacy": {"period"}}) for one in found] == [
            one.model_dump(exclude={"privacy": {"period"}}) for one in expected
        ]
    desk.auditor.settled()


def test_a_view_becomes_one_of_another_kind_and_what_was_released_is_sharpened_as_it_was() -> None:
    kind = (
        "kind: histogram\n    items_per_user: 1\n    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}\n"
        '    delta: "1/100"',
        'kind: topk\n    k: 2\n    kbar: 3\n    selection: {epsilon: "1", delta: "1/100"}\n    items_per_user: 1\n'
        "    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}",
    )
    desk = Desk(holding((0, plan(ONLY_PAGES, RICH))))
    give(desk, "pages", 0, 1)
    desk.change(holding((0, plan(ONLY_PAGES, RICH)), (2, plan(ONLY_PAGES, RICH, kind))))
    give(desk, "pages@2", 2, 3)
    desk.grant(1, "public", "fine")
    newest_of = {record.window.start_ms: record for record in desk.records("pages", "public")}
    assert {start: (one.kind, one.level.name, one.revision) for start, one in newest_of.items()} == {
        0: ("histogram", "fine", 2),
        1000: ("histogram", "fine", 2),
        2000: ("topk", "fine", 2),
        3000: ("topk", "fine", 2),
    }
    desk.auditor.settled()


def test_a_view_that_was_taken_out_and_is_put_back_goes_on_as_another_definition_of_its_own() -> None:
    """By an older file: the same settings, other noise; what it had released is kept, and goes by its new windows.

    As long as it is out, nothing of it becomes finer.
    """
    both = plan(RICH, ("retention: 1h", "retention: 3s"))
    without = plan(ONLY_PAGES, RICH, ("retention: 1h", "retention: 3s"))
    desk = Desk(holding((0, both)))
    give(desk, "tops", 0, 1)
    desk.change(holding((0, both), (2, without)))
    give(desk, "tops", 2)
    desk.grant(1, "public", "fine")
    assert told(desk, view="tops") == [(0, 1, 1, 1), (1, 2, 1, 1)]
    desk.change(holding((0, both), (2, without), (4, both)))
    again = desk.plan.views["tops@2"]
    assert again.fingerprint == desk.plan.views["tops"].fingerprint
    assert again.noise_name(4000) != desk.plan.views["tops"].noise_name(4000)
    give(desk, "tops@2", 4)
    assert told(desk, view="tops")[2:] == [(4, 5, 2, 1)]
    assert {key for key in standing(desk) if key.startswith(b"tops/public")} == {
        b"tops/public/1000",
        b"tops/public/4000",
    }
    desk.auditor.settled()


# -- what expires -------------------------------------------------------------------------------------------------

SHORT = (RICH, ONLY_PAGES, ("retention: 1h", "retention: 2s"))


def rows_of(desk: Desk, name: str) -> list[bytes]:
    return [key for key in desk.machine.rows if key.startswith((WINDOW + text(name), TABLE + text(name)))]


def replaced(**options: Any) -> Desk:
    """A view with short retention, the windows of a former definition, and more of the one that took its place."""
    known = (0, plan(*SHORT)), (3, plan(*SHORT, FINER))
    desk = Desk(holding(known[0]), **options)
    give(desk, "pages", 0, 1, 2)
    desk.change(holding(*known))
    give(desk, "pages@2", 3, 4, 5)
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


def test_the_last_window_of_a_former_definition_expires_by_those_of_the_next_with_its_secret() -> None:
    desk = replaced()
    assert {key for key in standing(desk) if b"public" in key} == {b"pages/public/%d000" % n for n in (3, 4, 5)}
    assert rows_of(desk, "pages") == []
    prefix = WINDOW + text("pages")
    rows = [decode(WindowRow, value) for key, value in desk.machine.changelog if key.startswith(prefix) and value]
    left = b"".join([*desk.machine.rows.values(), *(value for _, value in desk.machine.outdated)])
    assert {row.secret for row in rows if row.secret}
    assert not [row for row in rows if row.secret and row.secret in left]
    desk.auditor.settled()


def test_the_last_window_of_a_former_definition_stays_until_readers_were_told_of_a_later_one() -> None:
    known = (0, plan(*SHORT)), (9, plan(*SHORT, FINER))
    desk = Desk(holding(*known))
    give(desk, "pages", *range(9))
    desk.reader.restart()
    assert {key for key in standing(desk) if b"public" in key} == {b"pages/public/%d000" % n for n in (6, 7, 8)}


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_a_former_definition_expires_wherever_the_process_ends(step: int) -> None:
    whole = replaced()
    for cut in range(0, whole.machine.points, step):
        desk = replaced(cuts=[cut, *([3] if cut % 2 else [])], back=cut % 3)
        desk.auditor.settled()
        assert newest(desk.published()) == newest(whole.published())


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_what_expires_with_a_window_is_not_unlocked_with_it_wherever_the_process_ends(step: int) -> None:
    """The first window behind a gap lets those before it expire, and makes them old enough to be unlocked."""
    aging = (
        RICH,
        ("retention: 1h", "retention: 3s"),
        ("grace: 0s}", "grace: 0s, clock: event}"),
        ("public: coarse", "public: {level: coarse, unlock: [{level: fine, after: 3s}]}"),
    )
    known = (0, plan(*aging)), (2, plan(ONLY_PAGES, *aging)), (8, plan(*aging))

    def run(cut: int | None) -> Desk:
        desk = Desk(holding(*known))
        give(desk, "tops", 0, 1)
        desk.machine.cut_after = cut
        give(desk, "tops@2", 8)
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    for cut in [None, *range(0, 60, step)]:
        desk = run(cut)
        assert sorted(set(told(desk, view="tops"))) == [(0, 1, 1, 1), (1, 2, 1, 1), (8, 9, 2, 1)]
        assert {key for key in standing(desk) if b"public" in key} == {b"tops/public/8000"}


def test_a_definition_that_never_held_holds_up_no_window() -> None:
    """Settings from the sixth second on, and before that others from the fourth on, which take their place."""
    known = (0, FIRST), (6, SECOND), (4, FIRST)
    desk = Desk(holding(known[0]))
    give(desk, "pages", 0)
    desk.change(holding(*known[:2]))
    give(desk, "pages", 1, 2)
    desk.change(holding(*known))
    give(desk, "pages", 3)
    give(desk, "pages@3", 4, 5, 6)
    assert told(desk) == [*((n, n + 1, 1, 1) for n in range(4)), *((n, n + 1, 3, 1) for n in (4, 5, 6))]
    desk.auditor.settled()


# -- what a change that is only announced does not do -------------------------------------------------------------


def test_the_stream_is_no_older_because_settings_to_come_are_known() -> None:
    """By the event clock a window is unlocked when later ones are over, not when another definition is announced."""
    streamed = (
        RICH,
        ONLY_PAGES,
        ("grace: 0s}", "grace: 0s, clock: event}"),
        ("public: coarse", "public: {level: coarse, unlock: [{level: fine, after: 3s}]}"),
    )
    desk = Desk(holding((0, plan(*streamed))))
    give(desk, "pages", 0, 1)
    desk.change(holding((0, plan(*streamed)), (6, plan(*streamed, ("items_per_user: 1", "items_per_user: 2")))))
    give(desk, "pages", 2)
    assert {revision for *_, revision in told(desk)} == {1}
    give(desk, "pages", 3)
    assert sorted(told(desk)[3:]) == [(0, 1, 1, 2), (3, 4, 1, 1)]


def test_an_audience_that_comes_with_a_later_edition_gets_the_windows_before_it_as_they_are_released() -> None:
    """What is free of windows that were released before comes at once; so does what is free of those since."""
    buckets = "retention: 1h\n    buckets: 2"
    few = plan(ONLY_PAGES, RICH, (buckets, f"{buckets}\n    audiences: [public, staff]"))
    desk = Desk(holding((0, few)))
    give(desk, "pages", 0)
    desk.change(holding((0, few), (3, plan(ONLY_PAGES, RICH))))
    assert told(desk, "partner") == [(0, 1, 1, 1)]
    give(desk, "pages", 1)
    assert told(desk, "partner") == [(0, 1, 1, 1), (1, 2, 1, 1)]
    before = desk.published()
    desk.reader.restart()
    assert desk.published() == before
    desk.auditor.settled()
