"""Rows of past events, checked and converted to what workers read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import compress
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.operations.event_tables import BadRow, EventTable, Row
from stream_dp.runtime.factory import SourceRecords, event_format
from stream_dp.runtime.sources.diagnosis import is_plausible
from stream_dp.windows.durations import EPOCH
from stream_dp.windows.effects import Message
from stream_dp.windows.events import (
    ABSENT,
    MAX_ITEM_BYTES,
    MAX_KEY_BYTES,
    MOST_ITEMS,
    Column,
    Decoded,
    EventDecoder,
    RefusedError,
    TimeUnit,
    find,
    names_of,
    put,
)
from stream_dp.windows.local_times import epoch_ms, in_zone, read_zone
from stream_dp.windows.outlying_times import Outlying, TimeSpread, longest_gap_ms
from stream_dp.windows.plausible_times import PlausibleTimes

NO_ROW = "bad_row"
"""The reason for a row that cannot be read."""
NOT_WHOLE = "not_whole"
"""The reason for a row whose user, item or time is a number with a fraction."""
ROW_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "null_key": "the user is missing. Fill it in, or name another column with --user",
        NOT_WHOLE: "the user, an item or the time is a number with a fraction, or a float above 2^53. Write whole "
        "numbers or text",
        "bad_key": f"the user is empty or longer than {MAX_KEY_BYTES:,} bytes",
        "missing_field": "a column that the source or a view reads is empty. Fill it in",
        "wrong_type": "a cell has the wrong type. Users and items must be text or whole numbers, and the time in "
        "the form of --time-format",
        "item_too_long": f"an item is longer than {MAX_ITEM_BYTES:,} bytes. Count a shorter column",
        "too_many_items": f"a list has more than {MOST_ITEMS:,} items. Write several rows",
        "malformed_json": "a text is not valid Unicode, or a number is too long. Correct it",
    }
)
"""Explanation and remedy for invalid rows, by reason; each `bad_row` has its own (`BadRow.cause`)."""
FIRST_ROWS = 5
"""Rows that are named for each reason."""
FORMS: Sequence[TimeUnit] = ("iso", "s", "ms")
LARGEST_EXACT = 1 << 53
"""Largest float up to which all whole numbers are exact."""
_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the fields of an event. A column is named by its heading or by a path in the rows.

    Attributes:
        user: column of the user.
        time: column of the time.
        time_form: form of the time; a column of times needs none.
        items: columns of the fields that views count.
        everything: write all other columns, too.
    """

    user: str
    time: str
    time_form: TimeUnit
    items: Sequence[str]
    everything: bool

    def missing(self, has: Collection[str]) -> list[str]:
        """Return the columns that a table lacks; for a path the column of its first name is enough."""
        needed = dict.fromkeys([self.user, self.time, *self.items])
        return [field for field in needed if field not in has and names_of(field)[0] not in has]


class Written(NamedTuple):
    """An event: the number of its row, its time in ms, its record."""

    row: int
    time_ms: int
    record: Message


@dataclass
class FileSurvey:
    """Survey of a table.

    Attributes:
        spread: times of the events, by row.
        all_times: the same, including the events that are left out.
        rows: number of rows.
        events: number of events.
        left_out: number of other events, which are outside the limits.
        dropped: the outlying events among them, by kind.
        refused: number of rows that are no events, by reason.
        first_rows: the first of these rows, by reason.
        causes: what is wrong with the first invalid row, and what to do, by reason.
        other_forms: number of rows whose time seems to have another form, by that form.
        ordered: no event is earlier than the one before it.
        first_ms: the earliest time; None without events.
        last_ms: the latest time.
    """

    spread: TimeSpread[int]
    all_times: TimeSpread[int]
    rows: int = 0
    events: int = 0
    left_out: int = 0
    dropped: Sequence[Outlying[int]] = ()
    refused: Counter[str] = field(default_factory=Counter)
    first_rows: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    causes: dict[str, str] = field(default_factory=dict)
    other_forms: Counter[str] = field(default_factory=Counter)
    ordered: bool = True
    first_ms: int | None = None
    last_ms: int | None = None

    def refuse(self, number: int, reason: str, cause: str) -> None:
        """Count an invalid row."""
        self.refused[reason] += 1
        self.causes.setdefault(reason, cause)
        if len(self.first_rows[reason]) < FIRST_ROWS:
            self.first_rows[reason].append(number)

    def refusals(self) -> Iterator[str]:
        """Yield a line for each reason: how many rows are invalid, the first of them, and what to do."""
        for reason, count in self.refused.most_common():
            rows = ", ".join(f"{row:,}" for row in self.first_rows[reason])
            more = ", ..." if count > len(self.first_rows[reason]) else ""
            first = "" if count == 1 else "in the first, "
            cause = self.causes[reason]
            words = f"{first}{cause}" if reason == NO_ROW else cause
            yield f"{count:,} invalid {'row' if count == 1 else 'rows'} ({reason}): row {rows}{more}: {words}"

    @property
    def other_form(self) -> str:
        """The other form that the times of most rows seem to have; else empty."""
        return next((form for form, rows in self.other_forms.most_common(1) if 2 * rows > self.rows), "")


