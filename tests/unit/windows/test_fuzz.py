"""Good and bad records: every one is in one place of the ledger of outcomes, and the good ones are exact."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

import pytest

from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Message
from stream_dp.windows.events import WATERMARK_HEADER, EventDecoder
from tests.support.counting import (
    Entry,
    Oracle,
    ViewOracle,
    by_crc32,
    counter,
    handed_on,
    letters_by_view,
    partials,
    view,
)
from tests.support.machine import Machine
from tests.support.poison import FORM, POISON, Visit, good, mutated, poison

PARTITIONS = 3
VIEWS = (
    view("wall", length_ms=1000, grace_ms=200, max_ahead_ms=2500, buckets=3),
    view("event", length_ms=700, grace_ms=0, clock="event", first_ms=-1400, max_ahead_ms=900, items_per_user=3),
)
DECODER = EventDecoder(FORM)
OWN = [f"u{n}" for n in range(6000) if crc32(b"u%d" % n) % PARTITIONS == 0]
FOREIGN = [f"u{n}" for n in range(6000) if crc32(b"u%d" % n) % PARTITIONS]
PAGES = [*"abcdefgh", "", "é", "\U0001f600", "a\0b", "x" * 1024, "17", "\ufffe"]
CHUNKS = [1, 7, 100, 1000, 3000]
SPAN_MS = 25_000
"""How long a run lasts, about: some 25 windows, whatever its size."""
ODD_TIMES = [-(10**400), -(1 << 63), -1, 0, (1 << 63) - 1, 1 << 64, 10**400]


@dataclass
class Outcomes:
    """What should become of the records of a partition, by how they were made."""

    oracles: list[ViewOracle] = field(default_factory=lambda: [ViewOracle(one, one.first_ms) for one in VIEWS])
    read: int = 0
    replayed: int = 0
    watermarks: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By reason and view; the view is empty for what is no event."""
    noted: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    """By offset and reason: the views that do not count the record for it."""

    def refuse(self, offset: int, reason: str, name: str = "") -> None:
        self.refused[reason, name] += 1
        if reason not in ("duplicate", "clipped"):
            self.noted.setdefault((offset, reason), []).extend([name] if name else [one.name for one in VIEWS])

    def letters(self) -> list[tuple[int, str, str]]:
        return sorted((*place, "+".join(names)) for place, names in self.noted.items())

    def take(self, offset: int, visit: Visit, now: int) -> None:
        user = visit.user.encode()
        for one in self.oracles:
            away = by_crc32(PARTITIONS)([user]) != [0]
            reason = one.take(user, visit.page, visit.time_ms, now, misplaced=away)
            if reason is None:
                self.counted[one.view.name] += 1
            else:
                self.refuse(offset, reason, one.view.name)

    def mark(self, time: int, now: int) -> None:
        self.watermarks += 1
        for one in self.oracles:
            one.watermark(time, now)


def records(chance: random.Random, offset: int, count: int, now: int, outcomes: Outcomes) -> Iterator[Entry]:
    """Consecutive records, of which about half are good; what should become of them is noted."""
    for at in range(offset, offset + count):
        users = OWN if chance.random() < 0.95 else FOREIGN
        time = now + chance.randrange(-1500, 800) if chance.random() < 0.97 else chance.choice([*ODD_TIMES, now + 3000])
        visit = Visit(chance.choice(users), chance.choice(PAGES), time)
        kind = chance.random()
        if kind < 0.002:
            ahead = chance.choice([-(10**40), now - 300, now - 100, now - 1, 10**40])
            yield Entry(at, chance.choice([None, b"k"]), b"", headers=[(WATERMARK_HEADER, b"%d" % ahead)])
            if Oracle.of(VIEWS).believes(ahead, now):
                outcomes.mark(ahead, now)
            else:
                outcomes.refuse(at, "bad_watermark")
            continue
        if kind < 0.04:
            page = f"mutant {chance.randrange(10**9)}"  # nobody else's, whatever a changed byte makes of it
            value = mutated(good(Visit(visit.user, page, time), chance).value or b"", chance)
            alone = DECODER.decode([Entry(at, visit.user.encode(), value)])
            yield Entry(at, visit.user.encode(), value)
            for _, reason in alone.refused:
                outcomes.refuse(at, reason)
            for user, item, ms in zip(alone.users, alone.columns[0].items, alone.times, strict=True):
                outcomes.take(at, Visit(user.decode(), item, ms), now)
            continue
        sample = good(visit, chance) if kind < 0.55 else poison(visit, chance)
        headers = list(sample.headers.items())
        yield Entry(at, sample.key, sample.value, chance.choice([-1, 0, now, 1 << 62]), headers)
        if sample.reason:
            outcomes.refuse(at, sample.reason)
        else:
            outcomes.take(at, visit, now)


