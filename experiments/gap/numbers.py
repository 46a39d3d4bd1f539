"""The numbers of `python -m experiments gap`: draws of the published secure mechanism, and the time of its parts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev

import numpy as np

from experiments.common.experiment import Claim
from experiments.gap import transactions
from experiments.gap.secure_gap import CountedCoins, SecureRun, insecure_gap_top_k, secure_gap_top_k
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import SystemBits
from stream_dp.select.top_k_with_gaps import GapParameters, gap_top_k

PRINTED_KS = (25, 50, 100, 200, 400, 800)
KS = PRINTED_KS
RESOLUTION = 10
"""Steps of the grid in a count: gaps are multiples of 0.1."""
EPSILON = Fraction(1)
UNPRUNED, PRUNED, INSECURE, RELEASED = "secure", "pruned", "insecure", "released"
"""The published mechanism without and with pruning, its baseline, and what the `gap` selection here runs."""
PRINTED = {
    "T40I10D100K": {
        UNPRUNED: (10.53, 10.80, 11.64, 13.95, 19.80, 25.89),
        PRUNED: (10.59, 10.64, 10.83, 11.51, 14.74, 23.70),
        INSECURE: (2.25, 2.24, 2.27, 2.32, 2.38, 2.52),
    },
    "BMS-POS": {
        UNPRUNED: (18.51, 18.51, 19.03, 22.11, 35.21, 48.72),
        PRUNED: (18.43, 18.47, 18.56, 19.11, 22.85, 33.09),
        INSECURE: (3.92, 3.91, 3.96, 3.99, 4.06, 4.20),
    },
    "Kosarak": {
        UNPRUNED: (458.22, 459.45, 482.02, 575.38, 976.72, 1223.04),
        PRUNED: (455.32, 455.17, 454.89, 455.59, 459.73, 471.30),
        INSECURE: (98.71, 97.53, 97.38, 98.69, 98.95, 99.03),
    },
}
"""Table 4: milliseconds by data, mechanism and k, on the paper's machine."""
PRINTED_PARTS = {
    "T40I10D100K": {25: (10.921, 0.005, 0.049), 800: (10.555, 11.573, 1.192)},
    "BMS-POS": {25: (18.475, 0.005, 0.045), 800: (18.188, 14.187, 1.181)},
    "Kosarak": {25: (461.56, 0.008, 0.080), 800: (459.552, 15.586, 1.218)},
}
"""Table 5: milliseconds for the best candidates, ties and gaps, by data and k."""
PRINTED_CALLS = {"geometric": 42_874, "Bernoulli": 303_216, "uniform": 369_613, "sort": 3}
"""Table 6: calls of one run on Kosarak, k = 800."""
RATIO_DRAWS = 100_000
BERNOULLIS = math.e + math.e**2 / (math.e - 1)
UNIFORMS = BERNOULLIS + math.e / (math.e - 1)
"""Calls for each geometric number, on average, where the grid is much finer than the noise is wide."""
_STANDARD_ERRORS = 4
_FLAT, _GROWN, _MUCH_GROWN, _FASTER, _ALIKE = 1.5, 1.75, 4.0, 5.0, 2.5
"""Bounds on factors of time that tell one shape from another on a machine that does other things, too."""


class SeededBits:
    """Uniform bits that a seed repeats; for measuring, not for releasing."""

    def __init__(self, *seed: object) -> None:
        self.bits: Callable[[int], int] = Random(repr(seed)).getrandbits  # noqa: S311 - nothing is kept secret


