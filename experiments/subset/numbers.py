"""The numbers of `python -m experiments subset`: what a selection of k needs to be exact, whole or item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.common.experiment import Claim
from experiments.subset import canonical, one_shot, score_sets
from experiments.subset.canonical import Canonical, class_law
from experiments.subset.noises import EXPONENTIAL, GUMBEL, NOISES, FloatArray, Noise
from experiments.subset.profiles import Profile
from experiments.subset.solving import epsilon_at
from experiments.subset.theory import critical_epsilon

KS = (10, 100, 1000)
EVEN, ALMOST_SURE = 0.5, 0.999
CURVE_POINTS = 16
WHOLE: Mapping[str, Canonical] = {
    "canonical γ=1/2": canonical.PAPER,
    "canonical γ=1": canonical.PAPER_TAIL,
    "signed γ=3/4": canonical.SIGNED,
}
"""Selections of the whole subset at once; the last one is not the paper's."""
BY_ITEM: Mapping[str, Noise] = {"one-shot": EXPONENTIAL, "peeling": GUMBEL}
"""Selections item by item, epsilon / k for each."""
_PAPERS_OWN = ("canonical γ=1/2", "canonical γ=1")

TABLES = {5: "netflix", 6: "patent", 7: "searchlogs", 8: "medcost", 9: "income", 10: "hepth", 3: "zipfian"}
"""Tables of scores by the number of the figure; Figure 1 is part of Figure 5."""
MADE_UP = {5: "netflix-like", 6: "hyperbolic", 7: "steeper", 3: "zipfian"}
"""Tables in their places without the authors' files."""
_HUGE = ("hyperbolic", "steeper")
"""Of a million items; the best thousand of them are left out, because they tie or take a minute."""
PRINTED = {10: 6, 100: 34, 1000: 81}
"""Factor by which a smaller budget is enough, as the paper says, for `netflix`."""
LABELS = {
    **dict.fromkeys(("netflix", "netflix-like", "zipfian", "hyperbolic", "steeper"), PRINTED),
    "patent": {10: 5, 100: 29, 1000: 80},
    "searchlogs": {10: 6, 100: 35},
    "medcost": {10: 6, 100: 29},
    "income": {10: 6, 100: 31},
    "hepth": {10: 6, 100: 34, 1000: 76},
}
"""The same as printed, or for the other tables of the authors as computed by the paper's rule beforehand."""
NOISE_KS = (1, 10, 100)
NOISE_EPSILONS = {
    1: {
        "exponential": 0.006286,
        "halflogistic": 0.006707,
        "gumbel": 0.006956,
        "laplace": 0.007828,
        "logistic": 0.008995,
    },
    10: {"exponential": 0.02939, "halflogistic": 0.03148, "gumbel": 0.0328, "laplace": 0.03782, "logistic": 0.04329},
    100: {"exponential": 20.05, "halflogistic": 21.45, "gumbel": 22.28, "laplace": 25.21, "logistic": 29.01},
}
"""Figure 4 on `netflix`, computed beforehand: epsilon for the exact top-k at 99.9 %, good to half a percent."""
_NOISE_TOLERANCE = 0.005
EXPONENTS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.1, 0.3, 1.0)
"""Of Figure 2: how steeply the scores fall."""
_STEEP_ENOUGH = 0.04


