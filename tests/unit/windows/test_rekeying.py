"""Re-keyed events are counted as if they had been counted where they stand in the source, whatever happens on the way.

The oracle counts every partition of the source by itself, with its own ticks, and adds up what each user has. Here a
user has no more items than count, so the order in which the partitions are heard of decides nothing.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from zlib import crc32

import pytest

from stream_dp.windows.count_rows import Marker, Missing, SourceProgress, rekey_key
from stream_dp.windows.counting import CountedPartition
from stream_dp.windows.effects import Message, Step
from stream_dp.windows.encoding import MESSAGE_BYTES, decode, encode
from stream_dp.windows.events import MOST_BYTES, EventDecoder, KeyReader
from stream_dp.windows.merging import Partial
from stream_dp.windows.open_windows import SpillStore, WindowMemory
from stream_dp.windows.rekeying import RekeyedBatch, RekeyedCounter, Rekeyer, UserPartitions, place_behind
from stream_dp.windows.rekeying import RekeyedEvent as Sent
from stream_dp.windows.views import CountedView
from tests.support.counting import (
    FORM,
    LETTERS,
    PARTIALS,
    Cabinet,
    Entry,
    Oracle,
    ViewOracle,
    event,
    handed_on,
    view,
    watermark,
)
from tests.support.machine import Machine, deliver

PARTITIONS = 3
VIEWS = (view("wall", items_per_user=4), view("event", items_per_user=4, clock="event", idle_ms=6, grace_ms=1))
REKEYED = "re-keyed batches"


def home(user: bytes) -> int:
    return crc32(user) % PARTITIONS


def letter(at: int, offset: int, reason: str, views: Sequence[str]) -> Message:
    return Message(LETTERS, None, f"{at}/{offset}/{reason}/{'+'.join(views)}".encode())


def rekeyer(at: int) -> Rekeyer:
    return Rekeyer(
        "visits",
        at,
        VIEWS,
        KeyReader("$.who.id"),
        users=UserPartitions(PARTITIONS, lambda users: list(map(home, users))),
        outlet=lambda to, batch: Message(REKEYED, None, encode(batch), to),
        dead_letters=letter,
    )


def users_counter(
    at: int,
    life: int = 1,
    spill_stores: Callable[[], SpillStore] | None = None,
    memory: int = 1 << 30,
    views: Sequence[CountedView] = (),
    source_partitions: int = PARTITIONS,
) -> RekeyedCounter:
    views = views or VIEWS  # not a default: a test replaces it
    return RekeyedCounter(
        CountedPartition("visits", at),
        views,
        lambda names: EventDecoder(replace(FORM, items=("page",) * len(names))),
        outlet=lambda partial: Message(PARTIALS, partial.key, encode(partial)),
        dead_letters=letter,
        configured=[one.name for one in views],
        memory=WindowMemory(memory, spill_stores or Cabinet()),
        source_partitions=source_partitions,
        life=life,
    )


@dataclass
class Lane:
    """A partition of the source: its log, as it would be keyed by user, and its ticks."""

    entries: list[Entry] = field(default_factory=list)
    ticks: list[tuple[int, int]] = field(default_factory=list)
    keyless: list[int] = field(default_factory=list)
    gone: tuple[int, int] = (0, 0)
    """From the tick of a number on, the log begins at an offset."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Lane:
        source_partition, now = cls(), 0
        for _ in range(chance.randrange(2, 9)):
            now += chance.randrange(1, 15)
            for _ in range(chance.randrange(5)):
                at, what = len(source_partition.entries) + len(source_partition.keyless), chance.random()
                if what < 0.1:
                    source_partition.keyless.append(at)
                elif what < 0.25:
                    source_partition.entries.append(watermark(at, now - chance.randrange(8)))
                else:
                    time = now - chance.randrange(-2, 14)
                    source_partition.entries.append(event(at, chance.choice("uvwxyz"), chance.choice("abcd"), time))
            source_partition.ticks.append((now, len(source_partition.entries) + len(source_partition.keyless)))
        return source_partition

    def records(self) -> list[Entry]:
        """As they stand in the source, in which the key says nothing."""
        records = [Entry(at, b"u", b'{"page": "a", "at": 1}') for at in self.keyless]
        for one in self.entries:
            said = json.loads(one.value) | {"who": {"id": (one.key or b"").decode()}} if one.value else None
            records.append(replace(one, key=None, value=json.dumps(said).encode() if said else one.value))
        return sorted(records, key=lambda one: one.offset)

    def steps(self, chance: random.Random) -> list[Callable[[Rekeyer], Step]]:
        """The chunks and ticks in their order."""
        left, steps = self.records(), list[Callable[[Rekeyer], Step]]()

        def of_chunk(chunk: list[Entry], now: int, begins: int) -> Callable[[Rekeyer], Step]:
            return lambda one: one.chunk(chunk, now, begins)

        def of_tick(now: int, end: int, begins: int) -> Callable[[Rekeyer], Step]:
            return lambda one: one.ticks([now], [end], begins)

        for number, (now, end) in enumerate(self.ticks):
            begins = self.begins(number)
            left = [one for one in left if one.offset >= begins]
            while left and left[0].offset < end:
                size = chance.randrange(1, 4)
                chunk = [one for one in left[:size] if one.offset < end]
                del left[: len(chunk)]
                steps.append(of_chunk(chunk, now, begins))
            steps.append(of_tick(now, end, begins))
        return steps

    def begins(self, tick: int) -> int:
        """Where the log begins when a tick is heard."""
        first, offset = self.gone
        return offset if tick >= first else 0

    def lost(self, one: CountedView) -> set[int]:
        """The starts of the windows of a view by the wall clock that may lack a record that was deleted."""
        found: set[int] = set()
        before, at = one.first_ms, 0
        for number, (now, end) in enumerate(self.ticks):
            if number and at < min(end, self.begins(number)):
                starts = one.windows.starts(one.first_ms, now + one.max_ahead_ms + 1)
                found |= {start for start in starts if one.windows.end(start) + one.grace_ms > before}
            before, at = now, end
        return found

    def oracle(self) -> Oracle:
        return Oracle.of(VIEWS).follow(self.entries, self.ticks)


