"""Boards: the state of one view and audience, read from its release topic; pure, without Kafka and HTTP.

A board keeps for every window the newest release, the one that it replaced and the refusal, as the bytes of the topic.
It has all that is needed to answer a client that comes back with a position, in this process or in another one.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from stream_dp.errors import StateError
from stream_dp.records.codec import AnyRecord, Outline, decode, encode, outline, parse, window_of
from stream_dp.records.history import Joiner, Seen
from stream_dp.records.models import Refusal, Release
from stream_dp.records.table import interval, state
from stream_dp.records.view_record import ViewRecord
from stream_dp.windows.durations import format_time

RESUMABLE_MS = 12 * 3_600_000
"""Age of a position from which on tombstones after it may be missing: half of Kafka's `delete.retention.ms`."""
MOST_BEHIND = 1000
"""Windows that a client may be behind by; with more it starts again from a list."""
LARGEST_EVENT = 256 << 10
_REMEMBERED = 10_000
"""Tombstones of a board that are kept in memory, and windows that were dropped for want of it."""
_OVERHEAD = 512
"""Bytes that a window takes beside its records, by estimate."""

UNKNOWN_END = -1
"""End of a window that is known only by a key without its end."""

Window = tuple[int, int]
"""Start and end in ms."""
decoded: Callable[[bytes], AnyRecord] = lru_cache(maxsize=256)(decode)


class Reset(NamedTuple):
    """Reason why a client cannot go on from its position."""

    reason: str


def compact(value: object) -> bytes:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def window_json(window: Window) -> dict[str, str]:
    """Return a window as JSON data; without its end if that is not known."""
    start, end = window
    return {"start": format_time(start), **({} if end == UNKNOWN_END else {"end": format_time(end)})}


