"""Vector D07 on the shipped code: what every coalition of readers learns, from enumerated randomness.

Levels are 3/8, 1/4 and 1/8. `seal` and every step of `laplace_excess` are run on all uniform numbers to 16 bits. What
longer ones would add is known exactly, and every statement below carries it. The same check rejects noise that is drawn
independently per level, from words of three bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.errors import StateError
from stream_dp.lossless import bulk, sealed
from stream_dp.lossless.levels import noise_parameter
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import bridge_pmf
from tests.support.tapes import RecordedBits
from tests.support.threshold_process import clocks

WORDS = [word << 61 for word in range(8)]
COARSE, MID, FINE = LEVELS = (3 << 61, 2 << 61, 1 << 61)
A_COARSE, A_MID, A_FINE = map(noise_parameter, LEVELS)
SUBSETS = [subset for size in (1, 2, 3) for subset in combinations(range(3), size)]

Outcome = tuple[int, ...]


@dataclass
class Law:
    """Exact probabilities as far as the streams decide them, and the mass that they leave open."""

    decided: dict[Outcome, Fraction]
    missing: Fraction

    def marginal(self, subset: tuple[int, ...], shift: int) -> dict[Outcome, Fraction]:
        """Law of the readings of a set of levels when the count is `shift`."""
        law: dict[Outcome, Fraction] = {}
        for outcome, probability in self.decided.items():
            held = tuple(outcome[level] + shift for level in subset)
            law[held] = law.get(held, Fraction(0)) + probability
        return law

    def plus(self, other: Law, combine: Callable[[Outcome, Outcome], Outcome]) -> Law:
        """Law of a function of two independent outcomes."""
        law: dict[Outcome, Fraction] = {}
        for (x, p), (y, q) in product(self.decided.items(), other.decided.items()):
            outcome = combine(x, y)
            law[outcome] = law.get(outcome, Fraction(0)) + p * q
        return Law(law, 1 - (1 - self.missing) * (1 - other.missing))


def enumerated(run: Callable[[tuple[int, ...]], Outcome], longest: int) -> Law:
    """Run on every stream of three-bit words that decides the outcome within `longest` words."""
    law: dict[Outcome, Fraction] = {}
    missing = Fraction(0)
    open_streams: list[tuple[int, ...]] = [()]
    while open_streams:
        stream = open_streams.pop()
        mass = Fraction(1, 8 ** len(stream))
        try:
            outcome = run(stream)
        except StateError:
            if len(stream) == longest:
                missing += mass
            else:
                open_streams.extend((*stream, word) for word in WORDS)
        else:
            law[outcome] = law.get(outcome, Fraction(0)) + mass
    return Law(law, missing)


class EveryNumber:
    """Uniform numbers: for plus each 16 bits but the smallest, all their other bits alike; minus has the largest."""

    def __init__(self, bit: int) -> None:
        self._bit = bit

    def leads(self, first: int, size: int) -> NDArray[np.uint16]:
        part, index = divmod(first, 1 << 40)
        return (np.full(size, 0xFFFF) if part else np.arange(index + 1, index + 1 + size)).astype(np.uint16)

    def rests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        return np.full(len(numbers), self._bit * (2**48 - 1), np.uint64)

    def prefix(self, number: int, bits: int) -> int:
        assert number < 1 << 40, "those of minus are decided by 16 bits"
        return (number + 1) << bits - 16 | self._bit * ((1 << bits - 16) - 1)


def over_every_number(monkeypatch: pytest.MonkeyPatch, run: Callable[[], NDArray[np.int64]]) -> Law:
    """The law of what comes of a number, where both ends of what begins with its 16 bits agree: all between do."""
    ends = []
    for bit in (0, 1):
        monkeypatch.setattr(bulk, "Uniforms", lambda _, bit=bit: EveryNumber(bit))
        ends.append(run().tolist())
    decided = Counter(low for low, high in zip(*ends, strict=True) if low == high)
    return Law({(z,): Fraction(n, 1 << 16) for z, n in decided.items()}, 1 - Fraction(decided.total(), 1 << 16))


def noise_law(monkeypatch: pytest.MonkeyPatch, level: int) -> Law:
    """Of the noise that is drawn at a level, from the law of each side while the other one is zero."""
    half = over_every_number(monkeypatch, lambda: bulk.bulk_noise(level, 0xFFFF, RecordedBits(bytes(32))))
    return half.plus(half, lambda plus, minus: (plus[0] - minus[0],))


def step_law(monkeypatch: pytest.MonkeyPatch, fine: int, coarse: int) -> Law:
    """Of a step: who moves is told by noise of 1, then the noise of those is that of the coarser level."""
    noise = noise_law(monkeypatch, coarse)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "bulk_noise", lambda level, size, _: np.full(size, int(level == coarse)))
        moves = over_every_number(monkeypatch, lambda: bulk.bulk_step(fine, coarse, 0xFFFF, RecordedBits(bytes(32))))
    return moves.plus(noise, lambda move, z: (move[0] * z[0],))


def excess_law(monkeypatch: pytest.MonkeyPatch) -> Law:
    """Of what `laplace_excess` adds, from all steps that may come, which are drawn independently."""
    pairs = (FINE, MID), (MID, COARSE)
    laws = [step_law(monkeypatch, *pair) for pair in pairs]
    paths = [*product(*(law.decided.items() for law in laws))]
    drawn = {pair: np.array([path[at][0][0] for path in paths]) for at, pair in enumerate(pairs)}
    monkeypatch.setattr(sealed, "bulk_step", lambda fine, coarse, *_: drawn[fine, coarse])
    law: dict[Outcome, Fraction] = {}
    for path, (coarse, mid) in zip(
        paths, sealed.laplace_excess(LEVELS, len(paths), RecordedBits(b"")).tolist(), strict=True
    ):
        law[coarse, mid, 0] = law.get((coarse, mid, 0), Fraction(0)) + path[0][1] * path[1][1]
    return Law(law, 1 - sum(law.values(), Fraction(0)))


@pytest.fixture(scope="module")
def shipped() -> Law:
    """Joint law of the three readings of a count of zero: fresh fine noise, and what the others have beyond it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        fine, excess = noise_law(monkeypatch, FINE), excess_law(monkeypatch)
    return fine.plus(excess, lambda fine, levels: tuple(fine[0] + level for level in levels))


