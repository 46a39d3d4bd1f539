"""Releases as tables: noisy counts as bars with their 95 % intervals; shared by `tail` and `demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from stream_dp.operations.numbers import printable, spent
from stream_dp.records.models import Release

NOT_SHOWN = "not shown"
SOLID, WHISKER = "▆", "─"
CUT = "…"
NARROWEST_BAR = 4
WIDEST_KEY, NARROWEST_KEY = 28, 12


@dataclass(frozen=True, slots=True)
class Row:
    """A key, its noisy count (None: it is not shown), and what is written behind the bar."""

    key: str
    count: int | None
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Noisy counts as bars: solid up to the lower end of the 95 % interval, a thin line from there to the upper end.

    Attributes:
        rows: one line each.
        interval: ends of the interval of a noisy count.
        scale: the number at full width.
        style: colour of the bars.
    """

    rows: Sequence[Row]
    interval: Callable[[int], tuple[int, int]]
    scale: int
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Lines by hand: a table of tables is too slow for a screen that is drawn several times a second.
        solid, dim = console.get_style(self.style), console.get_style("dim")
        keys = [printable(row.key) for row in self.rows]
        key_cells = min(WIDEST_KEY, max(map(cell_len, keys), default=0))
        label_cells = max((len(row.label) for row in self.rows), default=0)
        key_cells = min(key_cells, max(NARROWEST_KEY, options.max_width - label_cells - 2 - NARROWEST_BAR))
        width = options.max_width - key_cells - label_cells - 2
        for key, row in zip(keys, self.rows, strict=True):
            name = _fit(key, key_cells) + " "
            if width < NARROWEST_BAR:  # words before pictures: they go on in the next line rather than be cut
                words = row.label if row.count is not None else NOT_SHOWN
                yield Text(name + words, "" if row.count is not None else "dim", overflow="fold")
                continue
            if row.count is None:
                yield Segment(name + set_cell_size(NOT_SHOWN, width + 1 + label_cells) + "\n", dim)
                continue
            low, high = (_cells(end, self.scale, width) for end in self.interval(row.count))
            yield Segment(name)
            yield Segment(SOLID * low, solid)
            yield Segment(WHISKER * (high - low), solid + dim)
            yield Segment(" " * (width - high + 1) + row.label.rjust(label_cells) + "\n")


def _fit(key: str, cells: int) -> str:
    return set_cell_size(key, cells) if cell_len(key) <= cells else set_cell_size(key, cells - 1) + CUT


def _cells(value: int, scale: int, width: int) -> int:
    return min(width, max(0, round(value * width / max(scale, 1))))


def full_width(releases: Iterable[Release]) -> int:
    """The scale at which the longest bar of some releases fills its column."""
    return max((release.interval(entry.count)[1] for release in releases for entry in release.items), default=1)


def bars(release: Release, keys: Sequence[str], *, scale: int, style: str) -> Bars:
    """The bars of some keys, in the order of the keys; one that the release does not show is "not shown".

    Args:
        release: the release.
        keys: the keys.
        scale: from `full_width`.
        style: colour of the bars.
    """
    counts = {entry.item: entry.count for entry in release.items}
    rows = [Row(key, counts.get(key), str(counts.get(key, ""))) for key in keys]
    return Bars(rows, release.interval, scale, style)


def progress_line(done: int, total: int, words: str, width: int) -> RenderableType:
    """A bar of `width` columns that ends in "3 of 53 weeks released"."""
    words = f"  {done} of {total} {words}"
    line = Table.grid()
    bar = ProgressBar(total, done, max(NARROWEST_BAR, width - len(words)), complete_style="bold", finished_style="bold")
    line.add_row(bar, words)
    return line


def keys_of(release: Release, rows: int) -> list[str]:
    """The first keys of a release, in its order."""
    return [entry.item for entry in release.items[:rows]]


def rest(release: Release, rows: int) -> str:
    """Say how many keys are below the first rows."""
    more = len(release.items) - rows
    return f"and {more} more" if more > 0 else ""


def count_words(release: Release, count: int) -> str:
    """The noisy count of a shown key and its 95 % interval: "62 ±9"; "45 (1 to 54)" where that has no lower end."""
    low, high = release.interval(count)
    return f"{count} ±{high - count}" if high - count == count - low else f"{count} ({low} to {high})"


def level_words(release: Release) -> str:
    """The level of a release: its name, what it costs, how far its noise reaches."""
    return f"{release.level.name}, epsilon {spent(release.level.epsilon)}, ±{release.noise_interval_95}"
