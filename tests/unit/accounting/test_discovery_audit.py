"""Two windows, of which the second counts only keys that the first has shown: exact laws, and mutants of the list."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import exp

import pytest

from stream_dp.lossless.levels import minimum_count, noise_parameter, threshold_for

FIND, COUNT, DELTA = Fraction(1), Fraction(1, 2), Fraction(1, 1000)
LEVEL = threshold_for(FIND)
LEAST = minimum_count(LEVEL, DELTA)
REACH = 40
Law = dict[tuple[object, object], float]
Listed = Callable[[int, object], bool]
"""From the exact count of the first window and what was shown of it, whether the key is on the list of the second."""


def noise(epsilon: Fraction) -> dict[int, float]:
    a = float(noise_parameter(threshold_for(epsilon)))
    return {k: (1 - a) / (1 + a) * a ** abs(k) for k in range(-REACH, REACH + 1)}


def law(first: int, second: int, listed: Listed) -> Law:
    """What readers see of a key: its count of the first window or that it is hidden, then the same of the second."""
    found: Law = {}
    for z, p in noise(FIND).items():
        shown = first + z if first and first + z >= LEAST else "hidden"
        if not listed(first, shown):
            found[shown, "hidden"] = found.get((shown, "hidden"), 0.0) + p
            continue
        for w, q in noise(COUNT).items():
            found[shown, second + w] = found.get((shown, second + w), 0.0) + p * q
    return found


def excess(one: Law, other: Law, epsilon: float) -> float:
    """The least delta at epsilon, in the worse direction."""
    factor = exp(epsilon)

    def beyond(p: Law, q: Law) -> float:
        return sum(max(0.0, chance - factor * q.get(seen, 0.0)) for seen, chance in p.items())

    return max(beyond(one, other), beyond(other, one))


def released(_count: int, shown: object) -> bool:
    """The product's rule: what was published."""
    return shown != "hidden"


INPUTS = [
    ((1, 1), (0, 0)),
    ((1, 1), (0, 1)),
    ((5, 5), (4, 4)),
    ((12, 3), (11, 2)),
    ((LEAST, LEAST), (LEAST - 1, LEAST - 1)),
]


@pytest.mark.parametrize(("with_user", "without"), INPUTS)
def test_both_windows_cost_their_epsilons_and_the_delta_of_the_first(
    with_user: tuple[int, int], without: tuple[int, int]
) -> None:
    found = excess(law(*with_user, released), law(*without, released), float(FIND + COUNT) + 1e-9)
    assert found <= float(DELTA) + 1e-12


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(lambda count, _shown: count > 0, id="all keys that anybody had"),
        pytest.param(lambda count, shown: shown != "hidden" or count >= 5, id="also those with a large exact count"),
    ],
)
def test_a_list_that_looks_at_exact_counts_is_found_out(listed: Listed) -> None:
    found = max(excess(law(*one, listed), law(*other, listed), float(FIND + COUNT) + 1e-9) for one, other in INPUTS)
    assert found > 100 * float(DELTA)


def test_a_list_of_a_level_that_nobody_was_charged_for_is_found_out() -> None:
    """Keys that a finer reading would show, with the price of the coarse one: the first window then tells more."""

    def finer(count: int, listed_from: int) -> Law:
        found: Law = {}
        for z, p in noise(4 * FIND).items():  # the finer reading decides, and the coarse one is a function of it
            for w, q in noise(FIND).items():
                shown = count + z + w if count and count + z + w >= LEAST else "hidden"
                on_list = "listed" if count and count + z >= listed_from else "hidden"
                found[shown, on_list] = found.get((shown, on_list), 0.0) + p * q
        return found

    assert excess(finer(LEAST, LEAST), finer(LEAST - 1, LEAST), float(FIND)) > 100 * float(DELTA)
