"""How a user's items become counts: shared weights and bins of users, in memory, on disk, and whatever crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import ParameterError
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Message
from stream_dp.windows.merging import BucketMerger, MergedBucket
from stream_dp.windows.open_windows import ITEM_BYTES, USER_BYTES
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.chosen import examples
from tests.support.counting import Cabinet, Entry, counter, event, handed_on, small_sizes, totals, view, watermark
from tests.support.machine import Machine, deliver
from tests.support.phases import PHASES

MOST, WHOLE = 3, 12
WEIGHTS = tuple(WHOLE // held for held in range(1, MOST + 1))
BINS = ("1", "2-3", "2-3")
VIEWS = (
    view("shared", items_per_user=MOST, weights=WEIGHTS, buckets=3),
    view("binned", items_per_user=MOST, degrees=BINS, buckets=3),
    view("hops", length_ms=20, step_ms=10, items_per_user=MOST, weights=WEIGHTS),
    view("plain", items_per_user=MOST),
)
A_FEW = 3 * (USER_BYTES + ITEM_BYTES)
Act = tuple[str, str, int]
Counts = Mapping[str, Mapping[int, Mapping[str, int]]]
Tally = Callable[[Sequence[str]], Mapping[str, int]]
"""From the items of a user, as they came, to what the user adds."""


def weighted(items: Sequence[str]) -> Mapping[str, int]:
    return {item: WEIGHTS[len(items) - 1] for item in items}


def binned(items: Sequence[str]) -> Mapping[str, int]:
    return {BINS[len(items) - 1]: 1}


TALLIES: Mapping[str, Tally] = {"shared": weighted, "binned": binned, "hops": weighted, "plain": dict.fromkeys}  # type: ignore[dict-item]


def oracle(acts: Sequence[Act]) -> Counts:
    """What each view adds up to, user by user: the first distinct items of every window."""
    found: dict[str, dict[int, Counter[str]]] = {}
    for one in VIEWS:
        length, step = (20, 10) if one.name == "hops" else (10, 10)
        held: dict[tuple[int, str], list[str]] = {}
        for user, item, time in acts:
            for start in range(0, time + 1, step):
                own = held.setdefault((start, user), []) if start <= time < start + length else []
                if start <= time < start + length and item not in own and len(own) < MOST:
                    own.append(item)
        for (start, _), items in held.items():
            added = TALLIES[one.name](items)
            table = found.setdefault(one.name, {}).setdefault(start, Counter())
            table.update({item: 1 if amount is None else amount for item, amount in added.items()})
    return found


def run(chunks: Sequence[Sequence[Act]], memory: int = 1 << 30, cuts: Sequence[int] = (), again: int = 0) -> Machine:
    """Count chunks, then close every window."""
    machine, cabinet = Machine(), Cabinet()
    entries: list[list[Entry]] = []
    for some in chunks:
        first = sum(map(len, entries))
        entries.append([event(first + at, *one) for at, one in enumerate(some)])

    def new() -> PartitionCounter:
        cabinet.standing.clear()
        return counter(*VIEWS, memory=memory, spill_stores=cabinet)

    steps = [lambda one, some=some: one.chunk(some, 100) for some in entries]
    deliver(machine, new, [*steps, lambda one: one.ticks([200]), lambda one: one.ticks([201])], cuts=cuts, again=again)
    return machine


def shown(machine: Machine) -> Counts:
    """The counts that are not zero."""
    found = handed_on(machine.sent)
    return {name: {start: table for start, table in windows.items() if table} for name, windows in found.items()}


ACTS = st.lists(
    st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("abcde"), st.integers(0, 25)), min_size=1, max_size=15),
    min_size=1,
    max_size=4,
)


@examples(
    40,
    200,
    given(ACTS, st.sampled_from([0, A_FEW, 1 << 30]), st.lists(st.integers(0, 40), max_size=4), st.integers(0, 2)),
    derandomize=True,
    phases=PHASES,
)
def test_counts_are_those_of_an_oracle_in_memory_on_disk_and_whatever_crashes(
    chunks: list[list[Act]], memory: int, cuts: list[int], again: int
) -> None:
    with small_sizes():  # every bucket in many parts
        machine = run(chunks, memory, cuts, again)
    assert shown(machine) == oracle([one for some in chunks for one in some])


@examples(40, 200, given(ACTS, st.sampled_from([0, 1 << 30])), derandomize=True, phases=PHASES)
def test_one_user_moves_one_vote_or_one_bin_and_nobody_else(chunks: list[list[Act]], memory: int) -> None:
    without = [[one for one in some if one[0] != "u"] for some in chunks]
    with_user, others = shown(run(chunks, memory)), shown(run([some for some in without if some], memory))
    for one in VIEWS[:3]:
        for start in with_user.get(one.name, {}):
            table, before = with_user[one.name][start], others.get(one.name, {}).get(start, {})
            moved = {item: table[item] - before.get(item, 0) for item in table}
            assert before.keys() <= table.keys()
            assert min(moved.values()) >= 0
            assert sum(moved.values()) <= (1 if one.degrees else WHOLE)
            assert not one.degrees or sum(map(bool, moved.values())) <= 1


MANY: list[Act] = [("u", item, 1) for item in "abcde"] + [("v", "a", 2), ("w", "a", 3), ("w", "b", 4)]


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_the_oracle_tells_weights_by_all_items_and_users_in_two_bins_apart(memory: int) -> None:
    """Mutants: a user with more items than count is weighed by all of them, counts in a bin each time it is seen, or
    with everything."""
    table = shown(run([MANY], memory))
    assert table["shared"][0] == {"a": 4 + 12 + 6, "b": 4 + 6, "c": 4}
    assert table["binned"][0] == {"1": 1, "2-3": 2}
    beyond = Counter(dict.fromkeys("abc", WHOLE // 5)) + Counter({"a": 18, "b": 6})
    assert table["shared"][0] != beyond
    assert table["binned"][0] != Counter(BINS[min(at, 2)] for at in range(3)) + Counter({"1": 1, "2-3": 2})


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_the_counter_of_events_counts_contributions_and_not_weights(memory: int) -> None:
    machine = run([MANY], memory)
    assert totals(machine)["events_counted", (("view", "shared"),)] == 6
    assert totals(machine)["events_counted", (("view", "binned"),)] == 6


def test_partitions_add_up_since_all_of_a_user_is_in_one() -> None:
    machine = Machine()
    merged: list[Mapping[str, int]] = []
    (one,) = [each for each in VIEWS if each.name == "shared"]
    sides = []
    for partition, acts in enumerate(([("u", "a", 1), ("u", "b", 1)], [("v", "a", 1)])):
        side = Machine()
        source = counter(one, partition=partition)
        side.carry_out(source.load(side))
        side.carry_out(source.chunk([event(at, *act) for at, act in enumerate(acts)], 5))
        side.carry_out(source.ticks([13]))
        sides += [message.value for message in side.sent if message.topic == "partials"]

    def outlet(bucket: MergedBucket) -> Message:
        merged.append(bucket.counts)
        return Message("merged", None, b"")

    merger = BucketMerger(
        {"shared": one}, {"shared": 2}, outlet=outlet, withdrawal=lambda head: Message("partials", head.key, None)
    )
    machine.carry_out(merger.load(machine))
    machine.carry_out(merger.partials(sides, machine))
    assert sum(map(Counter, merged), Counter[str]()) == {"a": 18, "b": 6}


def test_items_that_are_bounded_over_several_windows_are_not_grouped_in_each() -> None:
    for grouped in GROUPED:
        with pytest.raises(ParameterError, match="bounded over several windows and cannot be grouped"):
            view(items_per_user=MOST, bounds=Tiling(40), **grouped)


GROUPED: tuple[dict[str, Any], ...] = ({"weights": WEIGHTS}, {"degrees": BINS})


def test_a_chunk_that_may_close_a_window_of_grouped_users_is_counted_off_the_loop() -> None:
    machine = Machine()
    for grouped, long in ((GROUPED[0], True), (dict[str, Any](), False)):
        one = counter(view(items_per_user=MOST, clock="event", **grouped))
        machine.carry_out(one.load(machine))
        machine.carry_out(one.chunk([event(0, "u", "a", 1), watermark(1, 50)], 60))
        assert one.takes_long is long
        machine = Machine()