def new() -> PartitionCounter:
    form = replace(FORM, items=FORM.items * len(VIEWS))
    return counter(*VIEWS, form=form, partitioner=by_crc32(PARTITIONS))


@dataclass
class Run:
    """What came of it."""

    outcomes: Outcomes
    counts: Mapping[tuple[str, tuple[tuple[str, str], ...]], int]
    letters: list[tuple[int, str, str]]
    partials: list[Message]

    def total(self, name: str, **labels: str) -> int:
        here = ((dict(found), n) for (key, found), n in self.counts.items() if key == name)
        return sum(n for found, n in here if labels.items() <= found.items())


def run(size: int, seed: int) -> Run:
    """Count so many records, in chunks; now and then some are read again, and the counter is loaded anew."""
    chance, outcomes, machine = random.Random(seed), Outcomes(), Machine()
    found: list[tuple[int, str, str]] = []
    handed: list[Message] = []
    one = new()
    machine.carry_out(one.load(machine))
    now = offset = 0
    tail: list[Entry] = []
    stride = 3 * SPAN_MS * sum(CHUNKS) // len(CHUNKS) // size
    while offset < size:
        count = min(chance.choice(CHUNKS), size - offset)
        fresh = list(records(chance, offset, count, now, outcomes))
        again = tail[-chance.randrange(1, 50) :] if chance.random() < 0.2 else []
        if chance.random() < 0.1:
            one = new()
            machine.carry_out(one.load(machine))
        machine.carry_out(one.chunk([*again, *fresh], now))
        outcomes.read += count + len(again)
        outcomes.replayed += len(again)
        offset, tail = offset + count, fresh
        now += chance.choice([0, 1, chance.randrange(2 * stride)])
        machine.carry_out(one.ticks([now]))
        for oracle in outcomes.oracles:
            oracle.tick(now)
        found += letters_by_view(machine.sent)
        handed += [message for message in machine.sent if partials([message])]
        machine.sent.clear()
        machine.changelog.clear()
    last = Entry(size, None, b"", headers=[(WATERMARK_HEADER, b"%d" % (now + 5000))])
    machine.carry_out(one.chunk([last], now + 5000))
    outcomes.read += 1
    outcomes.mark(now + 5000, now + 5000)
    machine.carry_out(one.ticks([now + 5000]))
    for oracle in outcomes.oracles:
        oracle.tick(now + 5000)
    handed += [message for message in machine.sent if partials([message])]
    return Run(outcomes, machine.counts, found, handed)


def check(ran: Run) -> None:
    due = ran.outcomes
    refused = {labels: n for (name, labels), n in ran.counts.items() if name == "events_refused"}
    assert refused == {(("reason", reason), ("view", name)): n for (reason, name), n in due.refused.items()}
    assert POISON.keys() <= {reason for reason, _ in due.refused}
    assert {"late", "future", "before_start", "duplicate", "clipped", "wrong_partition"} <= {r for r, _ in due.refused}
    assert sorted(ran.letters) == due.letters()

    read = ran.total("events_consumed")
    assert read == due.read
    assert ran.total("events_replayed") == due.replayed > 0
    assert ran.total("watermarks_read") == due.watermarks
    handed = handed_on(ran.partials)
    for oracle in due.oracles:
        name = oracle.view.name
        counted = ran.total("events_counted", view=name)
        assert counted == due.counted[name] == sum(sum(table.values()) for table in handed[name].values())
        refused_here = ran.total("events_refused", view=name) + ran.total("events_refused", view="")
        assert counted + refused_here + due.watermarks + due.replayed == read
        assert handed[name] == {start: oracle.counts(start) for start in oracle.closed_windows()}
        assert all(start in handed[name] for start, _ in oracle.held)


@pytest.mark.parametrize("number", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_every_record_is_in_one_place_of_the_ledger_of_outcomes_and_the_good_ones_are_exact(number: int) -> None:
    check(run(number, seed=11))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_million_records_add_up(seed: int) -> None:
    check(run(1_000_000, seed))
