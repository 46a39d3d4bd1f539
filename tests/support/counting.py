"""A partition of a source in memory, and an oracle that counts it one event at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any
from zlib import crc32

import pytest

from stream_dp.windows import count_rows, counting, journals, merging
from stream_dp.windows import merging as merge_rows
from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.counting import CountedPartition, PartitionCounter
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.events import WATERMARK_HEADER, EventDecoder, EventFormat, Partitioner
from stream_dp.windows.merging import Partial
from stream_dp.windows.open_windows import SpillStore, WindowMemory
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView
from tests.support.machine import Machine

PARTIALS, LETTERS = "partials", "letters"
FIRST_BELIEVED = 631_152_000_000
"""1990-01-01, UTC."""
YEAR_ONE = -62_135_596_800_000
"""0001-01-01, UTC."""


def everything(counts: Mapping[str, int]) -> Mapping[str, int]:
    return counts


VIEW = CountedView(
    name="pages",
    fingerprint=b"pages001",
    windows=Tiling(10),
    first_ms=0,
    grace_ms=3,
    clock="wall",
    max_ahead_ms=1000,
    idle_ms=1000,
    items_per_user=2,
    buckets=2,
    needed=everything,
    retention_ms=10_000,
)


def view(name: str = "pages", **changes: object) -> CountedView:
    """The usual view with some of it changed, windows that begin with the first; its fingerprint follows its name."""
    length: Any = changes.pop("length_ms", VIEW.windows.shortest_ms)
    step: Any = changes.pop("step_ms", length)
    first: Any = changes.get("first_ms", VIEW.first_ms)
    changes["windows"] = Tiling(length, first) if step == length else Hopping(length, step, first)
    return replace(VIEW, **{"name": name, "fingerprint": name.ljust(8)[:8].encode(), **changes})  # type: ignore[arg-type]


@dataclass
class Entry:
    """A record of the source."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes]] = ()


def event(offset: int, user: str, item: str | int, time: int, other: str = "o") -> Entry:
    value = json.dumps({"page": item, "query": other, "at": time})
    return Entry(offset, user.encode(), value.encode())


def watermark(offset: int, time: int | str) -> Entry:
    return Entry(offset, None, b"", headers=[(WATERMARK_HEADER, str(time).encode())])


FORM = EventFormat(("page",), None, "at", "ms")


def counter(
    *views: CountedView,
    form: EventFormat | None = None,
    partition: int = 0,
    source: str = "visits",
    partitioner: Partitioner | None = None,
    configured: Collection[str] = (),
    memory: int = 1 << 30,
    spill_stores: Callable[[], SpillStore] | None = None,
) -> PartitionCounter:
    """A counter of views that count the fields of a form, or `page`; `configured` are the views of all sources."""
    whole = form or EventFormat(("page",) * len(views), None, "at", "ms")
    fields = [(field, field in whole.lists) for field in whole.items]
    views = tuple(
        replace(one, item=field, has_lists=is_list) for one, (field, is_list) in zip(views, fields, strict=True)
    )

    def form_of(names: Sequence[str]) -> EventFormat:
        return replace(whole, items=tuple(whole.items[at] for at, one in enumerate(views) if one.name in names))

    return PartitionCounter(
        CountedPartition(source, partition, partitioner),
        views,
        lambda names: EventDecoder(form_of(names)),
        outlet=lambda partial: Message(PARTIALS, partial.key, encode(partial)),
        dead_letters=lambda at, offset, reason, views: Message(
            LETTERS, None, f"{at}/{offset}/{reason}/{'+'.join(views)}".encode()
        ),
        configured=configured or [one.name for one in views],
        memory=WindowMemory(memory, spill_stores or Cabinet()),
    )


@dataclass(eq=False)
class MemorySpillStore:
    """A spill store in memory."""

    cabinet: Cabinet
    entries: dict[bytes, bytes] = field(default_factory=dict)

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [self.entries.get(key) for key in keys]

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.entries.update(entries)

    def drop(self) -> None:
        self.cabinet.standing.remove(self)


