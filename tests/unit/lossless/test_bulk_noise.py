"""Noise in bulk: the exact law from all numbers to 16 bits, and what the bulk path draws against the reference."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless import bulk as module
from stream_dp.lossless.bulk import COARSEST, Uniforms, bulk_noise, bulk_step, staircases
from stream_dp.lossless.discrete_laplace import bridge_atom
from stream_dp.lossless.levels import WORD, noise_parameter, threshold_for
from tests.support.chosen import ordinarily
from tests.support.tapes import RecordedBits

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors" / "lmr4.json").read_text())
EPSILONS = [
    Fraction(epsilon) for epsilon in ("20", "5", "2", "1", "1/2", "1/10", "1/31", "1/50", "1/1000", "1/1000000")
]
LEVELS = st.one_of(
    st.integers(1, COARSEST),
    st.sampled_from([threshold_for(epsilon) for epsilon in EPSILONS]),
    st.integers(16, 63).map(lambda shift: WORD - (1 << shift)),
    st.integers(0, 63).map(lambda shift: 1 << shift),
)


class Chosen:
    """Uniform numbers as given, to 192 bits."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers
        self.prefixes = 0

    def leads(self, first: int, size: int) -> NDArray[np.uint16]:
        return np.array([u >> 176 for u in self._numbers[first : first + size]], np.uint16)

    def rests(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        return np.array([self._numbers[number] >> 128 & (1 << 48) - 1 for number in numbers], np.uint64)

    def prefix(self, number: int, bits: int) -> int:
        self.prefixes += 1
        return self._numbers[number] >> 192 - bits


def odds(level: int) -> list[Fraction]:
    """The only step of each of the first binary digits, exactly."""
    powers = [noise_parameter(level) ** (1 << place) for place in range(min(len(staircases(level)) - 1, 6))]
    return [Fraction(x, 1 + x) for x in powers]


@pytest.mark.parametrize(
    "level", ordinarily(2, [1 << 60, 17 << 59, 1 << 48, 1 << 63, 3 << 62, threshold_for(Fraction(1, 10))])
)
def test_the_table_decides_what_the_top_sixteen_bits_decide_and_nothing_else(level: int) -> None:
    """Exact: of every cell of the 65536, both ends are judged by rational comparison with every power of a."""
    (stair,) = staircases(level)
    a = noise_parameter(level)
    power, cell, expected = a, 0xFFFF, {}
    above = 0
    while cell >= 0:  # numbers from the largest down, powers of a as they come into reach
        low, high = Fraction(cell, 1 << 16), Fraction(cell + 1, 1 << 16)
        while power >= high:
            above, power = above + 1, power * a
        expected[cell] = above if power <= low else -1
        if expected[cell] == -1 and cell == 0:
            break
        cell -= 1

    assert {cell: int(count) for cell, count in enumerate(stair._table.tolist())} == expected


@pytest.mark.parametrize("level", [1 << 60, 1 << 63, threshold_for(Fraction(1, 2)), threshold_for(Fraction(2))])
def test_the_law_over_all_numbers_to_sixteen_bits_lies_within_what_they_leave_open(level: int) -> None:
    (stair,) = staircases(level)
    decided = Counter(stair._table.tolist())
    missing = Fraction(decided.pop(-1), 1 << 16)
    a = noise_parameter(level)

    assert missing < Fraction(30, 1 << 16)
    for k, cells in decided.items():
        assert Fraction(cells, 1 << 16) <= (1 - a) * a**k <= Fraction(cells, 1 << 16) + missing
    assert sum(((1 - a) * a**k - Fraction(cells, 1 << 16) for k, cells in decided.items()), Fraction(0)) <= missing


@pytest.mark.parametrize("epsilon", EPSILONS[1:7])
def test_a_number_just_below_a_step_counts_it_and_one_just_above_does_not(epsilon: Fraction) -> None:
    level = threshold_for(epsilon)
    stair = staircases(level)[-1]
    first = len(staircases(level)) - 1
    a = noise_parameter(level) ** (1 << first)
    steps = [1, 2, 3, 10, 20]
    numbers, expected = [], []
    for k in steps:
        floor = int(a**k * (1 << 192))  # a^k has more bits than that: it lies strictly between
        for far in (1, 1 << 127, 1 << 150):
            if far < floor >> 8:
                numbers += [floor - far, floor + far]
                expected += [k, k - 1]
    chosen = Chosen(numbers)

    assert stair.counts_above(chosen, 0, len(numbers)).tolist() == expected
    assert chosen.prefixes > 0
    assert [stair.count_above(chosen, i) for i in range(len(numbers))] == expected


def test_dyadic_steps_are_met_exactly() -> None:
    """At a = 1/2 the steps are 1/2, 1/4, ...; a number that equals one does not lie below it."""
    (stair,) = staircases(1 << 63)
    tops = [192 - k for k in (1, 2, 15, 16, 17, 63, 64, 65, 100)]
    numbers = [u for top in tops for u in (1 << top, (1 << top) - 1, (1 << top) + 1)]
    chosen = Chosen(numbers)

    found = stair.counts_above(chosen, 0, len(numbers)).tolist()

    assert found == [k for top in tops for k in (191 - top, 192 - top, 191 - top)]


def test_the_digits_have_the_odds_that_make_the_number_geometric() -> None:
    """P(G = g) = (1 - a) a^g for every g below 2^digits times a few, from the odds of digits and rest: exact."""
    for epsilon in EPSILONS[6:9]:
        level = threshold_for(epsilon)
        a, digits = noise_parameter(level), len(staircases(level)) - 1
        b = a ** (1 << digits)
        for g in (0, 1, 2, 3, (1 << digits) - 1, 1 << digits, (5 << digits) + 1):
            probability = (1 - b) * b ** (g >> digits)
            for place, p in enumerate(odds(level)):
                probability *= p if g >> place & 1 else 1 - p
            assert probability == (1 - a) * a**g


@pytest.mark.parametrize("epsilon", EPSILONS[7:])
def test_the_step_of_a_digit_is_enclosed(epsilon: Fraction) -> None:
    level = threshold_for(epsilon)
    for place, odd in enumerate(odds(level)):
        for precision in (64, 128, 256):
            lower, upper = module._odds(level, 1 << place, precision)
            assert Fraction(lower, 1 << precision) <= odd <= Fraction(upper, 1 << precision)
            assert upper - lower <= 3


@given(level=st.integers(1, WORD - 1), exponent=st.integers(1, 60), precision=st.sampled_from([64, 128, 192]))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_a_power_is_enclosed_closely(level: int, exponent: int, precision: int) -> None:
    lower, upper = module._power(level, exponent, precision)
    true = noise_parameter(level) ** exponent

    assert Fraction(lower, 1 << precision) <= true <= Fraction(upper, 1 << precision)
    assert upper - lower <= 2


def noise_at(threshold: int, index: int, uniforms: Uniforms) -> int:
    """What `bulk_noise` draws at a place from these uniform numbers, one whole number at a time."""
    noise = 0
    for place, stair in enumerate(staircases(threshold)):
        plus, minus = (stair.count_above(uniforms, (2 * place + side << 40) + index) for side in (0, 1))
        noise += plus - minus << place
    return noise


@given(level=LEVELS, tape=st.binary(min_size=32, max_size=32), places=st.lists(st.integers(0, 2999), max_size=4))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_noise_in_bulk_is_that_of_the_reference(level: int, tape: bytes, places: list[int]) -> None:
    noise = bulk_noise(level, 3000, RecordedBits(tape))

    assert noise.dtype == np.int64
    for place in places:
        assert noise[place] == noise_at(level, place, Uniforms(tape))


@pytest.mark.parametrize("epsilon", ["1/10", "1/100"])
def test_noise_in_bulk_is_that_of_the_reference_where_the_leads_leave_a_doubt(epsilon: str) -> None:
    level = threshold_for(Fraction(epsilon))
    size, key = 4000, bytes(range(32))
    uniforms = Uniforms(key)
    doubts = {
        index
        for place, stair in enumerate(staircases(level))
        for side in (0, 1)
        for index in np.flatnonzero(stair._table.take(uniforms.leads((2 * place + side) << 40, size)) < 0).tolist()
    }
    noise = bulk_noise(level, size, RecordedBits(key))

    assert len(doubts) >= 10
    for index in doubts:
        assert noise[index] == noise_at(level, index, uniforms)


def test_the_draws_of_the_vectors_in_bulk_and_by_the_reference() -> None:
    indices, key = VECTORS["draw_indices"], bytes.fromhex(VECTORS["key_hex"])
    for draws in VECTORS["draws"]:
        noise = bulk_noise(draws["level"], max(indices) + 1, RecordedBits(key))
        assert noise[indices].tolist() == draws["noise"]
        assert [noise_at(draws["level"], index, Uniforms(key)) for index in indices[:3]] == draws["noise"][:3]


def test_a_shorter_draw_is_the_beginning_of_a_longer_one() -> None:
    level = threshold_for(Fraction(1, 40))
    longest = bulk_noise(level, 70_000, KeyedBits(b"key", b"draw"))

    for size in (0, 1, 7, 8, 9, 32_767, 32_768, 32_769, 65_537):
        assert (bulk_noise(level, size, KeyedBits(b"key", b"draw")) == longest[:size]).all()


def test_two_calls_on_one_source_draw_other_noise() -> None:
    bits = KeyedBits(b"key", b"draw")

    first, second = (bulk_noise(threshold_for(Fraction(1, 2)), 100, bits).tolist() for _ in range(2))

    assert first != second


def test_leads_rests_and_prefixes_are_bits_of_the_same_numbers() -> None:
    uniforms = Uniforms(bytes(32))
    numbers = np.arange(16, 41)
    leads, rests = uniforms.leads(16, 25).tolist(), uniforms.rests(numbers).tolist()

    for number, lead, rest in zip(numbers.tolist(), leads, rests, strict=True):
        assert uniforms.prefix(number, 64) == lead << 48 | rest
        assert uniforms.prefix(number, 256) >> 192 == lead << 48 | rest
        assert uniforms.prefix(number, 256) >> 64 == uniforms.prefix(number, 192)


@pytest.mark.parametrize("level", [0, WORD])
def test_noise_of_no_level_is_refused(level: int) -> None:
    with pytest.raises(ParameterError, match="a level must be"):
        bulk_noise(level, 1, RecordedBits(bytes(32)))


def test_noise_that_may_not_fit_is_refused() -> None:
    assert abs(bulk_noise(COARSEST, 100, RecordedBits(bytes(32)))).max() > 2**40
    for level in (COARSEST + 1, WORD - 1):
        with pytest.raises(ParameterError, match="does not fit 64 bits"):
            bulk_noise(level, 1, RecordedBits(bytes(32)))


# -- steps from level to level ----------------------------------------------------------------------------------------
def stays(fine: int, coarse: int) -> Fraction:
    return bridge_atom(noise_parameter(fine), noise_parameter(coarse))


def test_the_steps_of_the_vectors_are_drawn() -> None:
    tape = bytes.fromhex(VECTORS["key_hex"]) + bytes.fromhex(VECTORS["other_hex"])
    for step in VECTORS["steps"]:
        noise = bulk_step(step["fine"], step["coarse"], len(step["noise"]), RecordedBits(tape))
        assert noise.tolist() == step["noise"]
        assert 0 in step["noise"]


@given(levels=st.tuples(LEVELS, LEVELS), tape=st.binary(min_size=64, max_size=64))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_a_step_is_the_noise_of_the_coarser_level_for_those_whose_number_does_not_say_that_they_stay(
    levels: tuple[int, int], tape: bytes
) -> None:
    """Each number is compared with the chance by itself, in rationals."""
    fine, coarse = sorted(levels)
    numbers = [Fraction(Uniforms(tape[:32]).prefix(index, 640), 1 << 640) for index in range(200)]
    moved = [index for index, number in enumerate(numbers) if number >= stays(fine, coarse)]
    expected = np.zeros(200, np.int64)
    expected[moved] = bulk_noise(coarse, len(moved), RecordedBits(tape[32:]))

    assert bulk_step(fine, coarse, 200, RecordedBits(tape)).tolist() == expected.tolist()


@given(levels=st.tuples(LEVELS, LEVELS).filter(lambda pair: pair[0] != pair[1]))
@settings(derandomize=True, max_examples=40, deadline=None)
def test_a_number_just_below_the_chance_stays_and_one_just_above_does_not(levels: tuple[int, int]) -> None:
    fine, coarse = sorted(levels)
    chance = stays(fine, coarse)
    floor = int(chance * (1 << 192))
    numbers = [number for number in (floor - 1, floor + 1) if 0 <= number < 1 << 192]
    chosen = Chosen(numbers)

    found = module._staying(fine, coarse).counts_above(chosen, 0, len(numbers)).tolist()

    assert found == [int(Fraction(number, 1 << 192) < chance) for number in numbers]


def test_a_level_adds_nothing_to_itself_and_cannot_be_made_of_a_coarser_one() -> None:
    tape = bytes(range(64))

    assert not bulk_step(1 << 63, 1 << 63, 1000, RecordedBits(tape)).any()
    with pytest.raises(ParameterError, match="is not finer than"):
        bulk_step((1 << 63) + 1, 1 << 63, 1, RecordedBits(tape))
    with pytest.raises(ParameterError, match="a level must be"):
        bulk_step(1 << 63, WORD, 1, RecordedBits(tape))
    with pytest.raises(ParameterError, match="does not fit 64 bits"):
        bulk_step(1 << 63, COARSEST + 1, 1, RecordedBits(tape))
