"""The board of a view and audience: what it keeps of a topic, and what a client is told that comes back."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway.boards import RESUMABLE_MS, UNKNOWN_END, Board, Boards, Reset
from stream_dp.records.codec import encode, encode_parts, topic_key
from stream_dp.releases.publication import account

Make = Callable[..., Any]
DAY_MS = 86_400_000
MANY = {f"page {number}": 900 - number for number in range(300)}
Rows = list[tuple[int, bytes, bytes | None]]


def rows_of(*records: Any, most: int = 1 << 19) -> Rows:
    """Offset, key and value of records, in parts where they are large; None before a record's key takes it back."""
    pairs: list[tuple[bytes, bytes | None]] = []
    for record in records:
        pairs += [(record, None)] if isinstance(record, bytes) else encode_parts(record, most)
    return [(offset, key, value) for offset, (key, value) in enumerate(pairs)]


def board_of(rows: Sequence[tuple[int, bytes, bytes | None]], time_ms: int = 0) -> Board:
    board = Board("pages", "public", "5d1f09c2")
    for offset, key, value in rows:
        board.take(key, value, offset, time_ms)
    return board


def shown(board: Board) -> dict[Any, Any]:
    return {window: (cell.release, cell.refusal, cell.offset, cell.state) for window, cell in board.cells.items()}


def compacted(rows: Rows) -> Rows:
    newest = {key: offset for offset, key, _ in rows}
    return [row for row in rows if newest[row[1]] == row[0]]


def history(release: Make, refusal: Make) -> Rows:
    """Parts, a sharper revision with fewer parts, repetitions, refusals, expired windows."""
    first = release(MANY)
    sharper = release(dict(list(MANY.items())[:150]), level=1, revision=2)
    second = release({"home": 40}, day=1)
    rows = rows_of(
        first,
        second,
        second,
        refusal(day=2),
        sharper,
        release({"home": 41}, day=1, revision=2, level=1),
        refusal(day=1, revision=3),
        *[key for key, _ in encode_parts(first, 3200)],
        release({}, day=3),
        topic_key(refusal(day=2)),
        release({"about": 77}, day=4),
        most=3200,
    )
    assert len(rows) > 15
    return rows


def test_a_window_has_the_newest_release_the_one_before_and_a_refusal_that_is_newer(
    release: Make, refusal: Make
) -> None:
    first, sharper = release({"home": 40, "about": 2}), release({"home": 44}, revision=2, level=1)
    board = board_of(rows_of(first, sharper, refusal(revision=1), refusal(revision=3, level=2)))
    cell = board.cells[0, DAY_MS]
    body = json.loads(cell.body(board.topic))

    assert (cell.release, cell.before) == (encode(sharper), encode(first))
    assert (body["position"], body["state"], body["released"]) == (
        "5d1f09c2-3",
        "sharper_refused",
        "1970-01-01T00:00:00Z",
    )
    assert body["record"] == json.loads(encode(sharper))
    assert body["intervals"] == [[max(0, low), high] for low, high in [sharper.interval(sharper.items[0])]]
    assert body["before"]["intervals"]["about"] == [1, 2 + first.noise_interval_95]
    assert body["refusal"]["revision"] == 3


@pytest.mark.parametrize(
    ("items", "revision", "state"), [({"a": 90}, 1, "released"), ({}, 1, "empty"), ({"a": 90}, 2, "sharper")]
)
def test_the_state_of_a_window_is_a_word(release: Make, items: dict[str, int], revision: int, state: str) -> None:
    assert board_of(rows_of(release(items, revision=revision))).cells[0, DAY_MS].state == state


def test_a_window_without_a_release_is_refused(refusal: Make) -> None:
    body = json.loads(board_of(rows_of(refusal())).cells[0, DAY_MS].body("0"))
    assert (body["state"], body["record"], body["intervals"]) == ("refused", None, None)


def test_a_release_counts_when_all_its_parts_are_there(release: Make) -> None:
    rows = rows_of(release(MANY), most=3200)
    assert shown(board_of(rows[:-1])) == {}
    cell = board_of(rows).cells[0, DAY_MS]
    assert (cell.release, cell.offset) == (encode(release(MANY)), len(rows) - 1)


