"""Sparse histograms as published: the algorithms step by step, and the exact laws of ideal and approximate ones.

The tests compare the package with them, and the figures time them. Random integers come from the paper's oracle:
`draw(d)` is uniform in 1..d. A release is a tuple of cells (key, noisy count) by key; a law maps outcomes to their
probabilities, and has no outcome of probability 0.

Source: specs/finite 2.7 to 2.9 (Balcer and Vadhan 2018, section 6 and Algorithm A.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, permutations, product
from math import comb, factorial, prod
from typing import TypeVar

from stream_dp.histograms.counting_queries import CountingQuery

Draw = Callable[[int], int]
Cell = tuple[int, int]
Release = tuple[Cell, ...]
Values = tuple[int, ...]
Law = dict[Release, Fraction]
OrderLaw = dict[Values, Fraction]
Outcome = TypeVar("Outcome")
StepLaw = Callable[[int, int, int, int], Sequence[Fraction]]
"""Given (m, p, q, t), the law of the smaller of t and a binomial number of m trials of chance p / q."""


def convolution(a: Sequence[int], b: Sequence[int], t: int) -> list[int]:
    """Return the first t terms of a * b."""
    return [sum(a[i] * b[j - i] for i in range(max(0, j - len(b) + 1), min(j + 1, len(a)))) for j in range(t)]


def convolution_power(s: int, a: Sequence[int], exponent: int) -> list[int]:
    """ApproxConvExp: s times the convolution power of a / s, as many terms as a has, rounded down (Algorithm 6.16)."""
    if exponent == 1:
        return list(a)
    t, half = len(a), convolution_power(s, a, exponent // 2)
    square = convolution(half, half, t)
    if exponent % 2 == 0:
        return [term // s for term in square]
    return [term // s**2 for term in convolution(a, square, t)]


def binomial_counts(s: int, t: int, m: int, p: int, q: int) -> list[int]:
    """Return how many of the s uniform numbers lead `binomial_sample` to 0, 1, ..., t."""
    if t == 0:
        return [s]
    here = s * p // q
    terms = convolution_power(s, [s - here, here, *[0] * t][:t], m)
    return [*terms, s - sum(terms)]


def binomial_sample(s: int, t: int, m: int, p: int, q: int, draw: Draw) -> int:
    """ApproxBinSample: the smaller of t and a binomial number of m trials of chance p / q (Algorithm 6.18)."""
    if t == 0:
        return 0
    u, here, length = draw(s), s * p // q, 1
    while length < 2 * t:
        sums = list(accumulate(convolution_power(s, [s - here, here, *[0] * length][:length], m)))
        for number in range(length // 2, length):
            if sums[number] >= u:
                return min(number, t)
        length *= 2
    return t


def order_sample(cdf: Sequence[int], m: int, places: int, s: int, draw: Draw) -> list[int]:
    """ApproxOrdSample: the `places` largest of m draws of a law, level by level (Algorithm 6.20).

    Args:
        cdf: at z, a multiple of Pr[M <= z].
        m: at least `places`.
        places: n + 1 in the paper.
        s: denominator, at least m.
        draw: the oracle; called once for each level until all places are taken.
    """
    values: list[int] = []
    for level in range(len(cdf) - 1, 0, -1):
        here = cdf[level] - cdf[level - 1]
        number = binomial_sample(s, places - len(values), m - len(values), here, cdf[level], draw)
        values += [level] * number
    return values + [0] * (places - len(values))


def exact_step(m: int, p: int, q: int, t: int) -> list[Fraction]:
    """Return the exact law of the smaller of t and a binomial number; a `StepLaw`."""
    terms = [Fraction(comb(m, j) * p**j * (q - p) ** (m - j), q**m) for j in range(min(t, m + 1))]
    terms += [Fraction(0)] * (t - len(terms))
    return [*terms, 1 - sum(terms, Fraction(0))]


def rounded_step(s: int) -> StepLaw:
    """Return the law of `binomial_sample`."""
    return lambda m, p, q, t: [Fraction(count, s) for count in binomial_counts(s, t, m, p, q)]


def order_law(cdf: Sequence[int], m: int, places: int, step: StepLaw = exact_step) -> OrderLaw:
    """Return the law of the `places` largest of m draws, falling, level by level (OrdSample, Algorithm 6.7)."""
    states: OrderLaw = {(): Fraction(1)}
    for level in range(len(cdf) - 1, 0, -1):
        reached: OrderLaw = {}
        for values, chance in states.items():
            left = places - len(values)
            for number, share in enumerate(step(m - len(values), cdf[level] - cdf[level - 1], cdf[level], left)):
                _add(reached, values + (level,) * number, chance * share)
        states = reached
    full: OrderLaw = {}
    for values, chance in states.items():
        _add(full, values + (0,) * (places - len(values)), chance)
    return full


def jump_order_law(cdf: Sequence[int], m: int, places: int) -> OrderLaw:
    """Return the same law from occupied level to occupied level (specs/finite 2.8, D4)."""
    law: OrderLaw = {}

    def extend(values: Values, top: int, chance: Fraction) -> None:
        left = m - len(values)
        if len(values) >= places:
            _add(law, values[:places], chance)
            return
        for level in range(top + 1):
            below = cdf[level - 1] if level else 0
            reached = chance * Fraction(cdf[level] ** left - below**left, cdf[top] ** left)
            if level == 0:
                _add(law, values + (0,) * (places - len(values)), reached)
                continue
            here = cdf[level] - below
            for number in range(1, left + 1):
                ways = Fraction(comb(left, number) * here**number * below ** (left - number))
                extend(values + (level,) * number, level - 1, reached * ways / (cdf[level] ** left - below**left))

    extend((), len(cdf) - 1, Fraction(1))
    return law


def above_next(cells: Iterable[Cell], k: int) -> Release:
    """Return the cells strictly above the (k + 1)-st largest count, by key."""
    cells = sorted(cells)
    cut = sorted(count for _, count in cells)[-k - 1]
    return tuple(cell for cell in cells if cell[1] > cut)


def keep_heavy_law(pmf: Sequence[Sequence[Fraction]], counts: Sequence[int], k: int) -> Law:
    """Return the law of KeepHeavy: noise on every key of the universe (Algorithm 6.1).

    Args:
        pmf: at [c][z], the probability of the noisy count z of a count c.
        counts: of the keys 1, 2, ..., all of them.
        k: cap on the keys released; n in the paper.
    """
    law: Law = {}
    for noisy in product(range(len(pmf[0])), repeat=len(counts)):
        chance = prod((pmf[c][z] for c, z in zip(counts, noisy, strict=True)), start=Fraction(1))
        _add(law, above_next(enumerate(noisy, 1), k), chance)
    return law


def simulated_law(pmf: Sequence[Sequence[Fraction]], counts: Sequence[int], k: int, orders: OrderLaw) -> Law:
    """Return the law of KH': noise on the keys that somebody has, `orders` for the others (Algorithm 6.4)."""
    held = [(key, count) for key, count in enumerate(counts, 1) if count]
    names = list(permutations((key for key, count in enumerate(counts, 1) if not count), k + 1))
    law: Law = {}
    for noisy in product(range(len(pmf[0])), repeat=len(held)):
        cells = [(key, z) for (key, _), z in zip(held, noisy, strict=True)]
        chance = prod((pmf[c][z] for (_, c), z in zip(held, noisy, strict=True)), start=Fraction(1, len(names)))
        for values, share in orders.items():
            for keys in names:
                _add(law, above_next([*cells, *zip(keys, values, strict=True)], k), chance * share)
    return law


