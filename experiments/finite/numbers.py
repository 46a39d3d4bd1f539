"""What the code that is shipped achieves, beside what the paper promises: Figures 3 to 6, and times that grow.

Prices are those of the paper: one row is substituted, so two counts move and each gets half of epsilon.

Source: specs/finite 3.4 and 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.finite import figures
from stream_dp.exact.bits import SystemBits
from stream_dp.histograms.basic import stability_threshold
from stream_dp.histograms.compact import Compact
from stream_dp.histograms.counting_queries import Base, GeometricTable, interval
from stream_dp.histograms.order import largest_values, rounding_units
from stream_dp.histograms.pure_top_k import FLOOR_BITS, PureTopK

ROWS, BETA, DELTA, K = 10_000, Fraction(1, 20), Fraction(1, 1 << 40), 10
SETTINGS: Sequence[tuple[int, int]] = tuple((e, bits) for e in (1, 10) for bits in (20, 64))
"""1 / epsilon, and log2 of the universe."""
SLOPES: Mapping[str, tuple[str, Sequence[int]]] = {
    "pure top-k, K = 10": ("largest count C", (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)),
    "pure top-k, C = 4,095": ("K", (2, 5, 10, 20, 40)),
    "compact histogram": ("rows", (50, 100, 200, 400)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A number of a figure: what the paper promises at most, and what the code achieves.

    Attributes:
        figure: of the paper.
        what: the mechanism and the number.
        epsilon: 1 / a whole number, as text.
        universe: log2 of its size.
        printed: by the paper's formula.
        found: of the code.
    """

    figure: int
    what: str
    epsilon: str
    universe: int
    printed: int
    found: int

    @property
    def holds(self) -> bool:
        """True if the code is at least as accurate as the paper promises."""
        return self.found <= self.printed


def rows() -> Iterator[Row]:
    """All numbers of Figures 3 to 6, setting by setting."""
    for e, bits in SETTINGS:
        universe = 1 << bits
        table = GeometricTable(ROWS.bit_length(), Base.within(Fraction(1, 2 * e)), bits + FLOOR_BITS)
        alone, together = interval(table, 1 - BETA), interval(table, 1 - BETA / universe)
        top = PureTopK(table, K, universe, items_per_user=2, fallback_bits=20)
        basic, stable = figures.figure_3(e, universe, BETA)["GeoSample"], figures.figure_4(e, ROWS, BETA, DELTA)
        sparse, compact = figures.figure_5(e, universe, BETA)["GeoSample"], figures.figure_6(e, universe, BETA)
        threshold = stability_threshold(GeometricTable(table.h, table.base, 64), DELTA)
        # A key that many have is shown if it is above what noise alone reaches, and its own noise is not too small.
        shown = top.least_spurious(BETA / 2) + interval(table, 1 - BETA / 2)
        for figure, what, printed, found in (
            (3, "BasicHistogram, one key", basic.per_query, alone),
            (3, "BasicHistogram, all keys", basic.simultaneous, together),
            (4, "StabilityHistogram, threshold", stable["FastSample"].threshold, threshold),
            (5, "pure sparse, all above are shown", sparse.above, shown),
            (5, "pure sparse, all keys", sparse.simultaneous, 2 * top.within(BETA)),
            (6, "CompactHistogram, one key", compact["FastSample"].per_query, alone),
            (6, "CompactHistogram, all keys", compact["FastSample"].simultaneous, together),
        ):
            yield Row(figure, what, "1" if e == 1 else f"1/{e}", bits, printed, found)


def slopes(advance: Callable[[int], None]) -> dict[str, list[tuple[int, float]]]:
    """Measure seconds of processor time by size; see `SLOPES`.

    Args:
        advance: is told of every measurement.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for name, (_, sizes) in SLOPES.items():
        for size in sizes:
            found.setdefault(name, []).append((size, _seconds(name, size)))
            advance(1)
    return found


def _seconds(name: str, size: int) -> float:
    base, bits = Base.within(Fraction(1, 2)), SystemBits()
    if name.startswith("compact"):
        compact = Compact(GeometricTable(14, base, 32), size, key_bytes=20, items_per_user=1)
        begun = time.process_time()
        compact.draw({f"key {n}": 1 for n in range(size)}, bits)
        return time.process_time() - begun
    k, h = (K, size.bit_length() - 1) if name.endswith("K = 10") else (size, 12)
    table = GeometricTable(h, base, 64 + FLOOR_BITS)
    precision = rounding_units(table.bound, 1 << 64, k + 1).bit_length() + 128
    uniforms = [bits.bits(precision) + 1 for _ in range(k + 1)]
    begun = time.process_time()
    largest_values(table, 1 << 64, uniforms, precision)
    return time.process_time() - begun
