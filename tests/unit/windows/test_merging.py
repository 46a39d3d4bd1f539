"""Merged buckets against plain sums, whatever order, repetition or crash the partials come with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.select.candidates import candidates
from stream_dp.windows.effects import Commit, Message, Send
from stream_dp.windows.encoding import bucket_key, bucket_number, bucket_of, decode, encode
from stream_dp.windows.merging import FINISHED, PARTIAL, BucketMerger, MergedBucket, Partial, largest, parts_of
from stream_dp.windows.views import HANDED_ON_AT_ONCE, CountedView
from tests.support.chosen import examples
from tests.support.counting import PARTIALS, small_sizes, view
from tests.support.machine import Machine
from tests.support.phases import PHASES
from tests.support.topics import TopicReader

PARTITIONS = 3
SUMS = "merged"
VIEWS = (view("all", buckets=2), view("top", buckets=2, needed=lambda counts: largest(counts, 2)))
KEPT = {"all": None, "top": 2}


def merger(*views: CountedView, partitions: int = PARTITIONS) -> BucketMerger:
    return BucketMerger(
        {one.name: one for one in views},
        {one.name: partitions for one in views},
        outlet=lambda b: Message(
            SUMS, bucket_key(b"", b.view, b.start_ms, b.bucket) + bucket_number(b.part), encode(b)
        ),
        withdrawal=lambda partial: Message(PARTIALS, partial.key, None),
    )


def whole(view_name: str, start: int, bucket: int, partition: int, closed: int, counts: dict[str, int]) -> Partial:
    """A partial that is the only part."""
    return Partial(view_name, start, bucket, partition, closed, 0, 1, counts)


def reader(*views: CountedView, partitions: int = PARTITIONS, **how: object) -> TopicReader[BucketMerger]:
    return TopicReader(
        PARTIALS,
        lambda: merger(*views, partitions=partitions),
        lambda one, values, rows: one.partials(values, rows),
        **how,  # type: ignore[arg-type]
    )


def messages(partials: Iterable[Partial]) -> list[Message]:
    return [Message(PARTIALS, partial.key, encode(partial)) for partial in partials]


def merged(machine: Machine) -> dict[tuple[str, int, int], dict[str, int]]:
    """What was handed on of each bucket; every part is there, and every repetition is the same."""
    first: dict[tuple[str, int, int], list[MergedBucket | None]] = {}
    for message in machine.sent:
        if message.topic == SUMS:
            bucket = decode(MergedBucket, message.value or b"")
            parts = first.setdefault((bucket.view, bucket.start_ms, bucket.bucket), [None] * bucket.parts)
            assert parts[bucket.part] in (None, bucket)
            parts[bucket.part] = bucket
    found: dict[tuple[str, int, int], dict[str, int]] = {}
    for place, parts in first.items():
        tables = [part.counts for part in parts if part is not None]
        assert len(tables) == len(parts)
        found[place] = {item: count for table in tables for item, count in table.items()}
        assert len(found[place]) == sum(map(len, tables))
    return found


def partials_of(view_name: str, start: int, tables: Sequence[dict[str, int]], buckets: int = 2) -> list[Partial]:
    """What each source partition hands on of a window, cut as it cuts it."""
    return [
        Partial(view_name, start, bucket, partition, 0, part, len(parts), some)
        for partition, counts in enumerate(tables)
        for bucket in range(buckets)
        for parts in [parts_of({i: n for i, n in counts.items() if bucket_of(i, buckets) == bucket})]
        for part, some in enumerate(parts)
    ]


def summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for table in tables:
        total.update(table)
    return dict(total)


def top(counts: dict[str, int], keep: int | None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda row: (-row[1], row[0].encode()))[:keep])


def expected(windows: dict[int, list[dict[str, int]]]) -> dict[tuple[str, int, int], dict[str, int]]:
    return {
        (one.name, start, bucket): top(
            {i: n for i, n in summed(tables).items() if bucket_of(i, 2) == bucket}, KEPT[one.name]
        )
        for one in VIEWS
        for start, tables in windows.items()
        for bucket in range(one.buckets)
    }


# -- random orders, repetitions and crashes -----------------------------------------------------------------------

TABLES = st.lists(
    st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 4), max_size=5), min_size=PARTITIONS, max_size=PARTITIONS
)


@dataclass(frozen=True)
class Script:
    windows: dict[int, list[dict[str, int]]]
    batches: list[list[Partial]]
    cuts: list[int]
    back: int
    at_once: int
    small: bool


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    windows = {10 * n: tables for n, tables in enumerate(draw(st.lists(TABLES, min_size=1, max_size=3)))}
    with small_sizes() if (small := draw(st.booleans())) else nullcontext():
        every = [p for one in VIEWS for start, tables in windows.items() for p in partials_of(one.name, start, tables)]
    order = draw(st.permutations(every))
    twice = draw(st.lists(st.sampled_from(every), max_size=10))
    chance = random.Random(draw(st.integers(0, 99)))
    for partial in twice:
        order.insert(chance.randrange(len(order) + 1), partial)
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=20))
    batches: list[list[Partial]] = []
    while order:
        size = sizes[len(batches) % len(sizes)]
        batches.append(order[:size])
        order = order[size:]
    cuts = draw(st.lists(st.integers(0, 30), max_size=6))
    return Script(windows, batches, cuts, draw(st.integers(0, 20)), draw(st.integers(1, 20)), small)


def played(script: Script, cuts: list[int]) -> TopicReader[BucketMerger]:
    merging = reader(*VIEWS, cuts=cuts, back=script.back, at_once=script.at_once)
    with small_sizes() if script.small else nullcontext():
        for batch in script.batches:
            merging.write(messages(batch))
    return merging


@examples(30, 120, given(scripts()), derandomize=True, phases=PHASES)
def test_buckets_equal_the_sum_and_are_withdrawn_in_any_order_with_repetitions_and_crashes(script: Script) -> None:
    merging = played(script, script.cuts)
    assert merged(merging.machine) == expected(script.windows)
    assert merging.standing() == set()


@examples(20, 60, given(scripts()), derandomize=True, phases=PHASES)
def test_without_a_crash_a_bucket_is_handed_on_once_and_leaves_only_a_marker(script: Script) -> None:
    merging = played(script, [])
    machine = merging.machine
    sent = [message.key for message in machine.sent if message.topic == SUMS]
    assert len(sent) == len(set(sent))
    assert len({key[:-2] for key in sent if key is not None}) == len(expected(script.windows))
    assert {row[:1] for row in machine.rows} == {FINISHED}
    assert set(machine.rows.values()) == {b""}
    assert len(machine.rows) == len(expected(script.windows))
    assert machine.unerased(PARTIAL) == []


# -- every single cut -----------------------------------------------------------------------------------------------

WINDOW = [{"a": 1, "b": 2, "c": 5}, {"a": 3}, {}]


@pytest.fixture(params=["whole buckets", "parts"])
def sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether buckets come and go whole or in parts of an item or two."""
    with small_sizes() if request.param == "parts" else nullcontext():
        yield