def fallback_law(universe: int, bound: int, k: int) -> Law:
    """Return the law of the data-independent release: k uniform keys, a uniform count for each (Algorithm 6.9)."""
    law: Law = {}
    for keys in product(range(1, universe + 1), repeat=k):
        named = sorted(set(keys))
        chance = Fraction(1, universe**k * (bound + 1) ** len(named))
        for counts in product(range(bound + 1), repeat=len(named)):
            _add(law, tuple(cell for cell in zip(named, counts, strict=True) if cell[1]), chance)
    return law


def mixed_law(law: Law, fallback: Law, gamma: Fraction) -> Law:
    """Return the law that is `fallback` with probability gamma; every outcome has to be one of the fallback."""
    if not law.keys() <= fallback.keys():
        raise ValueError("an outcome that the fallback never has")
    return {release: (1 - gamma) * law.get(release, 0) + gamma * share for release, share in fallback.items()}


def distinct_sample(universe: int, keys: Iterable[int], number: int, draw: Draw) -> list[int]:
    """DistinctSample: keys of 1..universe that are not among the given ones, without repetition (Algorithm A.3)."""
    taken, found = set(keys), list[int]()
    for _ in range(number):
        z, low, high = draw(universe - len(taken)), 1, universe
        while low < high:
            middle = (low + high) // 2
            if middle - sum(key <= middle for key in taken) >= z:
                high = middle
            else:
                low = middle + 1
        taken.add(low)
        found.append(low)
    return found


