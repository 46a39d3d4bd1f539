"""A view's definition changes while its events are counted: every event counts for one, whenever that is learned.

The settings are learned between any two messages, once or more, before the boundary or after windows behind it were
closed; a crash hits anywhere. What is handed on equals an oracle that counts one event at a time and stores nothing.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from stream_dp.windows.count_rows import JOURNAL
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Commit, Message
from stream_dp.windows.encoding import decode
from stream_dp.windows.events import EventFormat
from stream_dp.windows.merging import LOST, Partial
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView, state_name
from tests.support.chosen import ordinarily, spread
from tests.support.counting import (
    PARTIALS,
    Entry,
    counter,
    event,
    handed_on,
    letters,
    loaded,
    partials,
    small_sizes,
    totals,
    view,
    watermark,
)
from tests.support.machine import CutError, Machine

Known = Sequence[CountedView]


def definitions(*begun: tuple[int, CountedView]) -> Known:
    """What a view asks by settings that begin at times, in the order in which they were decided."""
    found: list[CountedView] = []
    for number, (first, asked) in enumerate(begun, 1):
        for at, one in enumerate(found):
            until = max(one.first_ms, one.windows.start_of(first))
            found[at] = replace(one, until_ms=until if one.until_ms is None else min(one.until_ms, until))
        name = state_name("pages", number)
        found.append(replace(asked, name=name, fingerprint=name.ljust(8)[:8].encode(), first_ms=first))
    return [replace(one, origin_ms=found[0].first_ms) for one in found]


@dataclass
class Chunk:
    """Records of the source, and the time of the tick behind them."""

    entries: list[Entry]
    now: int


@dataclass
class Tick:
    now: int


@dataclass
class Script:
    """What a partition gets, and the settings that are known at each message."""

    messages: list[Chunk | Tick]
    known: list[Known]

    def run(self, cuts: Iterable[int] = (), again: int = 0, on: Machine | None = None) -> Machine:
        """Count it on a machine that is cut; behind a crash some messages come again, to what is known now."""
        machine, left = on or Machine(), iter(cuts)
        machine.cut_after = next(left, None)
        running: PartitionCounter | None = None
        by: Known = ()
        at = 0
        while at < len(self.messages):
            try:
                if running is None or len(self.known[at]) > len(by):
                    by = max(by, self.known[at], key=len)
                    running = None
                    fresh = counter(*by)
                    machine.carry_out(fresh.load(machine))
                    running = fresh
                message = self.messages[at]
                match message:
                    case Chunk(entries, now):
                        machine.carry_out(running.chunk(entries, now))
                    case Tick(now):
                        machine.carry_out(running.ticks([now]))
                at += 1
            except CutError:
                running, at = None, max(0, at - again)
                machine.cut_after = next(left, None)
        machine.cut_after = None
        return machine


@dataclass
class Definition:
    """What the oracle knows of a definition."""

    asked: CountedView
    clock: int
    open_from: int
    held: defaultdict[int, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    """By window and user, the items in order."""

    @property
    def until(self) -> float:
        return float("inf") if self.asked.until_ms is None else self.asked.until_ms

    @property
    def is_over(self) -> bool:
        return self.open_from >= self.until

    def has(self, time: int) -> bool:
        return self.asked.first_ms <= time < self.until

    def start_of(self, time: int) -> int:
        start = self.asked.first_ms
        while start + self.asked.windows.shortest_ms <= time:
            start += self.asked.windows.shortest_ms
        return start

    def closed(self, start: int) -> bool:
        return start + self.asked.windows.shortest_ms + self.asked.grace_ms <= self.clock


@dataclass
class Oracle:
    """Counts a script as the settings say."""

    definitions: list[Definition] = field(default_factory=list)
    out: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    lost: set[tuple[str, int]] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    tick: int = -1
    stream: int | None = None
    """The latest tick, and the latest watermark."""

    @classmethod
    def of(cls, script: Script) -> Oracle:
        one = cls()
        for message, known in zip(script.messages, script.known, strict=True):
            one.learn(known)
            match message:
                case Chunk(entries, now):
                    one.tick = max(one.tick, now)
                    for entry in entries:
                        one.entry(entry, now)
                case Tick(now):
                    one.tick = max(one.tick, now)
                    for definition in one.definitions:
                        if definition.asked.clock == "wall":
                            definition.clock = max(definition.clock, now)
            one.close()
        return one

    def learn(self, known: Known) -> None:
        if len(known) <= len(self.definitions):
            return
        former = list(self.definitions)
        counting = [one for one in former if not one.is_over]
        unread = {asked.name: self.unread_from(asked) for asked in known[len(former) :]}
        for definition, asked in zip(self.definitions, known, strict=False):
            definition.asked = asked
        for asked in known[len(former) :]:
            opens = asked.first_ms
            while opens < unread[asked.name] or any(
                opens < one.open_from for one in self.definitions if one.open_from > one.asked.first_ms
            ):
                self.lost |= {(asked.name, opens)} if opens < (asked.until_ms or 1 << 60) else set()
                opens += asked.windows.shortest_ms
            clocks = [
                one.clock if one.clock > one.asked.first_ms else min(one.clock, asked.first_ms)  # nothing has moved it
                for one in counting
                if one.asked.clock == asked.clock
            ]
            self.definitions.append(Definition(asked, clocks[-1] if clocks else asked.first_ms, opens))
        for one in former:
            for start in [start for start in one.held if start >= one.until]:
                held = one.held.pop(start)
                successor = next((other for other in self.definitions if other.has(start)), None)
                if successor is not None and successor.asked.accepts_like(one.asked) and start >= successor.open_from:
                    successor.held[start] = held
                else:
                    self.refused["changed"] += sum(map(len, held.values()))

    def unread_from(self, asked: CountedView) -> int:
        """What of a definition that is learned now starts earlier may lack events that were read."""
        if not self.definitions:
            return asked.first_ms
        judges = [next((o for o in self.definitions if o.has(t)), None) for t in range(asked.first_ms, 500)]
        counted = [one.asked for one in judges if one is not None]
        if len(counted) == len(judges) and all(one.accepts_like(asked) for one in counted):
            return asked.first_ms
        if asked.clock == "wall":
            return self.tick + 1
        by_watermarks = [one for one in self.definitions if one.asked.clock == "event"]
        shown = [one.clock for one in by_watermarks if one.clock > one.asked.first_ms]
        unmoved = min([self.tick, *(one.asked.first_ms for one in by_watermarks)])
        stream = max([*shown, *([] if self.stream is None else [self.stream])], default=unmoved)
        return stream + 1 + (0 if len(counted) == len(judges) else asked.max_ahead_ms)

    def entry(self, entry: Entry, now: int) -> None:
        if not entry.value:
            time = int(dict(entry.headers)["stream-dp-watermark"])
            self.stream = max(min(time, now), min(time, now) if self.stream is None else self.stream)
            for one in self.definitions:
                if one.asked.clock == "event" and not one.is_over:
                    one.clock = max(one.clock, min(time, now))
            return
        user, item, time = (entry.key or b"").decode(), *read(entry)
        active = [one for one in self.definitions if not one.is_over]
        if active and time < active[0].asked.first_ms:
            self.refused["late" if time >= self.definitions[0].asked.first_ms else "before_start"] += 1
            return
        for one in active:
            if one.has(time):
                reason = self.judged(one, user, item, time, now)
                self.refused[reason] += bool(reason)

    @staticmethod
    def judged(one: Definition, user: str, item: str, time: int, now: int) -> str:
        start = one.start_of(time)
        if one.closed(start) or start < one.open_from:
            return "late"
        if time > now + one.asked.max_ahead_ms:
            return "future"
        items = one.held[start].setdefault(user, [])
        if item in items:
            return "duplicate"
        if len(items) == one.asked.items_per_user:
            return "clipped"
        items.append(item)
        return ""

    def close(self) -> None:
        for one in self.definitions:
            while one.open_from < one.until and one.closed(one.open_from):
                held = one.held.pop(one.open_from, {})
                counts = Counter(item for items in held.values() for item in items)
                self.out.setdefault(one.asked.name, {})[one.open_from] = dict(counts)
                one.open_from += one.asked.windows.shortest_ms


def read(entry: Entry) -> tuple[str, int]:
    value = json.loads(entry.value or b"")
    return value["page"], value["at"]


def asked(chance: random.Random) -> CountedView:
    """A definition; half of them accept the same contributions."""
    length = chance.choice([10, 10, 10, 20, 5])
    return view(
        length_ms=length,
        grace_ms=chance.choice([0, 3, 7]),
        clock=chance.choice(["wall", "wall", "event"]),
        max_ahead_ms=chance.choice([15, 40]),
        items_per_user=chance.choice([2, 2, 3]),
        buckets=chance.choice([1, 3]),
        idle_ms=1 << 40,
    )


def made(seed: int, *, items: int = 6, span: int = 120) -> Script:
    """A script with up to three changes; with `items` 0 no two events have the same item."""
    chance = random.Random(seed)
    begun = [(0, asked(chance))]
    known: Known = definitions(*begun)
    messages: list[Chunk | Tick] = []
    at_each: list[Known] = []
    now, offset = 0, 0
    while now < span:
        if len(begun) < 4 and chance.random() < 0.08:
            boundary = 20 * chance.randrange(max(1, now // 20 - 1), now // 20 + 4)  # some are past
            begun.append((boundary, asked(chance)))
            known = definitions(*begun)
        if chance.random() < 0.4:
            now += chance.randrange(12)
            messages.append(Tick(now))
        else:
            entries = []
            for _ in range(chance.randrange(1, 5)):
                time = now + chance.randrange(-25, 40)
                item = f"i{chance.randrange(items)}" if items else f"i{offset}"
                one = event(offset, f"u{chance.randrange(3)}", item, time)
                entries.append(watermark(offset, now - 5) if chance.random() < 0.2 else one)
                offset += 1
            messages.append(Chunk(entries, now))
        at_each.append(known)
    for end in (220, 220, 220):
        messages += [Chunk([watermark(offset, end)], end), Tick(end)]
        at_each += [known, known]
        offset += 1
    return Script(messages, at_each)


def check(script: Script, machine: Machine, expected: Oracle) -> None:
    lost = {(one.view, one.start_ms) for one in partials(machine.sent) if one.lost}
    sent = [message for message in machine.sent if message.topic == PARTIALS]
    assert handed_on([one for one in sent if not decode(Partial, one.value or b"").lost]) == expected.out
    assert lost == expected.lost
    refused = {
        dict(labels)["reason"]: amount for (name, labels), amount in totals(machine).items() if "refused" in name
    }
    assert refused == +expected.refused
    assert not [key for key in machine.rows if key.startswith(JOURNAL)]
    assert machine.unerased(JOURNAL) == []


@pytest.mark.parametrize("seed", ordinarily(40, range(100)))
def test_what_is_counted_is_what_the_oracle_counts_whenever_a_change_is_learned(seed: int) -> None:
    script = made(seed)
    check(script, script.run(), Oracle.of(script))


@pytest.mark.parametrize("seed", range(40))
def test_an_event_counts_for_one_definition_in_one_window(seed: int) -> None:
    """No two events have an item in common, so each item is counted once by all definitions together."""
    script = made(seed, items=0)
    counted = Counter(
        item
        for windows in handed_on([m for m, p in _with_partials(script.run()) if not p.lost]).values()
        for counts in windows.values()
        for item, count in counts.items()
        for _ in range(count)
    )
    assert counted
    assert set(counted.values()) == {1}


def _with_partials(machine: Machine) -> list[tuple[Message, Partial]]:
    return [(m, decode(Partial, m.value or b"")) for m in machine.sent if m.topic == PARTIALS]


@pytest.mark.parametrize("seed", spread(3, range(7)))
def test_a_crash_anywhere_changes_nothing(seed: int) -> None:
    script = made(seed, span=70)
    expected = Oracle.of(script)
    for cut in range(seed, script.run().points, 14):
        check(script, script.run([cut], again=seed % 3), expected)


@pytest.mark.parametrize("seed", ordinarily(10, range(30)))
def test_many_crashes_and_small_rows_change_nothing(seed: int) -> None:
    script, chance = made(seed), random.Random(seed)
    with small_sizes():
        machine = script.run([chance.randrange(60) for _ in range(8)], again=2)
        check(script, machine, Oracle.of(script))


@pytest.mark.parametrize("seed", range(40))
def test_without_the_end_of_the_changelog_an_event_still_counts_for_one_definition(seed: int) -> None:
    """A worker takes over without the last rows, reads everything again and knows all settings from the beginning on.

    What was lost is done again as it should have been; what was sent for windows that are another definition's by now
    is nobody's.
    """
    script, chance = made(seed, items=0), random.Random(seed)
    known = script.known[-1]
    end = chance.randrange(5, len(script.messages) - 4)
    former = Script(script.messages[:end], script.known[:end])
    whole = former.run()
    machine = Machine(sent=whole.sent)
    for key, value in whole.changelog[: max(0, len(whole.changelog) - chance.randrange(12))]:
        machine.carry_out(iter([Commit([(key, value)])]))
    machine = replace(script, known=[known] * len(script.known)).run([chance.randrange(80)], on=machine)

    asked = {one.name: one for one in known}
    last = {p.key: p for _, p in _with_partials(machine) if asked[p.view].asks_for(p.start_ms)}
    counted = Counter(item for p in last.values() for item, count in p.counts.items() for _ in range(count))
    assert set(counted.values()) == {1}
    for one in known:
        end = one.closed_before(220)
        starts = one.windows.starts(one.first_ms, end)
        come = Counter((p.start_ms, p.bucket) for p in last.values() if p.view == one.name and p.part in (0, LOST))
        assert come.keys() == {(start, bucket) for start in starts for bucket in range(one.buckets)}


# -- one at a time ------------------------------------------------------------------------------------------------

TWO = definitions((0, view()), (20, view(items_per_user=1)))
"""Windows of 10, the second definition from 20 on."""


def changed(machine: Machine, known: Known = TWO) -> PartitionCounter:
    """A counter that learns of a change."""
    one = counter(*known)
    machine.carry_out(one.load(machine))
    return one


def test_what_was_counted_ahead_of_a_change_is_given_up_where_the_next_definition_bounds_otherwise() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(0, "u", "a", 5), event(1, "u", "b", 25), event(2, "v", "b", 25)], 6))

    one = changed(machine)
    machine.carry_out(one.chunk([event(3, "u", "c", 25), event(4, "u", "d", 15)], 6))
    machine.carry_out(one.ticks([33]))

    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}, 10: {"d": 1}}, "pages@2": {20: {"c": 1}}}
    assert totals(machine)["events_refused", (("reason", "changed"), ("view", "pages"))] == 2


def test_what_was_counted_ahead_of_a_change_stays_counted_where_the_next_definition_accepts_the_same() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(0, "u", "a", 25), event(1, "u", "b", 25)], 6))

    one = changed(machine, definitions((0, view()), (20, view(grace_ms=5))))
    machine.carry_out(one.chunk([event(2, "u", "a", 25), event(3, "u", "c", 25)], 6))
    machine.carry_out(one.ticks([35]))

    assert handed_on(machine.sent)["pages@2"] == {20: {"a": 1, "b": 1}}
    refused = {key: amount for key, amount in totals(machine).items() if key[0] == "events_refused"}
    assert refused == {("events_refused", (("reason", r), ("view", "pages"))): 1 for r in ("duplicate", "clipped")}


def test_a_partition_that_learns_too_late_stands_in_for_the_windows_that_had_begun_and_goes_on_behind_them() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(n, "u", "a", 10 * n) for n in range(5)], 33))
    machine.carry_out(one.ticks([33]))
    assert [*handed_on(machine.sent)["pages"]] == [0, 10, 20]
    before = len(machine.sent)

    one = changed(machine)
    machine.carry_out(one.chunk([event(5, "u", "b", 45), event(6, "u", "b", 35)], 46))
    machine.carry_out(one.ticks([53]))

    sent = machine.sent[before:]
    assert {(p.view, p.start_ms) for p in partials(sent) if p.lost} == {("pages@2", 20), ("pages@2", 30)}
    assert handed_on([m for m, p in _with_partials(machine) if not p.lost and m in sent]) == {"pages@2": {40: {"b": 1}}}
    assert letters(sent) == {(6, "late"): 1}


def test_a_definition_that_closed_no_window_leaves_those_before_it_to_one_that_was_decided_later() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(0, "u", "a", 15), event(1, "u", "a", 25)], 15))
    for begun in ([(0, view()), (40, view())], [(0, view()), (40, view()), (20, view())]):
        one = loaded(machine, *definitions(*begun))
    machine.carry_out(one.chunk([event(2, "u", "b", 25), event(3, "u", "a", 35)], 35))
    machine.carry_out(one.ticks([43]))

    assert not [partial for partial in partials(machine.sent) if partial.lost]
    assert handed_on(machine.sent) == {
        "pages": {0: {}, 10: {"a": 1}},
        "pages@3": {20: {"a": 1, "b": 1}, 30: {"a": 1}},
    }


def test_what_was_counted_of_a_window_that_is_lost_to_the_next_definition_is_given_up() -> None:
    """The second definition accepts as the third, which it is left to; the first did not, so what is open is lost."""
    machine = Machine()
    begun = [(0, view()), (30, view(items_per_user=1))]
    one = loaded(machine, *definitions(*begun))
    machine.carry_out(one.chunk([event(0, "u", "a", 25), event(1, "u", "a", 35), event(2, "u", "a", 45)], 26))
    machine.carry_out(one.ticks([31]))

    one = changed(machine, definitions(*begun, (20, view(items_per_user=1))))
    machine.carry_out(one.ticks([53]))
    machine.carry_out(one.ticks([54]))

    assert {(p.view, p.start_ms) for p in partials(machine.sent) if p.lost} == {("pages@3", 20), ("pages@3", 30)}
    kept = handed_on([m for m, p in _with_partials(machine) if not p.lost])
    assert kept == {"pages": {0: {}, 10: {}}, "pages@3": {40: {"a": 1}}}
    assert totals(machine)["events_refused", (("reason", "changed"), ("view", "pages"))] == 2
    assert not [key for key in machine.rows if key.startswith(JOURNAL)]


@pytest.mark.parametrize("bounds", [(None, Tiling(40)), (Tiling(40), None), (Tiling(20), Tiling(40))])
def test_what_was_bounded_over_another_interval_of_windows_is_given_up(bounds: tuple[Tiling | None, ...]) -> None:
    """A user has two items in an interval; taken along, the second of them would have been bounded as another one's."""
    former, latter = (view(bounds=one) for one in bounds)
    machine = Machine()
    one = loaded(machine, former)
    machine.carry_out(one.chunk([event(0, "u", "a", 41), event(1, "u", "b", 51)], 6))

    one = changed(machine, definitions((0, former), (40, latter)))
    machine.carry_out(one.chunk([event(2, "u", "c", 61), event(3, "u", "d", 71)], 6))
    machine.carry_out(one.ticks([83]))

    assert handed_on(machine.sent)["pages@2"] == {40: {}, 50: {}, 60: {"c": 1}, 70: {"d": 1}}
    assert totals(machine)["events_refused", (("reason", "changed"), ("view", "pages"))] == 2


