"""Windows that users have entered: in each period of its ledger a user is counted in so many windows of a view only.

A user enters a window with the first contribution that it takes of them. Whether it takes one depends on the user's own
earlier events, on the event's time and on clocks, so with or without a user everybody else is counted alike
(specs/participation 1). Users have one partition, and are counted where they stand, in the order of its log. Of windows
that overlap, each tiling takes its part of the number by itself: so it does not matter which events one fetch brings
together.

The number of windows that a user has entered is stored under a pseudonym: an HMAC of the user, with a key that is drawn
when somebody first enters a window of the period. Once the last window of the period has been handed on, the rows are
deleted and erased from the files, and then the key.

The rows are stored in front of the marker of their chunk, behind its journal rows. A chunk that was cut short is rolled
back with these: each row has the number before it too.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from stream_dp.windows.effects import Commit, Effect, Erase, Rows
from stream_dp.windows.encoding import MESSAGE_BYTES, after, decode, encode, moment, text, window_key, window_start
from stream_dp.windows.shapes.shape import Interval
from stream_dp.windows.views import CountedView, ParticipationBound

ENTERED, PERIOD_KEY = b"e", b"p"
REFUSED = "participation"
"""Why a contribution is refused whose user has entered as many windows as they may."""

_PSEUDONYM_BYTES = 16
_KEY_BYTES = 32

Row = tuple[bytes, bytes | None]
Enters = Callable[[bytes, int], bool]
"""(user, time of the event in ms) to whether the user may enter a window, and does."""


def everybody(user: bytes, time_ms: int) -> bool:
    """Let every user enter a window: what they have entered is not bounded."""
    return True


class EnteredRow(msgspec.Struct, array_like=True):
    """Number of windows of a period that a user has entered."""

    last_offset: int
    """That of the chunk that stored it: as long as it is behind the marker's, `before` holds."""
    windows: int
    before: int
    """The number without that chunk."""