@dataclass
class BoardWindow:
    """The records of one window.

    Attributes:
        window: start and end.
        release: the newest release, as the topic has it.
        before: the release that it replaced.
        refusal: the refusal, if it is newer than both.
        offset: of the record that completed the newest of them.
        released_ms: its timestamp in Kafka: the slot.
    """

    window: Window
    release: bytes | None = None
    before: bytes | None = None
    refusal: bytes | None = None
    offset: int = -1
    released_ms: int = 0
    revision: int = 0
    refused_revision: int = 0
    _bodies: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Memory that the cell may take: records, and the bodies made of them."""
        return _OVERHEAD + 3 * sum(len(one) for one in (self.release, self.before, self.refusal) if one is not None)

    def take(self, about: Outline, value: bytes, offset: int, released_ms: int) -> bool:
        """Add a whole record; False if it, or one that replaced it, was there already."""
        if about.type == "refusal":
            if about.revision <= max(self.refused_revision, self.revision):
                return False
            self.refusal, self.refused_revision = value, about.revision
        elif about.revision <= self.revision:
            return False
        else:
            self.before, self.release, self.revision = self.release, value, about.revision
            if self.refused_revision <= about.revision:
                self.refusal = None
        self.offset, self.released_ms = offset, released_ms
        self._bodies.clear()
        return True

    @property
    def is_readable(self) -> bool:
        """True if its records can be read in full."""
        try:
            return all(decode(one) for one in (self.release, self.before, self.refusal) if one is not None)
        except StateError:
            return False

    @property
    def newest(self) -> Release | None:
        """The newest release."""
        return None if self.release is None else _release(self.release)

    @property
    def refused(self) -> Refusal | None:
        """The refusal."""
        found = None if self.refusal is None else decoded(self.refusal)
        return found if isinstance(found, Refusal) else None

    @property
    def seen(self) -> Seen:
        """The newest records."""
        return Seen(self.newest, None, self.refused)

    @property
    def state(self) -> str:
        """State of the window in a word."""
        return state(self.newest, is_refused=self.refusal is not None)

    def body(self, topic: str) -> bytes:
        """Return the window as JSON: the records as they are in the topic, and what follows from them."""
        return self._made("body", lambda: self._body(topic, self.release, self.before, self.refusal, self.state))

    def replaced(self, topic: str) -> bytes | None:
        """Return the release that was replaced as JSON, None if there is none."""
        return None if self.before is None else self._body(topic, self.before, None, None, "replaced")

    def event(self, topic: str, view: str, href: str) -> bytes:
        """Return the data of the event of the newest record; without the records if that is large."""

        def made() -> bytes:
            body = self.body(topic)
            if len(body) <= LARGEST_EVENT:
                return body
            return compact(
                {**self._head(topic, self.state), "view": view, "window": window_json(self.window), "href": href}
            )

        return self._made("event", made)

    @property
    def event_name(self) -> str:
        """Name of the event of the newest record."""
        return "release" if self.refusal is None else "refusal"

    def _made(self, name: str, make: Callable[[], bytes]) -> bytes:
        if name not in self._bodies:
            self._bodies[name] = make()
        return self._bodies[name]

    def _head(self, topic: str, state: str) -> dict[str, Any]:
        return {"position": f"{topic}-{self.offset}", "released": format_time(self.released_ms), "state": state}

    def _body(
        self, topic: str, release: bytes | None, before: bytes | None, refusal: bytes | None, state: str
    ) -> bytes:
        intervals = None
        if release is not None:
            read = _release(release)
            intervals = [interval(read, entry) for entry in read.items]
        return b'%s,"record":%s,"intervals":%s,"before":%s,"refusal":%s}' % (
            compact(self._head(topic, state))[:-1],
            release or b"null",
            compact(intervals),
            compact(None if before is None else _summary(_release(before))),
            refusal or b"null",
        )


def _release(value: bytes) -> Release:
    found = decoded(value)
    assert isinstance(found, Release)  # noqa: S101 - the cell keeps refusals apart
    return found


def _summary(release: Release) -> dict[str, Any]:
    return {
        "revision": release.revision,
        "level": release.level.name,
        "noise_interval_95": release.noise_interval_95,
        "intervals": {entry.item: interval(release, entry) for entry in release.items},
    }


@dataclass
class Board:
    """The windows of one view and audience.

    Attributes:
        view: the view.
        audience: the audience.
        topic: first 8 hexadecimal digits of the topic's id on the cluster.
        cells: by window.
        editions: by number, the records of the view itself.
        offset: of the last record that was read; -1 before the first.
        ready: whether the topic was read up to the end that it had at the start.
        ledgers: by ledger and period, the newest record: it names the account, and the loss of the audience so far.
        watchers: called with each window that changed.
    """

    view: str
    audience: str
    topic: str
    cells: dict[Window, BoardWindow] = field(default_factory=dict)
    editions: dict[int, ViewRecord] = field(default_factory=dict)
    offset: int = -1
    ready: bool = False
    bytes_held: int = 0
    unreadable: int = 0
    ledgers: dict[tuple[str, int], bytes] = field(default_factory=dict)
    watchers: set[Callable[[Window], None]] = field(default_factory=set)
    closers: set[Callable[[str], None]] = field(default_factory=set)
    order: list[Window] = field(default_factory=list)
    _gone: OrderedDict[Window, None] = field(default_factory=OrderedDict)
    _joiner: Joiner = field(default_factory=Joiner)
    _dead: OrderedDict[Window, tuple[int, Window]] = field(default_factory=OrderedDict)
    """By window, as its key names it: the offset of its newest tombstone, and the window."""
    _forgotten: int = -1
    """Offset of the newest of those that are not remembered."""
    _times: list[tuple[int, int]] = field(default_factory=list)
    """Offset and timestamp of the records that were there at the start, thinned out."""
    _complete_from: int = 0
    """From this offset on every tombstone was read, and is remembered."""
    _unchecked: list[Window] = field(default_factory=list)
    """Windows whose records were read only in outline."""

    def edition(self, time_ms: int) -> ViewRecord | None:
        """Return the record of the edition in effect at a time, or of the first one; None if none is known."""
        begun = [number for number, one in self.editions.items() if one.edition.first_window_ms <= time_ms]
        return self.editions.get(max(begun, default=min(self.editions, default=0)))

    @property
    def position(self) -> str:
        """The position of a client that has all that the board has."""
        return f"{self.topic}-{self.offset}"

    def take(self, key: bytes | None, value: bytes | None, offset: int, timestamp_ms: int) -> Window | None:
        """Add a record of the topic; returns the window that changed with it."""
        self.offset = max(self.offset, offset)
        if not self.ready and (not self._times or timestamp_ms - self._times[-1][1] >= RESUMABLE_MS // 64):
            self._times.append((offset, timestamp_ms))
        changed = self._dropped(key, offset) if value is None else self._taken(value, offset, timestamp_ms)
        if changed is not None:
            for watcher in tuple(self.watchers):
                watcher(changed)
        return changed

    def loaded(self) -> None:
        """Note that the topic was read up to its end."""
        self.ready, self._complete_from, self._unchecked = True, self.offset + 1, list(self.order)

    def check(self) -> Iterator[None]:
        """Read what was loaded in full, a window at a time, the newest first, and drop windows that cannot be read."""
        while self._unchecked:
            window = self._unchecked.pop()
            cell = self.cells.get(window)
            if cell is not None and not cell.is_readable:
                self.unreadable += 1
                self._remove(window)
            yield

    def close(self, reason: str) -> None:
        """Tell every client that the topic is gone, or was made anew."""
        for closer in tuple(self.closers):
            closer(reason)

    def _taken(self, value: bytes, offset: int, timestamp_ms: int) -> Window | None:
        """Add a record; of those that are loaded only the outline is read, which takes a tenth of the time."""
        try:
            about = outline(value)
            is_outlined = about is not None and about.part is None and not self.ready
            record = None if is_outlined else parse(value)
        except StateError:
            self.unreadable += 1
            return None
        if isinstance(record, ViewRecord):
            self.editions[record.edition.number] = record
        if about is None:
            return None
        self.ledgers[about.ledger.name, about.ledger.period.start_ms] = value
        window = about.window.start_ms, about.window.end_ms
        if about.part is not None:
            whole = self._joiner.take(record)
            if whole is None:
                return None
            value = encode(whole)
        elif about.type == "release":
            self._joiner.settle((self.view, self.audience, *window), about.revision)
        if window in self._gone:
            return None
        cell = self.cells.get(window)
        size = 0 if cell is None else cell.size
        cell = cell or BoardWindow(window)
        if not cell.take(about, value, offset, timestamp_ms):
            return None
        if window not in self.cells:
            self.cells[window] = cell
            insort(self.order, window)
        self.bytes_held += cell.size - size
        return window

    def _dropped(self, key: bytes | None, offset: int) -> Window | None:
        """Drop the windows of a key whose value is null; or an edition."""
        _, _, *places = (key or b"//").split(b"/")
        if places[0] == b"view":
            self.editions = {number: one for number, one in self.editions.items() if str(number).encode() != places[-1]}
        known = window_of(key)
        if known is None:
            return None
        first, last = known
        named = first, UNKNOWN_END if last is None else last
        for lost in [one for one in self._gone if one[0] == first and last in (None, one[1])]:
            del self._gone[lost]
        cell = self.find(first, last)
        _, window = self._dead.pop(named, (offset, named))
        if cell is not None:
            window = cell.window
            self._remove(window)
        self._dead[named] = offset, window
        if len(self._dead) > _REMEMBERED:
            _, (self._forgotten, _) = self._dead.popitem(last=False)
        self._forget_ledgers()
        return window if cell is not None else None

    def _forget_ledgers(self) -> None:
        """Forget each period whose successor began before the oldest window that the topic still has."""
        periods = sorted(self.ledgers)
        oldest = min([*self._gone, *self.order[:1]], default=None) if len(periods) > 1 else None
        for (name, start_ms), (other, next_ms) in pairwise(periods):
            if oldest is not None and name == other and next_ms <= oldest[0]:
                del self.ledgers[name, start_ms]

    def _remove(self, window: Window) -> int:
        size = self.cells.pop(window).size
        self.order.remove(window)
        self.bytes_held -= size
        return size

    def forget_oldest(self) -> None:
        """Drop the oldest window from memory; the topic still has it."""
        window = self.order[0]
        self._remove(window)
        self._gone[window] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)

    def is_gone(self, start_ms: int, end_ms: int | None = None) -> bool:
        """Return True if a window was dropped for want of memory."""
        return any(start == start_ms and end_ms in (None, end) for start, end in self._gone)

    def between(self, from_ms: int | None, until_ms: int | None) -> Sequence[Window]:
        """Return the windows that begin in an interval, in order of time."""
        low = 0 if from_ms is None else bisect_left(self.order, (from_ms, -1))
        high = len(self.order) if until_ms is None else bisect_left(self.order, (until_ms, -1))
        return self.order[low:high]

    def find(self, start_ms: int, end_ms: int | None = None) -> BoardWindow | None:
        """Return a window by its start; of several the longest, unless the end is given."""
        found = [window for window in self.between(start_ms, start_ms + 1) if end_ms in (None, window[1])]
        return self.cells[found[-1]] if found else None

    def since(self, offset: int, now_ms: int) -> list[tuple[int, Window]] | Reset:
        """Return what a client has to be told that has everything up to an offset, oldest first.

        Args:
            offset: of the last record that it has.
            now_ms: the time.
        """
        if offset > self.offset:
            return Reset("recreated")
        if offset < self.offset and self._may_miss_tombstones(offset, now_ms):
            return Reset("too_far_behind")
        changed = [(cell.offset, window) for window, cell in self.cells.items() if cell.offset > offset]
        changed += [dead for dead in self._dead.values() if dead[0] > offset]
        if len(changed) > MOST_BEHIND:
            return Reset("too_far_behind")
        return sorted(changed)

    def _may_miss_tombstones(self, offset: int, now_ms: int) -> bool:
        if offset < self._forgotten:
            return True
        if offset < 0 or offset + 1 >= self._complete_from:
            return False  # a client without a window misses none; later tombstones are in memory
        at = bisect_right(self._times, offset, key=lambda known: known[0])
        return at == 0 or now_ms - self._times[at - 1][1] > RESUMABLE_MS


@dataclass
class Boards:
    """The boards of an application.

    Attributes:
        memory_bytes: bound of those of one audience: what it may read does not depend on what others hold.
        by_name: by view and audience.
        started: whether all topics that there were at first have been read.
        silent: whether the broker does not answer.
    """

    memory_bytes: int = 512 << 20
    by_name: dict[tuple[str, str], Board] = field(default_factory=dict)
    started: bool = False
    silent: bool = False

    @property
    def ready(self) -> bool:
        """Return True if every topic was read up to the end that it had at the start."""
        return self.started and all(board.ready for board in list(self))  # metrics are read in another thread

    def of(self, audience: str) -> Mapping[str, Board]:
        """Return the boards of an audience that were read, by view, in the order of their names."""
        mine = {board.view: board for board in self if board.audience == audience and board.ready}
        return dict(sorted(mine.items()))

    def put(self, board: Board) -> None:
        """Add a board; clients of the one that it replaces start again."""
        former = self.by_name.get((board.view, board.audience))
        self.by_name[board.view, board.audience] = board
        if former is not None:
            former.close("recreated")

    def drop(self, name: tuple[str, str]) -> None:
        """Take out the board of a topic that is gone."""
        self.by_name.pop(name).close("recreated")

    def bound(self, audience: str) -> None:
        """Drop an audience's oldest windows until the rest fits into the memory; a view keeps its newest one."""
        boards = [board for board in self if board.audience == audience]
        held = sum(board.bytes_held for board in boards)
        while held > self.memory_bytes:
            old = [board for board in boards if len(board.order) > 1]
            if not old:
                return
            oldest = min(old, key=lambda board: board.order[0])
            before = oldest.bytes_held
            oldest.forget_oldest()
            held -= before - oldest.bytes_held

    def __iter__(self) -> Iterator[Board]:
        return iter(self.by_name.values())
