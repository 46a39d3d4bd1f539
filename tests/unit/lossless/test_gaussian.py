"""Discrete Gaussian noise: exact tails, draws, and the law of sums."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless import gaussian as module
from stream_dp.lossless.gaussian import LARGEST_VARIANCE, GaussianSum, bulk_gaussian
from tests.support.chosen import ordinarily
from tests.support.gaussian_laws import pmf
from tests.unit.lossless.test_bulk_noise import Chosen

F = Fraction
PRECISION = 256
VARIANCES = [F(1, 10), F(1), F(7, 2), F(30), F(401)]
each = pytest.mark.parametrize("variance", ordinarily(2, VARIANCES), ids=str)


@cache
def law(variance: Fraction) -> list[Fraction]:
    """P(Z = k) for k = 0, 1, ... down to 2^-240, closer than 2^-200: each weight is an exponential by itself."""
    weights = [1 << PRECISION]
    while weights[-1] >> 16:
        weights.append(exp_neg(F(len(weights) ** 2, 2 * variance), PRECISION)[0])
    whole = 2 * sum(weights) - weights[0]
    return [F(weight, whole) for weight in weights]


def tails_of(variance: Fraction) -> list[Fraction]:
    """P(|Z| >= k) for k = 0, 1, ..., closely."""
    inside = law(variance)
    return [F(1), *(1 - one for one in accumulate([inside[0], *(2 * p for p in inside[1:])]))]


@each
def test_the_law_is_that_of_the_oracle(variance: Fraction) -> None:
    for k in (0, 1, 5):
        low, high = pmf(variance, k, 128)
        assert low - 1 <= law(variance)[k] * (1 << 128) <= high + 1


@each
@pytest.mark.parametrize("precision", [64, 192])
def test_tails_are_enclosed_to_the_last_bit_or_two(variance: Fraction, precision: int) -> None:
    lower, upper = module._tails(variance, precision)
    assert (lower[-1], upper[-1]) == (0, 1)
    tails, slack = tails_of(variance), F(len(lower), 1 << 200)
    for k, (low, up) in enumerate(zip(lower, upper, strict=True)):
        assert low <= (tails[k] + slack) * (1 << precision)
        assert (tails[k] - slack) * (1 << precision) <= up
        assert up - low <= 1


def numbers(bounds: Sequence[Fraction]) -> list[int]:
    """Numbers of 192 bits just below, at and just above each bound, those that share its first 16 or 64 bits too."""
    found = []
    for bound in bounds:
        at = int(bound * (1 << 192))
        found += [at - (1 << 130), at - 2, at + 2, at + (1 << 130), at - (1 << 180), at + (1 << 180)]
    return [one for one in found if 0 <= one < 1 << 192]


@each
def test_a_number_gives_the_magnitude_whose_tail_it_lies_in(variance: Fraction) -> None:
    bounds = tails_of(variance)[1 : min(40, len(module._tails(variance, 64)[0]) - 2)]
    chosen = Chosen(numbers(bounds))
    stairs = module._magnitudes(variance)
    found = stairs.counts_above(chosen, 0, len(chosen._numbers))
    for number, one in zip(chosen._numbers, found, strict=True):
        assert one == sum(F(number, 1 << 192) < bound for bound in bounds) or one >= len(bounds)
    assert chosen.prefixes, "numbers were among them that 64 bits do not tell"


def test_a_draw_is_a_magnitude_and_a_fair_sign() -> None:
    noise = bulk_gaussian(F(7, 2), 40_000, KeyedBits(b"sign", b"1"))
    assert abs(int((noise > 0).sum()) - int((noise < 0).sum())) < 6 * 200, "six standard deviations"
    assert bulk_gaussian(F(7, 2), 100, KeyedBits(b"sign", b"1")).tolist() == noise[:100].tolist()


def test_a_sign_has_bits_of_its_own() -> None:
    """Large noise comes from numbers that begin with 16 zeros. Of a million it is beyond 4 deviations 60 times."""
    noise = bulk_gaussian(F(10_000), 1 << 20, KeyedBits(b"sign", b"2"))
    large = noise[abs(noise) > 430]
    assert len(large) > 10
    assert 0.2 < (large > 0).mean() < 0.8


@pytest.mark.parametrize("variance", [F(0), F(-1), F(LARGEST_VARIANCE) + 1])
def test_a_variance_out_of_range_is_refused(variance: Fraction) -> None:
    with pytest.raises(ParameterError, match="must be above 0 and at most"):
        bulk_gaussian(variance, 1, KeyedBits(b"", b""))


# -- sums -----------------------------------------------------------------------------------------------------------


def exact_sum(parts: Sequence[Fraction]) -> dict[int, Fraction]:
    """The law of a sum, but for 2^-60."""
    found = {0: F(1)}
    for part in parts:
        reach = int(11 * float(part) ** 0.5) + 3
        one = [F(int(p * (1 << 90)), 1 << 90) for p in law(part)[: reach + 1]]
        moved: dict[int, Fraction] = {}
        for z, p in found.items():
            for k in range(-reach, reach + 1):
                moved[z + k] = moved.get(z + k, F(0)) + p * one[abs(k)]
        found = moved
    return found


SUMS = [(F(1), F(1)), (F(1), F(3, 2), F(5, 2)), (F(4), F(4)), (F(3), F(1), F(1), F(9))]


@pytest.mark.parametrize("parts", ordinarily(1, SUMS), ids=str)
def test_what_is_said_of_a_sum_bounds_its_exact_law(parts: tuple[Fraction, ...]) -> None:
    exact, sum_ = exact_sum(parts), GaussianSum(parts)
    tiny = F(1, 1 << 50)

    def beyond(t: int) -> Fraction:
        return sum((p for z, p in exact.items() if abs(z) >= t), F(0))

    assert sum_.variance == sum(parts)
    for t in range(8 * int(float(sum_.variance) ** 0.5)):
        assert beyond(t) <= sum_.beyond(t) + tiny
        if beyond(t) > F(1, 1 << 30):
            assert sum_.beyond(t) <= beyond(t) * F(1001, 1000)
    t = sum_.interval(F(95, 100))
    assert beyond(t + 1) <= F(5, 100) < beyond(t) * F(1001, 1000)
    for chance in (F(1, 10), F(1, 1000), F(1, 10**9)):
        t = sum_.threshold(chance)
        assert beyond(t) / 2 <= chance < beyond(t - 1) * F(501, 1000)
    mean = sum((abs(z) * p for z, p in exact.items()), F(0))
    assert mean <= sum_.mean_absolute + tiny <= mean * F(1001, 1000) + tiny


def test_a_wide_law_is_bounded_by_a_narrower_one_that_stands_for_parts_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    variance = F(40_000)
    exact = GaussianSum((variance,))
    monkeypatch.setattr(module, "_FINEST_PARTS", 20)
    coarse = GaussianSum((variance,))
    for t in range(0, 1500, 7):
        assert exact.beyond(t) <= coarse.beyond(t)
        assert coarse.beyond(t) <= min(F(1), exact.beyond(max(0, t - 10)) * F(125, 100))
    assert exact.interval(F(95, 100)) <= coarse.interval(F(95, 100)) <= exact.interval(F(95, 100)) + 25
    assert exact.threshold(F(1, 10**9)) <= coarse.threshold(F(1, 10**9)) <= exact.threshold(F(1, 10**9)) + 25
    assert exact.mean_absolute <= coarse.mean_absolute <= exact.mean_absolute * F(115, 100)


@settings(derandomize=True, max_examples=20, deadline=None)
@given(variance=st.fractions(F(4), F(3000), max_denominator=7), times=st.integers(1, 4000))
def test_a_mean_of_many_terms_grows_like_their_root(variance: Fraction, times: int) -> None:
    sum_ = module.gaussian_sum((variance,), times)
    deviation = float(variance * times) ** 0.5
    assert 0.77 <= float(sum_.mean_absolute) / deviation <= 0.9
    assert sum_.interval(F(95, 100)) <= 1.97 * deviation * 1.01 + 1


def test_small_variances_are_not_added_up() -> None:
    with pytest.raises(ParameterError, match="must be at least 1"):
        GaussianSum((F(1), F(1, 3)))
    assert GaussianSum((F(1, 3),)).threshold(F(1, 10**6)) == 3


@pytest.mark.parametrize("chance", [F(0), F(1, 2), F(-1)])
def test_a_chance_out_of_range_is_refused(chance: Fraction) -> None:
    with pytest.raises(ParameterError, match="must lie between 0 and 1/2"):
        GaussianSum((F(1),)).threshold(chance)


def test_a_chance_that_is_too_small_is_refused() -> None:
    with pytest.raises(ParameterError, match="the chance is too small"):
        GaussianSum((F(1),)).threshold(F(1, 1 << 200))
