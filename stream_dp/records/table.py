"""Releases as a table: the columns that the gateway serves as CSV and Arrow, and that programs get as a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stream_dp.records.by_kind import RankedRelease
from stream_dp.records.history import Seen
from stream_dp.records.models import ItemCount, Release, ShownKey
from stream_dp.windows.durations import parse_time

TIMES, NUMBERS = ("window_start", "window_end"), ("revision", "count", "low_95", "high_95")
COLUMNS = (*TIMES, "revision", "level", "item", "count", "low_95", "high_95", "state")

Row = tuple[str, str, int, str, str, int | None, int | None, int | None, str]
"""A value for each column; times as RFC 3339 text."""


def interval(release: Release, entry: ItemCount | ShownKey) -> tuple[int, int] | None:
    """Return the 95 % interval of a noisy count, cut at 0; None of a key that is shown without one."""
    if isinstance(entry, ShownKey):
        return None
    low, high = release.interval(entry)
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


def absence(release: Release) -> str:
    """Return the state of a key that a release does not show; unranked: its count may just be smaller."""
    return "unranked" if isinstance(release, RankedRelease) and release.rank is not None else "hidden"


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
        counted = map(release.entry, dict.fromkeys(items)) if items else release.items
        shown = {entry.item: (entry.count, *(interval(release, entry) or (None, None))) for entry in counted if entry}
        for item in dict.fromkeys(items) or shown or [""]:
            hidden = items and item not in shown and not release.shows(item)
            yield (*head, item, *shown.get(item, (None, None, None)), absence(release) if hidden else word)


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
