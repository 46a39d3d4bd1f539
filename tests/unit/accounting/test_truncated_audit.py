"""A histogram with noise that ends: its exact law in both directions, the optimum of key selection, and mutants."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest

from stream_dp.kinds.noise_levels import TruncatedLevel, truncated_levels
from stream_dp.lossless.levels import WORD, noise_parameter
from stream_dp.lossless.truncated import TruncatedLaplace
from tests.support.truncated_laws import Law, Noise, noise_of, seen, together, worst

F = Fraction
SETTINGS = [(F(1), F(1, 50)), (F(1, 2), F(1, 20)), (F(2), F(1, 1000)), (F(3), F(1, 2000))]
"""Epsilon and delta of one item."""
each = pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)


def level_of(epsilon: Fraction, delta: Fraction, items: int) -> TruncatedLevel:
    """What the product plans for a user with so many items."""
    (level,) = truncated_levels([("only", items * epsilon)], items, delta)
    assert isinstance(level, TruncatedLevel)
    return level


def spent(noise: Noise, least: int, a: Fraction, items: int) -> Fraction:
    """The delta of a window at a^-items, by the counts of all keys that a user has for which it is largest."""
    most = 2 * max(noise) + 3 if items == 1 else least + 1

    def law_of(counts: Sequence[int]) -> Law:
        return together([laws[count] for count in counts])

    laws = [seen(count, noise, least) for count in range(most + 1)]
    return worst(law_of, [*product(range(1, most + 1), repeat=items)], 1 / a**items)


@each
@pytest.mark.parametrize("items", [1, 2])
def test_a_window_spends_its_epsilon_and_delta_in_either_direction(
    epsilon: Fraction, delta: Fraction, items: int
) -> None:
    """One item spends exactly the chance of the end of its noise, two spend more, and at most twice that."""
    level = level_of(epsilon, delta, items)
    a, t = noise_parameter(level.threshold), level.law.largest
    noise = noise_of(a, t)
    found = spent(noise, level.minimum_count(delta), a, items)
    assert found <= items * noise[t] <= items * delta
    assert found == noise[t] if items == 1 else found > noise[t]
    assert noise_of(a, t - 1)[t - 1] > delta, "with less noise it would be more"


MUTANTS = {
    "noise that ends one earlier": lambda a, t: (noise_of(a, t - 1), t),
    "keys that are shown from the largest noise on": lambda a, t: (noise_of(a, t), t),
    "noise that is not drawn again": lambda a, t: (noise_of(a, t + 60), t + 1),
    "noise that is clamped": lambda a, t: (clamped(noise_of(a, t + 60), t), t + 1),
}


def clamped(noise: Noise, t: int) -> Noise:
    found: dict[int, Fraction] = {}
    for k, p in noise.items():
        at = max(-t, min(t, k))
        found[at] = found.get(at, F(0)) + p
    return found


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize(("base", "largest"), [(F(1, 2), 4), (F(3, 4), 6), (F(1, 4), 2)])
def test_a_mutant_spends_more(mutant: str, base: Fraction, largest: int) -> None:
    """With the delta that the noise was made for, to the last bit."""
    delta = noise_of(base, largest)[largest]
    assert TruncatedLaplace.within(int(base * WORD), delta).largest == largest
    assert spent(noise_of(base, largest), largest + 1, base, 1) == delta
    noise, least = MUTANTS[mutant](base, largest)
    assert spent(noise, least, base, 1) > delta


@pytest.mark.parametrize(("base", "largest"), [(F(1, 2), 4), (F(3, 4), 5)])
def test_a_delta_that_is_not_shared_out_over_the_items_is_found_out(base: Fraction, largest: int) -> None:
    noise = noise_of(base, largest)
    assert spent(noise, largest + 1, base, 2) > noise[largest]


@each
def test_keys_of_one_item_are_shown_as_often_as_any_mechanism_may_show_them(epsilon: Fraction, delta: Fraction) -> None:
    """The recursion is the optimum of Desfontaines, Voss, Gipson and Mandayam 2022, at the delta spent."""
    level = level_of(epsilon, delta, 1)
    a, t = noise_parameter(level.threshold), level.law.largest
    noise = noise_of(a, t)
    best = F(0)
    for count in range(1, 2 * t + 4):
        best = min(best / a + noise[t], 1 - a * (1 - best - noise[t]), F(1))
        shown = 1 - seen(count, noise, t + 1).get("hidden", F(0))
        assert shown == best, count
    assert best == 1
