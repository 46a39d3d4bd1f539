"""The rows of the release table and how they are read; the names under which the ledger reserves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from stream_dp.accounting import Cost, Ledger
from stream_dp.accounting import decode as decode_ledger
from stream_dp.errors import ConfigError, StateError
from stream_dp.releases.plan import ViewPlan
from stream_dp.releases.sealing import SealedTable
from stream_dp.windows.effects import Message, Rows
from stream_dp.windows.rows import (
    BUCKET,
    LEDGER,
    TABLE,
    WINDOW,
    MergedBucket,
    after,
    bucket_key,
    decode,
    moment,
    text,
    window_key,
)


class ViewRow(msgspec.Struct, array_like=True):
    """How far the releases of a view have come, and what they are made with."""

    fingerprint: bytes
    key_id: bytes
    next_ms: int
    """Start of the next window to release; windows leave in order, empty or not."""

    def check(self, view: str, stored: Self) -> None:
        """Refuse to go on with state that was made with something else.

        Raises:
            ConfigError: the view or the key file was changed.
        """
        if stored.fingerprint != self.fingerprint:
            raise ConfigError(
                f"views.{view}: it was changed while releases of it are stored; give the changed view a new name, "
                "or set it back"
            )
        if stored.key_id != self.key_id:
            raise ConfigError(
                f"key_file: it holds another key than the one that view {view} was released with; put the former key "
                "back, since its windows cannot be sharpened without it"
            )


class Given(msgspec.Struct, array_like=True):
    """What an audience has of a window: the number of its last revision and the index of its level."""

    revision: int
    level: int


NOTHING = Given(0, -1)


class WindowRow(msgspec.Struct, array_like=True):
    """A window that was released or refused: once this row is stored, its noise is never drawn again."""

    refused: bool
    given: dict[str, Given]
    outbox: list[tuple[str, bytes, bytes]]
    """(topic, key, record) still to be published; the bytes are fixed before the first attempt."""
    turned_down: dict[str, int] = msgspec.field(default_factory=dict)
    """The last grant of an audience that the ledger could not pay for: read again, it is not refused anew."""

    @property
    def finest(self) -> int:
        """Index of the finest level that any audience has, -1 if none has any."""
        return max((given.level for given in self.given.values()), default=-1)

    def messages(self) -> list[Message]:
        """The outbox as messages."""
        return [Message(topic, key, value) for topic, key, value in self.outbox]


class ClearanceRow(msgspec.Struct, array_like=True):
    """The newest grant of an audience."""

    number: int
    """Its offset in the control topic: a grant that is read again is known by it."""
    levels: list[str]
    """The granted levels, newest first: a view uses the first that its ladder has."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a reservation is for: the first release of a window, or a sharper revision for one audience."""

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
        """Whether what was reserved for has been stored with the window."""
        if row is None or row.refused:
            return False
        return not self.audience or row.given.get(self.audience, NOTHING).level >= self.level


def ledger_key(view: ViewPlan, start_ms: int) -> bytes:
    """The row of the ledger that pays for a window: that of the period it begins in."""
    return LEDGER + text(view.ledger.name) + moment(view.ledger.period_of(start_ms))


def with_budget(ledger: Ledger, budget: Cost) -> Ledger:
    """A stored ledger under the budget of today's configuration; one below what is taken leaves nothing."""
    taken = ledger.budget - ledger.left
    enough = Cost(max(budget.epsilon, taken.epsilon), max(budget.delta, taken.delta))
    return replace(ledger, budget=enough)


def clearance_audience(key: bytes) -> str:
    """The audience of a clearance row."""
    if len(key) != 2 + key[1]:
        raise StateError("a stored clearance has a damaged key")
    return key[2:].decode()


def stored_window(view: str, start: int, rows: Rows) -> WindowRow | None:
    """The row of a window, None before it is released or refused."""
    stored = rows.get(window_key(WINDOW, view, start))
    return None if stored is None else decode(WindowRow, stored)


def stored_table(view: str, start: int, rows: Rows) -> SealedTable:
    """The sealed table of a released window."""
    return decode(SealedTable, rows.get(window_key(TABLE, view, start)) or b"")


def stored_buckets(view: str, start: int, rows: Rows) -> list[MergedBucket]:
    """The exact counts of a window that waits, as far as they have come."""
    prefix = window_key(BUCKET, view, start)
    return [decode(MergedBucket, value) for _, value in rows.scan(prefix, after(prefix))]


def stored_ledger(view: ViewPlan, start: int, rows: Rows) -> tuple[bytes, Ledger]:
    """The ledger that pays for a window, and the key of its row."""
    key = ledger_key(view, start)
    stored = rows.get(key)
    return key, Ledger(view.ledger.budget) if stored is None else with_budget(decode_ledger(stored), view.ledger.budget)


def deletes(buckets: Sequence[MergedBucket]) -> list[tuple[bytes, None]]:
    """Rows that forget the counts of a window."""
    return [(bucket_key(BUCKET, bucket.view, bucket.start_ms, bucket.bucket), None) for bucket in buckets]


def outdated(view: ViewPlan, start: int, rows: Rows) -> Iterator[tuple[bytes, None]]:
    """Windows so old that they are no longer sharpened."""
    horizon = start - view.window.retention_ms
    for kind in (WINDOW, TABLE):  # in this order: a window without its table could not be sharpened
        for key, _ in rows.scan(kind + text(view.name), window_key(kind, view.name, horizon)):
            yield key, None
