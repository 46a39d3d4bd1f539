"""Windows that outgrow memory spill to disk: the same in all respects, whenever they go and whatever crashes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows import open_windows
from stream_dp.windows.count_rows import JOURNAL, JournalRow
from stream_dp.windows.counting import CLOSED_BYTES, PartitionCounter
from stream_dp.windows.effects import Long, Message, Send
from stream_dp.windows.encoding import bucket_of, format_size, parse_size
from stream_dp.windows.open_windows import (
    CODE_BYTES,
    ITEM_BYTES,
    MOST_CODES,
    USER_BYTES,
    OpenWindow,
    WindowMemory,
    code_of,
    tables_of,
)
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.chosen import every, examples, ordinarily
from tests.support.counting import Cabinet, Entry, counter, event, handed_on, view, watermark
from tests.support.machine import Machine, deliver
from tests.support.phases import PHASES

VIEWS = (
    view("one", buckets=3),
    view("two", clock="event", length_ms=25, items_per_user=3, buckets=5),
    view("three", length_ms=40, items_per_user=1, buckets=1),
    view("four", length_ms=5, bounds=Tiling(40), buckets=2),
)
A_FEW = 3 * (USER_BYTES + ITEM_BYTES)
"""Memory for two or three users with an item each."""

Acts = list[list[tuple[str, str, int]]]
"""Chunks of (user, item, time)."""


def chunks(acts: Acts) -> list[list[Entry]]:
    out, offset = [], 0
    for act in acts:
        out.append([event(offset + at, user, item, time) for at, (user, item, time) in enumerate(act)])
        offset += len(act)
    return [*out, [watermark(offset, 200)]]


def run(acts: Acts, memory: int, cuts: Sequence[int] = (), again: int = 0) -> tuple[Machine, Cabinet]:
    """Count chunks, then close every window; spill stores of a counter that is thrown away go with it."""
    machine, cabinet = Machine(), Cabinet()

    def new() -> PartitionCounter:
        cabinet.standing.clear()
        return counter(*VIEWS, memory=memory, spill_stores=cabinet)

    steps = [lambda one, some=some: one.chunk(some, 100) for some in chunks(acts)]
    ticks = [lambda one, at=at: one.ticks([at]) for at in (200, 201, 202)]
    deliver(machine, new, [*steps, *ticks], cuts=cuts, again=again)
    return machine, cabinet


def sent(machine: Machine) -> list[Message]:
    """Every message once, in the order in which it was first sent."""
    return list({(message.topic, message.key, message.value): message for message in machine.sent}.values())


def journal(machine: Machine) -> dict[bytes, bytes | None]:
    """The journal rows that were ever written, the last under each key."""
    return {key: value for key, value in machine.changelog if key.startswith(JOURNAL) and value is not None}


EVENTS = st.tuples(st.sampled_from("uvwxyz"), st.sampled_from(["a", "b", "c", "d", "", "é"]), st.integers(0, 60))
ACTS = st.lists(st.lists(EVENTS, min_size=1, max_size=12), min_size=1, max_size=6)


@examples(
    25,
    100,
    given(ACTS, st.sampled_from([0, A_FEW]), st.lists(st.integers(0, 40), max_size=5), st.integers(0, 2)),
    derandomize=True,
    phases=PHASES,
)
def test_a_window_on_disk_writes_refuses_and_hands_on_what_one_in_memory_does_whatever_crashes(
    acts: Acts, memory: int, cuts: list[int], again: int
) -> None:
    in_memory, unused = run(acts, 1 << 30)
    on_disk, cabinet = run(acts, memory, cuts, again)

    assert (unused.made, cabinet.standing) == (0, [])
    assert cabinet.made > 0 or memory > 0
    assert sent(on_disk) == sent(in_memory)
    assert journal(on_disk) == journal(in_memory)
    assert on_disk.rows == in_memory.rows
    refused = {name: n for name, n in in_memory.counts.items() if name[0] == "events_refused"}
    if not cuts:
        assert {name: n for name, n in on_disk.counts.items() if name[0] == "events_refused"} == refused


MIDWAY: Acts = [
    [("u", "a", 1), ("v", "a", 2), ("u", "b", 30)],
    [("w", "b", 1), ("x", "c", 3), ("u", "a", 4), ("u", "d", 5), ("u", "e", 5)],
    [("u", "a", 1), ("y", "", 6), ("x", "c", 12), ("v", "b", 7), ("v", "c", 8)],
]


@every(4)
@pytest.mark.parametrize("memory", ordinarily(1, [A_FEW, 0]))
def test_a_run_on_disk_that_is_cut_anywhere_hands_on_what_an_uncut_run_in_memory_does(memory: int, step: int) -> None:
    in_memory, _ = run(MIDWAY, 1 << 30)
    whole, cabinet = run(MIDWAY, memory)
    assert 0 < cabinet.made < 12
    for cut in range(0, whole.points, step):
        machine, cabinet = run(MIDWAY, memory, [cut], 1)
        assert sent(machine) == sent(in_memory)
        assert (machine.rows, cabinet.standing) == (in_memory.rows, [])


def test_a_window_goes_on_disk_with_the_chunk_that_outgrows_memory_and_holds_nothing_from_then_on() -> None:
    machine, cabinet = Machine(), Cabinet()
    one = counter(view(), memory=A_FEW, spill_stores=cabinet)
    machine.carry_out(one.load(machine))
    made, slow = [], []
    for n in range(4):
        machine.carry_out(one.chunk([event(n, f"u{n}", f"i{n}", 1)], 5))
        made.append(cabinet.made)
        slow.append(one.takes_long)
    assert made == [0, 0, 1, 1]
    assert slow == [False, True, True, True]
    (window,) = one._views[0].windows.values()
    assert (window.tables, window.memory_bytes) == (({}, {}), 0)

    again = counter(view(), memory=A_FEW, spill_stores=cabinet)
    machine.carry_out(again.load(machine))
    assert cabinet.standing[0].entries == cabinet.standing[1].entries
    machine.carry_out(again.ticks([13]))
    assert handed_on(machine.sent) == {"pages": {0: {f"i{n}": 1 for n in range(4)}}}
    assert len(cabinet.standing) == 1


@pytest.mark.parametrize("clock", ["wall", "event"])
def test_a_large_window_says_that_it_takes_long_before_it_is_counted(clock: str) -> None:
    """By the chunk or the tick that closes it; a small one does not."""
    for users in (10, CLOSED_BYTES // USER_BYTES + 1):
        machine = Machine()
        one = counter(view(clock=clock), memory=1 << 30)
        machine.carry_out(one.load(machine))
        machine.carry_out(one.chunk([event(n, f"u{n}", "a", 1) for n in range(users)], 5))
        closing = one.chunk([watermark(users, 200)], 200) if clock == "event" else one.ticks([200])
        kinds = []
        for effect in closing:
            machine.carry_out(iter([effect]))
            kinds.append(type(effect))
        assert Send in kinds
        assert (Long in kinds[: kinds.index(Send)]) is (users > 10)


def test_a_users_bound_holds_across_what_stands_on_disk() -> None:
    """Every chunk asks for a part of what a user has; the rest still counts towards the bound."""
    machine = Machine()
    one = counter(view(items_per_user=3), memory=0)
    machine.carry_out(one.load(machine))
    for at, item in enumerate("abacbddc"):
        machine.carry_out(one.chunk([event(at, "u", item, 1), event(at + 100, "v", "z", 1)][: 1 + (at == 7)], 5))
    machine.carry_out(one.ticks([13]))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1, "b": 1, "c": 1, "z": 1}}}
    refused = {labels[0][1]: n for (name, labels), n in machine.counts.items() if name == "events_refused"}
    assert refused == {"duplicate": 3, "clipped": 2}


def test_the_estimate_covers_what_a_window_takes() -> None:
    """From above, and not by much where users have several items."""
    window, chance = OpenWindow(), random.Random(1)
    for first in range(0, 20_000, 1000):
        row = JournalRow(0, [], [])
        for at in range(first, first + 1000):
            row.users.append(b"user %d" % (at % 2500))
            row.items.append(f"item {chance.randrange(1000)} {at % 2500}" if at % 5 == 0 else f"item {at // 2500}")
        window.add(row)
        window.settle([row], WindowMemory(1 << 30, Cabinet()))
    users, held = window.accepted, {id(one): one for one in window.accepted.values()}
    taken = sum(map(getsizeof, [users, window.codes, *users, *window.codes, *window.codes.values(), *held.values()]))
    assert taken < window.memory_bytes < 2 * taken


def test_a_code_is_found_among_others_only_where_it_stands() -> None:
    """Else an item that a user does not have would be refused as one that they have."""
    some = [*range(300), *(1 << bits for bits in range(9, 24)), MOST_CODES - 1]
    codes = [code_of(number) for number in some]
    assert all(len(code) == CODE_BYTES for code in codes)
    for at, code in enumerate(codes):
        others = codes[:at] + codes[at + 1 :]
        assert code not in "".join(others)
        assert code in "".join(codes)
    assert open_windows._numbers_of("".join(codes)).tolist() == some


def test_items_are_counted_in_blocks_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    window, weights = OpenWindow(), (12, 6, 4)
    users = {b"%d" % n: [f"i{(n + k * k) % 150}" for k in range(1 + n % 3)] for n in range(400)}
    pairs = [(user, item) for user, items in users.items() for item in items]
    window.add(JournalRow(0, [user for user, _ in pairs], [item for _, item in pairs]))
    plain = Counter(item for _, item in pairs)
    weighted = Counter[str]()
    for items in users.values():
        weighted.update(dict.fromkeys(items, weights[len(items) - 1]))
    for block in (1, 64, 1000, 1 << 20):
        monkeypatch.setattr(open_windows, "_BYTES_AT_ONCE", block)
        assert list(window.counts()) == list(plain.items())
        assert dict(window.counts(weights)) == weighted
    assert list(OpenWindow().counts()) == []


ITEMS = [f"i{n % 37}" for n in range(100)]


@pytest.mark.parametrize(
    ("most", "passes"), [(1 << 30, 1), (40 * (ITEM_BYTES + 60), 1), (9 * (ITEM_BYTES + 60), 8), (0, 8)]
)
def test_passes_over_a_journal_count_every_bucket_in_its_order(most: int, passes: int) -> None:
    reads = 0

    def read() -> Iterator[tuple[str, int]]:
        nonlocal reads
        reads += 1
        return ((item, 1) for item in ITEMS)

    tables = list(tables_of(read, 8, most))
    assert [[*table.items()] for table in tables] == [
        [*{item: ITEMS.count(item) for item in ITEMS if bucket_of(item, 8) == bucket}.items()] for bucket in range(8)
    ]
    assert 1 <= reads <= passes
    assert (reads > 1) == (most < 40 * ITEM_BYTES)


@pytest.mark.parametrize(("text", "size"), [("32MiB", 32 << 20), ("1GiB", 1 << 30), ("48KiB", 48 << 10), ("0KiB", 0)])
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["", "64", "64MB", "1.5GiB", "-1MiB", " 1MiB", "1 MiB", "1gib"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="whole number with its unit"):
        parse_size(text)


def test_a_window_on_disk_holds_nothing_behind_a_chunk_that_adds_nothing() -> None:
    machine, one = Machine(), counter(view(), memory=0)
    machine.carry_out(one.load(machine))
    for first in (0, 3):
        machine.carry_out(one.chunk([event(first + at, f"u{at}", "a", 1) for at in range(3)], 5))
        window = one._views[0].windows[0]
        assert (window.accepted, window.codes) == ({}, {})


def test_a_window_goes_on_on_disk_before_its_items_run_out_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_windows, "MOST_CODES", 8)
    machine, one = Machine(), counter(view(items_per_user=9))
    machine.carry_out(one.load(machine))
    for at, item in enumerate("abcde"):
        machine.carry_out(one.chunk([event(at, "u", item, 1)], 5))
        assert (one._views[0].windows[0].spill_store is not None) is (at >= 4)
    machine.carry_out(one.ticks([23]))
    assert handed_on(machine.sent)["pages"][0] == dict.fromkeys("abcde", 1)
