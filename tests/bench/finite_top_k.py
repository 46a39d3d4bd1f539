"""Milliseconds per pure top-k release of 2^64 keys, beside the published one: `python -m tests.bench.finite_top_k`.

The published algorithm draws the largest noisy counts level by level. One call of it takes a minute or two.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rich.table import Table

from experiments.finite.sparse import order_sample
from stream_dp.exact.bits import SystemBits
from stream_dp.histograms.counting_queries import Base, GeometricTable
from stream_dp.histograms.order import largest_values
from stream_dp.histograms.pure_top_k import PureTopK
from tests.bench.figures import show

K, UNIVERSE, KEYS = 50, 1 << 64, 10_000
RELEASE = PureTopK(GeometricTable(14, Base.dyadic(1), 104), K, UNIVERSE, 1, 40)
"""Counts up to 16383."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line, in milliseconds."""

    what: str
    p50: float
    p90: float


def pure_top_k() -> list[Figure]:
    """Time the release, its order statistics alone, and the published ones: a single call, of a minute or two."""
    counts = {key << 40: KEYS // key for key in range(1, KEYS + 1)}
    cdf = [RELEASE.query.cdf(0, z) for z in range(RELEASE.query.bound + 1)]
    source, bits = SystemBits(), RELEASE.order_bits

    def jumps() -> list[int]:
        uniforms = [source.bits(bits) + 1 for _ in range(K + 1)]
        return largest_values(RELEASE.query, UNIVERSE - KEYS, uniforms, bits)

    def levels() -> list[int]:
        return order_sample(cdf, UNIVERSE - KEYS, K + 1, 1 << bits, lambda _: source.bits(bits) + 1)

    return [
        _timed(f"pure top-{K}, {KEYS:,} observed keys", partial(RELEASE.draw, counts, source), 9),
        _timed(f"pure top-{K}, order statistics alone", jumps, 31),
        _timed(f"pure top-{K}, published order statistics, level by level", levels, 1),
    ]


def _timed(what: str, run: Callable[[], object], calls: int) -> Figure:
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return Figure(what, times[len(times) // 2], times[min(len(times) - 1, len(times) * 9 // 10)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Pure top-k: milliseconds per call.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = pure_top_k()
    table = Table(title=f"One core of {platform.processor() or platform.machine()}")
    for column in ("", "median, ms", "90 %, ms"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        table.add_row(figure.what, f"{figure.p50:,.1f}", f"{figure.p90:,.1f}")
    show(figures, table, ("numpy",), as_json=asked.json)


if __name__ == "__main__":
    main()
