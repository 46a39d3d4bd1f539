"""Whole clocks and remainders: the listed thresholds, every doubt settled by more bits, and their laws in bulk."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest

from stream_dp.errors import StateError
from stream_dp.exact.aes import UniformWords
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.coins import bernoulli_exp, geometric_exp
from stream_dp.exact.reals import exp_neg
from stream_dp.select import exponential
from stream_dp.select.exponential import (
    UNIT_CLOCK,
    Randomness,
    enclosed_powers,
    powers_of_e,
    raised,
    remainders,
    shuffled,
)
from tests.support.chance import pooled_p_value
from tests.support.gap_oracle import QuickBits
from tests.support.tapes import RecordedBits

FALSE_ALARM = 1e-6
"""Of each test of fit; the samples are fixed."""


def bits(name: str) -> KeyedBits:
    return KeyedBits(b"clocks", name.encode())


def test_the_thresholds_are_the_listed_ones(vectors: dict[str, Any]) -> None:
    for precision, name in ((64, "T64"), (128, "T128")):
        for v, threshold in vectors["exp_thresholds"][name].items():
            lower, upper = powers_of_e(int(v), precision)
            exact = int(threshold, 16)
            assert lower <= exact < upper
            assert upper - lower <= 2


def test_a_word_at_a_threshold_is_settled_by_the_next_as_listed(vectors: dict[str, Any]) -> None:
    cases = vectors["exp_thresholds"]["boundary_cases"]
    assert len(cases) == 6
    for case in cases:
        more = int(case["word1"], 16).to_bytes(8) if "word1" in case else b""
        assert UNIT_CLOCK.resolve(int(case["word0"], 16), 64, RecordedBits(more)) == case["V"]


def test_a_doubt_is_never_settled_by_rounding() -> None:
    threshold = powers_of_e(1, 64)[0]
    with pytest.raises(StateError, match="bits left"):
        UNIT_CLOCK.resolve(threshold, 64, RecordedBits(b""))


def test_every_first_word_is_certain_of_its_clock_or_left_in_doubt() -> None:
    doubtful = 0
    bounds = [powers_of_e(v, 64) for v in range(40)]
    for word, clock in enumerate(UNIT_CLOCK._of_word.tolist()):
        least, most = word << 48, (word + 1 << 48) - 1
        if clock == exponential._DOUBT:
            doubtful += 1
            continue
        assert most < bounds[clock][0]  # U < e^-clock
        assert least >= bounds[clock + 1][1]  # and not below the next
    assert 0 < doubtful < 40


def test_clocks_have_no_largest_value() -> None:
    assert UNIT_CLOCK.resolve(0, 16, RecordedBits(bytes(160) + b"\xff" * 200)) > 800


class Scripted(UniformWords):
    """Words that are given."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def draw(self, size: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        taken, self._words = self._words[:size], self._words[size:]
        return np.array(taken, np.uint64)


def test_words_in_doubt_go_on_with_bits_and_the_others_do_not() -> None:
    edge = powers_of_e(1, 16)[0]
    four = edge | edge + 1 << 16 | 0 << 32 | edge - 1 << 48
    drawn, rest = UNIT_CLOCK.draw(4, Scripted([four]), RecordedBits(b"\x00" * 8 + b"\x80" * 8))
    assert drawn.tolist() == [0, 0, 0, 1]
    assert rest[0] == 1  # U = edge, then zeros: below e^-1
    assert rest[2] == UNIT_CLOCK.resolve(0x8080808080808080, 80, RecordedBits(b""))


def test_a_clock_beyond_64_bits_is_added_exactly() -> None:
    randomness = Randomness(bits("far"))
    randomness.words = Scripted([0])
    randomness.bits = RecordedBits(bytes(200) + b"\x01" + b"\xff" * 200)
    t = 1 << 50
    (value,) = raised(np.array([5]), t, randomness).tolist()
    assert (value - 5) % t == 0
    assert (value - 5) // t > 1024
    assert value > 1 << 60


@pytest.mark.statistical
def test_whole_clocks_have_their_law_in_bulk() -> None:
    """False alarm: 1e-6."""
    source = bits("bulk")
    drawn, rest = UNIT_CLOCK.draw(3_000_000, UniformWords(source), QuickBits(source))
    drawn[list(rest)] = list(rest.values())
    found = dict(enumerate(np.bincount(drawn).tolist()))
    assert pooled_p_value(found, {v: exp(-v) * (1 - exp(-1)) for v in range(15)}) > FALSE_ALARM
    assert 200 < len(rest) < 1500


