"""The rows of the releases table, which the release and sharpen agents write, and how they are read.

| key | value |
|---|---|
| `b` view, start, bucket, part | `MergedBucket`: exact counts of a window that waits for its turn |
| `v` view | `ViewRow`: how far the releases of a view have come |
| `e` view, start, part | `blocks.BlockRow`: exact counts of a block of panes that a longer one will be made of |
| `t` view, start, part | `pieces.TableRow`: noisy integers of a released window |
| `o` view, start, departure, place | `pieces.RecordRow`: a record that is still to be published |
| `w` view, start | `WindowRow`: who has what of a window, and how many records are still to be published |
| `p` population, period | `PromiseRow`: the budget that the period began with |
| `s` population, period | `SharesRow`: what of it was kept for each view when the period began |
| `l` population, period | a ledger (`accounting.ledger`), without its open reservations |
| `r` population, period, call | what is reserved for a `Call` |
| `c` audience | `ClearanceRow`: the grants of an audience |
| `u` view | `UnlockRow`: how far its windows were unlocked by their age |
| `y` view | `LeftoverRow`: how far what its ledger has left was spent on it |
| `n` | `totals.TotalsRow`: how many windows of each view were released, refused, lost, sharpened and late |

A population stands in keys as its ledger's fingerprint, and a period as its start and its end: what was spent stays
what it is, however ledgers and views are called and whatever periods are configured later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Self

import msgspec

from stream_dp.accounting import Cost, Ledger, decode_cost, encode_cost
from stream_dp.accounting import decode as decode_ledger
from stream_dp.accounting import encode as encode_ledger
from stream_dp.accounting.ledger import Rational
from stream_dp.config.plan import FINGERPRINT_BYTES, LedgerPlan, PartPlan, ViewPlan
from stream_dp.config.shares import Shares
from stream_dp.errors import ConfigError, StateError
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import (
    after,
    bucket_key,
    bucket_number,
    decode,
    encode,
    moment,
    moment_at,
    text,
    window_key,
)
from stream_dp.windows.merging import MergedBucket
from stream_dp.windows.shapes.base import Interval
from stream_dp.windows.shapes.tumbling import Tiling

BUCKET, BLOCK, VIEW, TABLE, OUTBOX, WINDOW = b"b", b"e", b"v", b"t", b"o", b"w"
PROMISE, LEDGER, RESERVATION, CLEARANCE, TOTALS = b"p", b"l", b"r", b"c", b"n"
UNLOCK, LEFTOVER, SHARES = b"u", b"y", b"s"

_PERIOD_AT = len(LEDGER) + FINGERPRINT_BYTES
_END_AT = _PERIOD_AT + len(moment(0))
_LEDGER_BYTES = _END_AT + len(moment(0))


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
    drawn: int = -1
    """Index of the finest level that was charged and taken back before it left (`releases.revoking`): it stays paid."""
    withdrawn_levels: dict[str, int] = msgspec.field(default_factory=dict)
    """By audience from which something was so withdrawn: index of the finest level in its accounted privacy loss."""

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
        return max([self.drawn, *(one.level for one in self.states.values())])

    def level(self, audience: str) -> int:
        """Index of the level that an audience has of all that is released of it; -1 if of some it has nothing."""
        level = self.states.get(audience, NOTHING).level
        if self.sum is None or not self.sum.panes or self.sum.refused:
            return level
        return min(level, self.sum.states.get(audience, NOTHING).level)

    def accounted_level(self, audience: str) -> int:
        """Return the index of the finest level in an audience's accounted privacy loss, -1 if none is."""
        return max(self.states.get(audience, NOTHING).level, self.withdrawn_levels.get(audience, NOTHING.level))

    def has(self, audience: str) -> int:
        """Index of the level of what is published to an audience with it, -1 if it has nothing."""
        return (self.states if self.sum is None else self.sum.states).get(audience, NOTHING).level

    def add(self, slot_ms: int, records: int, had: Mapping[str, int] = MappingProxyType({})) -> Departure:
        """Let so many records leave behind those that wait already, at a slot or later."""
        slot = max([slot_ms, *(departure.slot_ms for departure in self.outbox)])
        self.departures += 1
        self.outbox.append(Departure(self.departures, slot, records, dict(had)))
        return self.outbox[-1]


class PromiseRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Promise of a ledger in a period. It is in effect until the period ends, whatever is configured since.

    Caps have to be fixed before the first draw (`accounting.ledger`), so this row is written before the first
    reservation, and all records of the period print it.
    """

    epsilon: Rational
    delta: Rational
    parts: dict[str, tuple[Rational, Rational, Rational]]
    """By name: epsilon, slack and cap."""

    @classmethod
    def of(cls, ledger: LedgerPlan) -> Self:
        """Return the promise of a ledger that is planned like this."""
        total = ledger.total
        parts = {
            name: (str(part.epsilon), str(part.slack), str(part.cap)) for name, part in sorted(ledger.parts.items())
        }
        return cls(str(total.epsilon), str(total.delta), parts)

    def plan(self, ledger: LedgerPlan, period: Interval, budget: Cost) -> LedgerPlan:
        """A ledger as it is planned today, but for the period, what it promises and the caps that keep that."""
        total = Cost(Fraction(self.epsilon), Fraction(self.delta))
        parts = {name: PartPlan(*map(Fraction, part)) for name, part in self.parts.items()}
        return replace(ledger, total=total, budget=budget, periods=Tiling.of(period), parts=parts)


class SharesRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Budget kept for each view when a period began (`config.shares`): stored with its `PromiseRow`."""

    kept: dict[str, bytes]
    """By view, the encoded cost."""

    @classmethod
    def of(cls, shares: Shares) -> Self:
        """The row of what is kept."""
        return cls({name: encode_cost(cost) for name, cost in sorted(shares.kept.items())})


@dataclass(frozen=True, slots=True)
class Call:
    """Purpose of a reservation: the first release of a window, or a sharper revision for one audience."""

    view: str
    start_ms: int
    audience: str = ""
    before: int = -1
    level: int = -1

    def __str__(self) -> str:
        return f"{self.view} {self.start_ms} {self.audience} {self.before} {self.level}"

    @classmethod
    def parse(cls, name: str) -> Self:
        """The inverse of `str`; names of views and audiences hold no blank."""
        view, start, audience, before, level = name.split(" ")
        return cls(view, int(start), audience, int(before), int(level))

    def stored(self, row: WindowRow | None) -> bool:
        """Return True if what was reserved for has been stored with the window."""
        if row is None or row.refused:
            return False
        return not self.audience or row.states.get(self.audience, NOTHING).level >= self.level


def merged_key(bucket: MergedBucket) -> bytes:
    """The row of a part of a merged bucket, and its key in the topic that it comes from."""
    return bucket_key(BUCKET, bucket.view, bucket.start_ms, bucket.bucket) + bucket_number(bucket.part)


def ledger_key(view: ViewPlan, start_ms: int) -> bytes:
    """The row of a view's ledger in the configured period of a window: of one that is released it holds all."""
    period = view.ledger.periods.interval(start_ms)
    return LEDGER + view.ledger.fingerprint + moment(period.start_ms) + moment(period.end_ms)


def population_of(ledger: bytes) -> bytes:
    """Return the prefix of the keys of all ledgers of a population, by one of them."""
    return ledger[:_PERIOD_AT]


def period_of(ledger: bytes) -> Interval:
    """The period that a ledger is about, by the key of its row.

    Raises:
        StateError: it is no key of a ledger.
    """
    if len(ledger) != _LEDGER_BYTES:
        raise StateError("a stored ledger has a damaged key")
    return Interval(moment_at(ledger, _PERIOD_AT), moment_at(ledger, _END_AT))


def promise_key(ledger: bytes) -> bytes:
    """The row of what a period promises, by the key of its ledger."""
    return PROMISE + ledger[len(LEDGER) :]


def shares_key(ledger: bytes) -> bytes:
    """The row of what is kept for the views in a period, by the key of its ledger."""
    return SHARES + ledger[len(LEDGER) :]


