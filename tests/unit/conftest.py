"""Exhaustive coins: run a sampler on every outcome of its coins and add up the exact probability of each output."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain, count, islice, takewhile
from typing import Any

import pytest

from stream_dp.exact import bits, coins
from stream_dp.exact.reals import exp_neg
from tests.support.counting_laws import binomial_pmf, poisson_pmf
from tests.support.flights import flights, planned  # noqa: F401 - fixtures of every folder below

_PRECISION = 80
Weights = Callable[[int], Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Law:
    """Exact probabilities of the outputs as far as they were decided, and the mass of what was not followed."""

    decided: Mapping[Any, Fraction]
    missing: Fraction
    rounding: Fraction = Fraction(0)  # of the weights of coins whose probability is no rational

    def agrees_with(self, pmf: Callable[[Any], Any], outputs: Iterable[Hashable] = ()) -> bool:
        """Whether every probability lies between the decided mass and that plus what is missing.

        `pmf` gives a probability, or the two ends of an enclosure of one.
        """
        for output in {*self.decided, *outputs}:
            ends = pmf(output)
            low, high = ends if isinstance(ends, tuple) else (ends, ends)
            found = self.decided.get(output, Fraction(0))
            if not (found <= high + self.rounding and low <= found + self.missing + self.rounding):
                return False
        return True


class _AbandonedError(Exception):
    pass


class Branches:
    """A bit source that follows one branch of the tree of all coins, and notes the branches beside it."""

    def __init__(self, path: tuple[int, ...], cutoff: Fraction) -> None:
        self.path = path
        self.mass = Fraction(1)
        self.siblings: list[tuple[int, ...]] = []
        self.abandoned = Fraction(0)
        self._cutoff = cutoff
        self._taken: list[int] = []

    def choose(self, weights: Sequence[Fraction]) -> int:
        """Branch: the recorded way, else the first one heavy enough, leaving the other heavy ones for later runs."""
        if len(self._taken) < len(self.path):
            way = self.path[len(self._taken)]
        else:
            heavy = [i for i, weight in enumerate(weights) if self.mass * weight >= self._cutoff]
            self.abandoned += self.mass * (1 - sum((weights[i] for i in heavy), Fraction(0)))
            if not heavy:
                raise _AbandonedError
            way, *rest = heavy
            self.siblings += [(*self._taken, other) for other in rest]
        self.mass *= weights[way]
        self._taken.append(way)
        return way

    def bits(self, n: int) -> int:
        return self.choose([Fraction(1, 2**n)] * 2**n)


def exact_law(
    run: Callable[[bits.BitSource], Hashable],
    cutoff: Fraction = Fraction(1, 10**6),
    rounding: Fraction = Fraction(0),
) -> Law:
    """The law of what `run` returns, from every branch of at least `cutoff` probability."""
    decided: dict[Hashable, Fraction] = {}
    missing = Fraction(0)
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        branch = Branches(waiting.pop(), cutoff)
        try:
            output = run(branch)
        except _AbandonedError:
            pass
        else:
            decided[output] = decided.get(output, Fraction(0)) + branch.mass
        missing += branch.abandoned
        waiting += branch.siblings
    assert sum(decided.values()) + missing == 1
    return Law(decided, missing, rounding)


@pytest.fixture
def every_bit() -> Callable[..., Law]:
    """`exact_law` on single bits: for the coins that read bits themselves."""
    return exact_law


@pytest.fixture
def every_coin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Law]:
    """`exact_law` on whole coins: `uniform`, `bernoulli` and `choose`, proven on bits, branch as one."""

    shipped = coins.uniform, coins.bernoulli, coins.choose

    def uniform(n: int, source: Any) -> int:
        if not hasattr(source, "choose"):  # an ordinary bit source
            return shipped[0](n, source)
        return int(source.choose([Fraction(1, n)] * n))

    def bernoulli(p: Fraction, source: Any) -> bool:
        assert 0 <= p <= 1
        if not hasattr(source, "choose"):
            return shipped[1](p, source)
        return bool(source.choose([1 - p, Fraction(p)]) if p.denominator > 1 else p.numerator)

    def choose(weights: Weights, source: Any, **options: Any) -> int:
        if not hasattr(source, "choose"):
            return shipped[2](weights, source, **options)
        enclosed = weights(_PRECISION)
        total = sum(low + high for low, high in enclosed)
        return int(source.choose([Fraction(low + high, total) for low, high in enclosed]))

    monkeypatch.setattr(coins, "uniform", uniform)
    monkeypatch.setattr(coins, "bernoulli", bernoulli)
    monkeypatch.setattr("stream_dp.exact.coins.choose", choose)
    return exact_law


@pytest.fixture
def every_number(every_coin: Callable[..., Law], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Law]:
    """`exact_law` on whole numbers: those of test_coins branch as one, with their real weights rounded."""

    def numbers(weights: Callable[..., Iterator[Fraction]]) -> Callable[..., int]:
        known = cache(lambda *parameters: list(weights(*parameters)))

        def draw(*arguments: Any) -> int:
            *parameters, source = arguments
            return int(source.choose(known(*parameters)))

        return draw

    def bernoulli_exp(x: Fraction) -> Iterator[Fraction]:
        yield from (1 - _rounded(exp_neg(x, _PRECISION)), _rounded(exp_neg(x, _PRECISION)))

    def geometric_exp(x: Fraction) -> Iterator[Fraction]:
        return takewhile(_visible, (_rounded(exp_neg(x * k, _PRECISION)) * next(bernoulli_exp(x)) for k in count()))

    def geometric(a: Fraction) -> Iterator[Fraction]:
        return takewhile(_visible, ((1 - a) * a**k for k in count()))

    def poisson(rate: Fraction) -> Iterator[Fraction]:
        laws = (_rounded(poisson_pmf(rate, k, _PRECISION)) for k in count())
        return chain(islice(laws, int(rate) + 1), takewhile(_visible, laws))

    def binomial(n: int, p: Fraction) -> Iterator[Fraction]:
        return (binomial_pmf(n, p, k) for k in range(n + 1))

    for weights in (bernoulli_exp, geometric_exp, geometric, poisson, binomial):
        monkeypatch.setattr(coins, weights.__name__, numbers(weights))

    def law(run: Callable[[bits.BitSource], Hashable], cutoff: Fraction = Fraction(1, 10**6)) -> Law:
        return exact_law(run, cutoff, Fraction(1, 2**64))

    return law


def _rounded(enclosure: tuple[int, int]) -> Fraction:
    return Fraction(sum(enclosure), 2 << _PRECISION)


def _visible(weight: Fraction) -> bool:
    return weight > Fraction(1, 10**7)