def test_the_polynomial_encloses_the_exponential() -> None:
    rng = np.random.default_rng(1)
    for t in (1, 2, 3, 7, 1000, 16_000, (1 << 31) - 1, 1 << 31):
        ends = [0, t - 1, t // 2]
        u = np.array([*ends, *rng.integers(0, t, 200).tolist()], np.uint64)
        for value, lower, upper in zip(u.tolist(), *(bound.tolist() for bound in enclosed_powers(u, t)), strict=True):
            least, most = exp_neg(Fraction(value, t), 80)
            assert lower << 47 <= least <= most <= upper << 47
            assert upper - lower <= 1 << 16


@pytest.mark.statistical
@pytest.mark.parametrize("t", [1, 2, 7, 20, 1000])
def test_remainders_have_their_law(t: int) -> None:
    """False alarm: 1e-6 each."""
    source = bits(f"remainders {t}")
    drawn = remainders(200_000, t, UniformWords(source), source)
    assert drawn.min() >= 0
    total = sum(exp(-u / t) for u in range(t))
    found = dict(enumerate(np.bincount(drawn).tolist()))
    if t == 1:
        assert found == {0: 200_000}
        return
    assert pooled_p_value(found, {u: exp(-u / t) / total for u in range(t)}) > FALSE_ALARM


@pytest.mark.statistical
def test_remainders_of_a_large_mean_have_the_law_in_classes() -> None:
    """Beyond what words hold, too. False alarm: 1e-6 each."""
    for t, size in ((1 << 31, 100_000), ((1 << 31) + 1, 5000), (10**30, 5000)):
        source = bits(f"large {t}")
        drawn = remainders(size, t, UniformWords(source), QuickBits(source))
        found = Counter(int(u) * 16 // t for u in drawn.tolist())
        cells = {c: (exp(-c / 16) - exp(-(c + 1) / 16)) / (1 - exp(-1)) for c in range(16)}
        assert pooled_p_value(found, cells) > FALSE_ALARM


def test_coins_that_the_polynomial_leaves_in_doubt_are_tossed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exponential, "_EXP_ERROR", 1 << 29)  # in doubt every second time
    source = bits("doubt")
    drawn = remainders(20_000, 7, UniformWords(source), QuickBits(source))
    total = sum(exp(-u / 7) for u in range(7))
    assert pooled_p_value(dict(enumerate(np.bincount(drawn).tolist())), {u: exp(-u / 7) / total for u in range(7)}) > (
        FALSE_ALARM
    )


@pytest.mark.statistical
@pytest.mark.parametrize("t", [20, 1000])
def test_clocks_and_remainders_together_are_geometric_and_a_percent_more_is_flagged(t: int) -> None:
    """False alarm: 1e-6."""
    source = bits(f"together {t}")
    randomness, size = Randomness(source), 1_000_000
    noise = raised(np.zeros(size, np.int64), t, randomness) + remainders(size, t, randomness.words, source)
    step = max(t // 20, 1)
    found = dict(enumerate(np.bincount(noise // step).tolist()))
    cells = {c: exp(-c * step / t) * (1 - exp(-step / t)) for c in range(300)}
    assert pooled_p_value(found, cells) > FALSE_ALARM
    wider = {c: exp(-c * step / (1.01 * t)) * (1 - exp(-step / (1.01 * t))) for c in range(300)}
    assert pooled_p_value(found, wider) < FALSE_ALARM


@pytest.mark.statistical
def test_geometric_numbers_of_the_coins_fit_the_listed_laws(vectors: dict[str, Any]) -> None:
    """False alarm: 1e-6 each. The scalar sampler of the same clock."""
    for name, listed in vectors["primitives"]["geometric_pmf"].items():
        if name == "s=1,t=16000":
            continue
        s, t = (int(part[2:]) for part in name.split(","))
        source = QuickBits(bits(name))
        found = Counter(geometric_exp(Fraction(s, t), source) for _ in range(4000))
        law = {m: float(chance) for m, chance in enumerate(listed)}
        assert pooled_p_value(found, law) > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("size", [6_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_coins_of_a_power_of_e_fall_as_listed_within_six_deviations(vectors: dict[str, Any], size: int) -> None:
    """False alarm: 2e-9 for each of the nine."""
    for name, listed in vectors["primitives"]["bernoulli_exp"].items():
        x, chance = Fraction(name), float(listed)
        source = QuickBits(bits(name))
        found = sum(bernoulli_exp(x, source) for _ in range(size // 2))
        assert abs(found - size // 2 * chance) <= 6 * (size / 2 * chance * (1 - chance)) ** 0.5 + 1e-9


@pytest.mark.statistical
def test_a_shuffle_has_all_orders_alike_and_draws_anew_where_words_are_equal() -> None:
    """False alarm: 1e-6."""
    words = UniformWords(bits("shuffle"))
    found = Counter(tuple(shuffled(4, words).tolist()) for _ in range(4000))
    assert len(found) == 24
    assert pooled_p_value(found, dict.fromkeys(found, 1 / 24)) > FALSE_ALARM
    assert shuffled(3, Scripted([7, 9, 7, 5, 4, 6])).tolist() == [1, 0, 2]
    assert shuffled(0, words).tolist() == []


def test_words_are_never_handed_out_twice() -> None:
    words = UniformWords(bits("words"))
    pieces = np.concatenate([words.draw(size) for size in (1, 2, 5, 1000, 3)])
    assert len(np.unique(pieces)) == len(pieces) == 1011