def reservation_key(ledger: bytes, call: str) -> bytes:
    """The row of an open reservation, by the key of its ledger."""
    return RESERVATION + ledger[len(LEDGER) :] + call.encode()


def reserved_rows(key: bytes, ledger: Ledger, call: str) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of a reservation: the ledger comes first, so that no reservation is stored without one.

    Before the first of a period stand `promise_rows`.
    """
    return [(key, encode_ledger(ledger)), (reservation_key(key, call), encode_cost(ledger.reserved[call]))]


def promise_rows(key: bytes, ledger: LedgerPlan, shares: Shares) -> list[tuple[bytes, bytes | None]]:
    """Return the rows that a period begins with: stored before its ledger, so that no ledger is without."""
    return [(promise_key(key), encode(PromiseRow.of(ledger))), shares_row(key, shares)]


def shares_row(key: bytes, shares: Shares) -> tuple[bytes, bytes]:
    """Return the row of what a period keeps for each view."""
    return shares_key(key), encode(SharesRow.of(shares))


def stored_promise(key: bytes, rows: Rows) -> PromiseRow:
    """Return the promise of a stored ledger's period.

    Raises:
        StateError: it is not stored, or is damaged.
    """
    stored = rows.get(promise_key(key))
    if stored is None:
        raise StateError("a ledger is stored, and not what its period promises")
    return decode(PromiseRow, stored)


def stored_shares(key: bytes, rows: Rows) -> dict[str, Cost]:
    """Return the budget kept for each view when the period of a stored ledger began.

    Raises:
        StateError: it is not stored, or is damaged.
    """
    stored = rows.get(shares_key(key))
    if stored is None:
        raise StateError("a ledger is stored, and not what its period keeps for each view")
    return {name: decode_cost(value) for name, value in decode(SharesRow, stored).kept.items()}


def charged_rows(key: bytes, ledger: Ledger) -> list[tuple[bytes, bytes | None]]:
    """Return the rows of the last finished call: its charge comes first, so that it is in one of both rows."""
    return [(key, encode_ledger(ledger)), (reservation_key(key, ledger.last), None)]


def read_ledgers(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Ledger]:
    """The ledgers among rows, by key, with their open reservations.

    Raises:
        StateError: one of them is damaged, overdrawn or of another version, or a reservation has no ledger.
    """
    stored: dict[bytes, bytes] = {}
    reservations: dict[bytes, list[tuple[str, bytes]]] = {}
    for key, value in rows:
        if key.startswith(LEDGER):
            stored[key] = value
        elif key.startswith(RESERVATION):
            of = LEDGER + key[len(RESERVATION) : _LEDGER_BYTES]
            reservations.setdefault(of, []).append((key[_LEDGER_BYTES:].decode(), value))
    if not reservations.keys() <= stored.keys():
        raise StateError("something is reserved in a ledger that is not stored")
    return {key: decode_ledger(value, reservations.get(key, ())) for key, value in stored.items()}


def repairs(key: bytes, ledger: Ledger, rows: Rows) -> list[tuple[bytes, bytes | None]]:
    """Return the deletion that a crash between the rows of `charged_rows` left out: the charged reservation."""
    ended = reservation_key(key, ledger.last)
    return [] if rows.get(ended) is None else [(ended, None)]


def stored_view(view: str, rows: Rows) -> ViewRow | None:
    """The row of a view, None before it began."""
    stored = rows.get(VIEW + text(view))
    return None if stored is None else decode(ViewRow, stored)


def stored_window(view: str, start: int, rows: Rows) -> WindowRow | None:
    """The row of a window, None before it is released or refused."""
    stored = rows.get(window_key(WINDOW, view, start))
    return None if stored is None else decode(WindowRow, stored)


def sealing_keys(view: str, rows: Rows) -> set[str]:
    """The ids of the keys that the stored windows of a view were sealed with."""
    prefix = WINDOW + text(view)
    windows = (decode(WindowRow, value) for _, value in rows.scan(prefix, after(prefix)))
    return {window.key_id for window in windows if not (window.refused or window.expires)}