@pytest.fixture(scope="module")
def independent() -> Law:
    """Negative control: every level has noise of its own."""

    def noise(level: int) -> Law:
        side = enumerated(lambda stream: clocks(stream, (level,)), 8)
        return side.plus(side, lambda plus, minus: (plus[0] - minus[0],))

    coarse, mid, fine = map(noise, LEVELS)
    return coarse.plus(mid, lambda x, y: x + y).plus(fine, lambda x, y: x + y)


def closed_form(outcome: Outcome) -> Fraction:
    coarse, mid, fine = outcome
    bridges = bridge_pmf(A_FINE, A_MID, mid - fine) * bridge_pmf(A_MID, A_COARSE, coarse - mid)
    return pmf(A_FINE, fine) * bridges


def proven_ratio(law: Law, subset: tuple[int, ...]) -> Fraction:
    """The largest likelihood ratio between counts 0 and 1 that the decided mass proves, whatever the rest does."""
    zero, one = law.marginal(subset, 0), law.marginal(subset, 1)
    return max(
        p / (against.get(outcome, Fraction(0)) + law.missing)
        for this, against in ((zero, one), (one, zero))
        for outcome, p in this.items()
    )


def test_the_enumeration_leaves_little_open(shipped: Law, independent: Law) -> None:
    assert 0 < shipped.missing < Fraction(1, 1000)
    assert sum(shipped.decided.values()) == 1 - shipped.missing
    assert 0 < independent.missing < Fraction(1, 1000)


def test_the_three_readings_have_the_joint_law_of_noise_and_bridges(shipped: Law) -> None:
    """Every probability lies between the decided mass and that plus what is open; so does the sum of all."""
    box = set(shipped.decided) | set(product(range(-4, 5), repeat=3))
    for outcome in box:
        found = shipped.decided.get(outcome, Fraction(0))
        assert found <= closed_form(outcome) <= found + shipped.missing
    assert sum(map(closed_form, shipped.decided)) - sum(shipped.decided.values()) <= shipped.missing


@pytest.mark.parametrize("subset", SUBSETS)
def test_a_set_of_levels_tells_as_much_as_its_finest(shipped: Law, subset: tuple[int, ...]) -> None:
    """The worst ratio is 1 / a of the finest level held: never proven above it, and proven to within 2 %."""
    worst = 1 / noise_parameter(LEVELS[max(subset)])

    assert worst * Fraction(98, 100) < proven_ratio(shipped, subset) <= worst


@pytest.mark.parametrize("subset", [subset for subset in SUBSETS if len(subset) > 1])
def test_the_same_check_rejects_independent_noise_per_level(independent: Law, subset: tuple[int, ...]) -> None:
    assert proven_ratio(independent, subset) > 1 / noise_parameter(LEVELS[max(subset)])


def test_vector_d07_worst_ratios_in_closed_form(vector: Callable[[str], Any]) -> None:
    d07 = vector("D07")
    parameters = {name[2]: Fraction(a) for name, a in d07["inputs"].items()}  # a_coarse, a_mid, a_fine
    for names, expected in d07["expected"]["by_subset"].items():
        fine_first = sorted(parameters[name] for name in names)
        joint: list[Fraction] = []
        separate: list[Fraction] = []
        for readings in product(range(-3, 5), repeat=len(names)):
            zero, one = (lossless(fine_first, [y - count for y in readings]) for count in (0, 1))
            joint += [zero / one, one / zero]
            zero, one = (by_itself(fine_first, [y - count for y in readings]) for count in (0, 1))
            separate += [zero / one, one / zero]
        assert max(joint) == Fraction(expected["lossless_max_ratio"])
        assert max(separate) == Fraction(expected["independent_max_ratio"])


def lossless(fine_first: list[Fraction], noise: list[int]) -> Fraction:
    probability = pmf(fine_first[0], noise[0])
    for i in range(1, len(noise)):
        probability *= bridge_pmf(fine_first[i - 1], fine_first[i], noise[i] - noise[i - 1])
    return probability


def by_itself(fine_first: list[Fraction], noise: list[int]) -> Fraction:
    probability = Fraction(1)
    for a, z in zip(fine_first, noise, strict=True):
        probability *= pmf(a, z)
    return probability