def cut_runs(back: int, *, compacts: bool = False) -> Iterable[TopicReader[BucketMerger]]:
    every = messages(partials_of("all", 0, WINDOW))
    whole = reader(*VIEWS, at_once=3)
    whole.write(every)
    for cut in range(whole.machine.points):
        merging = reader(*VIEWS, cuts=[cut], back=back, at_once=3, compacts=compacts)
        merging.write(every)
        merging.restart()
        yield merging


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("back", [0, 9])
def test_a_merge_cut_anywhere_hands_on_the_sum(back: int) -> None:
    for merging in cut_runs(back):
        assert len(merged(merging.machine)) == 2
        assert summed(merged(merging.machine).values()) == {"a": 4, "b": 2, "c": 5}
        assert merging.standing() == set()


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("back", [0, 9])
def test_a_merge_cut_anywhere_hands_on_the_sum_though_withdrawn_partials_are_gone_when_it_restarts(back: int) -> None:
    """After a long outage a withdrawn partial is compacted away: only its row tells that a bucket is complete."""
    for merging in cut_runs(back, compacts=True):
        assert len(merged(merging.machine)) == 2
        assert {row[:1] for row in merging.machine.rows} == {FINISHED}


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("back", [0, 9])
def test_a_merge_cut_anywhere_leaves_no_counts_in_the_table(back: int) -> None:
    """The marker is stored before the deletions: a crash between them must not keep raw counts for ever."""
    for merging in cut_runs(back):
        assert {row[:1] for row in merging.machine.rows} == {FINISHED}


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("back", [0, 9])
def test_a_merge_cut_anywhere_leaves_no_counts_in_the_files(back: int) -> None:
    """Rows deleted by a commit whose `Erase` a crash prevented have to be erased after the restart."""
    for merging in cut_runs(back):
        assert merging.machine.unerased(PARTIAL) == []


