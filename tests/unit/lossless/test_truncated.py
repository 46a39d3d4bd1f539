"""Discrete Laplace noise that ends: its draws, its figures, and the interval of a key that is shown."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.noise_levels import TruncatedLevel, truncated_levels
from stream_dp.lossless.bulk import bulk_noise
from stream_dp.lossless.levels import WORD, minimum_count, noise_parameter, threshold_for
from stream_dp.lossless.truncated import TruncatedLaplace
from tests.support.chance import p_value
from tests.support.truncated_laws import noise_of

F = Fraction
CONFIDENCE, ENOUGH = F(95, 100), F(95, 100)
FALSE_ALARM = 1e-7
"""Of one p-value, were the bits drawn anew. They are keyed, so a run repeats."""
DRAWS = 200_000
LAWS = [
    TruncatedLaplace.within(threshold_for(F(1)), F(1, 40)),
    TruncatedLaplace.within(threshold_for(F(1, 4)), F(1, 100)),
    TruncatedLaplace.within(WORD // 2, F(1, 4)),
    TruncatedLaplace.within(threshold_for(F(1, 10)), F(1, 15)),
]
each = pytest.mark.parametrize(
    "law", LAWS, ids=lambda law: f"{float(noise_parameter(law.threshold)):.2f}-{law.largest}"
)


@each
def test_draws_follow_the_law_and_no_other(law: TruncatedLaplace) -> None:
    a, t = noise_parameter(law.threshold), law.largest
    drawn = law.draw(DRAWS, KeyedBits(b"truncated", b"draws"))
    assert max(abs(drawn)) == t
    assert p_value(drawn.tolist(), noise_of(a, t)) > FALSE_ALARM
    clamped = np.clip(bulk_noise(law.threshold, DRAWS, KeyedBits(b"truncated", b"mutant")), -t, t)
    assert p_value(clamped.tolist(), noise_of(a, t)) < FALSE_ALARM, "noise that is moved to the ends"
    other = replace(law, threshold=law.threshold // 4 * 3).draw(DRAWS, KeyedBits(b"truncated", b"mutant"))
    assert p_value(other.tolist(), noise_of(a, t)) < FALSE_ALARM


def test_what_is_drawn_again_is_independent_of_its_place() -> None:
    """With noise up to 1 at epsilon 1/10, nine of ten numbers are drawn again; halves of the places are alike."""
    law = TruncatedLaplace.within(threshold_for(F(1, 10)), F(2, 5))
    assert law.largest == 1
    drawn = law.draw(DRAWS, KeyedBits(b"truncated", b"places"))
    noise = noise_of(noise_parameter(law.threshold), 1)
    for part in (drawn[: DRAWS // 2], drawn[DRAWS // 2 :], drawn[::2], drawn[1::2]):
        assert p_value(part.tolist(), noise) > FALSE_ALARM
    pairs = drawn[::2] * 3 + drawn[1::2]
    for first in (-1, 0, 1):
        assert p_value((pairs[drawn[::2] == first] - 3 * first).tolist(), noise) > FALSE_ALARM
    assert law.draw(0, KeyedBits(b"truncated", b"none")).tolist() == []


@pytest.mark.parametrize("epsilon", [F(1, 100), F(1, 3), F(1), F(5)])
@pytest.mark.parametrize("delta", [F(1, 200), F(1, 10**6), F(1, 3 * 10**9)])
def test_the_noise_ends_as_early_as_delta_allows(epsilon: Fraction, delta: Fraction) -> None:
    threshold = threshold_for(epsilon)
    t = TruncatedLaplace.within(threshold, delta).largest
    assert end_of(threshold, t) <= delta
    assert t == 1 or end_of(threshold, t - 1) > delta
    assert t + 1 <= minimum_count(threshold, delta)


def end_of(threshold: int, t: int) -> Fraction:
    """P(X = t), as it is written down."""
    a = noise_parameter(threshold)
    return F(a**t * (1 - a), 1 + a - 2 * a ** (t + 1))


@pytest.mark.parametrize(
    ("epsilon", "delta", "before", "shown_from"),
    [(F(1, 10), F(1, 10**6), 133, 110), (F(1, 100), F(1, 10**8), 1775, 1314), (F(1), F(1, 10**6), 15, 15)],
)
def test_a_key_is_shown_from_fewer_users_on(epsilon: Fraction, delta: Fraction, before: int, shown_from: int) -> None:
    threshold = threshold_for(epsilon)
    assert (minimum_count(threshold, delta), TruncatedLaplace.within(threshold, delta).largest + 1) == (
        before,
        shown_from,
    )


@pytest.mark.parametrize("epsilon", [F(1, 8), F(1), F(3)])
@pytest.mark.parametrize("delta", [F(1, 10), F(1, 300), F(1, 10**6)])
def test_the_figures_are_those_of_the_weights(epsilon: Fraction, delta: Fraction) -> None:
    """Or a little more, where delta is not far below 1 - a: the end of the noise is known to a factor a."""
    law = TruncatedLaplace.within(threshold_for(epsilon), delta)
    a, half = noise_parameter(law.threshold), law.interval(CONFIDENCE)
    noise = noise_of(a, law.largest)
    assert a ** (law.largest + 2) <= law.rest <= a ** (law.largest + 1)
    assert sum(p for k, p in noise.items() if abs(k) <= half) >= CONFIDENCE
    assert sum(p for k, p in noise.items() if abs(k) < half - 1) < CONFIDENCE
    mean = sum((abs(k) * p for k, p in noise.items()), F(0))
    assert mean <= law.mean_absolute <= mean * (1 + 20 * delta)
    if delta < F(1, 10**5):
        assert sum(p for k, p in noise.items() if abs(k) < half) < CONFIDENCE, "the smallest"


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(F(1), F(1, 100)), (F(1, 2), F(1, 10**4)), (F(1, 4), F(1, 300)), (F(3), F(1, 10**9))]
)
def test_the_interval_of_a_shown_key_covers_its_count_whatever_that_is(epsilon: Fraction, delta: Fraction) -> None:
    (level,) = truncated_levels([("only", epsilon)], 1, delta)
    assert isinstance(level, TruncatedLevel)
    least, half = level.minimum_count(delta), level.noise_interval
    sure = level.two_sided_from(least)
    noise = noise_of(noise_parameter(level.threshold), least - 1)

    def covered(count: int, two_sided: int) -> Fraction:
        shown = {count + k: p for k, p in noise.items() if count + k >= least}
        held = sum((p for v, p in shown.items() if (v - half if v >= two_sided else 1) <= count <= v + half), F(0))
        return held / sum(shown.values())

    counts = range(1, 3 * least + 3)
    assert min(covered(count, sure) for count in counts) >= ENOUGH
    assert min(covered(count, least) for count in counts) < ENOUGH, "the mutant: two sides for every shown key"
