"""Every coin on every outcome of its bits: the exact law of what comes out, up to the stated mass not followed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact import coins
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import exp_neg
from tests.support.chosen import ordinarily
from tests.support.counting_laws import binomial_pmf, poisson_pmf
from tests.support.tapes import RecordedBits

F = Fraction
PRECISION = 200
SMALL = F(1, 1000)


@pytest.fixture(scope="session")
def vector() -> Callable[[str], Any]:
    """Gives a vector of specs/lossless by its id."""
    path = Path(__file__).parents[2] / "vectors" / "lossless.json"
    tests = {test["id"]: test for test in json.loads(path.read_text())["tests"]}
    return tests.__getitem__


def real(enclosure: tuple[int, int]) -> tuple[Fraction, Fraction]:
    return F(enclosure[0], 1 << PRECISION), F(enclosure[1], 1 << PRECISION)


def e(x: Fraction) -> tuple[Fraction, Fraction]:
    return real(exp_neg(x, PRECISION))


# ---------------------------------------------------------------------------------------------- on single bits
@pytest.mark.parametrize("n", ordinarily(6, [1, 2, 3, 6, 7, 8, 5]))
def test_uniform_numbers_are_uniform(every_bit: Callable[..., Any], n: int) -> None:
    law = every_bit(lambda bits: coins.uniform(n, bits), F(1, 10**8))

    assert set(law.decided) == set(range(n))
    assert len(set(law.decided.values())) == 1
    assert law.missing <= F(1, 10**3) if n & (n - 1) else law.missing == 0


def test_uniform_numbers_take_the_bits_of_the_largest_one() -> None:
    tape = RecordedBits(bytes([0b110_111_01, 0b0_0000000]))

    assert coins.uniform(6, tape) == 0b010  # 6 and 7 are drawn again
    assert coins.uniform(1, RecordedBits(b"")) == 0


@pytest.mark.parametrize("p", [F(0), F(1), F(1, 2), F(1, 3), F(5, 8), F(6, 7)])
def test_a_bernoulli_coin_has_its_probability(every_bit: Callable[..., Any], p: Fraction) -> None:
    law = every_bit(lambda bits: coins.bernoulli(p, bits))

    assert law.agrees_with(lambda side: p if side else 1 - p, [True, False])
    assert law.missing < SMALL


# --------------------------------------------------------------------------------------------- on whole coins
@pytest.mark.parametrize("a", [F(0), F(1, 5), F(1, 2), F(9, 10)])
def test_a_geometric_clock_has_its_law(every_coin: Callable[..., Any], a: Fraction) -> None:
    law = every_coin(lambda bits: coins.geometric(a, bits))

    assert law.agrees_with(lambda k: (1 - a) * a**k, range(30))
    assert law.missing < F(1, 10**4)


@pytest.mark.parametrize(("n", "p"), [(0, F(1, 3)), (1, F(3, 8)), (4, F(3, 8)), (4, F(0)), (4, F(1)), (3, F(2, 3))])
def test_binomial_numbers_have_their_law(every_bit: Callable[..., Any], n: int, p: Fraction) -> None:
    law = every_bit(lambda bits: coins.binomial(n, p, bits), F(1, 10**6))

    assert law.agrees_with(lambda k: binomial_pmf(n, p, k), range(n + 1))
    assert law.missing < SMALL


def test_vector_b04_scripted_fair_coins(vector: Callable[[str], Any]) -> None:
    inputs = vector("B04")["inputs"]
    script: Iterator[int] = iter(inputs["zeros_script"])

    class Coins:
        def bits(self, n: int) -> int:
            return (1 << n - next(script)) - 1  # n fair bits with the scripted number of zeros

    found = coins.binomial(inputs["n"], F(inputs["p"]), Coins())

    assert found == vector("B04")["expected"]["result"]
    assert list(script) == []


@pytest.mark.parametrize("x", [F(0), F(1, 3), F(1), F(5, 2)])
def test_a_coin_of_an_exponential_has_its_probability(every_coin: Callable[..., Any], x: Fraction) -> None:
    law = every_coin(lambda bits: coins.bernoulli_exp(x, bits))
    low, high = e(x)

    assert law.agrees_with(lambda side: (low, high) if side else (1 - high, 1 - low), [True, False])
    assert law.missing < F(1, 10**4)


@pytest.mark.parametrize("x", ordinarily(2, [F(1), F(3), F(1, 3), F(2, 3)]))
def test_a_clock_of_an_exponential_has_its_law(every_coin: Callable[..., Any], x: Fraction) -> None:
    law = every_coin(lambda bits: coins.geometric_exp(x, bits))

    def pmf(k: int) -> tuple[Fraction, Fraction]:
        (low, high), (low_next, high_next) = e(x * k), e(x * (k + 1))
        return low - high_next, high - low_next

    assert law.agrees_with(pmf, range(12))
    assert law.missing < F(1, 200)


@pytest.mark.parametrize(
    ("rate", "cutoff", "open_mass"),
    [
        (F(0), 5, F(0)),
        (F(1, 3), 5, F(1, 20)),
        (F(1), 7, F(1, 1000)),
        pytest.param(F(3, 2), 5, F(1, 7), marks=pytest.mark.slow),
    ],
)
def test_poisson_numbers_have_their_law(
    every_coin: Callable[..., Any], rate: Fraction, cutoff: int, open_mass: Fraction
) -> None:
    law = every_coin(lambda bits: coins.poisson(rate, bits), F(1, 10**cutoff))

    assert law.agrees_with(lambda k: real(poisson_pmf(rate, k, PRECISION)), range(8))
    assert law.missing <= open_mass


def test_vector_p06_scripted_uniform_numbers(vector: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    p06 = vector("P06")
    for script, expected in zip(p06["inputs"]["scripts"], p06["expected"]["results"], strict=True):
        numbers = iter(script)
        monkeypatch.setattr(coins, "uniform", lambda n, bits, numbers=numbers: next(numbers))

        assert coins.poisson(F(1), KeyedBits(b"unused", b"")) == expected
        assert list(numbers) == []


# ------------------------------------------------------------------------------------------- by inversion
@pytest.mark.parametrize("a", [F(1, 2), F(9, 10)])
def test_every_recorded_tape_gives_the_clock_of_the_whole_interval_it_stands_for(a: Fraction) -> None:
    """Exhaustive over 12-bit tapes, read six bits at a time: G >= k on the tapes below a^k, and on no others."""
    undecided = 0
    clocks: Counter[int] = Counter()
    for tape in range(2**12):
        try:
            clock = coins._geometric_by_inversion(a, RecordedBits((tape << 4).to_bytes(2, "big")), 6)
        except StateError:
            undecided += 1
            continue
        clocks[clock] += 1
        assert a ** (clock + 1) <= F(tape, 2**12)
        assert F(tape + 1, 2**12) <= a**clock
    assert sum(clocks.values()) + undecided == 2**12
    # A power of a leaves its own tape in doubt, and a few beside it at 12 bits of logarithm; so does the tape 0.
    assert undecided <= 3 * next(k for k in count() if a**k < F(1, 2**12))
    assert len(clocks) > 8


def test_long_clocks_are_inverted_and_have_their_mean() -> None:
    """Mean a / (1 - a) = 2^20 - 1; the mean of 2000 draws has a relative standard error of 2.2 %."""
    bits = KeyedBits(b"coins", b"long clocks")
    a = 1 - F(1, 2**20)
    mean = F(sum(coins.geometric(a, bits) for _ in range(2000)), 2000)

    assert abs(mean / 2**20 - 1) < F(1, 9)


# --------------------------------------------------------------------------------------------- refusals
def refusals() -> Iterator[Any]:
    bits = KeyedBits(b"", b"")
    yield pytest.param(lambda: coins.uniform(0, bits), id="uniform among nothing")
    yield pytest.param(lambda: coins.bernoulli(F(4, 3), bits), id="probability above 1")
    yield pytest.param(lambda: coins.bernoulli(F(-1, 3), bits), id="probability below 0")
    yield pytest.param(lambda: coins.geometric(F(1), bits), id="a clock that never stops")
    yield pytest.param(lambda: coins.binomial(-1, F(1, 2), bits), id="negative trials")
    yield pytest.param(lambda: coins.binomial(1, F(3, 2), bits), id="binomial above 1")
    yield pytest.param(lambda: coins.poisson(F(-1), bits), id="negative rate")
    yield pytest.param(lambda: coins.bernoulli_exp(F(-1), bits), id="negative exponent")
    yield pytest.param(lambda: coins.geometric_exp(F(0), bits), id="parameter 1")


@pytest.mark.parametrize("draw", list(refusals()))
def test_a_coin_outside_its_domain_is_refused(draw: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        draw()