@dataclass(frozen=True, slots=True)
class Curve:
    """Probabilities of the exact top-k, of a great and of a good selection; an entry for each epsilon or exponent."""

    at: FloatArray
    top: FloatArray
    great: FloatArray
    good: FloatArray


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table of scores and one k.

    Attributes:
        table: its name.
        k: how many are selected.
        even: by selection, the epsilon at which the exact top-k is as likely as not; None where a tie forbids it.
        almost_sure: the same for 99.9 %.
        critical: the epsilon below which the canonical mechanism collapses.
        curves: by selection, over epsilon.
    """

    table: str
    k: int
    even: Mapping[str, float | None]
    almost_sure: Mapping[str, float | None]
    critical: float
    curves: Mapping[str, Curve]

    @property
    def ends(self) -> tuple[float, float] | None:
        """The least budget of the paper's own selections and of the classical ones; None where a tie forbids it."""
        own = [self.almost_sure[name] for name in _PAPERS_OWN]
        classical = [self.almost_sure[name] for name in BY_ITEM]
        found = [[value for value in values if value is not None] for values in (own, classical)]
        return (min(found[0]), min(found[1])) if all(found) else None

    @property
    def factor(self) -> float | None:
        """Factor by which a smaller budget is enough."""
        return None if self.ends is None else self.ends[1] / self.ends[0]

    @property
    def label(self) -> int | None:
        """The same as the paper writes it into its figures.

        Its rule measures between points a hundredth inside of either end, which understates large factors.
        """
        if self.ends is None:
            return None
        least, most = self.ends
        return int((least + 0.99 * (most - least)) / (least + 0.01 * (most - least)))

    @property
    def expected(self) -> int | None:
        """Expected label."""
        return LABELS[self.table].get(self.k)


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """Figure 4 for one k: by noise, the epsilon for the exact top-k at 99.9 %."""

    k: int
    almost_sure: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Figure 2 for one k: by selection, probabilities over the exponent at epsilon 1."""

    k: int
    curves: Mapping[str, Curve]


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was computed; empty where a figure was not asked for."""

    comparisons: Sequence[Comparison]
    noises: Sequence[NoiseRow]
    sweeps: Sequence[Sweep]
    published: bool

    @property
    def claims(self) -> list[Claim]:
        """Claims of the paper to be found again."""
        return [
            *(claim for one in self.comparisons for claim in _label_claims(one)),
            *(claim for row in self.noises for claim in _noise_claims(row, published=self.published)),
            *(claim for sweep in self.sweeps for claim in _sweep_claims(sweep)),
        ]


def steps(figures: Sequence[int], data: Path | None) -> int:
    """Return the number of steps that `study` reports."""
    return len(list(_compared(figures, data))) + len(NOISE_KS) * (4 in figures) + len(KS) * (2 in figures)


def study(figures: Sequence[int], data: Path | None, runs: int, seed: int, progress: Callable[[int], object]) -> Study:
    """Compute some of Figures 1 to 10.

    Args:
        figures: their numbers.
        data: the folder of the authors' tables; None for tables made up by formula.
        runs: simulated selections behind every great or good share of the classical selections; the rest is exact.
        seed: of those.
        progress: told after every step.

    Raises:
        ConfigError: a table is missing, or is not the authors'.
    """
    rng = np.random.default_rng(seed)
    comparisons, noises, sweeps = [], [], []
    for name, k in _compared(figures, data):
        comparisons.append(compare(name, Profile.of(scores(name, data), k), runs, rng))
        progress(1)
    if 4 in figures:
        table = scores("netflix" if data else "netflix-like", data)
        for k in NOISE_KS:
            noises.append(_noise_row(Profile.of(table, k)))
            progress(1)
    if 2 in figures:
        for k in KS:
            sweeps.append(_sweep(k, runs, rng))
            progress(1)
    return Study(comparisons, noises, sweeps, data is not None)


def scores(name: str, data: Path | None) -> FloatArray:
    """A table by its name."""
    makers = {
        "netflix-like": score_sets.netflix_like,
        "hyperbolic": score_sets.hyperbolic,
        "steeper": score_sets.steep_hyperbolic,
    }
    if name in makers:
        return makers[name]().astype(float)
    return score_sets.zipfian() if data is None else score_sets.published(data, name)


def _compared(figures: Sequence[int], data: Path | None) -> Iterator[tuple[str, int]]:
    wanted = {5 if figure == 1 else figure for figure in figures}
    for figure, name in (TABLES if data else MADE_UP).items():
        if figure in wanted:
            yield from ((name, k) for k in (KS[:2] if name in _HUGE else KS))


def compare(name: str, profile: Profile, runs: int, rng: np.random.Generator) -> Comparison:
    """Return the budget of each selection on a table, and the growth of its chances."""
    chances = {mechanism: _chance(profile, mechanism) for mechanism in (*WHOLE, *BY_ITEM)}
    critical, _ = critical_epsilon(profile, canonical.PAPER)
    even, almost_sure = (dict.fromkeys(chances) for _ in range(2))
    needed: list[dict[str, float | None]] = [even, almost_sure]
    if not profile.tied:
        for mechanism, chance in chances.items():
            guess = critical
            for found, target in zip(needed, (EVEN, ALMOST_SURE), strict=True):
                found[mechanism] = epsilon_at(target, chance, guess)
                guess = found[mechanism] or guess
    most = max((value for value in needed[1].values() if value is not None), default=100 * critical)
    at = np.geomspace(critical / 4, 1.5 * most, CURVE_POINTS)
    curves = {mechanism: _curve(profile, mechanism, at, runs, rng) for mechanism in chances}
    return Comparison(name, profile.k, needed[0], needed[1], critical, curves)