def merged(chance: random.Random, logs: Sequence[Sequence[Message]]) -> list[Message]:
    """Some logs become one, each in its order."""
    left = [list(log) for log in logs]
    out = []
    while any(left):
        out.append(chance.choice([log for log in left if log]).pop(0))
    return out


def with_zombie(chance: random.Random, log: Sequence[Message]) -> list[Message]:
    """The same with what a predecessor that stood still sends as well, from where it knows that all before was sent."""
    first = chance.randrange(len(log) + 1)
    slept = chance.randrange(first, len(log) + 1)
    return [*log[:slept], *merged(chance, [log[slept:], log[first : chance.randrange(first, len(log) + 1)]])]


def assert_counted_as_in_the_source(seed: int, memory: int = 1 << 30) -> None:
    chance = random.Random(seed)
    source_partitions = [Lane.drawn(chance) for _ in range(PARTITIONS)]
    logs: list[list[list[Message]]] = [[] for _ in range(PARTITIONS)]
    found_letters: Counter[str] = Counter()
    for at, source_partition in enumerate(source_partitions):
        machine = Machine()
        cuts = [chance.randrange(1, 9) for _ in range(chance.randrange(5))]
        deliver(machine, partial(rekeyer, at), source_partition.steps(chance), cuts=cuts, again=chance.randrange(4))
        found_letters.update({(m.value or b"").decode() for m in machine.sent if m.topic == LETTERS})
        marker = decode(SourceProgress, machine.rows[rekey_key("visits")])
        assert marker.consumed == len(source_partition.entries) + len(source_partition.keyless)
        assert marker.watermarks == sum(not one.value for one in source_partition.entries)
        assert marker.refused == ({"missing_field": len(source_partition.keyless)} if source_partition.keyless else {})
        for to in range(PARTITIONS):
            sent = [m for m in machine.sent if m.topic == REKEYED and m.partition == to]
            logs[to].append(with_zombie(chance, sent))
    counts: dict[str, dict[int, Counter[str]]] = {one.name: {} for one in VIEWS}
    for to in range(PARTITIONS):
        batches = [Entry(at, None, m.value) for at, m in enumerate(merged(chance, logs[to]))]
        steps: list[Callable[[RekeyedCounter], Step]] = []
        while batches:
            size = chance.randrange(1, 6)
            steps.append(partial(lambda chunk, one: one.chunk(chunk, 0), batches[:size]))
            del batches[:size]
        machine = Machine()
        cuts = [chance.randrange(1, 12) for _ in range(chance.randrange(4))]
        deliver(machine, partial(users_counter, to, memory=memory), steps, cuts=cuts, again=chance.randrange(4))
        found_letters.update({(m.value or b"").decode() for m in machine.sent if m.topic == LETTERS})
        for name, windows in handed_on(machine.sent).items():
            for start, table in windows.items():
                counts[name].setdefault(start, Counter()).update(table)

    oracles = [source_partition.oracle() for source_partition in source_partitions]
    for column, one in enumerate(VIEWS):
        assert counts[one.name] == expected([oracle.views[column] for oracle in oracles]), (seed, one.name)
    noted: Counter[str] = Counter()
    for at, (source_partition, oracle) in enumerate(zip(source_partitions, oracles, strict=True)):
        noted.update(f"{at}/{offset}/missing_field/wall+event" for offset in source_partition.keyless)
        noted.update(f"{at}/{offset}/{reason}/{views}" for offset, reason, views in oracle.letters().elements())
    assert found_letters == noted, seed