# -- single rules ---------------------------------------------------------------------------------------------------


def test_a_bucket_waits_for_every_partition() -> None:
    merging = reader(VIEWS[0])
    every = partials_of("all", 0, WINDOW)
    merging.write(messages(p for p in every if p.partition < 2))
    merging.write(messages(p for p in every if p.partition < 2))
    assert merged(merging.machine) == {}
    merging.write(messages(p for p in every if p.partition == 2))
    assert len(merged(merging.machine)) == 2


def test_a_later_partial_replaces_an_earlier_one() -> None:
    merging = reader(VIEWS[0], partitions=2)
    merging.write(messages([whole("all", 0, 0, 0, 0, {"a": 1}), whole("all", 0, 0, 0, 0, {"a": 5})]))
    merging.write(messages([whole("all", 0, 0, 0, 0, {"a": 3}), whole("all", 0, 0, 1, 0, {"a": 10})]))
    assert merged(merging.machine) == {("all", 0, 0): {"a": 13}}


def test_a_bucket_is_closed_when_the_last_partition_has_closed_it() -> None:
    for closes in ((7, 9, 8), (9, 7, 8), (8, 8, 9)):
        merging = reader(VIEWS[0])
        merging.write(messages(whole("all", 0, 0, at, closed, {"a": 1}) for at, closed in enumerate(closes)))
        (sent,) = (message for message in merging.machine.sent if message.topic == SUMS)
        assert decode(MergedBucket, sent.value or b"").closed_ms == 9


def parts(partition: int, counts: dict[str, int]) -> list[Partial]:
    """What a partition counted, an item or two in each part."""
    with small_sizes():
        cut = parts_of(counts)
    return [Partial("all", 0, 0, partition, 0, part, len(cut), some) for part, some in enumerate(cut)]


def test_a_bucket_waits_for_every_part_of_every_partition() -> None:
    one, other = parts(0, {"a": 1, "b": 2, "c": 3}), parts(1, {"c": 4})
    assert [len(one), len(other)] == [3, 1]
    for missing in [*one, *other]:
        merging = reader(view("all", buckets=1), partitions=2)
        merging.write(messages(part for part in [*one, *other, *one] if part is not missing))
        merging.restart()
        assert merged(merging.machine) == {}
        merging.write(messages([missing]))
        assert merged(merging.machine) == {("all", 0, 0): {"a": 1, "b": 2, "c": 7}}


