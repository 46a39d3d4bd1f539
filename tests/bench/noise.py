"""Nanoseconds per draw, and per key of a sealed table, beside OpenDP and NumPy: `python -m tests.bench.noise`.

Drawn are discrete Laplace numbers and what coarser levels have beyond the finest; read are sealed tables, at one level
coarser than the sealed one and at three. Times are those of one processor core (its own time: others on the machine
count less), the best of a few runs taken in turns. OpenDP (`pip install opendp`) draws as exactly and as securely as
this package; NumPy's generator is neither, and its figures are only a measure of how fast numbers come at all.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from rich.table import Table

from stream_dp.exact.bits import SystemBits
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import threshold_for
from stream_dp.lossless.sealed import WindowNoise, laplace_excess, lock, read_levels, seal
from tests.bench.figures import show
from tests.support.readings import read_rows_lmr1

EPSILONS = [Fraction(1, 10), Fraction(1, 2), Fraction(2)]
SEALED = threshold_for(Fraction(3))
"""Level of the sealed table."""
KEYS = 1_000_000
OPENDP_DRAWS = 20_000
LMR1_KEYS = 2_000
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line."""

    what: str
    epsilon: str
    nanoseconds: float


def measure(keys: int, rounds: int) -> list[Figure]:
    """Run everything in turns and keep the best of each."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for what, epsilon, size, run in _tasks(keys):
            with _stopwatch() as spent:
                run()
            found = spent() * 1e9 / size
            best[what, epsilon] = min(found, best.get((what, epsilon), found))
    return [Figure(what, epsilon, nanoseconds) for (what, epsilon), nanoseconds in best.items()]


Task = tuple[str, str, int, Callable[[], object]]


def _tasks(keys: int) -> Iterator[Task]:
    """What, at which epsilon, how many numbers, and how."""
    counts = {b"key %d" % i: i % 100 for i in range(keys)}
    exact = np.array([*counts.values()], np.int64)
    few = dict(list(counts.items())[:LMR1_KEYS])
    ladder = [*(threshold_for(epsilon) for epsilon in EPSILONS), SEALED]
    yield "seal, whole", "3", keys, lambda: seal(exact, SEALED, SystemBits())
    yield "what three levels have beyond, drawn", "all three", keys, lambda: laplace_excess(ladder, keys, SystemBits())

    noise, digest = WindowNoise(b"bench", bytes(32)), bytes(32)
    values, locked = list(counts.values()), lock(laplace_excess(ladder, keys, SystemBits()), noise, digest)

    def read(*levels: int) -> list[list[int]]:
        return read_levels(values, locked, noise, digest, levels=levels, finest=len(EPSILONS))

    def lmr1(threshold: int) -> Callable[[], object]:
        return lambda: read_rows_lmr1(
            few, prf_key=noise.prf_key, window=noise.name, digest=digest, thresholds=[threshold], finest=SEALED
        )

    for at, epsilon in enumerate(EPSILONS):
        name, level = str(epsilon), threshold_for(epsilon)
        yield "draw, stream-dp", name, keys, partial(bulk_noise, level, keys, SystemBits())
        yield "draw, NumPy", name, keys, _numpy(epsilon, keys)
        if (opendp := _opendp(epsilon)) is not None:
            yield "draw, OpenDP", name, OPENDP_DRAWS, opendp
        yield "key, whole read", name, keys, partial(read, at)
        yield "key, whole read, LMR1", name, LMR1_KEYS, lmr1(level)
    yield "key, whole read", "all three", keys, partial(read, *range(len(EPSILONS)))


def _numpy(epsilon: Fraction, size: int) -> Callable[[], object]:
    """Two geometric numbers of a generator that is not secure, by a law that is not exact."""
    generator, success = np.random.default_rng(), -np.expm1(-float(epsilon))
    return lambda: generator.geometric(success, size) - generator.geometric(success, size)


def _opendp(epsilon: Fraction) -> Callable[[], object] | None:
    try:
        import opendp.prelude as dp  # type: ignore[import-not-found,unused-ignore]  # installed by hand
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    mechanism = dp.m.make_laplace(*space, scale=float(1 / epsilon))
    counts = [0] * OPENDP_DRAWS
    return lambda: mechanism(counts)


@contextmanager
def _stopwatch() -> Iterator[Callable[[], float]]:
    start = time.process_time()
    end: list[float] = []
    yield lambda: end[0] - start
    end.append(time.process_time())


def report(figures: list[Figure]) -> Table:
    """The figures, and how often each fits into OpenDP's draw and NumPy's of the same epsilon."""
    nanoseconds = {(figure.what, figure.epsilon): figure.nanoseconds for figure in figures}
    table = Table(title=f"One core of {platform.processor() or platform.machine()}, best of several runs")
    for column in ("", "epsilon per count", "ns", "OpenDP / this", "NumPy / this"):
        table.add_column(column, justify="left" if not column else "right")
    for figure in figures:
        others = (nanoseconds.get((f"draw, {name}", figure.epsilon)) for name in ("OpenDP", "NumPy"))
        ratios = ("" if other is None else f"{other / figure.nanoseconds:.3g}" for other in others)
        table.add_row(figure.what, figure.epsilon, f"{figure.nanoseconds:.3g}", *ratios)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Noise: nanoseconds per draw, and per key and level.")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")
    asked = parser.parse_args()
    figures = measure(asked.keys, asked.rounds)
    show(figures, report(figures), ("numpy", "cryptography", "opendp"), as_json=asked.json)


if __name__ == "__main__":
    main()
