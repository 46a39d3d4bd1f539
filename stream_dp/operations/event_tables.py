"""Tables of past events: CSV, JSON lines and Parquet, row by row."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.errors import ConfigError, StreamDPError
from stream_dp.runtime.sources.diagnosis import json_slip
from stream_dp.text_files import open_text, read_fault, without_mark

Row = Mapping[str, Any]
CHUNK_ROWS = 5000
"""Number of rows that are read, checked and written together."""
DELIMITERS = (",", ";", "\t", "|")
"""Delimiters that a CSV may have, the most usual first."""


class TableError(StreamDPError):
    """Raised when a file of events cannot be read."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read.

    Attributes:
        cause: what is wrong with the row, and what to do.
    """

    cause: str


@dataclass(frozen=True, slots=True)
class EventTable:
    """Table of events in a file.

    Attributes:
        columns: names of the columns; None if every row has its own.
        rows: function that reads the file and yields its rows.
    """

    columns: Sequence[str] | None
    rows: Callable[[], Iterator[Row | BadRow]]

    def chunks(self) -> Iterator[list[tuple[int, Row | BadRow]]]:
        """Yield the rows in chunks, each row with its number; the first is 1."""
        numbered = enumerate(self.rows(), start=1)
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            yield chunk


def open_table(file: Path) -> EventTable:
    """Open a file of events; the ending of its name decides the format.

    Raises:
        ConfigError: the ending is not supported, or the library for the format is not installed.
        TableError: the file cannot be read.
    """
    readers = {".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigError(f"{file}: the name must end with {', '.join(readers)}")
    return reader(file)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise a `TableError` in place of any error from reading a file."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{file}: {read_fault(error)}") from None
    except ValueError as error:
        first_line = str(error).partition("\n")[0]
        raise TableError(f"{file}: cannot be read: {first_line}") from None


def _csv(file: Path) -> EventTable:
    delimiter = _find_delimiter(file)
    heading = next(_csv_lines(file, delimiter), None)
    if heading is None:
        raise TableError(f"{file}: the file is empty. The first line must name the columns")
    twice = [name for name, times in Counter(heading).items() if times > 1]
    if twice:
        raise TableError(f"{file}: duplicate names in the heading: {', '.join(map(repr, twice))}")

    def rows() -> Iterator[Row | BadRow]:
        for cells in islice(_csv_lines(file, delimiter), 1, None):
            if len(cells) == len(heading):
                yield {name: cell for name, cell in zip(heading, cells, strict=True) if cell}
            else:
                yield BadRow(f"it has {len(cells)} cells, but the heading names {len(heading)} columns")

    return EventTable(heading, rows)


def _find_delimiter(file: Path) -> str:
    """Return the delimiter that splits the heading into the most columns; in a tie, the most usual one."""

    def columns(delimiter: str) -> int:
        try:
            return len(next(_csv_lines(file, delimiter), ()))
        except TableError:
            return 0

    return max(DELIMITERS, key=columns)


def _csv_lines(file: Path, delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of every line that is not empty, the heading first."""
    with _reading(file), open_text(file) as text:
        reader = csv.reader(text, strict=True, delimiter=delimiter)
        row = 0
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                where = f"row {row}, which begins in line {line}" if row else "the heading"
                raise TableError(f"{file}: {where}: {_csv_fault(error)}") from None
            if cells is None:
                return
            if cells:
                yield cells
                row += 1


def _csv_fault(error: csv.Error) -> str:
    """Return what is wrong with a row of a CSV, and what to do."""
    words = str(error)
    if "unexpected end" in words:
        return "a quote is not closed"
    if "field limit" in words:
        return f"a cell is longer than {csv.field_size_limit():,} characters. A quote is probably not closed"
    return f"{words}. Inside a quoted cell, double each quote"


def _json_lines(file: Path) -> EventTable:
    def rows() -> Iterator[Row | BadRow]:
        with _reading(file), file.open("rb") as lines:
            for number, line in enumerate(lines):
                text = line if number else without_mark(line)
                if text and not text.isspace():
                    yield json_row(text)

    return EventTable(None, rows)


def json_row(line: bytes) -> Row | BadRow:
    """Return the row in a line of JSON."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.ValidationError:
        return BadRow("it is not a JSON object")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        slip = json_slip(line)
        return BadRow(f"it contains {slip}" if slip else "it is not one whole JSON object")


def _parquet(file: Path) -> EventTable:
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(f"{file}: Parquet needs pyarrow: pip install 'stream-dp[parquet]'") from None
    with _reading(file):
        columns = parquet.read_schema(file).names

    def rows() -> Iterator[Row | BadRow]:
        with _reading(file), parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=CHUNK_ROWS):
                for row in _batch_rows(_without_nanoseconds(arrow, batch)):
                    yield {name: cell for name, cell in row.items() if cell is not None}

    return EventTable(columns, rows)


def _without_nanoseconds(arrow: Any, batch: Any) -> Any:  # noqa: ANN401  an optional library
    """Return a batch with times rounded to microseconds.

    pyarrow 26 turns nanoseconds into pandas timestamps, and raises an error if pandas is not installed.
    """
    for place, field in enumerate(batch.schema):
        if arrow.types.is_timestamp(field.type) and field.type.unit == "ns":
            coarser = batch.column(place).cast(arrow.timestamp("us", field.type.tz), safe=False)
            batch = batch.set_column(place, field.name, coarser)
    return batch


def _batch_rows(batch: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - of an optional library
    """Return the rows of a batch; a cell that Python cannot represent, such as a time after the year 9999, as text."""
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
