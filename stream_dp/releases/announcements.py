"""The records of the views: what a view is, published to each of its audiences, edition by edition.

A record is a function of the plan alone. `Announcements.load` stores those that differ from what was sent last, and
they leave at the next slot, before every release that waits for it. An engine releases when it is loaded, so readers
have the record of an edition before its first window.

The row is the commit point. A crash before it leaves nothing; from there to the end of publishing it leaves a record
that is published again, byte for byte; behind that, a row that says so. Equal bytes are not sent again.

The record of an edition is taken back when the last of its windows is marked as expired (`releases.expiry`) and all of
that has left; that of an audience that was removed, when the last window is that was released by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stream_dp.config.plan import Edition, ViewPlan
from stream_dp.records.codec import encode as encode_record
from stream_dp.records.codec import view_key
from stream_dp.records.models import NEIGHBOURS, SCHEMA_VERSION, PrivacyCost
from stream_dp.records.view_record import ViewEdition, ViewLedger, ViewLevel, ViewRecord, ViewUnlock, ViewWindow
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.publication import Destinations, account_pool
from stream_dp.releases.rows import ANNOUNCED, Change, stored_windows
from stream_dp.version import __version__
from stream_dp.windows.durations import CalendarUnit, format_duration, format_time
from stream_dp.windows.effects import Leave, Message, Rows
from stream_dp.windows.encoding import after, bucket_number, decode, encode, text

ANNOUNCEMENT_MS = -1 << 62
"""In a `Leave`, in place of the start of a window: the records of the view leave."""
NEXT_SLOT_MS = 0


class AnnouncedRow(msgspec.Struct, array_like=True, frozen=True):
    """The record of an edition of a view for one audience, and whether it was published."""

    topic: str
    key: bytes
    value: bytes | None
    """None: it is taken back."""
    sent: bool = False
    over_ms: int | None = None
    """Start of the first window that it is not about; None: it is about all that are still to come."""
    left_ms: int = 0
    """The slot at which it was published; None if it was not."""

    @property
    def message(self) -> Message:
        """The record as it is published."""
        return Message(self.topic, self.key, self.value)

    def taken_back(self) -> AnnouncedRow:
        """The row that takes it back."""
        return self if self.value is None else replace(self, value=None, sent=False)


class Announcements:
    """The records of the views of one partition."""

    def __init__(self, state: PartitionState, destinations: Destinations) -> None:
        """Set them up; `load` makes them ready."""
        self._state = state
        self._destinations = destinations
        self._over: dict[str, dict[bytes, int]] = {}
        """By definition and row: the end of what it is about."""

    def waiting(self) -> list[Leave]:
        """Return the `Leave`s of what is stored and may not have left."""
        names = (name for name in self._state.views if unsent(name, self._state.rows))
        return [Leave(name, ANNOUNCEMENT_MS, NEXT_SLOT_MS) for name in names]

    def load(self, oldest: Mapping[str, int]) -> list[Change]:
        """Compare what was sent last with the plan; the rows to store, whose records leave then (`waiting`).

        Args:
            oldest: by definition, the start of the first window that is not marked as expired.
        """
        changed: list[Change] = []
        for name, view in self._state.views.items():
            stored = _stored(name, self._state.rows)
            rows = {key: row.taken_back() for key, row in stored.items()} | self._rows(view, stored, oldest[name])
            shown = {key: row for key, row in rows.items() if row.value is not None}
            self._over[name] = {key: row.over_ms for key, row in shown.items() if row.over_ms is not None}
            changed += [(key, encode(row)) for key, row in rows.items() if row != stored.get(key)]
        return changed

    def expire(self, view: str, oldest_ms: int) -> list[Change]:
        """The rows to store when windows of a definition were marked as expired: some records are taken back."""
        over = [key for key, over_ms in self._over[view].items() if over_ms <= oldest_ms]
        stored = _stored(view, self._state.rows)
        for key in over:
            del self._over[view][key]
        return [(key, encode(stored[key].taken_back())) for key in over]

    def _rows(self, view: ViewPlan, stored: Mapping[bytes, AnnouncedRow], oldest_ms: int) -> dict[bytes, AnnouncedRow]:
        """The rows of a definition by the plan, without what is over; of audiences that were removed, what there is."""
        found: dict[bytes, AnnouncedRow] = {}
        for edition in () if view.never_holds else view.editions:
            for audience in view.readers:
                key = ANNOUNCED + text(view.name) + bucket_number(edition.number) + audience.encode()
                was = stored.get(key)
                until_ms = self._until(view, edition, was)
                if until_ms is not None and until_ms <= max(edition.first_ms, oldest_ms):
                    continue
                if audience in view.audiences or audience in edition.audiences:
                    topic, value = (
                        self._destinations.release(view.view, audience),
                        encode_record(view_record(view, edition, audience)),
                    )
                    is_sent = was is not None and was.sent and was.value == value
                    public = view_key(view.view, audience, edition.number)
                    left_ms = was.left_ms if was is not None and is_sent else 0
                    found[key] = AnnouncedRow(topic, public, value, is_sent, until_ms, left_ms)
                elif was is not None and was.value is not None:
                    over_ms = self._state.marks[view.name].next_ms if was.over_ms is None else was.over_ms
                    found |= {key: replace(was, over_ms=over_ms)} if over_ms > oldest_ms else {}
        return found

    def _until(self, view: ViewPlan, edition: Edition, was: AnnouncedRow | None) -> int | None:
        """Start of the first window that is not of an edition; None if all that are to come are.

        Windows behind its end are of it as well if they were released before the next edition was known.
        """
        until_ms = view.until(edition)
        if until_ms is None or was is None or was.value is None:
            return until_ms
        return max(until_ms, self._state.marks[view.name].next_ms if was.over_ms is None else was.over_ms)


def _stored(view: str, rows: Rows) -> dict[bytes, AnnouncedRow]:
    prefix = ANNOUNCED + text(view)
    return {key: decode(AnnouncedRow, value) for key, value in rows.scan(prefix, after(prefix))}


def unsent(view: str, rows: Rows) -> dict[bytes, AnnouncedRow]:
    """Return the rows of a definition whose records are to be published: none is taken back before its windows are."""
    return {
        key: row
        for key, row in _stored(view, rows).items()
        if not row.sent and (row.value is not None or not _stands_before(view, row.over_ms, rows))
    }


def published_announcements(view: str, rows: Rows) -> list[tuple[int, Message]]:
    """Return the published records of a definition that were not taken back, each with its slot."""
    return [(row.left_ms, row.message) for row in _stored(view, rows).values() if row.sent and row.value is not None]


def stored_announcements(view: str, rows: Rows) -> list[Message]:
    """Return the records of a definition that are stored, those that have not left yet too."""
    return [row.message for row in _stored(view, rows).values()]


def _stands_before(view: str, over_ms: int | None, rows: Rows) -> bool:
    return over_ms is not None and next(stored_windows(view, rows, until_ms=over_ms), None) is not None


def settled_announcements(published: Mapping[bytes, tuple[AnnouncedRow, int]], rows: Rows) -> Iterator[Change]:
    """Yield the rows to store after records were published; rows that changed in the meantime stay as they are.

    Args:
        published: the published record of each row, with its slot.
        rows: the partition's table.
    """
    for key, (row, left_ms) in published.items():
        if rows.get(key) == encode(row):
            yield key, None if row.value is None else encode(replace(row, sent=True, left_ms=left_ms))


# -- content ------------------------------------------------------------------------------------------------------


def view_record(view: ViewPlan, edition: Edition, audience: str) -> ViewRecord:
    """Return the record of an edition of a view for one audience.

    It is a function of these arguments alone, which are settings: no event, no count and nothing that was spent is in
    it. Of the levels, it has those of the audience.

    Args:
        view: the definition, with its editions.
        edition: one of them.
        audience: somebody who may read its windows.
    """
    starts = edition.audiences.get(audience, view.audiences.get(audience, 0))
    unlocks = [one for one in view.unlocks.get(audience, ()) if one.level > starts]
    levels = {starts, view.audiences.get(audience, starts), *(one.level for one in unlocks)}
    follows, ledger = view.follows(edition), view.ledger
    return ViewRecord(
        schema_version=SCHEMA_VERSION,
        code_version=__version__,
        type="view",
        view=view.view,
        audience=audience,
        edition=_edition(edition.number, edition.first_ms),
        next_edition=None if follows is None else _edition(*follows),
        title=view.words.title,
        unit=view.words.unit,
        item_meaning=view.words.item or None,
        kind=view.kind.name,
        items_per_user=view.items_per_user,
        windows_per_user=view.windows_per_user,
        rank=view.kind.rank,
        window=_window(view, edition),
        retention_ms=view.window.retention_ms,
        level=view.levels[starts].name,
        levels=tuple(_level(view, edition, level) for level in sorted(levels)),
        unlocks=tuple(ViewUnlock(level=view.levels[one.level].name, after_ms=one.after_ms) for one in unlocks),
        ledger=ViewLedger(
            name=ledger.name,
            population=ledger.population,
            budget=PrivacyCost.spent(ledger.total),
            period=ledger.periods.words,
            zcdp=account_pool(ledger),
        ),
        neighbours=NEIGHBOURS,
    )


def _edition(number: int, first_ms: int) -> ViewEdition:
    return ViewEdition(number=number, first_window=format_time(first_ms), first_window_ms=first_ms)


def _window(view: ViewPlan, edition: Edition) -> ViewWindow:
    lengths, own, totals = edition.shape.settings, view.window, edition.shape.totals
    if isinstance(lengths.size, CalendarUnit):
        return ViewWindow(size=lengths.size.value, zone=lengths.zone, grace_ms=own.grace_ms, clock=own.clock)
    return ViewWindow(
        size=format_duration(lengths.size),
        size_ms=lengths.size,
        every_ms=lengths.every_ms,
        pane_ms=lengths.pane,
        totals=totals if totals > 1 else None,
        origin_ms=lengths.origin_ms,
        grace_ms=own.grace_ms,
        clock=own.clock,
    )


def _level(view: ViewPlan, edition: Edition, level: int) -> ViewLevel:
    at, shape = view.levels[level], edition.shape
    limits: Mapping[str, Any] = view.kind.limits(level)
    return ViewLevel(
        name=at.name,
        **at.price(shape.panes),
        noise=at.noise,
        noise_interval_95=at.interval_of(shape.summands),
        **limits,
    )