def test_an_interval_never_begins_below_zero(release: Make) -> None:
    body = json.loads(board_of(rows_of(release({"x": 3}, view="searches"))).cells[0, DAY_MS].body("0"))
    assert body["intervals"][0][0] == 0


def long_history(release: Make, refusal: Make, seed: int) -> Rows:
    """A thousand records of what `history` has, in an order by chance: 40 windows that come, get sharper and expire."""
    chance, days, revisions, records = random.Random(seed), list(range(40)), Counter[int](), list[Any]()
    while len(records) < 1000:
        place = chance.randrange(40)
        day, kind = days[place], chance.choice(["release", "release", "large", "refusal", "expired", "again"])
        if kind == "again":
            records += records[-1:]
        elif kind == "expired":
            large = release(MANY, day=day)
            records += [key for key, _ in encode_parts(large, 3200)] + [topic_key(refusal(day=day))]
            days[place] += 40
        else:
            revisions[day] += 1
            counts = dict(list(MANY.items())[: chance.choice([150, 300])]) if kind == "large" else {"home": 40}
            about = {"day": day, "revision": revisions[day], "level": min(2, revisions[day] - 1)}
            records.append(refusal(**about) if kind == "refusal" else release(counts, **about))
    rows = rows_of(*records, most=3200)[:1000]
    assert len(rows) == 1000
    return rows


def check_resuming(rows: Rows, kept: Rows) -> int:
    """Compare a client that has read to an offset, and then gets what changed, with the whole board.

    Returns:
        From how many offsets it could go on.
    """
    whole, growing, resumed = board_of(kept), Board("pages", "public", "5d1f09c2"), 0
    whole.loaded()
    at_end = {window: (cell.release, cell.refusal) for window, cell in whole.cells.items()}
    for end in range(len(rows) + 1):
        client = {window: (cell.release, cell.refusal) for window, cell in growing.cells.items()}
        for offset, key, value in rows[end : end + 1]:
            growing.take(key, value, offset, 0)
        changes = whole.since(end - 1, now_ms=1)
        if 0 < end <= kept[0][0]:
            assert changes == Reset("too_far_behind"), "the record of the position is gone with its neighbours"
            continue
        assert not isinstance(changes, Reset)
        assert changes == sorted(changes)
        for _, window in changes:
            if window in at_end:
                client[window] = at_end[window]
            else:
                ends = (window[1],) if window[1] != UNKNOWN_END else {end_ms for _, end_ms in client}
                client = {one: seen for one, seen in client.items() if one[0] != window[0] or one[1] not in ends}
        assert client == at_end
        resumed += 1
    return resumed


@pytest.mark.parametrize("is_compacted", [False, True])
def test_from_every_offset_list_and_stream_give_the_board_of_the_whole_topic(
    release: Make, refusal: Make, is_compacted: bool
) -> None:
    rows = history(release, refusal)
    assert check_resuming(rows, compacted(rows) if is_compacted else rows) > 1


@pytest.mark.slow
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_from_every_offset_of_a_thousand_records_they_give_the_board_of_the_whole_topic(
    release: Make, refusal: Make, seed: int, is_compacted: bool
) -> None:
    rows = long_history(release, refusal, seed)
    assert check_resuming(rows, compacted(rows) if is_compacted else rows) > (100 if is_compacted else 1000)


def test_an_expired_window_is_told_even_if_compaction_left_its_tombstone_alone(release: Make) -> None:
    key = topic_key(release({"home": 40}))
    board = board_of([*rows_of(release({}, day=1)), (7, key, None)])
    board.loaded()
    assert board.since(6, 0) == [(7, (0, UNKNOWN_END))]
    assert board.since(7, 0) == []


def test_a_position_behind_the_end_is_of_another_topic(release: Make) -> None:
    assert board_of(rows_of(release({"home": 40}))).since(1, 0) == Reset("recreated")