def test_late_events_of_an_ended_definition_are_refused_once() -> None:
    machine = Machine()
    one = changed(machine)
    machine.carry_out(one.ticks([25]))
    machine.carry_out(one.chunk([event(0, "u", "a", 15), event(1, "u", "b", 5), event(2, "u", "c", -1)], 25))
    assert letters(machine.sent) == {(0, "late"): 1, (1, "late"): 1, (2, "before_start"): 1}


def test_records_need_the_fields_of_definitions_that_have_windows_open_and_no_others() -> None:
    form = EventFormat(("page", "query"), None, "at", "ms")
    machine, one = Machine(), counter(*TWO, form=form)
    machine.carry_out(one.load(machine))
    only = Entry(0, b"u", json.dumps({"page": "a", "at": 21}).encode())
    machine.carry_out(one.chunk([only], 22))
    assert letters(machine.sent) == {(0, "missing_field"): 1}

    machine.carry_out(one.ticks([25]))
    machine.carry_out(one.chunk([event(1, "u", "a", 24)], 26))
    first = replace(only, offset=2, value=json.dumps({"query": "a", "at": 21}).encode())
    machine.carry_out(one.chunk([first], 26))
    assert totals(machine)["events_refused", (("reason", "missing_field"), ("view", ""))] == 1


