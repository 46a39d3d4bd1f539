"""Noisy top-k with gaps as it is written down, key by key: what the shipped algorithm is held against.

`algorithm_4` is the published one, with its loop over ties, `algorithm_p` needs no loop; both draw from a source of
bits in a fixed order, so that they are golden on a tape. The laws come from the noise as a real number: v_i =
e^-(noisy value / scale) is uniform on (0, rho^a_i), an order and its gaps are a chain of inequalities between the v_i,
and its probability is an integral of polynomials.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from typing import Any, TypeVar

from stream_dp.exact.bits import BitSource

Output = list[tuple[int, int]]
"""The selected keys and their gaps."""
Cell = tuple[tuple[int, ...], tuple[int, ...]]
Number = TypeVar("Number", Fraction, Decimal)
CALLS: Counter[str] = Counter()
"""How often each primitive was called."""


class Tape:
    """SHA-256(seed, counter as 8 bytes) block by block, the most significant bit first."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._counter, self._held, self._held_bits, self.used = seed, 0, 0, 0, 0

    def bits(self, n: int) -> int:
        while self._held_bits < n:
            block = hashlib.sha256(self._seed + self._counter.to_bytes(8, "big")).digest()
            self._counter, self._held_bits = self._counter + 1, self._held_bits + 256
            self._held = self._held << 256 | int.from_bytes(block, "big")
        self._held_bits -= n
        value, self._held = self._held >> self._held_bits, self._held & ((1 << self._held_bits) - 1)
        self.used += n
        return value


class QuickBits:
    """Bits in large pieces, for simulations."""

    def __init__(self, source: BitSource) -> None:
        self._source, self._held, self._left = source, 0, 0

    def bits(self, n: int) -> int:
        if self._left < n:
            self._held, self._left = self._source.bits(max(n, 4096)), max(n, 4096)
        self._left -= n
        value = self._held >> self._left
        self._held &= (1 << self._left) - 1
        return value


# The primitives of specs/gap 2.2.


def uniform(bits: BitSource, n: int) -> int:
    CALLS["uniform"] += 1
    size = (n - 1).bit_length()
    while True:
        x = bits.bits(size) if size else 0
        if x < n:
            return x


def bernoulli(bits: BitSource, p: int, q: int) -> bool:
    CALLS["bernoulli"] += 1
    return uniform(bits, q) < p


def bernoulli_exp_01(bits: BitSource, n: int, d: int) -> bool:
    k = 1
    while bernoulli(bits, n, d * k):
        k += 1
    return k % 2 == 1


def bernoulli_exp(bits: BitSource, n: int, d: int) -> bool:
    while n > d:
        if not bernoulli_exp_01(bits, 1, 1):
            return False
        n -= d
    return bernoulli_exp_01(bits, n, d)


def whole_clock(bits: BitSource) -> int:
    v = 0
    while bernoulli_exp_01(bits, 1, 1):
        v += 1
    return v


def remainder(bits: BitSource, t: int) -> int:
    while True:
        u = uniform(bits, t)
        if bernoulli_exp_01(bits, u, t):
            return u


def geometric(bits: BitSource, s: int, t: int) -> int:
    CALLS["geometric"] += 1
    u = remainder(bits, t)
    return (u + t * whole_clock(bits)) // s


def discrete_laplace(bits: BitSource, s: int, t: int) -> int:
    while True:
        negative, y = bernoulli(bits, 1, 2), geometric(bits, s, t)
        if not (negative and y == 0):
            return -y if negative else y


def truncated_by_remainder(bits: BitSource, s: int, t: int, base: int) -> int:
    return geometric(bits, s, t) % base


def truncated_by_rejection(bits: BitSource, s: int, t: int, base: int) -> int:
    while True:
        m = uniform(bits, base)
        if bernoulli_exp(bits, m * s, t):
            return m


def shuffle(bits: BitSource, n: int) -> list[int]:
    x = list(range(n))
    for i in range(n - 1, 0, -1):
        j = uniform(bits, i + 1)
        x[i], x[j] = x[j], x[i]
    return x


# The algorithms (specs/gap 2.3, 2.6, 2.7).


def refined_gap(first: int, second: int, refinement: int, *, smaller_rank: bool) -> int:
    return (first - second - smaller_rank) // refinement