def sparse_histogram(
    query: CountingQuery, universe: int, counts: Mapping[int, int], k: int, s: int, draw: Draw
) -> Release:
    """SparseHistogram: KH' with approximate order statistics (Algorithm 6.21; randomness in the order of 2.11).

    Args:
        query: noise of one count; its bound is n in the paper.
        universe: keys are 1..universe; at least k + 1 have no count.
        counts: above 0, of the keys that somebody has.
        k: cap on the keys released; n in the paper.
        s: denominator of the order statistics.
        draw: the oracle.
    """
    noisy = [(key, query.sample(counts[key], draw(query.draws))) for key in sorted(counts)]
    names = distinct_sample(universe, counts, k + 1, draw)
    cdf = [query.cdf(0, z) for z in range(query.bound + 1)]
    values = order_sample(cdf, universe - len(counts), k + 1, s, draw)
    return above_next([*noisy, *zip(names, values, strict=True)], k)


def pure_sparse_histogram(
    query: CountingQuery, universe: int, counts: Mapping[int, int], k: int, inverse_beta: int, s: int, draw: Draw
) -> Release:
    """PureSparseHistogram: `sparse_histogram`, or 1 time in `inverse_beta` a release without data (Algorithm 6.9)."""
    if draw(inverse_beta) > 1:
        return sparse_histogram(query, universe, counts, k, s, draw)
    keys = sorted({draw(universe) for _ in range(k)})
    cells = [(key, draw(query.bound + 1) - 1) for key in keys]
    return tuple(cell for cell in cells if cell[1])


def inverse_delta(inverse_epsilon: int, inverse_beta: int, universe: int, n: int) -> int:
    """Return 1 / delta of PureSparseHistogram: 3 / (epsilon beta_1) (3 |X|)^n (Algorithm 6.9)."""
    found: int = 3 * inverse_epsilon * inverse_beta * (3 * universe) ** n
    return found


def capped_inverse_delta(inverse_epsilon: int, inverse_beta: int, universe: int, n: int, k: int) -> int:
    """Return 1 / delta with the cap k in place of n, rounded up (specs/finite 2.9, D3)."""
    found: int = -(-3 * inverse_epsilon * inverse_beta * ((n + 1) * universe) ** k // factorial(k))
    return found


def denominator(universe: int, n: int, k: int, inverse_delta: int) -> int:
    """Return the denominator s of the order statistics: n (k + 2) |X| / delta; the paper has k = n."""
    return n * (k + 2) * universe * inverse_delta


def distance(one: Mapping[Outcome, Fraction], other: Mapping[Outcome, Fraction]) -> Fraction:
    """Return the total variation distance of two laws."""
    zero = Fraction(0)
    return sum((abs(one.get(x, zero) - other.get(x, zero)) for x in one.keys() | other.keys()), zero) / 2


def worst_ratio(one: Mapping[Outcome, Fraction], other: Mapping[Outcome, Fraction]) -> Fraction | None:
    """Return the largest ratio of the probabilities of one outcome, either way; None if only one law has it."""
    if one.keys() != other.keys():
        return None
    return max(max(one[x] / other[x], other[x] / one[x]) for x in one)


def _add(law: dict[Outcome, Fraction], outcome: Outcome, chance: Fraction) -> None:
    if chance:
        law[outcome] = law.get(outcome, Fraction(0)) + chance
