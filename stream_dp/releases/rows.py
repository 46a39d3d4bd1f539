"""The rows of the releases table, which the release and sharpen agents write, and how they are read.

| key | value |
|---|---|
| `b` view, start, bucket, part | `MergedBucket`: exact counts of a window that waits for its turn |
| `v` view | `ViewRow`: how far the releases of a view have come |
| `e` view, start, part | `panes.BlockRow`: exact counts of a block of panes that a longer one will be made of |
| `t` view, start, part | `pieces.TableRow`: noisy integers of a released window |
| `o` view, start, departure, place | `pieces.RecordRow`: a record that is still to be published |
| `r` view, start, digest | `pieces.PublishedRecord`: a record as its topic has it, for `stream-dp republish` |
| `w` view, start | `WindowRow`: who has what of a window, and how many records are still to be published |
| `p` population, period | `accounts.PeriodRow`: the budget that the period began with, and what each view keeps |
| `l` population, period | a ledger (`accounting.ledger`), with what is reserved for every open `Call` |
| `i` view, edition, audience | `announcements.AnnouncedRow`: the record of a view, and whether it was published |
| `c` audience | `clearances.ClearanceRow`: the grants of an audience |
| `u` view | `unlocks.UnlockRow`: how far its windows were unlocked by their age |
| `y` view | `unlocks.LeftoverRow`: how far what its ledger has left was spent on it |
| `n` | `TotalsRow`: how many windows of each view were released, refused, lost, sharpened and late |

A population stands in keys as its ledger's fingerprint, and a period as its start and its end: what was spent stays
what it is, however ledgers and views are called and whatever periods are configured later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import msgspec

from stream_dp.errors import ConfigError
from stream_dp.windows.effects import Increment, Rows
from stream_dp.windows.encoding import after, bucket_key, bucket_number, decode, encode, text, window_key, window_start
from stream_dp.windows.merging import MergedHead
from stream_dp.windows.views import view_of

BUCKET, BLOCK, VIEW, TABLE, OUTBOX, WINDOW = b"b", b"e", b"v", b"t", b"o", b"w"
PROMISE, LEDGER, CLEARANCE, TOTALS = b"p", b"l", b"c", b"n"
UNLOCK, LEFTOVER, ANNOUNCED, PUBLISHED = b"u", b"y", b"i", b"r"

Change = tuple[bytes, bytes | None]
"""A row to store, or to delete."""


class ViewRow(msgspec.Struct, array_like=True):
    """Progress of the releases of a view, and the fingerprint of its definition."""

    fingerprint: bytes
    next_ms: int
    """Start of the next window to release; windows leave in order, empty or not."""
    kept_ms: int
    """Start of the first window whose row is kept if it was released: before it stand those past their retention."""
    published_ms: int
    """Start of the newest published window, or of the pane that it was released with. Of a definition that is over, the
    end of its windows once a window of the definition that took its place was published."""

    def check(self, view: str, stored: Self) -> None:
        """Refuse to go on with releases of another definition.

        Raises:
            ConfigError: the view was changed.
        """
        if stored.fingerprint != self.fingerprint:
            raise ConfigError(
                f"views.{view}: it was changed while releases of it are stored; give the changed view a new name, "
                "or set it back"
            )


class AudienceState(msgspec.Struct, array_like=True):
    """State of a window for one audience: the number of its last revision and the index of its level."""

    revision: int
    level: int
    parts: int = 1
    """In how many parts the largest revision was published, so under how many keys some revision stands."""
    steps: list[int] = msgspec.field(default_factory=list)
    """The levels that it was given one after another, rising to `level`; of a running total, those of its window."""

    def steps_to(self, level: int) -> list[int]:
        """Return its steps up to a level, which may be one that it was not given; none up to -1."""
        return [*(one for one in self.steps if one < level), *([level] if level >= 0 else [])]

    def back_at(self, level: int) -> AudienceState:
        """Return the state with a coarser level, where the last steps were taken back; -1: all were."""
        return AudienceState(self.revision, level, self.parts, self.steps_to(level))


NOTHING = AudienceState(0, -1)


class Departure(msgspec.Struct, array_like=True):
    """Records that leave together; their bytes are fixed before the first attempt."""

    number: int
    """The first of a window is 1."""
    slot_ms: int
    """When they leave; later, if they miss it."""
    records: int
    """Number of them; each is in a row of its own."""
    had: dict[str, int] = msgspec.field(default_factory=dict)
    """By audience of a sharper revision: the index of the level that it had before. Who is not here had nothing."""


class PaneSum(msgspec.Struct, array_like=True):
    """The window that ends with a pane and is the sum of panes, as it was released."""

    panes: int
    """Number of them; 0: no window ends there."""
    refused: bool = False
    states: dict[str, AudienceState] = msgspec.field(default_factory=dict)
    """Who has what of it."""
    refused_to: list[str] = msgspec.field(default_factory=list)
    """Audiences that got a refusal."""


class WindowRow(msgspec.Struct, array_like=True):
    """A window that was released or refused, or a pane: once this row is stored, its noise is never drawn again.

    It has two entries for an audience at most, and its table and records stand in rows of their own.
    """

    refused: bool
    slot_ms: int
    """When its first records leave; those of later windows of the view leave no earlier."""
    states: dict[str, AudienceState] = msgspec.field(default_factory=dict)
    departures: int = 0
    """Number of departures so far, published or not."""
    outbox: list[Departure] = msgspec.field(default_factory=list)
    """Those that still have to be published, in order."""
    refused_grants: dict[str, int] = msgspec.field(default_factory=dict)
    """By audience that got a refusal: the last grant that the ledger could not pay for, which is not refused
    anew when it is carried on; 0 where the window itself is refused."""
    key_id: str = ""
    """The key that its table was sealed with (`keyring`); the table counts only with this row, so it is of the same
    draw. Empty where there is no table, or the window expires: nothing more is read of it."""
    secret: bytes = b""
    """Of the window alone (`sealing.own_secret`); empty where there is no table."""
    expires: bool = False
    """True if its retention is over (`releases.expiry`): behind its last departure, nothing of it stays."""
    lost: bool = False
    """True if it was refused because counts of it were lost."""
    sum: PaneSum | None = None
    """Of a pane: the window that ends with it."""
    declined: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """The levels that the window's age would have given an audience and the ledger could not pay for."""
    steps: list[int] = msgspec.field(default_factory=list)
    """The levels that were charged one after another, rising, all audiences together. One that was taken back before it
    left (`outboxes.revoked`) stays paid."""
    withdrawn_steps: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """By audience from which something was so withdrawn: the levels in its accounted privacy loss until then."""
    interrupted: bool = False
    """True if it, or an earlier pane of a running total, was closed before its source had caught up after an outage."""

    @property
    def publishes_window(self) -> bool:
        """True if it publishes a window: a window itself, or a pane that a window ends with."""
        return self.sum is None or self.sum.panes > 0

    @property
    def has_left(self) -> bool:
        """True if records of a window left with it that nothing took back: a release, or that it was refused."""
        states = self.states if self.sum is None else self.sum.states
        left = self.publishes_window and not self.expires and self.departures > len(self.outbox)
        return left and (not states or any(one.level >= 0 for one in states.values()))

    def withdraws(self, departure: Departure) -> bool:
        """Return True if a departure has tombstones."""
        return self.expires and departure.number == self.departures and departure.records > 0

    @property
    def finest(self) -> int:
        """Index of the finest level that is paid for, which an audience has as a rule; -1 if none is."""
        return max([-1, *self.steps[-1:], *(one.level for one in self.states.values())])

    def level(self, audience: str) -> int:
        """Index of the level that an audience has of all that is released of it; -1 if of some it has nothing."""
        level = self.states.get(audience, NOTHING).level
        if self.sum is None or not self.sum.panes or self.sum.refused:
            return level
        return min(level, self.sum.states.get(audience, NOTHING).level)

    def accounted_level(self, audience: str) -> int:
        """Return the index of the finest level in an audience's accounted privacy loss, -1 if none is."""
        return max([-1, *self.accounted_steps(audience)[-1:]])

    def accounted_steps(self, audience: str) -> list[int]:
        """Return the levels in an audience's accounted privacy loss, rising."""
        before = self.withdrawn_steps.get(audience, [])
        return [*before, *(one for one in self.states.get(audience, NOTHING).steps if [one] > before[-1:])]

    def charge_step(self, level: int) -> None:
        """Take note that a level is charged, if none so fine was."""
        if [level] > self.steps[-1:]:
            self.steps.append(level)

    def has(self, audience: str) -> int:
        """Index of the level of what is published to an audience with it, -1 if it has nothing."""
        return (self.states if self.sum is None else self.sum.states).get(audience, NOTHING).level

    def add(self, slot_ms: int, records: int, had: Mapping[str, int] = MappingProxyType({})) -> Departure:
        """Let so many records leave behind those that wait already, at a slot or later."""
        slot = max([slot_ms, *(departure.slot_ms for departure in self.outbox)])
        self.departures += 1
        self.outbox.append(Departure(self.departures, slot, records, dict(had)))
        return self.outbox[-1]