@dataclass
class Cabinet:
    """Spill stores, and which of them have not been dropped."""

    made: int = 0
    standing: list[MemorySpillStore] = field(default_factory=list)

    def __call__(self) -> MemorySpillStore:
        self.made += 1
        self.standing.append(MemorySpillStore(self))
        return self.standing[-1]


def loaded(
    machine: Machine, *views: CountedView, source: str = "visits", configured: Collection[str] = ()
) -> PartitionCounter:
    one = counter(*views, source=source, configured=configured)
    machine.carry_out(one.load(machine))
    return one


def counted(machine: Machine, *views: CountedView) -> PartitionCounter:
    """A counter with one event of each window from 0 to 20."""
    one = loaded(machine, *views)
    machine.carry_out(one.chunk([event(n, "u", "a", 10 * n) for n in range(3)], 5))
    return one


def partials(sent: Sequence[Message]) -> list[Partial]:
    """The partials among messages, in order."""
    return [decode(Partial, message.value or b"") for message in sent if message.topic == PARTIALS]


def handed_on(sent: Sequence[Message]) -> dict[str, dict[int, dict[str, int]]]:
    """The counts of view and window that the parts of their buckets add up to; buckets and parts hold disjoint items.

    However often a part was sent, it was the same, and no bucket lacks one.
    """
    first: dict[bytes, Partial] = {}
    parts: dict[tuple[str, int, int], list[int]] = {}
    out: dict[str, dict[int, dict[str, int]]] = {}
    for p in partials(sent):
        if p.key in first:
            assert first[p.key] == p
            continue
        first[p.key] = p
        parts.setdefault((p.view, p.start_ms, p.bucket), [0] * p.parts)[p.part] += 1
        table = out.setdefault(p.view, {}).setdefault(p.start_ms, {})
        assert not table.keys() & p.counts.keys()
        table.update(p.counts)
    assert all(set(sent) == {1} for sent in parts.values())
    return out


