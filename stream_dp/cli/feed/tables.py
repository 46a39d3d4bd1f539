"""Files of events: CSV, JSON lines and Parquet as rows, some at a time."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.errors import ConfigError, StreamDPError

Row = Mapping[str, Any]
CHUNK_ROWS = 5000
"""So many are read, checked and written at once."""


class TableError(StreamDPError):
    """A file of events cannot be read."""


@dataclass(frozen=True, slots=True)
class Table:
    """A file of events.

    Attributes:
        columns: their names, None where every row has names of its own.
        rows: begins to read; a row that is none (no object, another number of cells than the heading) is None.
    """

    columns: Sequence[str] | None
    rows: Callable[[], Iterator[Row | None]]

    def chunks(self) -> Iterator[list[tuple[int, Row | None]]]:
        """The rows with their numbers, the first being 1, some at a time."""
        numbered = enumerate(self.rows(), start=1)
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            yield chunk


def open_table(file: Path) -> Table:
    """A file of events, by the ending of its name.

    Raises:
        ConfigError: the ending is none that is known, or what reads such files is not installed.
        TableError: the file cannot be read.
    """
    readers = {".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigError(f"{file}: the name of a file of events ends with {', '.join(readers)}")
    return reader(file)


def _csv(file: Path) -> Table:
    def lines() -> Iterator[list[str]]:
        try:
            with file.open(encoding="utf-8-sig", newline="") as text:
                yield from filter(None, csv.reader(text, strict=True))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise _unreadable(file, error) from None

    heading = next(lines(), None)
    if heading is None:
        raise TableError(f"{file}: it is empty; the first line names the columns")

    twice = [name for name, times in Counter(heading).items() if times > 1]
    if twice:
        raise TableError(f"{file}: the heading has names twice: {', '.join(map(repr, twice))}")

    def rows() -> Iterator[Row | None]:
        for cells in islice(lines(), 1, None):
            whole = len(cells) == len(heading)
            yield {name: cell for name, cell in zip(heading, cells, strict=True) if cell} if whole else None

    return Table(heading, rows)


def _json_lines(file: Path) -> Table:
    def rows() -> Iterator[Row | None]:
        try:
            with file.open("rb") as lines:
                yield from (_json_row(line) for line in lines if not line.isspace())
        except OSError as error:
            raise _unreadable(file, error) from None

    return Table(None, rows)


def _json_row(line: bytes) -> Row | None:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _parquet(file: Path) -> Table:
    try:
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(f"{file}: Parquet is read by pyarrow: pip install 'stream-dp[parquet]'") from None
    try:
        columns = parquet.read_schema(file).names
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from None

    def rows() -> Iterator[Row | None]:
        try:
            with parquet.ParquetFile(file) as table:
                for batch in table.iter_batches(batch_size=CHUNK_ROWS):
                    for row in batch.to_pylist():
                        yield {name: cell for name, cell in row.items() if cell is not None}
        except (OSError, ValueError) as error:
            raise _unreadable(file, error) from None

    return Table(columns, rows)


def _unreadable(file: Path, error: Exception) -> TableError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
    if isinstance(error, UnicodeDecodeError):
        reason = f"it is not text in UTF-8 (byte {error.start})"
    return TableError(f"{file}: cannot be read: {reason}")
