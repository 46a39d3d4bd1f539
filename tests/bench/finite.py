"""Microseconds per draw of a private count in constant time, beside OpenDP, in one run: `python -m tests.bench.finite`.

Drawn is clamped geometric noise for counts of 0..n. A `GeometricTable` takes the same bits and steps for every count
and output. So does OpenDP's geometric mechanism with bounds (`pip install opendp`): it tosses a coin for every number
within them. Its ordinary one, without bounds, takes a time that depends on the noise. Both are given a vector of
counts, so that calls cost nothing. Times are those of one processor core (its own time: others on the machine count
less), the best of a few runs taken in turns.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from rich.table import Table

from stream_dp.exact.bits import SystemBits
from stream_dp.histograms.basic import basic_histogram
from stream_dp.histograms.counting_queries import Base, GeometricTable
from tests.bench.figures import show

EPSILONS = (Fraction(1, 10), Fraction(1))
HEIGHTS = (10, 16, 24)
"""Bits of a count; n is 2^h - 1."""
FLOOR = 60
"""An output is uniform with probability 2^-60."""
DRAWS = 5_000
OPENDP_STEPS = 2_000_000
"""Coins of OpenDP's mechanism in a run, some 50 nanoseconds each."""
OPENDP_LONGEST = 16
KEYS = 1_000_000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line."""

    what: str
    epsilon: str
    bound: str
    microseconds: float


Task = tuple[str, str, str, int, Callable[[], object]]
"""What, at which epsilon, up to which count, how many draws, and how."""


def measure(tasks: list[Task], rounds: int) -> list[Figure]:
    """Run everything in turns and keep the best of each."""
    best: dict[tuple[str, str, str], float] = {}
    for _ in range(rounds):
        for what, epsilon, bound, size, run in tasks:
            start = time.process_time()
            run()
            spent = (time.process_time() - start) * 1e6 / size
            best[what, epsilon, bound] = min(spent, best.get((what, epsilon, bound), spent))
    return [Figure(*key, spent) for key, spent in best.items()]


def draws() -> Iterator[Task]:
    """One count after another, and OpenDP's two mechanisms."""
    for epsilon in EPSILONS:
        for h in HEIGHTS:
            table, name, bound = _table(h, epsilon), str(epsilon), f"2^{h} - 1"
            yield "one draw, table", name, bound, DRAWS, partial(_one_by_one, table, DRAWS)
            if h <= OPENDP_LONGEST:
                size = max(1, OPENDP_STEPS >> h)
                yield from _opendp("one draw, OpenDP, constant time", epsilon, bound, size, (0, table.bound))
        yield from _opendp("one draw, OpenDP, time depends on the noise", epsilon, "none", DRAWS, None)


def catalogue(keys: int) -> Iterator[Task]:
    """A public list of keys at once, most of them empty, and all of them different."""
    for epsilon in EPSILONS:
        table = _table(HEIGHTS[-1], epsilon)
        for what, counts in (("empty", [0] * keys), ("up to 10,000 users", [i % 10_000 for i in range(keys)])):
            yield (
                f"one key of {keys:,}, {what}",
                str(epsilon),
                f"2^{table.h} - 1",
                keys,
                partial(basic_histogram, table, counts, SystemBits()),
            )


def _table(h: int, epsilon: Fraction) -> GeometricTable:
    table = GeometricTable(h, Base.within(epsilon), FLOOR)
    basic_histogram(table, [0], SystemBits())
    return table


def _one_by_one(table: GeometricTable, size: int) -> None:
    source = SystemBits()
    for _ in range(size):
        table.draw(5, source)


def _opendp(what: str, epsilon: Fraction, bound: str, size: int, bounds: tuple[int, int] | None) -> Iterator[Task]:
    try:
        import opendp.prelude as dp  # type: ignore[import-not-found,unused-ignore]  # installed by hand
    except ImportError:
        return
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64)
    mechanism = dp.m.make_geometric(*space, scale=float(1 / epsilon), bounds=bounds)
    yield what, str(epsilon), bound, size, partial(mechanism, [5] * size)


def report(figures: list[Figure]) -> Table:
    """The figures, and how often each fits into OpenDP's constant-time draw of the same epsilon and bound."""
    peers = {(figure.epsilon, figure.bound): figure.microseconds for figure in figures if "constant" in figure.what}
    table = Table(title=f"One core of {platform.processor() or platform.machine()}, best of several runs")
    for column in ("", "epsilon per count", "n", "µs", "OpenDP, constant time / this"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        peer = peers.get((figure.epsilon, figure.bound))
        ratio = "" if peer is None else f"{peer / figure.microseconds:,.3g}"
        table.add_row(figure.what, figure.epsilon, figure.bound, f"{figure.microseconds:,.3g}", ratio)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Private counts in constant time: microseconds per draw.")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = measure([*draws(), *catalogue(asked.keys)], asked.rounds)
    show(figures, report(figures), ("numpy", "opendp"), as_json=asked.json)


if __name__ == "__main__":
    main()