def test_a_removed_view_is_handed_on_to_its_end_and_counts_no_more() -> None:
    machine = Machine()
    one = loaded(machine, view(), view("others"))
    machine.carry_out(one.chunk([event(0, "u", "a", 5), event(1, "u", "a", 25)], 6))

    ended = replace(view(), until_ms=20)
    one = loaded(machine, ended, view("others"))
    machine.carry_out(one.chunk([event(2, "u", "b", 25)], 6))
    machine.carry_out(one.ticks([33]))

    assert handed_on(machine.sent) == {
        "pages": {0: {"a": 1}, 10: {}},
        "others": {0: {"a": 1}, 10: {}, 20: {"a": 1, "b": 1}},
    }
    assert totals(machine)["events_refused", (("reason", "changed"), ("view", "pages"))] == 1
    assert letters(machine.sent) == {}


def test_what_a_crash_took_back_is_not_given_up_but_read_again() -> None:
    machine = Machine()
    one = loaded(machine, view())
    machine.carry_out(one.chunk([event(0, "u", "a", 5)], 6))
    machine.cut_after = 3  # behind the journal's row, before the marker
    with pytest.raises(CutError):
        machine.carry_out(one.chunk([event(1, "u", "b", 25)], 6))
    assert sum(key.startswith(JOURNAL) for key in machine.rows) == 2

    one = changed(machine)
    machine.carry_out(one.chunk([event(1, "u", "b", 25)], 6))
    machine.carry_out(one.ticks([33]))

    assert handed_on(machine.sent)["pages@2"] == {20: {"b": 1}}
    assert ("events_refused", (("reason", "changed"), ("view", "pages"))) not in totals(machine)


def test_a_definition_to_come_closes_no_window_while_its_source_is_idle() -> None:
    """With a clock of watermarks that goes on with the wall clock, but never ahead of it."""
    machine = Machine()
    one = loaded(machine, view(clock="event", first_ms=1000, idle_ms=5))
    machine.carry_out(one.ticks(list(range(0, 1013, 10))))
    assert partials(machine.sent) == []
    machine.carry_out(one.ticks([1013, 1018]))
    assert {one.start_ms for one in partials(machine.sent)} == {1000}
