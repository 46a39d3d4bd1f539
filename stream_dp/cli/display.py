"""Parts of pages: tables, exact numbers as text, and noisy counts as bars with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from stream_dp.exact.rationals import decimal_up
from stream_dp.records.models import Amount, ItemCount, PrivacyCost, Release

NOT_SHOWN = "not shown"
STYLE = "cyan"
SOLID, WHISKER = "▆", "─"
CUT = "…"
NARROWEST_BAR = 4
WIDEST_KEY, NARROWEST_KEY = 28, 12
DIGITS = 6


def table(
    *headings: str,
    rows: Iterable[Iterable[RenderableType]] = (),
    words: Collection[str] | None = None,
    apart: int = 2,
    no_wrap: bool = False,
) -> Table:
    """Return a table without lines.

    Args:
        headings: of the columns.
        rows: its rows; more may be added.
        words: headings of the columns of words, the others have numbers; None: all have words.
        apart: spaces between columns.
        no_wrap: do not wrap numbers.
    """
    made = Table(box=None, padding=(0, apart, 0, 0), pad_edge=False)
    for heading in headings:
        number = words is not None and heading not in words
        made.add_column(heading, justify="right" if number else "left", no_wrap=number and no_wrap, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def indented(*parts: RenderableType, below: int = 0) -> Group:
    """Return parts, indented by two spaces, each with blank lines below."""
    return Group(*(Padding(part, (0, 0, below, 2), expand=False) for part in parts))


def many(number: int, what: str) -> str:
    """Return a number of things in words: "1 view", "2 views"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def printable(text: str) -> str:
    """Return a key for a terminal: events must not move the cursor."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def spent(amount: Amount) -> str:
    """Return a cost in the shortest form that is not below it: "0.025", "1/3", "2.70001"."""
    return amount.exact if len(amount.exact) < DIGITS <= len(amount.decimal) else decimal_up(amount.value, DIGITS)


def price(cost: PrivacyCost) -> str:
    """Return the entries of a cost that are not zero: "epsilon 1/3, delta 1e-6"."""
    named = [(name, amount) for name, amount in cost if amount is not None and amount.value]
    return ", ".join(f"{name} {spent(amount)}" for name, amount in named) or "nothing"


@dataclass(frozen=True, slots=True)
class Row:
    """A key, the 95 % interval of its noisy count, and the label behind the bar."""

    key: str
    interval: tuple[int, int] | None
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Noisy counts as bars: solid up to the lower end of the 95 % interval, a thin line from there to the upper end.

    Attributes:
        rows: one line each.
        scale: the number at full width.
    """

    rows: Sequence[Row]
    scale: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Lines by hand: a table of tables is too slow for a screen that is drawn several times a second.
        solid, dim = console.get_style(STYLE), console.get_style("dim")
        keys = [printable(row.key) for row in self.rows]
        key_cells = min(WIDEST_KEY, max(map(cell_len, keys), default=0))
        label_cells = max((len(row.label) for row in self.rows), default=0)
        key_cells = min(key_cells, max(NARROWEST_KEY, options.max_width - label_cells - 2 - NARROWEST_BAR))
        width = options.max_width - key_cells - label_cells - 2
        for key, row in zip(keys, self.rows, strict=True):
            name = _fit(key, key_cells) + " "
            # Words before pictures: they go on in the next line rather than be cut.
            if row.interval is None or width < NARROWEST_BAR:
                yield Text(name + row.label, overflow="fold")
                continue
            low, high = (_cells(end, self.scale, width) for end in row.interval)
            yield Segment(name)
            yield Segment(SOLID * low, solid)
            yield Segment(WHISKER * (high - low), solid + dim)
            yield Segment(" " * (width - high + 1) + row.label.rjust(label_cells) + "\n")


def _fit(key: str, cells: int) -> str:
    return set_cell_size(key, cells) if cell_len(key) <= cells else set_cell_size(key, cells - 1) + CUT


def _cells(value: int, scale: int, width: int) -> int:
    return min(width, max(0, round(value * width / max(scale, 1))))


def full_width(release: Release) -> int:
    """Return the scale at which the longest bar of a release fills its column."""
    return max((release.interval(one)[1] for one in release.items if isinstance(one, ItemCount)), default=1)


def rest(release: Release, rows: int) -> str:
    """Return the number of keys below the first rows in words; empty if there are none."""
    more = len(release.items) - rows
    return f"and {more} more" if more > 0 else ""


def count_words(release: Release, entry: ItemCount) -> str:
    """Return a noisy count and its 95 % interval: "62 ±9", or "45 (1 to 54)" if that has no lower end."""
    count, (low, high) = entry.count, release.interval(entry)
    return f"{count} ±{high - count}" if high - count == count - low else f"{count} ({low} to {high})"


def level_words(release: Release) -> str:
    """Return the level of a release: its name, its cost, the 95 % interval of its noise."""
    unit = "rho" if release.level.epsilon is None else "epsilon"
    return f"{release.level.name}, {unit} {level_price(release)}, ±{release.noise_interval_95}"


def cost_words(cost: PrivacyCost) -> str:
    """Return what stands for a cost where there is little room: its epsilon, or its rho if it has some."""
    return f"rho {spent(cost.rho)}" if cost.rho else spent(cost.epsilon)


def level_price(release: Release) -> str:
    """Return the cost of the counts of a release: epsilon, or rho where there is none."""
    return spent(release.level.epsilon or release.level.rho or Amount.up(Fraction(0)))