def algorithm_4(
    bits: BitSource, a: Sequence[int], k: int, s: int, t: int, base: int = 10, *, prune: bool = True
) -> tuple[Output, int]:
    """The published algorithm, and how often it refined."""
    noisy = {i: value + geometric(bits, s, t) for i, value in enumerate(a)}

    def top() -> list[int]:
        return sorted(noisy, key=lambda i: (-noisy[i], i))[: k + 2]

    order, levels, refinement = top(), 0, 1
    while len({noisy[i] for i in order}) < len(order):
        if prune:
            cut = noisy[order[k]]
            keep = {i for i in noisy if noisy[i] >= cut}
            if len(keep) < len(order):
                keep |= set(order)
            noisy = {i: noisy[i] for i in sorted(keep)}
        levels, refinement = levels + 1, refinement * base
        finer = Fraction(s, t * refinement)
        for i in sorted(noisy):
            noisy[i] = base * noisy[i] + geometric(bits, finer.numerator, finer.denominator) % base
        order = top()
    x = shuffle(bits, k + 1)
    return [
        (order[i], refined_gap(noisy[order[i]], noisy[order[i + 1]], refinement, smaller_rank=x[i] < x[i + 1]))
        for i in range(k)
    ], levels


def decided(noisy: Sequence[int], k: int, shuffled: Callable[[int], Sequence[int]]) -> Output:
    """The end of `algorithm_p`, by sorting."""
    cut = sorted(noisy, reverse=True)[k]
    close = [i for i, value in enumerate(noisy) if value >= cut]
    rank = dict(zip(close, shuffled(len(close)), strict=True))
    order = sorted(close, key=lambda i: (-noisy[i], -rank[i]))[: k + 1]
    return [(order[i], noisy[order[i]] - noisy[order[i + 1]] - (rank[order[i]] < rank[order[i + 1]])) for i in range(k)]


def algorithm_p(bits: BitSource, a: Sequence[int], k: int, s: int, t: int) -> Output:
    return decided([value + geometric(bits, s, t) for value in a], k, lambda n: shuffle(bits, n))


