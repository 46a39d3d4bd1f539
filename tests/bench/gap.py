"""Milliseconds per top-k selection with gaps, beside insecure and published peers: `python -m tests.bench.gap`.

All in one run, calls of ours and of the peer in turn. "NumPy" is what a user would write who does not think of floats:
`rng.exponential` for all keys, `argpartition`, a sort and the differences. "Algorithm 4" is the published exact one, in
Python key by key, with early pruning. "Arrays" go from an array of counts to places; "mapping" from a mapping of names
to counts to names. Times are those of the wall on one core: half of the calls take at most p50.
"""

from __future__ import annotations

import argparse
import gc
import platform
import resource
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from stream_dp.exact.bits import SystemBits
from stream_dp.select.top_k_with_gaps import GapParameters, gap_top_k
from tests.bench.figures import show
from tests.support.gap_oracle import QuickBits, algorithm_4, algorithm_p
from tests.support.gap_shipped import gap_top_k_of_array

RESOLUTION = 10
CALLS = {41_270: 200, 1_000_000: 25}
PUBLISHED_CALLS = 3
RECORDS = 990_002
"""Of the data set whose size the 41,270 keys are; its counts are made up here as 0.6 of this over rank^1.1."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line, in milliseconds; the peer stands beside what it was measured with."""

    what: str
    keys: int
    k: int
    p50: float
    peer: str = ""
    peer_p50: float = 0.0
    peak_megabytes: float = 0.0


def counts_of(keys: int) -> NDArray[np.int64]:
    """Falling as a power of the rank, in no order."""
    counts = (0.6 * RECORDS / np.arange(1, keys + 1) ** 1.1).astype(np.int64) + 1
    return np.random.default_rng(1).permutation(counts)


def insecure(
    counts: NDArray[np.int64], k: int, scale: float, rng: np.random.Generator
) -> tuple[list[int], list[float]]:
    """Float noise: not private, and not reproducible."""
    noisy = counts + rng.exponential(scale, len(counts))
    first = np.argpartition(noisy, len(noisy) - k - 1)[-k - 1 :]
    first = first[np.argsort(noisy[first])[::-1]]
    values = noisy[first]
    return first[:-1].tolist(), (values[:-1] - values[1:]).tolist()


def measure() -> list[Figure]:
    """Run everything."""
    figures = []
    rng = np.random.default_rng(2)
    for keys, ks in ((41_270, (25, 100, 800)), (1_000_000, (100, 1000))):
        counts = counts_of(keys)
        named = {b"item-%07d" % i: count for i, count in enumerate(counts.tolist())}
        for k in ks:
            p, bits = GapParameters(k, Fraction(1), RESOLUTION), SystemBits()
            scale = float(p.scale)

            def ours(p: GapParameters = p, bits: SystemBits = bits, counts: NDArray[np.int64] = counts) -> object:
                return gap_top_k_of_array(counts, 0, p, bits)

            def peer(k: int = k, scale: float = scale, counts: NDArray[np.int64] = counts) -> object:
                return insecure(counts, k, scale, rng)

            def ours_named(p: GapParameters = p, bits: SystemBits = bits, named: dict[bytes, int] = named) -> object:
                return gap_top_k(named, 0, p, bits)

            def peer_named(k: int = k, scale: float = scale, named: dict[bytes, int] = named) -> object:
                values = np.fromiter(named.values(), np.int64, len(named))
                places, gaps = insecure(values, k, scale, rng)
                names = list(named)
                return [names[place] for place in places], gaps

            for what, run, other in (("arrays", ours, peer), ("mapping", ours_named, peer_named)):
                figures.append(Figure(what, keys, k, *_in_turn(run, "NumPy, insecure", other, CALLS[keys])))
            if keys == 41_270:
                figures += _published(p, counts, ours)
    return [*figures, *_zeros()]


def _published(p: GapParameters, counts: NDArray[np.int64], ours: Callable[[], object]) -> list[Figure]:
    steps, bits = (counts * RESOLUTION).tolist(), QuickBits(SystemBits())
    noise = p.noise
    figures = []
    for name, peer in (
        ("Algorithm 4", lambda: algorithm_4(bits, steps, p.k, noise.parts, noise.mean)),
        ("Algorithm 4, not pruned", lambda: algorithm_4(bits, steps, p.k, noise.parts, noise.mean, prune=False)),
        ("Algorithm P", lambda: algorithm_p(bits, steps, p.k, noise.parts, noise.mean)),
    ):
        figures.append(Figure("arrays", len(steps), p.k, *_in_turn(ours, name, peer, PUBLISHED_CALLS)))
    return figures


def _zeros() -> list[Figure]:
    figures = []
    for keys, zeros in ((0, 10**9), (1_000_000, 10**9)):
        counts, p, bits = counts_of(keys), GapParameters(100, Fraction(1), RESOLUTION), SystemBits()

        def run(
            p: GapParameters = p, bits: SystemBits = bits, zeros: int = zeros, counts: NDArray[np.int64] = counts
        ) -> object:
            return gap_top_k_of_array(counts, zeros, p, bits)

        p50, _, _ = _in_turn(run, "", run, 20)
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        figures.append(Figure(f"arrays, and {zeros:,} keys of count zero", keys, 100, p50, peak_megabytes=peak))
    return figures


def _in_turn(run: Callable[[], object], peer: str, other: Callable[[], object], calls: int) -> tuple[float, str, float]:
    run(), other()
    gc.collect()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(calls):
        for taken, call in zip(times, (run, other), strict=True):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1e3)
    ours, peers = (sorted(taken)[calls // 2] for taken in times)
    return ours, peer, peers


def report(figures: list[Figure]) -> Table:
    """The figures, and how long ours takes for one of the peer's."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    table = Table(title=f"One core of {platform.processor() or platform.machine()}; {memory} MB at most in all")
    for column in ("", "keys", "k", "p50 ms", "peer", "its p50 ms", "ours / peer", "peak MB of a call"):
        table.add_column(column, justify="left" if column in ("", "peer") else "right")
    for figure in figures:
        ratio = f"{figure.p50 / figure.peer_p50:,.3f}" if figure.peer else ""
        peak = f"{figure.peak_megabytes:,.1f}" if figure.peak_megabytes else ""
        peer = f"{figure.peer_p50:,.2f}" if figure.peer else ""
        table.add_row(
            figure.what, f"{figure.keys:,}", str(figure.k), f"{figure.p50:,.2f}", figure.peer, peer, ratio, peak
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Top-k with gaps: milliseconds per call.")
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = measure()
    show(figures, report(figures), ("numpy", "cryptography"), as_json=asked.json)


if __name__ == "__main__":
    main()
