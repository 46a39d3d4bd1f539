"""Files of events (CSV, JSON lines, Parquet), checked and converted as the workers will read them."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import compress, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.errors import ConfigError, StreamDPError
from stream_dp.runtime.factory import SourceRecords, event_format
from stream_dp.runtime.sources.diagnosis import is_plausible
from stream_dp.windows.effects import Message
from stream_dp.windows.events import ABSENT, Column, Decoded, EventDecoder, TimeUnit, find, names_of, put
from stream_dp.windows.outlying_times import Outlying, TimeSpread, longest_gap_ms
from stream_dp.windows.plausible_times import PlausibleTimes

Row = Mapping[str, Any]
CHUNK_ROWS = 5000
"""Rows that are read, checked and written together."""
NO_ROW = "bad_row"
"""The reason for a row that cannot be read; all others are those of the workers (docs/operating.md)."""
FIRST_ROWS = 5
"""Rows that are named for each reason."""
FORMS: Sequence[TimeUnit] = ("iso", "s", "ms")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


class TableError(StreamDPError):
    """A file of events cannot be read."""


@dataclass(frozen=True, slots=True)
class EventTable:
    """A file of events.

    Attributes:
        columns: their names, None if every row has its own.
        rows: reads the file; a row that is no object or has another number of cells than the heading is None.
    """

    columns: Sequence[str] | None
    rows: Callable[[], Iterator[Row | None]]

    def chunks(self) -> Iterator[list[tuple[int, Row | None]]]:
        """Yield the rows with their numbers, from 1 on, in chunks."""
        numbered = enumerate(self.rows(), start=1)
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            yield chunk


def open_table(file: Path) -> EventTable:
    """Return the table in a file of events; the ending of its name gives the format.

    Raises:
        ConfigError: the ending is none that is known, or what reads such files is not installed.
        TableError: the file cannot be read.
    """
    readers = {".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigError(f"{file}: the name must end with {', '.join(readers)}")
    return reader(file)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn the errors of reading a file into a `TableError`."""
    try:
        yield
    except (OSError, ValueError, csv.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
        if isinstance(error, UnicodeDecodeError):
            reason = f"it is not text in UTF-8 (byte {error.start})"
        raise TableError(f"{file}: cannot be read: {reason}") from None


def _csv(file: Path) -> EventTable:
    def lines() -> Iterator[list[str]]:
        with _reading(file), file.open(encoding="utf-8-sig", newline="") as text:
            yield from filter(None, csv.reader(text, strict=True))

    heading = next(lines(), None)
    if heading is None:
        raise TableError(f"{file}: the file is empty. The first line must name the columns")
    twice = [name for name, times in Counter(heading).items() if times > 1]
    if twice:
        raise TableError(f"{file}: duplicate names in the heading: {', '.join(map(repr, twice))}")

    def rows() -> Iterator[Row | None]:
        for cells in islice(lines(), 1, None):
            whole = len(cells) == len(heading)
            yield {name: cell for name, cell in zip(heading, cells, strict=True) if cell} if whole else None

    return EventTable(heading, rows)


def _json_lines(file: Path) -> EventTable:
    def rows() -> Iterator[Row | None]:
        with _reading(file), file.open("rb") as lines:
            yield from (json_row(line) for line in lines if not line.isspace())

    return EventTable(None, rows)


def json_row(line: bytes) -> Row | None:
    """Return the object in JSON text, None if it is none."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _parquet(file: Path) -> EventTable:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(f"{file}: Parquet needs pyarrow: pip install 'stream-dp[parquet]'") from None
    with _reading(file):
        columns = parquet.read_schema(file).names

    def rows() -> Iterator[Row | None]:
        with _reading(file), parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=CHUNK_ROWS):
                for row in _batch_rows(batch):
                    yield {name: cell for name, cell in row.items() if cell is not None}

    return EventTable(columns, rows)


def _batch_rows(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of an optional library
    """Return the rows of a batch; a cell that Python has no value for, as a time after the year 9999, is its text."""
    try:
        return batch.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        columns = [list(map(_cell_value, batch.column(name))) for name in batch.schema.names]
        return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _cell_value(scalar: Any) -> Any:  # noqa: ANN401
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return f"{scalar.type} {scalar.value}"


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
        spread: the times of the events, by row.
        all_times: those of the events that are left out, too.
        rows: number of rows.
        events: number of events.
        left_out: number of further events, which are outside the limits.
        dropped: those of them that are left out because of outlying times, by kind.
        refused: number of rows that are no events, by reason.
        first_rows: the first of these rows, by reason.
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
    other_forms: Counter[str] = field(default_factory=Counter)
    ordered: bool = True
    first_ms: int | None = None
    last_ms: int | None = None

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
                form = _form_of(cell(rows[number] or {}, self.columns.time), now_ms)
                if form not in ("", self.columns.time_form):
                    found.other_forms[form] += 1
            found.rows += len(chunk)
            found.events += len(events)
            for row, reason in refused:
                found.refused[reason] += 1
                if len(found.first_rows[reason]) < FIRST_ROWS:
                    found.first_rows[reason].append(row)
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

    def _read(self, chunk: Sequence[tuple[int, Row | None]]) -> list[Written]:
        whole, everything, _ = self._decoded(chunk)
        decoded = self._within_limits(everything)
        return [
            Written(number, time_ms, self._records.event(user, whole[number][1]))
            for number, user, time_ms in zip(decoded.offsets, decoded.users, decoded.times, strict=True)
        ]

    def _within_limits(self, decoded: Decoded) -> Decoded:
        """Return events without those that are left out."""
        if self._from_ms is None and self._until_ms is None:
            return decoded
        # Each column has times of its own, because a row with a list has several contributions or none.
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
        self, chunk: Sequence[tuple[int, Row | None]]
    ) -> tuple[dict[int, tuple[bytes | None, bytes]], Decoded, list[tuple[int, str]]]:
        """Return keys and values by row, the events, and the refused rows in order."""
        whole = {number: self._event(row) for number, row in chunk if row is not None}
        decoded = self._decoder.decode([_EventRow(number, *record) for number, record in whole.items()])
        refused = [*decoded.refused, *((number, NO_ROW) for number, row in chunk if row is None)]
        return whole, decoded, sorted(refused)

    def _event(self, row: Row) -> tuple[bytes | None, bytes]:
        """Return key and value. A cell that fits no field is kept or left out; the decoder then refuses the row."""
        columns, source = self.columns, self._source
        value: dict[str, Any] = dict(row) if columns.everything else {}
        for name in columns.items:
            if (item := cell(row, name)) is not ABSENT:
                value.pop(name, None)
                put(value, names_of(name), item)
        user = cell(row, columns.user)
        key = str(user).encode() if isinstance(user, str | int) and not isinstance(user, bool) else None
        for repeated in (source.user_field, source.key_field):
            if repeated is not None and key is not None:
                put(value, names_of(repeated), str(user))
        if source.time_field is not None and (time := cell(row, columns.time)) is not ABSENT:
            put(value, names_of(source.time_field), _time(time, columns.time_form, source.time_unit))
        return key, msgspec.json.encode(value, enc_hook=str)


def _selected(lists: Sequence[list[Any]], kept: Sequence[bool]) -> list[list[Any]]:
    """Return what is kept of parallel lists."""
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


def _form_of(cell: object, now_ms: int) -> str:
    """Return the form in which a cell is a time of the last years; empty if there is none, or it is a time already."""
    if isinstance(cell, datetime):
        return ""
    for form in FORMS:
        try:
            moment = _moment(cell, form)
        except (ValueError, OverflowError):
            continue
        if is_plausible((moment - _EPOCH) // timedelta(milliseconds=1), now_ms):
            return form
    number = int(cell) if isinstance(cell, int) or (isinstance(cell, str) and cell.isdecimal()) else 0
    finer = (("microseconds", 10**3), ("nanoseconds", 10**6))
    return next((form for form, divisor in finer if is_plausible(number // divisor, now_ms)), "")


def _time(cell: Any, form: TimeUnit, unit: TimeUnit) -> str | int | None:  # noqa: ANN401  whatever is in a cell
    """Return the time in the source's unit; None if it is no time of the years 1 to 9999 in UTC, so it can be printed.

    An ISO text with an offset can be outside these years.
    """
    try:
        moment = _moment(cell, form)
    except (ValueError, OverflowError):
        return None
    if not _FIRST_MOMENT <= moment <= _LAST_MOMENT:
        return None
    if unit == "iso":
        return moment.isoformat()
    return (moment - _EPOCH) // timedelta(milliseconds=1 if unit == "ms" else 1000)


def _moment(cell: Any, form: TimeUnit) -> datetime:  # noqa: ANN401
    if isinstance(cell, str) and form == "iso":
        cell = datetime.fromisoformat(cell)
    if isinstance(cell, datetime):
        return cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
    if form == "iso" or isinstance(cell, bool) or not isinstance(cell, int | str):
        raise ValueError("no time")
    return _EPOCH + int(cell) * timedelta(milliseconds=1 if form == "ms" else 1000)