def expected(source_partitions: Sequence[ViewOracle]) -> dict[int, Counter[str]]:
    """What is handed on of the windows that every source partition has closed."""
    closed = set(source_partitions[0].closed_windows()).intersection(
        *(source_partition.closed_windows() for source_partition in source_partitions)
    )
    found: dict[int, Counter[str]] = {start: Counter() for start in closed}
    pairs = {
        (start, user, item)
        for source_partition in source_partitions
        for (start, user), items in source_partition.held.items()
        for item in items
    }
    for start, _, item in pairs:
        if start in closed:
            found[start][item] += 1
    return found


@pytest.mark.parametrize("most", [30, pytest.param(120, marks=pytest.mark.slow)])
def test_crashes_repetitions_and_former_owners_between_source_and_count_change_nothing(most: int) -> None:
    for seed in range(most):
        assert_counted_as_in_the_source(seed)


def test_the_same_holds_for_windows_on_disk() -> None:
    for seed in range(1000, 1020):
        assert_counted_as_in_the_source(seed, memory=0)


@pytest.mark.parametrize("most", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_records_that_were_deleted_before_they_were_passed_on_lose_the_windows_that_may_lack_them(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    wall = view("wall", items_per_user=4, max_ahead_ms=3)
    monkeypatch.setitem(globals(), "VIEWS", (wall, VIEWS[1]))
    met: Counter[bool] = Counter()
    for seed in range(most):
        chance = random.Random(seed)
        source_partitions = [Lane.drawn(chance) for _ in range(PARTITIONS)]
        logs: list[list[Message]] = [[] for _ in range(PARTITIONS)]
        for at, source_partition in enumerate(source_partitions):
            if chance.random() < 0.7:
                first = chance.randrange(1, len(source_partition.ticks))
                source_partition.gone = first, chance.randrange(source_partition.ticks[-1][1] + 1)
            machine = Machine()
            cuts = [chance.randrange(1, 9) for _ in range(chance.randrange(5))]
            deliver(machine, partial(rekeyer, at), source_partition.steps(chance), cuts=cuts, again=chance.randrange(4))
            for to in range(PARTITIONS):
                logs[to] += [m for m in machine.sent if m.topic == REKEYED and m.partition == to]
        counts: dict[int, Counter[str]] = {}
        lost: set[int] = set()
        for to in range(PARTITIONS):
            batches = [Entry(at, None, m.value) for at, m in enumerate(logs[to])]
            steps = [partial(lambda chunk, one: one.chunk(chunk, 0), [one]) for one in batches]
            machine = Machine()
            cuts = [chance.randrange(1, 12) for _ in range(chance.randrange(4))]
            deliver(machine, partial(users_counter, to), steps, cuts=cuts, again=chance.randrange(4))
            sent = [m for m in machine.sent if m.topic == PARTIALS and decode(Partial, m.value or b"").view == "wall"]
            gone = [m for m in sent if decode(Partial, m.value or b"").lost]
            lost |= {decode(Partial, m.value or b"").start_ms for m in gone}
            for start, table in handed_on([m for m in sent if m not in gone]).get("wall", {}).items():
                counts.setdefault(start, Counter()).update(table)
        due = expected([source_partition.oracle().views[0] for source_partition in source_partitions])
        assert {start: table for start, table in counts.items() if start not in lost} == {
            start: table for start, table in due.items() if start not in lost
        }
        assert (
            lost == set.union(*(source_partition.lost(wall) for source_partition in source_partitions)) & due.keys()
        ), seed
        met.update(start in lost for start in due)
    assert min(met.values()) > most // 3


def test_only_what_was_deleted_behind_the_first_record_or_tick_is_missing_and_all_partitions_hear_of_it() -> None:
    machine, one = Machine(), rekeyer(1)
    machine.carry_out(one.load(machine))
    body = b'{"who": {"id": "u"}, "page": "a", "at": 1}'
    machine.carry_out(one.chunk([Entry(40, None, body)], 5, 40))  # a first start: 0 to 39 are long gone
    machine.carry_out(one.ticks([6], [43], 41))  # 41 and 42 are marks of a transaction
    assert one.next_offset == 43
    assert not machine.warned
    machine.carry_out(one.ticks([7, 8, 9], [43, 50, 60], 55))
    assert one.next_offset == 60
    sent = [decode(RekeyedBatch, m.value or b"") for m in machine.sent if m.topic == REKEYED and m.partition == 2]
    told = [(batch.now_ms, batch.missing, list(batch.ticks_ms)) for batch in sent if not batch.events]
    assert told == [
        (6, None, [6]),
        (7, None, [7]),
        (8, (43, 50), []),
        (8, None, [8]),
        (9, (50, 55), []),
        (9, None, [9]),
    ]
    marker = decode(SourceProgress, machine.rows[rekey_key("visits")])
    assert (marker.missing, marker.records_missing) == ([Missing(43, 55, 9)], 12)
    assert len(machine.warned) == 2


@pytest.mark.slow
def test_crashes_repetitions_and_former_owners_change_nothing_in_many_more_cases() -> None:
    for seed in range(2000, 12_000):
        assert_counted_as_in_the_source(seed)


# -- one thing at a time ---------------------------------------------------------------------------------------------


def batch(
    at: int, offset: int, source_partition: int, *entries: Entry, now: int = 5, ticks: Sequence[int] = ()
) -> Entry:
    events = [Sent(one.offset, one.timestamp, one.key or b"", one.value or b"") for one in entries if one.value]
    marks = [(one.offset, int(one.headers[0][1])) for one in entries if not one.value]
    return Entry(offset, None, encode(RekeyedBatch(source_partition, now, events, marks, list(ticks))))


def test_no_window_closes_before_the_last_partition_of_the_source_has_passed_it() -> None:
    machine, one = Machine(), users_counter(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([batch(0, 0, 0, event(0, "u", "a", 1)), batch(0, 1, 0, ticks=[13, 500])], 0))
    machine.carry_out(one.chunk([batch(0, 2, 1, ticks=[500])], 0))
    assert handed_on(machine.sent) == {}
    machine.carry_out(one.chunk([batch(0, 3, 2, event(7, "v", "a", 2)), batch(0, 4, 2, ticks=[12])], 0))
    assert handed_on(machine.sent) == {}
    machine.carry_out(one.chunk([batch(0, 5, 2, event(8, "w", "a", 3)), batch(0, 6, 2, ticks=[13])], 0))
    assert handed_on(machine.sent) == {"wall": {0: {"a": 3}}}


def test_what_the_topic_of_batches_held_before_it_was_made_anew_hides_nothing_of_the_new_one() -> None:
    machine, one = Machine(), users_counter(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([batch(0, 900, 0, event(0, "u", "a", 1))], 0))
    assert one.next_offset == 901

    again = users_counter(0, life=2)
    machine.carry_out(again.load(machine))
    assert again.next_offset == 0
    machine.carry_out(again.chunk([batch(0, 0, 0, event(1, "v", "a", 1))], 0))
    assert again.next_offset == 1
    machine.carry_out(again.chunk([batch(0, at + 1, at, ticks=[13]) for at in range(3)], 0))
    assert handed_on(machine.sent)["wall"] == {0: {"a": 2}}
    marker = decode(Marker, next(value for key, value in machine.rows.items() if key.startswith(b"m")))
    assert place_behind(marker.offset) == (2, 4)


def test_no_message_is_larger_than_a_message_may_be_and_the_order_stays() -> None:
    body = json.dumps({"who": {"id": "u"}, "page": "a", "at": 1, "more": ""})
    values = [body.replace('""', f'"{"x" * size}"').encode() for size in (10, 200_000, 300_000, 400_000, 1, 0)]
    values.append(values[0] + b" " * (MOST_BYTES - len(values[0])))
    records = [Entry(at, None, value) for at, value in enumerate([*values, values[-1] + b" "])]
    records.insert(3, watermark(100, 7))
    for offset, record in enumerate(records):
        record.offset = offset
    machine, one = Machine(), rekeyer(1)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk(records, 5))

    sent = [m for m in machine.sent if m.topic == REKEYED]
    assert all(len(m.value or b"") <= MESSAGE_BYTES for m in sent)
    own = [decode(RekeyedBatch, m.value or b"") for m in sent if m.partition == home(b"u")]
    offsets = [offset for p in own for offset in sorted([e.offset for e in p.events] + [at for at, _ in p.watermarks])]
    assert offsets == list(range(8))
    assert [m.value for m in machine.sent if m.topic == LETTERS] == [b"1/8/record_too_large/wall+event"]
    assert sorted(m.partition for m in sent if decode(RekeyedBatch, m.value or b"").watermarks) == [0, 1, 2]


def test_a_partial_bears_the_time_of_the_tick_that_was_heard_last() -> None:
    machine, one = Machine(), users_counter(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([batch(0, at, at, ticks=[13 + at]) for at in (0, 1, 2)], 0))
    closed = {decode(Partial, m.value or b"").closed_ms for m in machine.sent if m.topic == PARTIALS}
    assert closed == {15}


def test_time_in_which_nobody_was_there_is_no_idle_time_of_a_partition_and_a_repeated_tick_is_none() -> None:
    machine, one = Machine(), users_counter(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([batch(0, at, at, watermark(0, 4), ticks=[5]) for at in range(3)], 0))
    machine.carry_out(one.chunk([batch(0, 3 + at, at, ticks=[5, 70_005, 5]) for at in range(3)], 0))
    assert handed_on(machine.sent).get("event") is None
    machine.carry_out(one.chunk([batch(0, 6 + at, at, ticks=[70_012]) for at in range(3)], 0))
    assert handed_on(machine.sent)["event"] == {0: {}}


def test_windows_close_one_after_another_though_a_partition_lags() -> None:
    machine, one = Machine(), users_counter(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([batch(0, 0, 0, watermark(0, 40), now=50)], 0))
    machine.carry_out(one.chunk([batch(0, 1, 1, watermark(0, 15), now=50)], 0))
    machine.carry_out(one.chunk([batch(0, 2, 2, watermark(0, 40), now=50)], 0))
    machine.carry_out(one.chunk([batch(0, 3, 1, watermark(1, 30), now=45)], 0))
    sent = [decode(Partial, m.value or b"") for m in machine.sent if m.topic == PARTIALS]
    assert {(p.start_ms, p.closed_ms) for p in sent} == {(0, 50), (10, 50)}


@pytest.mark.parametrize("mark", [10**15, 10**30, -(10**30)], ids=["microseconds", "huge", "huge and negative"])
def test_a_watermark_that_is_not_believed_is_not_passed_on(mark: int) -> None:
    machine, one = Machine(), rekeyer(0)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, 90), watermark(1, mark)], 100))
    names = "+".join(one.name for one in VIEWS)
    assert [message.value for message in machine.sent if message.topic == LETTERS] == [
        f"0/1/bad_watermark/{names}".encode()
    ]
    batches = [decode(RekeyedBatch, message.value or b"") for message in machine.sent if message.topic == REKEYED]
    assert [batch.watermarks for batch in batches] == [[(0, 90)]] * PARTITIONS
