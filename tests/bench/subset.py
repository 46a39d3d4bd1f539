"""Milliseconds per subset selection, beside dense NumPy, in one run: `python -m tests.bench.subset`.

"Dense" is the paper's Algorithm 1 as plain NumPy does it, with floats: sort, then for each of the k heads a pass over
all ranks for the class weights and one noisy maximum, and a member of the class that wins. It is no private mechanism.
Ours is timed on an array of counts (places come out) and on a mapping of names. Times are those of the wall on one
core: half of the calls take at most p50, 9 of 10 at most p90.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stream_dp.exact.bits import SystemBits
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters
from stream_dp.select.top_k_subset import canonical_positions, canonical_top_k
from tests.bench.figures import show

KEYS = 10**6
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(10))
CALLS = {100: 21, 1000: 9}
DENSE_CALLS = {100: 3, 1000: 1}
Counts = NDArray[np.int64]


SHAPES: dict[str, Callable[[], Counts]] = {
    "hyper": lambda: 2_000_000 // (np.arange(1, KEYS + 1) + 999),
    "hyper big": lambda: 100_000_000 // (np.arange(1, KEYS + 1) + 99),
    "wide": lambda: 10**15 // np.arange(1, KEYS + 1),
    "flat": lambda: np.full(KEYS, 50),
    "distinct": lambda: np.arange(KEYS),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line, in milliseconds."""

    what: str
    k: int
    epsilon: str
    p50: float
    p90: float


def table_of(shape: str) -> Counts:
    """Counts of a shape, in no order."""
    return np.random.default_rng(1).permutation(SHAPES[shape]().astype(np.int64))


def dense(counts: Counts, k: int, epsilon: float, gamma: float, random: np.random.Generator) -> Counts:
    """One selection in O(d k) with Gumbel noise, the signed variant; users join or leave."""
    order = np.argsort(-counts)
    x = counts[order].astype(np.float64)
    a, b = (1 - gamma) * epsilon, gamma * epsilon
    behind = np.arange(len(x) - k, dtype=np.float64)
    tail = b * (x[k:] - x[k - 1])
    sizes, buffer = np.zeros(len(tail)), np.empty(len(tail))
    best, kept, winner = -a * (x[k] - x[k - 1]) + random.gumbel(), k, tail
    for j in range(k):
        if j:
            sizes += np.log1p(np.divide(behind, j, out=buffer), out=buffer)
        np.add(sizes, tail, out=buffer)
        largest = buffer.max()
        buffer -= largest
        total = np.exp(buffer, out=buffer).sum()
        noisy = largest + np.log(total) - a * (x[k - 1 - j] - x[k - 1]) + random.gumbel()
        if noisy > best:
            best, kept, winner = noisy, k - 1 - j, buffer.copy()
    if kept == k:
        return np.sort(order[:k])
    summed = np.cumsum(winner)
    worst = k + min(int(np.searchsorted(summed, random.random() * summed[-1])), len(tail) - 1)
    body = kept + 1 + random.choice(worst - kept - 1, k - 1 - kept, replace=False)
    return np.sort(np.concatenate((order[:kept], order[body], order[worst : worst + 1])))


def measure(ks: tuple[int, ...], shapes: tuple[str, ...]) -> list[Figure]:
    """Run everything, the dense one between our calls."""
    figures = []
    for shape in shapes:
        counts = table_of(shape)
        for k in ks:
            for what, epsilon, run, calls in _tasks(shape, counts, k):
                figures.append(_timed(what, k, epsilon, run, calls))
    return figures


def _tasks(shape: str, counts: Counts, k: int) -> Iterator[tuple[str, Fraction, Callable[[], object], int]]:
    names = {b"item-%07d" % i: count for i, count in enumerate(counts.tolist())}
    for epsilon in EPSILONS:
        for noise in ScoreNoise:
            p = SubsetParameters(k, epsilon, noise=noise)
            yield (
                f"stream-dp, {shape}, {noise}",
                epsilon,
                partial(canonical_positions, counts, 0, p, SystemBits()),
                CALLS[k],
            )
        p = SubsetParameters(k, epsilon)
        yield (
            f"stream-dp, {shape}, {p.noise}, from a mapping",
            epsilon,
            partial(canonical_top_k, names, 0, p, SystemBits()),
            CALLS[k],
        )
        random = np.random.default_rng(2)
        yield (
            f"dense NumPy, {shape}",
            epsilon,
            partial(dense, counts, k, float(epsilon), 0.75, random),
            DENSE_CALLS[k],
        )


def _timed(what: str, k: int, epsilon: Fraction, run: Callable[[], object], calls: int) -> Figure:
    if calls > 1:
        run()
    gc.collect()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return Figure(
        what, k, str(float(epsilon)), times[len(times) // 2], times[min(len(times) - 1, len(times) * 9 // 10)]
    )


def report(figures: list[Figure]) -> Table:
    """The figures, and how often each fits into the dense one on the same table."""
    peers = {(f.what.split(", ")[1], f.k, f.epsilon): f.p50 for f in figures if f.what.startswith("dense")}
    table = Table(title=f"{KEYS:,} keys, one core of {platform.processor() or platform.machine()}")
    for column in ("", "k", "epsilon", "p50 ms", "p90 ms", "dense / this"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        peer = peers[figure.what.split(", ")[1], figure.k, figure.epsilon]
        ratio = "" if figure.what.startswith("dense") else f"{peer / figure.p50:,.1f}"
        table.add_row(figure.what, f"{figure.k:,}", figure.epsilon, f"{figure.p50:,.1f}", f"{figure.p90:,.1f}", ratio)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Subset selection: milliseconds per call.")
    parser.add_argument("--k", type=int, nargs="+", choices=list(CALLS), default=list(CALLS))
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["hyper", "hyper big"])
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = measure(tuple(asked.k), tuple(asked.shapes))
    show(figures, report(figures), ("numpy",), as_json=asked.json)


if __name__ == "__main__":
    main()
