"""Vector D07 on the shipped code: what every coalition of readers learns, from enumerated randomness.

Levels are 3/8, 1/4 and 1/8. Words of the coarser levels are three bits long (64-bit words whose other bits are zero),
and all streams of them up to a length are enumerated through `read_levels`; `seal` is run on all uniform numbers to 16
bits. What longer ones would add is known exactly, and every statement below carries it. The same check rejects noise
that is drawn independently per level.
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
from stream_dp.exact.aes import Blocks
from stream_dp.lossless import bulk as bulk_noise
from stream_dp.lossless import sealed
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


class EveryLead:
    """Uniform numbers for `bulk_noise`: for plus all but the smallest, to 16 bits; minus has the largest throughout."""

    def __init__(self, key: bytes) -> None:
        pass

    def leads(self, first: int, size: int) -> NDArray[np.uint16]:
        part, index = divmod(first, 1 << 40)
        leads = np.full(size, 0xFFFF) if part else np.arange(index + 1, index + 1 + size)
        return leads.astype(np.uint16)

    def rests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        raise AssertionError("at level 1/8 the top 16 bits decide everything but the smallest")


def sealed_law(monkeypatch: pytest.MonkeyPatch) -> Law:
    """Noise of `seal` at the fine level from plus, over all uniform numbers to 16 bits, minus being zero."""
    monkeypatch.setattr(bulk_noise, "Uniforms", EveryLead)
    keys = (i.to_bytes(2, "big") for i in range(0xFFFF))
    drawn = Counter(sealed.seal(dict.fromkeys(keys, 0), FINE, RecordedBits(bytes(32))).values())
    return Law({(z,): Fraction(n, 1 << 16) for z, n in drawn.items()}, Fraction(1, 1 << 16))


LONGEST = 8


class EveryStream:
    """Words for `excess`: one side of key i has the i-th stream, followed by words that stop every clock."""

    def __init__(self, streams: list[tuple[int, ...]], side: int) -> None:
        self._leads = np.full((len(streams), 2, LONGEST), 0xFFFF, np.uint16)
        for row, stream in enumerate(streams):
            self._leads[row, side, : len(stream)] = [word >> 48 for word in stream]

    def __call__(self, key: bytes, *fields: bytes) -> EveryStream:
        return self

    def addresses(self, items: list[bytes]) -> Blocks:
        return np.array([[int.from_bytes(item), 0] for item in items], np.uint64)

    def leads(self, addresses: Blocks, block: int | NDArray[np.uint64]) -> NDArray[np.uint16]:
        first = 4 * np.asarray(block, np.int64) + np.zeros(len(addresses), np.int64)
        words = first[:, None] + np.arange(4)
        found = self._leads[addresses[:, 0, None, None], np.arange(2)[:, None], np.minimum(words, LONGEST - 1)[:, None]]
        return np.where(words[:, None] < LONGEST, found, np.uint16(0xFFFF)).reshape(-1, 8)

    def rests(self, addresses: Blocks, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        raise AssertionError("levels of three bits are decided by the leads")


def excess_law(monkeypatch: pytest.MonkeyPatch, enumerated_side: int) -> Law:
    """Excess of `read_levels` over the finest level from one side, the other one's clocks all being zero."""
    streams = [
        (*below, last)
        for length in range(LONGEST)
        for below in product([word for word in WORDS if word < COARSE], repeat=length)
        for last in WORDS
        if last >= COARSE
    ]
    monkeypatch.setattr(sealed, "AddressedWords", EveryStream(streams, enumerated_side))
    columns = sealed.read_levels(
        {i.to_bytes(2): 0 for i in range(len(streams))},
        sealed.WindowNoise(b"w", bytes(32)),
        bytes(32),
        thresholds=LEVELS,
        finest=FINE,
    )
    law: dict[Outcome, Fraction] = {}
    for stream, outcome in zip(streams, zip(*columns, strict=True), strict=True):
        law[outcome] = law.get(outcome, Fraction(0)) + Fraction(1, 8 ** len(stream))
    return Law(law, A_COARSE**LONGEST)


@pytest.fixture(scope="module")
def shipped() -> Law:
    """Joint law of the three readings of a count of zero: fresh fine noise, and the excess of either side."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        plus, minus = (excess_law(monkeypatch, side) for side in (0, 1))
        half = sealed_law(monkeypatch)

    def added(x: Outcome, y: Outcome) -> Outcome:
        return tuple(a + b for a, b in zip(x, y, strict=True))

    fine = half.plus(half, lambda x, y: (x[0] - y[0],))
    return fine.plus(plus.plus(minus, added), lambda fine, levels: tuple(fine[0] + level for level in levels))


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