def algorithm_l(bits: BitSource, a: Sequence[int], k: int, s: int, t: int) -> Output:
    """Whole clocks for all, remainders for those that they leave."""
    clocks = [whole_clock(bits) for _ in a]
    lower = [value + t * v // s for value, v in zip(a, clocks, strict=True)]
    upper = [value + (t * (v + 1) - 1) // s for value, v in zip(a, clocks, strict=True)]
    floor = sorted(lower, reverse=True)[k]
    far = min(lower) - 1
    noisy = [a[i] + (remainder(bits, t) + t * clocks[i]) // s if upper[i] >= floor else far for i in range(len(a))]
    return decided(noisy, k, lambda n: shuffle(bits, n))


# The exact law (specs/gap 3.4): polynomials by their coefficients, from the constant one.


def _times(p: Sequence[Any], q: Sequence[Any]) -> list[Any]:
    product_ = [0 * p[0]] * (len(p) + len(q) - 1)
    for i, x in enumerate(p):
        for j, y in enumerate(q):
            product_[i + j] += x * y
    return product_


def _at(p: Sequence[Any], x: Any) -> Any:
    total = 0 * p[0]
    for coefficient in reversed(p):
        total = total * x + coefficient
    return total


def _integral(p: Sequence[Any]) -> list[Any]:
    return [0 * p[0], *(coefficient / (i + 1) for i, coefficient in enumerate(p))]


def survival(a: Sequence[int], rho: Number, order: Sequence[int], least: Sequence[int]) -> Number:
    """P(the first are `order`, and the i-th is ahead of the next by `least[i]` real steps or more)."""
    one = rho**0
    ends = [rho**value for value in a]
    rest = [i for i in range(len(a)) if i not in order]
    # Pieces of the chance of what has been placed, as a function of the next v: up to which v, and the polynomial.
    pieces: list[tuple[Any, list[Any]]] = [(None, [one])]
    for place, key in enumerate([*order, -1]):
        shrink = rho ** least[place - 1] if place else one
        scaled = [
            (None if end is None else end / shrink, [c * shrink**i for i, c in enumerate(p)]) for end, p in pieces
        ]
        if key >= 0:
            density, last = [one / ends[key]], ends[key]
        else:  # the smallest v of the others
            above = [one]
            for i in rest:
                above = _times(above, [one, -one / ends[i]])
            density, last = [-c * i for i, c in enumerate(above)][1:], min(ends[i] for i in rest)
        start, total, pieces = 0 * one, 0 * one, []
        for end, p in scaled:
            whole: list[Any] = _integral(_times(p, density))
            stop = last if end is None or end > last else end
            if stop > start:
                pieces.append((stop, [total - _at(whole, start) + whole[0], *whole[1:]]))
                total, start = total + _at(whole, stop) - _at(whole, start), stop
            if stop == last:
                break
        pieces.append((None, [total]))
    return pieces[-1][1][0]  # type: ignore[no-any-return]


def law(a: Sequence[int], rho: Number, k: int, largest: int) -> dict[Cell, Number]:
    """P(order, gaps rounded down) for all gaps up to `largest`."""
    cells: dict[Cell, Number] = {}
    corners = list(product((0, 1), repeat=k))
    for order in permutations(range(len(a)), k):
        reach = {m: survival(a, rho, order, m) for m in product(range(largest + 2), repeat=k)}
        for m in product(range(largest + 1), repeat=k):
            terms = ((-1) ** sum(up) * reach[tuple(x + y for x, y in zip(m, up, strict=True))] for up in corners)
            cells[order, m] = sum(terms, start=0 * rho)
    return cells


def ratio_of(s: int, t: int) -> Decimal:
    """e^(-s/t), to the digits of the context."""
    return (-Decimal(s) / Decimal(t)).exp()


def permute_and_flip(a: Sequence[int], rho: Fraction) -> list[Fraction]:
    """The law of the first alone: keys in a random order, the first whose coin of rho^(max - a) falls wins."""
    best, n = max(a), len(a)

    @cache
    def of(left: frozenset[int]) -> tuple[Fraction, ...]:
        total = [Fraction(0)] * n
        for i in left:
            coin = rho ** (best - a[i])
            total[i] += coin / len(left)
            for j, chance in enumerate(of(left - {i})) if coin < 1 else ():
                total[j] += (1 - coin) * chance / len(left)
        return tuple(total)

    return list(of(frozenset(range(n))))


def enumerated(
    a: Sequence[int], rho: Fraction, k: int, largest: int, decide: Callable[[list[int], list[int]], Cell]
) -> dict[Cell, Fraction]:
    """The law of a decision about noisy values and ranks, by enumeration, exactly, for gaps up to `largest`.

    Noisy values are a + geometric numbers of rho. Whatever is below the (k+1)-th largest, c, is lumped together; what
    is above it is enumerated relative to c, and the sum over c is a geometric series.

    Args:
        a: values without noise.
        rho: the ratio of the noise.
        k: keys selected.
        largest: gaps up to which the law is complete; all cells with more are left out.
        decide: keys that contend in a random order, and their noisy values, to what is published.
    """
    n, found = len(a), dict[Cell, Fraction]()
    for above in product(range(-1, k * (largest + 1) + 1), repeat=n):
        close = [i for i in range(n) if above[i] >= 0]
        if len(close) < k + 1 or sorted(above, reverse=True)[k] != 0:
            continue
        share = _series(a, rho, above) / factorial(len(close))
        if share == 0:
            continue
        for order in permutations(close):
            cell = decide(list(order), [above[i] for i in order])
            if max(cell[1]) <= largest:
                found[cell] = found.get(cell, Fraction(0)) + share
    return found


def _series(a: Sequence[int], rho: Fraction, above: Sequence[int]) -> Fraction:
    """The sum over c of P(noisy value = c + above, or below c where above is -1, for all keys)."""
    close, below = ([i for i in range(len(a)) if (above[i] >= 0) == there] for there in (True, False))

    def at(c: int) -> Fraction:
        if any(c + above[i] < a[i] for i in close) or any(c <= a[i] for i in below):
            return Fraction(0)
        share = (1 - rho) ** len(close) * rho ** sum(c + above[i] - a[i] for i in close)
        for i in below:
            share *= 1 - rho ** (c - a[i])
        return share

    start = max(a) + 1
    total = sum((at(c) for c in range(min(a) - max(above), start)), start=Fraction(0))
    # From there on no condition fails: the product over those below is expanded, each term is a power of rho^c.
    for chosen in product((0, 1), repeat=len(below)):
        out = [i for i, one in zip(below, chosen, strict=True) if one]
        first = sum(start + above[i] - a[i] for i in close) + sum(start - a[i] for i in out)
        size = len(close) + len(out)
        total += (-1) ** len(out) * (1 - rho) ** len(close) * rho**first / (1 - rho**size)
    return total


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def loss(one: dict[Any, Any], other: dict[Any, Any], least: float = 1e-9) -> float:
    """The largest |log ratio| of two laws over cells that both have."""
    ratios = (Decimal(p) / Decimal(other[cell]) for cell, p in one.items() if p > least and other.get(cell, 0) > least)
    return max((abs(float(ratio.ln())) for ratio in ratios), default=0.0)
