from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from time import process_time
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.lossless.discrete_laplace import interval
from stream_dp.lossless.levels import (
    WORD,
    discovery_delta,
    minimum_count,
    noise_parameter,
    threshold_for,
    two_sided_from,
)
from tests.support.chosen import ordinarily
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import tail

EPSILONS = [Fraction(1, 10), Fraction(1, 4), Fraction(1), Fraction(3)]
DELTAS = [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 3 * 10**9)]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_minimum_count_is_the_smallest_that_keeps_delta(epsilon: Fraction, delta: Fraction) -> None:
    threshold = threshold_for(epsilon)
    a = noise_parameter(threshold)

    tau = minimum_count(threshold, delta)

    assert tail(a, tau - 1) <= delta
    assert tau == 1 or tail(a, tau - 2) > delta


@pytest.mark.parametrize(
    "epsilon", ordinarily(4, [Fraction(1, 3), Fraction(1), Fraction(3), Fraction(12), Fraction(1, 10)])
)
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("confidence", [Fraction(95, 100), Fraction(1, 2)])
def test_the_interval_of_a_shown_key_covers_its_count_given_that_it_is_shown_whatever_that_is(
    epsilon: Fraction, delta: Fraction, confidence: Fraction
) -> None:
    """Every count from one to far beyond the minimum, every noisy count that is shown, by exact weights."""
    threshold = threshold_for(epsilon)
    least, half = minimum_count(threshold, delta), interval(noise_parameter(threshold), confidence)
    start = two_sided_from(threshold, least, confidence)
    counts = [*range(1, start + half + 3), start + 10 * half]

    covered = {c: coverage(threshold, least, half, start, c) for c in counts}
    assert min(covered.values()) >= confidence
    if start > half + 2:
        assert coverage(threshold, least, half, start - 1, 1) < confidence, "no smaller number would do"


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 3), Fraction(1)])
def test_the_interval_of_a_key_named_beforehand_misses_most_small_counts_that_are_shown(epsilon: Fraction) -> None:
    """The mutant: plus or minus for every shown key. It covers beyond the minimum, and nothing far below."""
    threshold = threshold_for(epsilon)
    least, half = minimum_count(threshold, DELTAS[1]), interval(noise_parameter(threshold), Fraction(95, 100))

    def plain(count: int) -> Fraction:
        return coverage(threshold, least, half, least, count)

    assert plain(1) == plain(least - half - 1) == 0
    assert all(plain(count) < Fraction(95, 100) for count in range(1, least - half // 2))
    assert plain(least + 3 * half) >= Fraction(95, 100)


def coverage(threshold: int, least: int, half: int, two_sided: int, count: int) -> Fraction:
    """The chance that the interval of a key holds its count, given that it is shown, from every noisy count."""
    a = noise_parameter(threshold)
    held = Fraction(0)
    for shown in range(max(least, count - half), max(two_sided, count + half + 1)):
        if (shown - half if shown >= two_sided else 1) <= count <= shown + half:
            held += pmf(a, shown - count)
    return held / tail(a, least - count)


@pytest.mark.parametrize("confidence", [Fraction(0), Fraction(1)])
def test_a_confidence_that_means_nothing_is_refused(confidence: Fraction) -> None:
    with pytest.raises(ParameterError, match="confidence must lie between"):
        two_sided_from(threshold_for(Fraction(1)), 10, confidence)


def test_a_delta_met_exactly_takes_the_smaller_count() -> None:
    for tau in range(2, 60):
        exactly = tail(Fraction(1, 2), tau - 1)
        assert minimum_count(WORD // 2, exactly) == tau
        assert minimum_count(WORD // 2, exactly - Fraction(1, 10**40)) == tau + 1


def test_a_minimum_count_of_millions_takes_no_time() -> None:
    threshold = threshold_for(Fraction(1, 10**6))
    started = process_time()
    tau = minimum_count(threshold, Fraction(1, 10**9))
    bound = discovery_delta([(threshold, tau)], 1)
    elapsed = process_time() - started

    assert 20 * 10**6 < tau < 21 * 10**6  # (ln 10^9 - ln 2) / epsilon
    assert bound <= Fraction(1, 10**9)
    assert bound / (1 - Fraction(1, 10**5)) > Fraction(1, 10**9)  # not a loose bound either
    assert elapsed < 1


def test_vector_h03_delta_of_a_key_one_user_saw(vector: Callable[[str], Any]) -> None:
    h03 = vector("H03")
    # The ladder of the vector lies between the 64-bit levels; taking the next coarser ones moves delta by 1e-16.
    ladder = [
        (-(-Fraction(a) * WORD // 1), tau)
        for a, tau in zip(h03["inputs"]["ladder_a"], h03["inputs"]["thresholds_ge"], strict=True)
    ]
    singles = [float(tail(Fraction(a), t - 1)) for a, (_, t) in zip(h03["inputs"]["ladder_a"], ladder, strict=True)]

    assert singles == pytest.approx(h03["expected"]["delta_single"], rel=1e-12)
    bound = discovery_delta(ladder, 1)
    assert float(bound) == pytest.approx(h03["expected"]["delta_union_bound"], rel=1e-12)
    assert h03["expected"]["delta_all_three_exact"] <= float(bound)
    assert discovery_delta(ladder, 7) == 7 * bound


def test_the_bound_is_above_the_exact_sum_by_less_than_its_rounding() -> None:
    ladder = [(threshold_for(epsilon), minimum_count(threshold_for(epsilon), DELTAS[1])) for epsilon in EPSILONS]
    exact = 5 * sum(tail(noise_parameter(threshold), tau - 1) for threshold, tau in ladder)

    assert exact <= discovery_delta(ladder, 5) <= exact + Fraction(5 * len(ladder), 2**250)


def test_thresholds_from_a_divided_delta_stay_within_it() -> None:
    whole, items = Fraction(1, 10**6), 20
    share = whole / (len(EPSILONS) * items)
    ladder = [(threshold_for(epsilon), minimum_count(threshold_for(epsilon), share)) for epsilon in EPSILONS]

    assert whole / 25 < discovery_delta(ladder, items) <= whole


def test_a_delta_larger_than_the_finest_epsilon_could_hide_is_refused() -> None:
    """With a = 1/2 and tau = 2 an item is shown with probability 1/3: one passes 1 - a = 1/2, two do not."""
    assert 3 * discovery_delta([(WORD // 2, 2)], 1) == pytest.approx(1)
    with pytest.raises(ParameterError, match="minimum count 2 is too small"):
        discovery_delta([(WORD // 2, 2)], 2)


def test_the_condition_holds_for_every_coalition_not_only_the_finest() -> None:
    coarse, fine = threshold_for(Fraction(1, 1000)), threshold_for(Fraction(4))
    tau = minimum_count(coarse, Fraction(1, 100))  # 0.01 > 1 - e^-0.001

    with pytest.raises(ParameterError, match=f"minimum count {tau} is too small"):
        discovery_delta([(coarse, tau), (fine, 10)], 1)


@pytest.mark.parametrize(
    ("levels", "items"),
    [
        ([(2**63, 10)], 0),
        ([(2**63, 0)], 1),
        ([(2**62, 10), (2**63, 10)], 1),
        ([(2**63, 10), (2**63, 10)], 1),
        ([(0, 10)], 1),
    ],
    ids=["no items", "count 0", "fine to coarse", "twice the same", "no level"],
)
def test_a_ladder_that_makes_no_sense_is_refused(levels: list[tuple[int, int]], items: int) -> None:
    with pytest.raises(ParameterError):
        discovery_delta(levels, items)


@pytest.mark.parametrize("delta", ["0", "1", "-1/2"])
def test_a_delta_outside_its_range_is_refused(delta: str) -> None:
    with pytest.raises(ParameterError, match="delta must lie between 0 and 1"):
        minimum_count(2**63, Fraction(delta))
