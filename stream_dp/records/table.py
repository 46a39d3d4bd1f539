"""Releases as a table: the columns that the gateway serves as CSV and Arrow, and that programs get as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stream_dp.records.history import Seen
from stream_dp.records.models import Release
from stream_dp.windows.durations import parse_time

TIMES, NUMBERS = ("window_start", "window_end"), ("revision", "count", "low_95", "high_95")
COLUMNS = (*TIMES, "revision", "level", "item", "count", "low_95", "high_95", "state")

Row = tuple[str, str, int, str, str, int | None, int | None, int | None, str]
"""A value for each column; times as RFC 3339 text."""


def interval(release: Release, count: int | None) -> tuple[int, int] | None:
    """Return the 95 % interval of a noisy count, cut at 0; None of a key that is shown without one."""
    if count is None:
        return None
    low, high = release.interval(count)
    return max(0, low), max(0, high)


def state(release: Release | None, *, is_refused: bool) -> str:
    """Return the state of a window in a word.

    Args:
        release: the newest one.
        is_refused: whether there is a newer refusal.
    """
    if release is None:
        return "refused"
    if is_refused:
        return "sharper_refused"
    return "empty" if release.is_empty else "sharper" if release.revision > 1 else "released"


def rows(windows: Iterable[Seen], items: Sequence[str] = ()) -> Iterator[Row]:
    """Return the table of windows: a row for each count; one with empty numbers for a window or item without.

    Args:
        windows: records by window, with a release or a refusal each.
        items: those that are asked for; none: all that are shown.
    """
    for seen in windows:
        release, refusal = seen.release, seen.refusal
        record = release or refusal
        if record is None:
            continue
        word = state(release, is_refused=refusal is not None)
        head = record.window.start, record.window.end, record.revision, record.level.name
        if release is None:
            for item in items or [""]:
                yield (*head, item, None, None, None, word)
            continue
        counts = {entry.item: entry.count for entry in release.items}
        counts |= {item: release.count_of(item) for item in items}
        for item in dict.fromkeys(items) or counts or [""]:
            ends = interval(release, count := counts.get(item)) or (None, None)
            yield (*head, item, count, *ends, word if not items or release.shows(item) else "hidden")


def arrow_table(table: Iterable[Row], metadata: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401  an extra
    """Return rows as a table of pyarrow: times as timestamps, numbers as integers that may be null.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow  # noqa: PLC0415 - an extra

    kinds = dict.fromkeys(COLUMNS, pyarrow.string())
    kinds |= dict.fromkeys(NUMBERS, pyarrow.int64()) | dict.fromkeys(TIMES, pyarrow.timestamp("ms", "UTC"))
    columns = list(zip(*([parse_time(start), parse_time(end), *rest] for start, end, *rest in table), strict=True))
    schema = pyarrow.schema(list(kinds.items()), metadata=dict(metadata or {}))
    return pyarrow.table(dict(zip(COLUMNS, columns or [()] * len(COLUMNS), strict=True)), schema=schema)