class Events:
    """The events of a table, as records of a source."""

    def __init__(self, table: EventTable, source: SourcePlan, views: Sequence[ViewPlan], columns: Columns) -> None:
        """Set up the events.

        Args:
            table: the table.
            source: the source that gets the records.
            views: the views that count them.
            columns: of the fields of an event.
        """
        self._table = table
        self._source = source
        self.columns = columns
        self._decoder = EventDecoder(event_format(source, views))
        self._records = SourceRecords(source)
        self._zone = read_zone(source.time_zone)
        self._from_ms: int | None = None
        self._until_ms: int | None = None
        windows = [view.window for view in views]
        self.plausible = PlausibleTimes.of(
            (window.first_ms for window in windows), (window.max_ahead_ms for window in windows)
        )
        """The range of plausible times."""
        self._gap_ms = longest_gap_ms(window.shape for window in windows)

    def limit(self, from_ms: int | None, until_ms: int | None) -> None:
        """Leave out events before a time, and events at another time or later.

        Args:
            from_ms: the first time that is kept; None: the limit stays.
            until_ms: the first time that is left out; None: the limit stays.
        """
        self._from_ms = self._from_ms if from_ms is None else from_ms
        self._until_ms = self._until_ms if until_ms is None else until_ms

    def survey(self, now_ms: int, take: Callable[[Decoded], None] | None = None) -> FileSurvey:
        """Read the whole table; nothing of it is kept.

        Args:
            now_ms: the clock of this machine.
            take: called with the events of each chunk, as the workers decode them.
        """
        spread = TimeSpread[int](self.plausible, now_ms, self._gap_ms)
        is_limited = self._from_ms is not None or self._until_ms is not None
        all_times = TimeSpread[int](self.plausible, now_ms, self._gap_ms) if is_limited else spread
        found = FileSurvey(spread, all_times)
        for chunk in self._table.chunks():
            _, everything, refused = self._decoded(chunk)
            decoded = self._within_limits(everything)
            found.left_out += len(everything.times) - len(decoded.times)
            spread.add(decoded.offsets, decoded.times)
            if is_limited:
                all_times.add(everything.offsets, everything.times)
            if take is not None:
                take(decoded)
            events = [*zip(decoded.offsets, decoded.times, strict=True)]
            rows = dict(chunk)
            doubtful = [row for row, time_ms in events if not is_plausible(time_ms, now_ms)]
            doubtful += [number for number, reason in refused if reason == "wrong_type"]
            for number in doubtful:
                row = rows[number]
                if isinstance(row, BadRow):
                    continue
                form = self._form_of(cell(row, self.columns.time), now_ms)
                if form not in ("", self.columns.time_form):
                    found.other_forms[form] += 1
            found.rows += len(chunk)
            found.events += len(events)
            for number, reason in refused:
                row = rows[number]
                found.refuse(number, reason, row.cause if isinstance(row, BadRow) else ROW_REMEDIES.get(reason, reason))
            if times := decoded.times:
                before = times[0] if found.last_ms is None else found.last_ms
                found.ordered = found.ordered and [before, *times] == sorted([before, *times])
                found.first_ms = min(times) if found.first_ms is None else min(found.first_ms, *times)
                found.last_ms = max(before, *times)
        return found

    def chunks(self, from_row: int) -> Iterator[list[Written]]:
        """Yield the events from a row on, in chunks."""
        for chunk in self._table.chunks():
            if chunk[-1][0] >= from_row:
                yield self._read([one for one in chunk if one[0] >= from_row])

    def _read(self, chunk: Sequence[tuple[int, Row | BadRow]]) -> list[Written]:
        whole, everything, _ = self._decoded(chunk)
        decoded = self._within_limits(everything)
        return [
            Written(number, time_ms, self._records.event(user, whole[number][1]))
            for number, user, time_ms in zip(decoded.offsets, decoded.users, decoded.times, strict=True)
        ]

    def _within_limits(self, decoded: Decoded) -> Decoded:
        """Return the events that are within the limits."""
        if self._from_ms is None and self._until_ms is None:
            return decoded
        # Each column has its own times, because a row with a list has several contributions or none.
        columns = [Column(*_selected(column, self._are_within(column.times))) for column in decoded.columns]
        events = (decoded.offsets, decoded.users, decoded.times)
        offsets, users, times = _selected(events, self._are_within(decoded.times))
        return Decoded(offsets, users, times, columns, decoded.watermarks, decoded.refused)

    def _are_within(self, times: Sequence[int]) -> list[bool]:
        from_ms = self._from_ms
        until_ms = self._until_ms
        return [
            (from_ms is None or from_ms <= time_ms) and (until_ms is None or time_ms < until_ms) for time_ms in times
        ]

    def _decoded(
        self, chunk: Sequence[tuple[int, Row | BadRow]]
    ) -> tuple[dict[int, tuple[bytes | None, bytes]], Decoded, list[tuple[int, str]]]:
        """Return keys and values by row, the events, and the refused rows in order."""
        whole: dict[int, tuple[bytes | None, bytes]] = {}
        refused: list[tuple[int, str]] = []
        for number, row in chunk:
            if isinstance(row, BadRow):
                refused.append((number, NO_ROW))
                continue
            try:
                whole[number] = self._event(row)
            except RefusedError as refusal:
                refused.append((number, refusal.reason))
        decoded = self._decoder.decode([_EventRow(number, *record) for number, record in whole.items()])
        return whole, decoded, sorted([*decoded.refused, *refused])

    def _event(self, row: Row) -> tuple[bytes | None, bytes]:
        """Return the key and value of a record for a row; the decoder then refuses cells of a wrong type.

        Raises:
            RefusedError: a number has a fraction, or the user is neither text nor a whole number.
        """
        columns = self.columns
        source = self._source
        value: dict[str, Any] = dict(row) if columns.everything else {}
        for name in columns.items:
            if (item := cell(row, name)) is not ABSENT:
                value.pop(name, None)
                put(value, names_of(name), _whole(item))
        key = _user(cell(row, columns.user))
        for repeated in (source.user_field, source.key_field):
            if repeated is not None and key is not None:
                put(value, names_of(repeated), key)
        if source.time_field is not None and (time := cell(row, columns.time)) is not ABSENT:
            put(value, names_of(source.time_field), self._time(_whole(time)))
        return None if key is None else key.encode(), msgspec.json.encode(value, enc_hook=str)

    def _time(self, cell: object) -> str | int | None:
        """Return a time in the source's unit; None unless it is in the years 1 to 9999 in UTC, which can be printed.

        An ISO text with an offset can be outside these years.
        """
        try:
            moment = self._moment(cell, self.columns.time_form)
        except (ValueError, OverflowError):
            return None
        if not _FIRST_MOMENT <= moment <= _LAST_MOMENT:
            return None
        if self._source.time_unit == "iso":
            return moment.astimezone(UTC).isoformat()
        time_ms = epoch_ms(moment)
        return time_ms if self._source.time_unit == "ms" else time_ms // 1000

    def _form_of(self, cell: object, now_ms: int) -> str:
        """Return the form in which a cell is a plausible time; empty if there is none, or if it already is a time."""
        try:
            cell = _whole(cell)
        except RefusedError:
            return ""
        if isinstance(cell, date):
            return ""
        for form in FORMS:
            try:
                moment = self._moment(cell, form)
            except (ValueError, OverflowError):
                continue
            if is_plausible(epoch_ms(moment), now_ms):
                return form
        number = int(cell) if isinstance(cell, int) or (isinstance(cell, str) and cell.isdecimal()) else 0
        finer = (("microseconds", 10**3), ("nanoseconds", 10**6))
        return next((form for form, divisor in finer if is_plausible(number // divisor, now_ms)), "")

    def _moment(self, cell: object, form: TimeUnit) -> datetime:
        """Return the moment that a cell names; without an offset from UTC, it is in the zone of the source.

        Raises:
            ValueError: the cell is not a time in this form.
            OverflowError: the time is out of range.
        """
        if isinstance(cell, str) and form == "iso":
            cell = datetime.fromisoformat(cell)
        if isinstance(cell, datetime):
            return in_zone(cell, self._zone)
        if isinstance(cell, date):
            return in_zone(datetime(cell.year, cell.month, cell.day), self._zone)
        if form == "iso" or isinstance(cell, bool) or not isinstance(cell, int | str):
            raise ValueError("no time")
        return EPOCH + int(cell) * timedelta(milliseconds=1 if form == "ms" else 1000)


def _user(cell: object) -> str | None:
    """Return the user in a cell as text; None if the cell is empty.

    Raises:
        RefusedError: the cell is neither text nor a whole number.
    """
    if cell is ABSENT or cell is None:
        return None
    cell = _whole(cell)
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise RefusedError("wrong_type")
    return str(cell)


def _whole(cell: Any) -> Any:  # noqa: ANN401  whatever is in a cell
    """Return a cell with whole numbers as integers: 7 for 7.0, which tables write if a column has empty cells.

    Raises:
        RefusedError: a number has a fraction, or is a float so large that it may stand for several numbers.
    """
    if isinstance(cell, list):
        return [_whole(one) for one in cell]
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= LARGEST_EXACT:
        return int(cell)
    if isinstance(cell, Decimal) and cell.is_finite() and cell == cell.to_integral_value():
        return int(cell)
    if isinstance(cell, float | Decimal):
        raise RefusedError(NOT_WHOLE)
    return cell


def _selected(lists: Sequence[list[Any]], kept: Sequence[bool]) -> list[list[Any]]:
    """Return the kept elements of parallel lists."""
    return [list(compress(one, kept)) for one in lists]


def cell(row: Row, field: str) -> object:
    """Return the cell in the column of that name, or else at that path of the row; `ABSENT` if there is none."""
    return row[field] if field in row else find(row, names_of(field))


@dataclass(slots=True)
class _EventRow:
    """Row as the decoder reads it; the number of the row is the offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes]] = ()