def test_counts_that_a_partition_has_cut_in_two_ways_are_never_summed() -> None:
    """An item may stand in a part of either, and would count twice."""
    merging = reader(VIEWS[0], partitions=1)
    first, *_ = parts(0, {"a": 1, "b": 2, "c": 3})
    merging.write(messages([first]))
    with pytest.raises(StateError, match="partition 0 has sent what it counted in a window of view all in two ways"):
        merging.write(messages([whole("all", 0, 0, 0, 0, {"a": 1, "b": 2, "c": 3})]))


def test_a_bucket_of_many_parts_is_read_once_not_with_every_part_that_comes() -> None:
    merging = reader(view("all", buckets=1), partitions=1, at_once=1)
    merging.write(messages(parts(0, {f"{n:03d}": 1 for n in range(100)})))
    assert merging.machine.scanned == 100


def test_windows_of_one_batch_are_each_complete_on_their_own() -> None:
    merging = reader(VIEWS[0], partitions=1)
    merging.write(messages([whole("all", start, 0, 0, 0, {"a": start}) for start in (10, 20, 30)]))
    assert merged(merging.machine) == {("all", start, 0): {"a": start} for start in (10, 20, 30)}


def test_a_partial_is_withdrawn_once_it_is_stored_and_deleted_once_its_bucket_is_handed_on() -> None:
    value = encode(whole("all", 0, 0, 0, 0, {"a": 1}))
    places: dict[tuple[str, bool], int] = {}
    for at, effect in enumerate(merger(VIEWS[0], partitions=1).partials([value], Kept())):
        if isinstance(effect, Commit):
            places |= {("row", row is None): at for stored, row in effect.rows if stored.startswith(PARTIAL)}
        elif isinstance(effect, Send):
            places |= {(message.topic, message.value is None): at for message in effect.messages}
    assert places["row", False] < places[PARTIALS, True] <= places["row", True]
    assert places["row", False] < places[SUMS, False] < places["row", True]


class Kept(Machine):
    """Rows with one partial in them."""

    def __init__(self) -> None:
        partial = whole("all", 0, 0, 0, 0, {"a": 1})
        super().__init__(rows={partial.key: encode(partial)})


def test_a_partial_that_comes_again_is_dropped_and_withdrawn() -> None:
    merging = reader(VIEWS[0], partitions=1)
    again = messages([whole("all", 0, 0, 0, 0, {"a": 1})])
    merging.write(again)
    merging.write(again)
    assert sum(message.topic == SUMS for message in merging.machine.sent) == 1
    assert merging.machine.counts["partials_repeated", ()] == 1
    assert merging.standing() == set()
    assert {row[:1] for row in merging.machine.rows} == {FINISHED}


def test_a_partial_of_a_view_that_is_not_configured_is_withdrawn_and_not_stored() -> None:
    merging = reader(VIEWS[0])
    merging.write(messages(partials_of("gone", 0, WINDOW)))
    assert merging.machine.rows == {}
    assert merging.standing() == set()


def without_gone() -> TopicReader[BucketMerger]:
    """A merge whose view `gone` was taken out of the configuration while a window of it waited."""
    merging = reader(view("gone"), VIEWS[0])
    merging.write(messages(partials_of("gone", 0, WINDOW)[:2]))
    merging.new = lambda: merger(VIEWS[0])
    merging.restart()
    merging.write(messages(partials_of("all", 0, WINDOW)))
    return merging


def test_a_step_that_hands_on_does_not_wait_for_the_disk_and_the_next_one_erases_what_it_deleted() -> None:
    machine, one = Machine(), merger(*VIEWS)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.partials([message.value for message in messages(partials_of("all", 0, WINDOW))], machine))
    assert len(merged(machine)) == 2
    assert machine.unerased(PARTIAL) != []
    machine.carry_out(one.partials([None], machine))
    assert machine.unerased(PARTIAL) == []


def test_partials_of_a_view_that_is_no_longer_configured_are_deleted_and_erased() -> None:
    """A window of it never becomes complete, so nothing else would delete its counts."""
    machine = without_gone().machine
    assert [row for row in machine.rows if row.startswith(PARTIAL)] == []
    assert machine.unerased(PARTIAL) == []