@dataclass(frozen=True, slots=True)
class Ratio:
    """Calls for each geometric number.

    Attributes:
        name: of what is called.
        expected: on average.
        printed: what the paper's profile has.
        found: on average over many.
        standard_error: of that.
    """

    name: str
    expected: float
    printed: float
    found: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Cell:
    """One table of counts and one k, over the runs.

    Attributes:
        k: how many are selected.
        seconds: of the processor, by mechanism, on average.
        parts: those of the pruned one: of best candidates and gaps the median, of ties, which few runs have, the mean.
        levels: refinements of the pruned one.
        refined: how many keys each of them drew again, in all runs.
        draws: geometric numbers, by mechanism, for each key of the table.
    """

    k: int
    seconds: Mapping[str, float]
    parts: tuple[float, float, float]
    levels: float
    refined: tuple[int, ...]
    draws: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """One table of counts: where it is from, its size and a cell for each k."""

    name: str
    published: bool
    items: int
    cells: Sequence[Cell]

    def growth(self, measure: Callable[[Cell], float]) -> float:
        """From the smallest to the largest k."""
        return measure(self.cells[-1]) / measure(self.cells[0])

    def spread(self, measure: Callable[[Cell], float]) -> float:
        """The largest of all k over the smallest."""
        values = [measure(cell) for cell in self.cells]
        return max(values) / min(values)


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was measured.

    Attributes:
        ratios: calls for each geometric number, without any data.
        calls: of one run of the pruned mechanism on the largest table at the largest k.
        tables: smallest first.
    """

    ratios: Sequence[Ratio]
    calls: Mapping[str, int]
    tables: Sequence[Measured]

    @property
    def claims(self) -> list[Claim]:
        """Claims of the paper to be found again."""
        return [*map(_ratio_claim, self.ratios), *_shape_claims(self.tables)]


def steps(runs: int) -> int:
    """Return the number of steps that `study` reports."""
    return 1 + len(transactions.PUBLISHED) * len(KS) * runs


def counts(data: Path | None) -> Iterator[tuple[str, bool, list[int]]]:
    """The tables: name, whether it is the published one, and counts.

    Raises:
        ConfigError: the folder has none of the files, or one that is not what it should be.
    """
    files = {one.name: None if data is None else transactions.find(data, one) for one in transactions.PUBLISHED}
    if data is not None and not any(files.values()):
        names = ", ".join(one.file for one in transactions.PUBLISHED)
        raise ConfigError(f"{data} has none of {names}, with or without .gz")
    for one in transactions.PUBLISHED:
        file = files[one.name]
        yield (
            one.name,
            file is not None,
            transactions.stand_in(one) if file is None else transactions.item_counts(file, one),
        )


def study(data: Path | None, runs: int, seed: int, progress: Callable[[int], object]) -> Study:
    """Measure the published mechanism, its baseline and the one that is released.

    Args:
        data: the folder of the published transactions; tables that are missing there, or all without it, are made up.
        runs: of each mechanism on each table for each k.
        seed: of all noise but that of what is released.
        progress: told after every step.

    Raises:
        ConfigError: see `counts`.
    """
    ratios = call_ratios(RATIO_DRAWS, seed)
    progress(1)
    tables: list[Measured] = []
    calls: Mapping[str, int] = {}
    for name, published, table in counts(data):
        trials: dict[int, list[_Trial]] = {k: [] for k in KS}
        for run in range(runs):  # every k in turn: a slow moment of the machine is not taken for the cost of one k
            for k, done in trials.items():
                done.append(_trial(table, k, (seed, name, k, run)))
                progress(1)
        tables.append(Measured(name, published, len(table), [_cell(k, len(table), trials[k]) for k in KS]))
        calls = trials[KS[-1]][0].calls
    return Study(ratios, calls, tables)


def scale(k: int) -> tuple[int, int]:
    """The noise as the ratio e^(-s/t) from one step of the grid to the next."""
    ratio = EPSILON / (2 * k * RESOLUTION)
    return ratio.numerator, ratio.denominator


def call_ratios(draws: int, seed: int) -> list[Ratio]:
    """Draw geometric numbers of the largest k, and count calls."""
    coins = CountedCoins(SeededBits(seed))
    s, t = scale(KS[-1])
    after = [(0, 0)]
    for _ in range(draws):
        coins.geometric(s, t)
        after.append((coins.bernoullis, coins.uniforms))
    geometrics, bernoullis, uniforms, _ = PRINTED_CALLS.values()
    ratios = []
    for index, (name, expected, printed) in enumerate(
        (("Bernoulli", BERNOULLIS, bernoullis / geometrics), ("uniform", UNIFORMS, uniforms / geometrics))
    ):
        each = [later[index] - earlier[index] for earlier, later in pairwise(after)]
        ratios.append(Ratio(name, expected, printed, fmean(each), stdev(each) / math.sqrt(draws)))
    return ratios


@dataclass(frozen=True, slots=True)
class _Trial:
    pruned: SecureRun
    calls: Mapping[str, int]
    seconds: Mapping[str, float]
    draws: Mapping[str, int]


def _trial(table: Sequence[int], k: int, seed: tuple[object, ...]) -> _Trial:
    """Every mechanism once."""
    grid = [RESOLUTION * count for count in table]
    found: dict[str, tuple[SecureRun, CountedCoins]] = {}
    for name in (UNPRUNED, PRUNED):
        coins = CountedCoins(SeededBits(*seed, name))
        found[name] = secure_gap_top_k(grid, k, scale(k), coins, pruned=name == PRUNED), coins
    began = time.process_time()
    insecure_gap_top_k(table, k, float(2 * k / EPSILON), np.random.default_rng(k))
    insecure = time.process_time() - began
    named = {str(key): count for key, count in enumerate(table)}
    parameters = GapParameters(k, EPSILON, RESOLUTION)
    began = time.process_time()
    gap_top_k(named, 0, parameters, SystemBits())
    released = time.process_time() - began
    run, coins = found[PRUNED]
    return _Trial(
        run,
        {
            "geometric": coins.geometrics,
            "Bernoulli": coins.bernoullis,
            "uniform": coins.uniforms,
            "sort": 1 + run.levels,
        },
        {**{name: one.total_s for name, (one, _) in found.items()}, INSECURE: insecure, RELEASED: released},
        {name: one.geometrics for name, (_, one) in found.items()},
    )


def _cell(k: int, items: int, trials: Sequence[_Trial]) -> Cell:
    pruned = [trial.pruned for trial in trials]
    return Cell(
        k,
        {name: fmean(trial.seconds[name] for trial in trials) for name in trials[0].seconds},
        (
            median(run.candidates_s for run in pruned),
            fmean(run.ties_s for run in pruned),
            median(run.gaps_s for run in pruned),
        ),
        fmean(run.levels for run in pruned),
        tuple(keys for run in pruned for keys in run.refined),
        {name: fmean(trial.draws[name] for trial in trials) / items for name in trials[0].draws},
    )


def _ratio_claim(ratio: Ratio) -> Claim:
    text = (
        f"{ratio.name} calls for each geometric number: {ratio.expected:.4f} on average (printed {ratio.printed:.2f}), "
        f"found {ratio.found:.4f} ± {ratio.standard_error:.4f}"
    )
    return Claim(text, abs(ratio.found - ratio.expected) <= _STANDARD_ERRORS * ratio.standard_error)


def _shape_claims(tables: Sequence[Measured]) -> Iterator[Claim]:
    largest = tables[-1]
    first, last = largest.cells[0].k, largest.cells[-1].k
    where = f"{largest.name}, k from {first} to {last}"
    if refined := largest.cells[-1].refined:
        again = median(refined)
        text = (
            f"{largest.name}, k = {last}: a refinement draws noise for k + 2 = {last + 2} keys again, found {again:g}"
        )
        yield Claim(text, again == last + 2)
    shapes = [
        (name, grows, what) for name, grows in ((PRUNED, False), (UNPRUNED, True)) for what in ("draws", "seconds")
    ]
    for name, grows, what in (*shapes, (RELEASED, False, "seconds")):
        growth = largest.growth(lambda cell: getattr(cell, what)[name])  # noqa: B023 - called at once
        bound = f"above {_GROWN:g}" if grows else f"below {_FLAT:g}"
        text = f"{where}: {what}, {name}, grow by a factor {bound}, found {growth:.2f}"
        yield Claim(text, growth > _GROWN if grows else growth < _FLAT)
    candidates = largest.spread(lambda cell: cell.parts[0])
    text = f"{where}: the time for best candidates stays within a factor {_FLAT:g}, found {candidates:.2f}"
    yield Claim(text, candidates < _FLAT)
    gaps = largest.growth(lambda cell: cell.parts[2])
    text = f"{where}: the time for gaps grows with k, by a factor above {_MUCH_GROWN:g}, found {gaps:.1f}"
    yield Claim(text, gaps > _MUCH_GROWN)
    least = min(cell.seconds[PRUNED] / cell.seconds[RELEASED] for cell in largest.cells)
    text = f"{where}: {RELEASED} is more than {_FASTER:g} times as fast as {PRUNED}, found {least:.0f}"
    yield Claim(text, least > _FASTER)
    each = [table.cells[0].parts[0] / table.items for table in tables]
    apart = max(each) / min(each)
    text = f"the time for a key does not depend on how many there are, within a factor {_ALIKE:g}, found {apart:.2f}"
    yield Claim(text, apart < _ALIKE)