@dataclass(frozen=True, slots=True)
class Call:
    """Purpose of a reservation: the first release of a window, or a sharper revision for one audience.

    Attributes:
        view: name of the definition.
        start_ms: start of the window.
        audience: of the revision; empty for the first release.
        before: index of the finest level in the audience's accounted privacy loss before, -1 for none.
        level: index of its level now.
        paid: index of the finest level that was charged before, whoever has it.
    """

    view: str
    start_ms: int
    audience: str = ""
    before: int = -1
    level: int = -1
    paid: int = -1

    def __str__(self) -> str:
        return f"{self.view} {self.start_ms} {self.audience} {self.before} {self.level} {self.paid}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """The inverse of `str`; names of views and audiences hold no blank."""
        view, start, audience, *levels = name.split(" ")
        return cls(view, int(start), audience, *map(int, levels))

    def stored(self, row: WindowRow | None) -> bool:
        """Return True if what was reserved for has been stored with the window."""
        if row is None or row.refused:
            return False
        return not self.audience or row.states.get(self.audience, NOTHING).level >= self.level


def merged_key(bucket: MergedHead) -> bytes:
    """The row of a part of a merged bucket, and its key in the topic that it comes from."""
    return bucket_key(BUCKET, bucket.view, bucket.start_ms, bucket.bucket) + bucket_number(bucket.part)


def stored_view(view: str, rows: Rows) -> ViewRow | None:
    """The row of a view, None before it began."""
    stored = rows.get(VIEW + text(view))
    return None if stored is None else decode(ViewRow, stored)


def stored_window(view: str, start: int, rows: Rows) -> WindowRow | None:
    """The row of a window, None before it is released or refused."""
    stored = rows.get(window_key(WINDOW, view, start))
    return None if stored is None else decode(WindowRow, stored)


def stored_windows(
    view: str, rows: Rows, first_ms: int | None = None, until_ms: int | None = None
) -> Iterator[tuple[int, WindowRow]]:
    """Yield the stored windows of a view, oldest first, each with its start.

    Args:
        view: the view.
        rows: the partition's table.
        first_ms: none that starts earlier; None: from the oldest on.
        until_ms: none that starts then or later; None: up to the newest.
    """
    prefix = WINDOW + text(view)
    first = prefix if first_ms is None else window_key(WINDOW, view, first_ms)
    for key, value in rows.scan(first, after(prefix) if until_ms is None else window_key(WINDOW, view, until_ms)):
        yield window_start(WINDOW, view, key), decode(WindowRow, value)


def deletions(prefix: bytes, rows: Rows) -> list[Change]:
    """Return the deletions of all rows whose keys begin alike."""
    return [(key, None) for key, _ in rows.scan(prefix, after(prefix))]


def sealing_keys(view: str, rows: Rows) -> set[str]:
    """The ids of the keys that the stored windows of a view were sealed with."""
    return {row.key_id for _, row in stored_windows(view, rows) if not (row.refused or row.expires)}


# -- totals -------------------------------------------------------------------------------------------------------
# One row holds the totals of all views of a partition, and what was added to them last. It stands first in the commit
# of what it counts, so a crash in that commit may leave the row alone: then `rolled_back` finds that what was added
# last is not stored. So everything is counted once, as often as it is tried.

LATE = "releases_late"


class TotalChange(msgspec.Struct, array_like=True):
    """Addition to the total of a view, and how to know that it was carried out."""

    counter: str
    view: str
    amount: int
    start_ms: int
    """The window that it is about, or the last one."""
    departure: int
    """Number of its departure; 0: none, the view has stepped over it."""

    @property
    def increment(self) -> Increment:
        """The same as an effect."""
        return Increment(self.counter, self.amount, (("view", view_of(self.view)),))

    def is_stored(self, rows: Rows) -> bool:
        """Return True if that which was counted stands in the table, or has left it."""
        if not self.departure:
            stored = stored_view(self.view, rows)
            return stored is not None and stored.next_ms > self.start_ms
        row = stored_window(self.view, self.start_ms, rows)
        if self.counter == LATE:
            return row is None or all(departure.number > self.departure for departure in row.outbox)
        return row is not None and row.departures >= self.departure


class TotalsRow(msgspec.Struct, array_like=True):
    """The totals of a partition."""

    views: dict[str, dict[str, int]] = {}
    """By view and counter."""
    last: list[TotalChange] = []
    """Additions of the last commit, as long as a crash may have left them out."""

    def add(self, one: TotalChange, sign: int = 1) -> None:
        """Add something, or take it back."""
        found = self.views.setdefault(one.view, {})
        found[one.counter] = found.get(one.counter, 0) + sign * one.amount


def counted(those: Iterable[TotalChange], rows: Rows) -> Change:
    """The row that goes first in the commit of what it counts."""
    row = _totals(rows)
    row.last = list(those)
    for one in row.last:
        row.add(one)
    return TOTALS, encode(row)


def rolled_back(rows: Rows) -> list[Change]:
    """Return the row without additions that are counted and not stored; to be applied first after a crash."""
    row = _totals(rows)
    undone = [one for one in row.last if not one.is_stored(rows)]
    if not undone:
        return []
    row.last = []
    for one in undone:
        row.add(one, -1)
    return [(TOTALS, encode(row))]


def stored_totals(rows: Rows) -> Iterator[Increment]:
    """The totals of a partition, as they are stored."""
    for view, found in _totals(rows).views.items():
        for counter, amount in found.items():
            yield Increment(counter, amount, (("view", view_of(view)),))


def _totals(rows: Rows) -> TotalsRow:
    stored = rows.get(TOTALS)
    return TotalsRow() if stored is None else decode(TotalsRow, stored)