def _chance(profile: Profile, name: str) -> Callable[[float], float]:
    if name in WHOLE:
        return lambda epsilon: class_law(profile, WHOLE[name], epsilon).top
    return lambda epsilon: one_shot.top(profile, BY_ITEM[name], epsilon)


def _curve(profile: Profile, name: str, at: FloatArray, runs: int, rng: np.random.Generator) -> Curve:
    if name in WHOLE:
        laws = (class_law(profile, WHOLE[name], epsilon) for epsilon in at.tolist())
        top, great, good = np.array([(law.top, law.great, law.good) for law in laws]).T
        return Curve(at, top, great, good)
    simulated = one_shot.simulate(profile, BY_ITEM[name], at.tolist(), runs, rng)
    exact = np.array([one_shot.top(profile, BY_ITEM[name], epsilon) for epsilon in at.tolist()])
    return Curve(at, exact, simulated.great, simulated.good)


def _noise_row(profile: Profile) -> NoiseRow:
    almost_sure = {}
    for name, noise in NOISES.items():

        def chance(epsilon: float, noise: Noise = noise) -> float:
            return one_shot.top(profile, noise, epsilon)

        almost_sure[name] = epsilon_at(ALMOST_SURE, chance, profile.k**2 / 1000) or float("inf")
    return NoiseRow(profile.k, almost_sure)


def _sweep(k: int, runs: int, rng: np.random.Generator) -> Sweep:
    points: dict[str, list[Curve]] = {name: [] for name in (*WHOLE, *BY_ITEM)}
    for exponent in EXPONENTS:
        profile = Profile.of(score_sets.zipfian(exponent), k)
        for name, found in points.items():
            found.append(_curve(profile, name, np.ones(1), runs, rng))
    return Sweep(k, {name: _joined(found) for name, found in points.items()})


def _joined(points: Sequence[Curve]) -> Curve:
    top, great, good = (np.concatenate([getattr(point, part) for point in points]) for part in ("top", "great", "good"))
    return Curve(np.array(EXPONENTS), top, great, good)


def _label_claims(one: Comparison) -> Iterator[Claim]:
    if one.label is None or one.expected is None:
        return
    slack = 2 if one.k == KS[-1] else 1
    text = f"{one.table}, k = {one.k}: a budget {one.expected} times smaller is enough (±{slack}), found {one.label}"
    yield Claim(text, abs(one.label - one.expected) <= slack)
    if (one.table, one.k) == ("netflix", KS[-1]) and one.ends is not None:
        yield Claim(
            f"netflix: the exact top-{one.k} almost certainly by ε = 1, found {one.ends[0]:.3g}", one.ends[0] <= 1
        )


def _noise_claims(row: NoiseRow, *, published: bool) -> Iterator[Claim]:
    ordered = list(row.almost_sure.values())
    names = " < ".join(row.almost_sure)
    yield Claim(f"noises in order of the budget they need, k = {row.k}: {names}", ordered == sorted(ordered))
    if published:
        before = NOISE_EPSILONS[row.k]
        widest = max(abs(value / before[name] - 1) for name, value in row.almost_sure.items())
        text = f"noises, k = {row.k}: within ±{_NOISE_TOLERANCE:.1%} of what was computed before, found {widest:.2%}"
        yield Claim(text, widest <= _NOISE_TOLERANCE)


def _sweep_claims(sweep: Sweep) -> Iterator[Claim]:
    if sweep.k != KS[0]:
        return
    steep = np.array(EXPONENTS) >= _STEEP_ENOUGH
    least = min(float(curve.top[steep].min()) for curve in sweep.curves.values())
    text = (
        f"Zipf, s from {_STEEP_ENOUGH:g}, ε = 1: all are the exact top-{sweep.k} at 99.9 %, found {least:.2%} or more"
    )
    yield Claim(text, least >= ALMOST_SURE)