@contextmanager
def small_sizes() -> Iterator[None]:
    """Cut rows, messages and what is held at once so small that hardly two entries go together."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (count_rows, merge_rows):
            patch.setattr(module, "ENTRIES_BYTES", 10)
        for module in (counting, merging):
            patch.setattr(module, "CHUNK_BYTES", 60)
        patch.setattr(journals, "MESSAGE_BYTES", 40)
        yield


Totals = dict[tuple[str, tuple[tuple[str, str], ...]], int]


def totals(machine: Machine, source: str = "visits") -> Totals:
    """The stored totals of a source that are not zero, by counter and labels."""
    marker = decode(Marker, machine.rows[MARKER + text(source)])
    found: Totals = Counter()
    for one in marker.totals():
        found[one.name, one.labels] += one.amount
    return {key: amount for key, amount in found.items() if amount}


def letters(sent: Sequence[Message]) -> Counter[tuple[int, str]]:
    """(offset, reason) of the dead letters among messages."""
    return Counter((offset, reason) for offset, reason, _ in letters_by_view(sent))


def letters_by_view(sent: Sequence[Message]) -> list[tuple[int, str, str]]:
    """(offset, reason, names of views) of the dead letters among messages."""
    found = [(message.value or b"").decode().split("/") for message in sent if message.topic == LETTERS]
    return [(int(offset), reason, views) for _, offset, reason, views in found]


@dataclass
class ViewOracle:
    """What a view should have counted: a clock, and who has what in which window."""

    view: CountedView
    clock: int
    held: dict[tuple[int, bytes], list[str]] = field(default_factory=dict)
    entered: dict[tuple[int, int, bytes], list[int]] = field(default_factory=dict)
    """By period, offset of windows that overlap, and user: the windows that the user entered."""
    heard: int | None = None
    ticked: int = -1

    def tick(self, now: int) -> None:
        if now <= self.ticked:
            return
        if self.view.clock == "wall":
            self.clock = max(self.clock, now)
        elif self.heard is None or now > self.ticked + 60_000:
            self.heard = now
        elif now >= self.heard + self.view.idle_ms:
            self.clock, self.heard = max(self.clock, min(self.clock + now - self.heard, now)), now
        self.ticked = now

    def watermark(self, time: int, now: int) -> None:
        self.heard = now
        if self.view.clock == "event":
            self.clock = max(self.clock, min(time, now))

    def starts_of(self, time: int) -> list[int]:
        """The starts of the windows that a time is in."""
        start, found = self.view.first_ms, []
        while start <= time:
            found += [start] if time < start + self.view.windows.shortest_ms else []
            start += self.view.windows.grid.shortest_ms
        return found

    def closed(self, start: int) -> bool:
        return start + self.view.windows.shortest_ms + self.view.grace_ms <= self.clock

    def closed_windows(self) -> list[int]:
        start, found = self.view.first_ms, []
        while self.closed(start):
            found.append(start)
            start += self.view.windows.grid.shortest_ms
        return found

    def take(self, user: bytes, item: str, time: int, now: int, *, misplaced: bool) -> str | None:
        """Count an event in every window that takes it, or say why none does."""
        if time < self.view.first_ms:
            return "before_start"
        if time > now + self.view.max_ahead_ms:  # before the walk, which would not end; no such window is closed
            return "future"
        starts = [start for start in self.starts_of(time) if not self.closed(start)]
        if not starts:
            return "late"
        if self.view.domain is not None and item not in self.view.domain:
            return "unlisted"
        if misplaced:
            return "wrong_partition"
        reasons = [self._take_in(start, user, item, time) for start in starts]
        return (
            None
            if None in reasons
            else next(one for one in ("participation", "clipped", "duplicate") if one in reasons)
        )

    def _take_in(self, start: int, user: bytes, item: str, time: int) -> str | None:
        """Count an event in one window, or say why not."""
        together = self.bounded_with(start)
        own = [i for at in together for i in self.held.get((at, user), [])]
        if item in own:
            return "duplicate"
        if own and len(own) == self.view.items_per_user:
            return "clipped"
        if not own and not self._enters(together[0], together[-1] + self.view.windows.shortest_ms, user, time):
            return "participation"
        self.held.setdefault((start, user), []).append(item)
        return None

    def _enters(self, start: int, end: int, user: bytes, time: int) -> bool:
        """Let a user enter what is bounded together, if they may; of windows that overlap, each offset has its part."""
        bound = self.view.participation
        period = None if bound is None else bound.periods.interval(start)
        if bound is None or period is None or period.end_ms < end:
            return True
        every = self.view.windows.grid.shortest_ms
        at_once = self.view.windows.shortest_ms // every
        number, most = (
            self.entered.setdefault((period.start_ms, start // every % at_once, user), []),
            bound.most // at_once,
        )
        if bound.pacing == "even":
            passed = Fraction(time - period.start_ms, period.end_ms - period.start_ms)
            most = min(most, ceil(passed * most) + ceil(Fraction(most, 10)))
        if len(number) >= most:
            return False
        number.append(start)
        return True

    def bounded_with(self, start: int) -> list[int]:
        """Starts of the windows over which contributions to one are bounded, itself among them."""
        length, bounds = self.view.windows.shortest_ms, self.view.bounds
        if bounds is None:
            return [start]
        first = start
        while bounds.start_of(first) != first:
            first -= length
        return list(range(first, first + bounds.shortest_ms, length))

    def counts(self, start: int) -> dict[str, int]:
        return dict(Counter(item for (at, _), items in self.held.items() if at == start for item in items))


@dataclass
class Oracle:
    """Counts a partition for all views of its source, one record at a time."""

    views: list[ViewOracle]
    misplaced: Callable[[bytes], bool] = lambda _user: False
    refused: list[tuple[int, str, str]] = field(default_factory=list)
    """(offset, reason, view); the view is empty for what is no event."""

    @classmethod
    def of(cls, views: Sequence[CountedView], misplaced: Callable[[bytes], bool] | None = None) -> Oracle:
        return cls([ViewOracle(view, view.first_ms) for view in views], misplaced or (lambda _user: False))

    def follow(self, entries: Sequence[Entry], ticks: Sequence[tuple[int, int]]) -> Oracle:
        """Count two logs: the records, and ticks that say (wall time, end of the records' log)."""
        left = list(entries)
        for now, end in ticks:
            while left and left[0].offset < end:
                self._entry(left.pop(0), now)
            for one in self.views:
                one.tick(now)
        return self

    def _entry(self, entry: Entry, now: int) -> None:
        headers = dict(entry.headers)
        if not entry.value:
            mark = headers.get(WATERMARK_HEADER)
            if mark is None:
                self.refused.append((entry.offset, "null_key" if entry.key is None else "null_value", ""))
                return
            if not self.believes(int(mark), now):
                self.refused.append((entry.offset, "bad_watermark", ""))
                return
            for one in self.views:
                one.watermark(int(mark), now)
            return
        if entry.key is None:
            self.refused.append((entry.offset, "null_key", ""))
            return
        try:
            value = json.loads(entry.value)
        except ValueError:
            self.refused.append((entry.offset, "malformed_json", ""))
            return
        misplaced = self.misplaced(entry.key)
        for one in self.views:
            reason = one.take(entry.key, str(value["page"]), value["at"], now, misplaced=misplaced)
            if reason is not None:
                self.refused.append((entry.offset, reason, one.view.name))

    def believes(self, mark: int, now: int) -> bool:
        """Whether a watermark is no further ahead than events may be, and not before 1990 where no window is."""
        first = FIRST_BELIEVED if all(one.view.first_ms >= FIRST_BELIEVED for one in self.views) else YEAR_ONE
        return first <= mark <= now + max(one.view.max_ahead_ms for one in self.views)

    def tally(self) -> Counter[tuple[str, str]]:
        """How often each (reason, view) was refused."""
        return Counter((reason, view) for _, reason, view in self.refused)

    def totals(self, entries: Sequence[Entry]) -> Totals:
        """What the records add up to when every window is closed, without zeros."""
        found: Totals = {("events_consumed", ()): len(entries)}
        marks = sum(not entry.value and bool(entry.headers) for entry in entries)
        found["watermarks_read", ()] = marks - self.tally()["bad_watermark", ""]
        for (reason, name), amount in self.tally().items():
            of_view = ("view", name)
            if reason == "unlisted":
                found["events_unknown", (of_view,)] = amount
            else:
                found["events_refused", (("reason", reason), of_view)] = amount
        for one in self.views:
            label, starts = (("view", one.view.name),), one.closed_windows()
            items = [item for (start, _), held in one.held.items() if start in starts for item in held]
            found["windows_closed", label] = len(starts)
            found["events_counted", label] = len(items)
        return {key: amount for key, amount in found.items() if amount}

    def letters(self) -> Counter[tuple[int, str, str]]:
        """The dead letters of what was refused, each once; what a user did too often leaves none."""
        views = [one.view.name for one in self.views]
        noted: dict[tuple[int, str], list[str]] = {}
        for offset, reason, name in self.refused:
            if reason not in ("duplicate", "clipped", "participation", "unlisted"):
                noted.setdefault((offset, reason), []).extend([name] if name else views)
        return Counter((*place, "+".join(names)) for place, names in noted.items())


def by_crc32(partitions: int) -> Partitioner:
    """A partitioner."""
    return lambda keys: [crc32(key) % partitions for key in keys]