def test_a_position_that_is_too_old_starts_again_unless_nothing_came_after_it(release: Make) -> None:
    board = board_of(rows_of(*(release({"home": 40}, day=day) for day in range(3))))
    board.loaded()
    late = RESUMABLE_MS + 1
    assert board.since(1, late) == Reset("too_far_behind")
    assert board.since(2, late) == []
    assert len(list(board.since(1, late - 1))) == 1


def test_what_came_while_the_gateway_ran_is_resumed_however_old(release: Make) -> None:
    rows = rows_of(*(release({"home": 40}, day=day) for day in range(4)))
    board = board_of(rows[:2])
    board.loaded()
    for offset, key, value in rows[2:]:
        board.take(key, value, offset, 0)
    assert board.since(1, 100 * RESUMABLE_MS) == [(2, (2 * DAY_MS, 3 * DAY_MS)), (3, (3 * DAY_MS, 4 * DAY_MS))]


def test_memory_drops_the_oldest_windows_and_says_that_they_are_gone(release: Make) -> None:
    board = board_of(rows_of(*(release({"home": 40}, day=day) for day in range(5))))
    boards = Boards(memory_bytes=2 * board.cells[3 * DAY_MS, 4 * DAY_MS].size + 9)
    boards.put(board)
    boards.bound("public")
    assert [start // DAY_MS for start, _ in board.order] == [3, 4]
    assert board.bytes_held == sum(cell.size for cell in board.cells.values())
    assert board.is_gone(0)
    assert not board.is_gone(7 * DAY_MS)


def test_the_newest_window_stays_whatever_the_memory(release: Make) -> None:
    boards = Boards(memory_bytes=1)
    boards.put(board_of(rows_of(release({"home": 40}))))
    boards.bound("public")
    assert len(boards.by_name["pages", "public"].cells) == 1


def test_a_record_that_cannot_be_read_is_passed_over(release: Make) -> None:
    board = board_of(
        [(0, b"pages/public/0", b'{"schema_version": 2}'), *[(1, *row[1:]) for row in rows_of(release({}))]]
    )
    assert (board.unreadable, board.offset, len(board.cells)) == (1, 1, 1)


def test_a_loaded_record_of_which_only_the_outline_is_right_is_dropped_when_it_is_read_in_full(release: Make) -> None:
    (_, key, value), right = rows_of(release({"home": 40}), release({"home": 41}, day=1))
    assert value is not None
    damaged = value.replace(b'"level"', b'"levels"')
    board = board_of([(0, key, damaged), right])
    board.loaded()
    assert (board.unreadable, len(board.cells)) == (0, 2)
    assert len(list(board.check())) == 2
    assert (board.unreadable, list(board.cells), board.order) == (1, [(DAY_MS, 2 * DAY_MS)], [(DAY_MS, 2 * DAY_MS)])
    assert board.bytes_held == sum(cell.size for cell in board.cells.values())
    assert list(board.check()) == []
    assert board.take(key, damaged, 2, 0) is None
    assert board.unreadable == 2
    assert board.take(key, value, 3, 0) == (0, DAY_MS)


def test_a_board_that_is_made_anew_closes_the_streams_of_the_former(release: Make) -> None:
    told: list[str] = []
    boards = Boards()
    boards.put(former := Board("pages", "public", "1"))
    former.closers.add(told.append)
    boards.put(Board("pages", "public", "2"))
    assert told == ["recreated"]


def test_a_period_is_forgotten_with_its_last_window(release: Make, visits: Plan) -> None:
    """It held a record of every period of a ledger for as long as the process ran."""
    ledger = visits.views["pages"].ledger
    days = [1, 2, 11, 21]  # in periods of ten days
    records = [
        release({"home": 40}, day=day).model_copy(update={"ledger": account(ledger, day * DAY_MS)}) for day in days
    ]
    rows = rows_of(*records, *map(topic_key, records[:3]))
    starts = [10 * DAY_MS * at for at in range(3)]

    kept = [sorted(start for _, start in board_of(rows[:count]).ledgers) for count in (4, 5, 6, 7)]

    assert kept == [starts, starts, starts[1:], starts[2:]]
