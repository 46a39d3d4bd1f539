"""What the levels of a ladder with Gaussian noise tell together, by their exact joint law, and mutants of the price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import exp, log

import pytest

from stream_dp.accounting.composition import gaussian_rho
from stream_dp.kinds.noise_levels import GaussianLevel, gaussian_levels
from tests.support.chosen import ordinarily

F = Fraction
ORDERS = [1.0001, 1.1, 1.5, 2.0, 3.0, 6.0]
REACH = 40
Law = dict[tuple[object, ...], float]
LADDERS = {
    "two": [("coarse", F(1, 2)), ("fine", F(1))],
    "close": [("coarse", F(7, 10)), ("fine", F(1))],
    "three": [("coarse", F(1, 3)), ("middle", F(1, 2)), ("fine", F(4, 5))],
}


def one(variance: Fraction) -> Mapping[int, float]:
    weights = {k: exp(-k * k / (2 * float(variance))) for k in range(-REACH, REACH + 1)}
    whole = sum(weights.values())
    return {k: weight / whole for k, weight in weights.items()}


def joint(levels: tuple[GaussianLevel, ...], count: int) -> Law:
    """The law of the readings of a count at all levels, coarse to fine."""
    coarsest = levels[0]
    law: Law = {(count + z,): p for z, p in one(coarsest.parts[0]).items()}
    for part in coarsest.parts[1:]:
        moved: Law = {}
        for readings, p in law.items():
            for w, q in one(part).items():
                if p * q > 1e-40:
                    moved[(int(str(readings[0])) + w, *readings)] = p * q
        law = moved
    return law


def divergence(one: Law, other: Law, order: float) -> float:
    """The Renyi divergence of an order; outcomes that double precision drops at the ends are left out of both."""
    both = one.keys() & other.keys()
    total = sum(exp(order * log(one[at]) + (1 - order) * log(other[at])) for at in both)
    return log(total) / (order - 1)


def levels_of(name: str, moved: int = 1) -> tuple[GaussianLevel, ...]:
    found = gaussian_levels([(level, epsilon * moved) for level, epsilon in LADDERS[name]], moved)
    assert all(isinstance(level, GaussianLevel) for level in found)
    return found  # type: ignore[return-value]


each = pytest.mark.parametrize("name", ordinarily(2, list(LADDERS)))


@each
def test_all_levels_together_cost_what_is_charged_for_any(name: str) -> None:
    levels = levels_of(name)
    less, more = joint(levels, 3), joint(levels, 4)
    for order in ORDERS:
        worst = max(divergence(less, more, order), divergence(more, less, order)) / order
        assert worst <= float(levels[0].rho) * (1 + 1e-9)
        assert worst > 0.98 * float(levels[0].rho), "no more is charged than is told"
    assert len({level.rho for level in levels}) == 1
    assert not any(level.step_rho for level in levels)


@each
def test_the_price_of_the_coarsest_level_would_be_too_low(name: str) -> None:
    levels = levels_of(name)
    coarsest = gaussian_rho(levels[0].variance, 1, F(0))
    assert divergence(joint(levels, 3), joint(levels, 4), 2.0) / 2 > float(coarsest)


def test_noise_that_is_drawn_anew_for_each_level_is_found_out() -> None:
    levels = levels_of("two")
    fine, coarse = (one(level.variance) for level in reversed(levels))

    def drawn(count: int) -> Law:
        return {(count + z, count + w): p * q for z, p in coarse.items() for w, q in fine.items() if p * q > 1e-40}

    assert divergence(drawn(3), drawn(4), 2.0) / 2 > 1.2 * float(levels[0].rho)


def test_a_step_alone_may_tell_more_than_the_difference() -> None:
    """Why steps are not charged one by one: given the coarse reading, the fine one is no Gaussian."""
    levels = levels_of("close")
    fine, coarse = levels[1].variance, levels[0].variance
    less, more = joint(levels, 0), joint(levels, 1)

    def given(law: Law, reading: int) -> Law:
        some = {at: p for at, p in law.items() if at[0] == reading}
        whole = sum(some.values())
        return {at: p / whole for at, p in some.items()}

    worst = max(divergence(given(less, at), given(more, at), 1.0001) / 1.0001 for at in range(-4, 5))
    assert worst > float(gaussian_rho(fine, 1, F(0)) - gaussian_rho(coarse, 1, F(0)))


@pytest.mark.parametrize("moved", [1, 3])
def test_counts_that_a_user_moves_add_up(moved: int) -> None:
    levels = levels_of("two", moved)
    assert levels[0].rho == moved * gaussian_rho(levels[-1].variance, 1, F(0))
    assert levels[-1].variance == 1, "the epsilon of a level is spread over the counts"


def shown(
    levels: tuple[GaussianLevel, ...], least: tuple[int, ...], hide: Callable[[Law], Law] = lambda law: law
) -> Law:
    """The law of what is seen of a key with one user: its readings, or that it is hidden, at each level."""
    found: Law = {}
    for readings, p in hide(joint(levels, 1)).items():
        seen = tuple(y if int(str(y)) >= m else "hidden" for y, m in zip(readings, least, strict=True))
        found[seen] = found.get(seen, 0.0) + p
    return found


@each
@pytest.mark.parametrize("delta", ordinarily(1, [F(1, 100), F(1, 10**6)]), ids=str)
def test_a_key_of_one_user_is_shown_at_any_level_with_no_more_than_its_delta(name: str, delta: Fraction) -> None:
    levels = levels_of(name)
    least = tuple(level.minimum_count(delta / len(levels)) for level in levels)
    law = shown(levels, least)
    assert 1 - law[("hidden",) * len(levels)] <= float(delta) * (1 + 1e-9)
    lower = (least[0], *(m - 2 for m in least[1:]))  # a mutant of the finer thresholds
    assert 1 - shown(levels, lower)[("hidden",) * len(levels)] > float(delta)


@each
def test_a_count_that_is_shown_lies_in_its_interval_with_95_percent(name: str) -> None:
    levels = levels_of(name)
    for at, level in enumerate(levels):
        least = level.minimum_count(F(1, 1000))
        sure, t = level.two_sided_from(least), level.interval_of(1)
        for count in range(1, least + 3 * t):
            law: dict[int, float] = {}
            for readings, p in joint(levels, count).items():
                noisy = int(str(readings[at]))
                law[noisy] = law.get(noisy, 0.0) + p
            seen = {noisy: p for noisy, p in law.items() if noisy >= least}
            held = sum(p for noisy, p in seen.items() if (noisy - t if noisy >= sure else 1) <= count <= noisy + t)
            assert held >= 0.95 * sum(seen.values())
