"""The law of noise that ends, weight by weight, and how far two laws are apart: exact rationals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod

Law = Mapping[Hashable, Fraction]
Noise = Mapping[int, Fraction]
HIDDEN = "hidden"


def noise_of(a: Fraction, largest: int) -> Noise:
    """P(X = k) for |k| <= largest."""
    weights = {k: a ** abs(k) for k in range(-largest, largest + 1)}
    whole = sum(weights.values())
    return {k: weight / whole for k, weight in weights.items()}


def seen(count: int, noise: Noise, least: int) -> Law:
    """What a reader sees of a key that so many users have: its noisy count or that it is hidden; nobody's is hidden."""
    found: dict[Hashable, Fraction] = {}
    for k, p in noise.items():
        what = count + k if count and count + k >= least else HIDDEN
        found[what] = found.get(what, Fraction(0)) + p
    return found


def together(laws: Sequence[Law]) -> Law:
    """The law of several keys at once, whose noise is independent."""
    found: dict[Hashable, Fraction] = {}
    for each in product(*(law.items() for law in laws)):
        found[tuple(what for what, _ in each)] = prod((p for _, p in each), start=Fraction(1))
    return found


def excess(one: Law, other: Law, factor: Fraction) -> Fraction:
    """The least delta for which no event of `one` has more than `factor` times its chance in `other`, and delta."""
    return sum((max(Fraction(0), p - factor * other.get(what, Fraction(0))) for what, p in one.items()), Fraction(0))


def worst(law_of: Callable[[Sequence[int]], Law], counts: Sequence[Sequence[int]], factor: Fraction) -> Fraction:
    """The worst excess in either direction, between counts and the same without a user who has all of the keys."""
    return max(
        max(excess(law_of(more), law_of(less), factor), excess(law_of(less), law_of(more), factor))
        for more in counts
        for less in [[count - 1 for count in more]]
    )