class Participation:
    """Windows that users have entered of one definition, in one partition of its source."""

    def __init__(
        self,
        view: CountedView,
        bound: ParticipationBound,
        rows: Rows,
        new_key: Callable[[], bytes] = lambda: secrets.token_bytes(_KEY_BYTES),
    ) -> None:
        """Read which periods have begun.

        Args:
            view: the definition.
            bound: its bound.
            rows: the partition's table.
            new_key: draws the key of a period.
        """
        self._view = view
        self._bound = bound
        self._rows = rows
        self._new_key = new_key
        self._tilings = view.windows.tilings
        self._numbers: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        """By place and user, of a chunk that is not stored: the number of windows now, and before."""
        self._keys = {window_start(PERIOD_KEY, view.name, key): value for key, value in _periods(view.name, rows)}
        self._new_periods: list[int] = []

    def enters(self, start_ms: int, tiling: int) -> Enters:
        """Return what lets users enter a window.

        Args:
            start_ms: start of the window.
            tiling: number of its tiling.
        """
        period = self._bound.period_of(unit := self._unit(start_ms, tiling))
        if period is None:  # it is not released
            return everybody
        place, at_once = self._place(unit, tiling), len(self._tilings)

        def entered(user: bytes, time_ms: int) -> bool:
            found = self._numbers.get((place, user))
            if found is None:
                number = self._stored(place, user)
                found = number, number
            now, before = found
            allowed = now < self._bound.most_by(period, time_ms, at_once)
            self._numbers[place, user] = now + allowed, before
            return allowed

        return entered

    def stored(self, last_offset: int) -> list[Row]:
        """Return the rows to store of what users have entered since, with the chunk that ends at an offset."""
        changed: list[Row] = []
        for (place, user), (now, before) in self._numbers.items():
            if now > before:
                changed.append((self._key(place, user), encode(EnteredRow(last_offset, now, before))))
        keys = [(window_key(PERIOD_KEY, self._view.name, start), self._keys[start]) for start in self._new_periods]
        self._numbers, self._new_periods = {}, []
        return [*keys, *changed]

    def rolled_back(self, start_ms: int, users: Iterable[bytes], marker_offset: int) -> Iterator[Row]:
        """Return the rows as they were before a chunk that was cut short, for users whom it added to a window.

        Args:
            start_ms: start of the window.
            users: the users.
            marker_offset: end of the last chunk that counts.
        """
        tiling = next(at for at, one in enumerate(self._tilings) if one.start_of(start_ms) == start_ms)
        unit = self._unit(start_ms, tiling)
        if (period := self._bound.period_of(unit)) is None or period.start_ms not in self._keys:
            return
        place = self._place(unit, tiling)
        for user in dict.fromkeys(users):
            key = self._key(place, user)
            value = self._rows.get(key)
            row = None if value is None else decode(EnteredRow, value)
            if row is not None and row.last_offset > marker_offset:
                before = EnteredRow(marker_offset, row.before, row.before)
                yield key, encode(before) if row.before else None

    def erased(self, open_from_ms: int | None) -> Iterator[Effect]:
        """Delete what is known of periods that are over; from the files, too.

        Args:
            open_from_ms: start of the first window that was not handed on; None: all were.
        """
        for start in sorted(self._keys):
            is_over = open_from_ms is None or self._bound.periods.end(start) <= open_from_ms
            if is_over or not self._keys[start]:
                yield from _erased(self._view.name, start, self._rows)
                del self._keys[start]

    def _unit(self, start_ms: int, tiling: int) -> Interval:
        return self._view.unit(start_ms, self._tilings[tiling])

    def _place(self, unit: Interval, tiling: int) -> bytes:
        """Return the prefix of the rows of those windows of a period that are of one tiling."""
        start = self._bound.periods.start_of(unit.start_ms)
        if start not in self._keys:
            self._keys[start] = self._new_key()
            self._new_periods.append(start)
        return window_key(ENTERED, self._view.name, start) + tiling.to_bytes(2)

    def _key(self, place: bytes, user: bytes) -> bytes:
        secret = self._keys[window_start(ENTERED, self._view.name, place)]
        return place + hmac.digest(secret, user, "sha256")[:_PSEUDONYM_BYTES]

    def _stored(self, place: bytes, user: bytes) -> int:
        value = self._rows.get(self._key(place, user))
        return 0 if value is None else decode(EnteredRow, value).windows


def drop_others(configured: Iterable[str], rows: Rows) -> Iterator[Effect]:
    """Erase what is known of definitions that are not configured any more."""
    kept = tuple(PERIOD_KEY + text(name) for name in configured)
    for key, _ in list(rows.scan(PERIOD_KEY, after(PERIOD_KEY))):
        if not key.startswith(kept):
            name = key[len(PERIOD_KEY) + 1 : -len(moment(0))].decode()
            yield from _erased(name, window_start(PERIOD_KEY, name, key), rows)


def _periods(name: str, rows: Rows) -> Iterator[tuple[bytes, bytes]]:
    prefix = PERIOD_KEY + text(name)
    return rows.scan(prefix, after(prefix))


def _erased(name: str, period_ms: int, rows: Rows) -> Iterator[Effect]:
    """Erase the rows of a period, and its key behind them.

    The key's row is emptied before, and deleted behind the erasing: a crash in between leaves it, and it is done again.
    """
    first = window_key(ENTERED, name, period_ms)
    key, behind = window_key(PERIOD_KEY, name, period_ms), after(first)
    at = first
    while some := _keys(rows.scan(at, behind)):
        yield Commit([(one, None) for one in some])
        at = some[-1]
    yield Commit([(key, b"")])
    yield Erase(first, behind)
    yield Erase(key, after(key))
    yield Commit([(key, None)])


def _keys(found: Iterator[tuple[bytes, bytes]]) -> Sequence[bytes]:
    """Return the keys of the next rows, as many as one message has room for."""
    keys: list[bytes] = []
    size = 0
    for key, _ in found:
        keys.append(key)
        size += len(key) + 8
        if size > MESSAGE_BYTES:
            break
    return keys