def test_partials_of_a_view_that_is_no_longer_configured_are_withdrawn_from_the_topic() -> None:
    assert without_gone().standing() == set()


def test_markers_expire_but_not_while_their_windows_can_be_sent_again() -> None:
    """Within the retention, and within what a counter hands on in one go, a marker stays."""
    merging = reader(view("all", buckets=1, retention_ms=25), view("alls", buckets=1), partitions=1)
    starts = range(0, 30 * HANDED_ON_AT_ONCE, 10)
    for start in starts:
        merging.write(messages([whole(name, start, 0, 0, 0, {}) for name in ("all", "alls")]))
    kept = {
        name: [start for start in starts if bucket_key(FINISHED, name, start, 0) in merging.machine.rows]
        for name in ("all", "alls")
    }
    assert kept["alls"] == [*starts]
    assert HANDED_ON_AT_ONCE <= len(kept["all"]) < len(starts)
    assert kept["all"] == [*starts][-len(kept["all"]) :]


def test_partials_sent_again_after_their_markers_expired_leave_no_counts() -> None:
    """A counter hands on up to 32 windows before its commit point, and after a crash sends them all again."""
    windows = [10 * n for n in range(HANDED_ON_AT_ONCE)]
    merging = reader(view("all", buckets=1, retention_ms=40), partitions=2, at_once=5)
    first, second = (messages(whole("all", start, 0, p, 0, {"secret": 1}) for start in windows) for p in (0, 1))
    merging.write(first)
    merging.write(second)
    assert len(merged(merging.machine)) == len(windows)
    merging.write(first)
    assert [row for row in merging.machine.rows if row.startswith(PARTIAL)] == []
    assert merging.standing() == set()


# -- the top of a bucket --------------------------------------------------------------------------------------------

ITEMS = st.sampled_from(["a", "b", "ab", "é", "\uffff", "\U0001f600", "", "z", "\x00"])


@examples(
    50,
    200,
    given(st.lists(st.dictionaries(ITEMS, st.integers(1, 4)), min_size=1, max_size=4), st.integers(1, 5)),
    derandomize=True,
    phases=PHASES,
)
def test_the_tops_of_the_buckets_hold_the_candidates_of_the_whole_window(
    tables: list[dict[str, int]], kbar: int
) -> None:
    """Ties included, whatever the script: buckets order by text, candidates by UTF-8 bytes (specs/topk 5.2.3)."""
    total = summed(tables)
    kept: dict[str, int] = {}
    for bucket in range(3):
        kept |= largest({item: n for item, n in total.items() if bucket_of(item, 3) == bucket}, kbar + 1)
    whole, part = ({item.encode(): n for item, n in table.items()} for table in (total, kept))
    assert candidates(part, kbar) == candidates(whole, kbar)


def test_ties_are_kept_by_item() -> None:
    assert largest({"c": 2, "b": 1, "a": 1, "d": 2}, 3) == {"c": 2, "d": 2, "a": 1}
    assert largest({"c": 2}, 3) == {"c": 2}


@given(st.lists(st.booleans(), min_size=PARTITIONS, max_size=PARTITIONS), st.permutations(range(PARTITIONS)))
def test_bucket_is_interrupted_if_it_was_in_one_partition(interrupted: list[bool], order: list[int]) -> None:
    machine, one = Machine(), merger(view("all", buckets=1))
    machine.carry_out(one.load(machine))
    for partition in order:
        partial = Partial("all", 0, 0, partition, 5, 0, 1, {"a": 1}, interrupted[partition])
        machine.carry_out(one.partials([encode(partial)], machine))
    (bucket,) = [decode(MergedBucket, message.value or b"") for message in machine.sent if message.topic == SUMS]
    assert bucket.interrupted == any(interrupted)
