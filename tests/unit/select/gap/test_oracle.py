"""The oracle itself: golden on a tape, its primitives by their laws and by what they cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product
from math import prod
from operator import add
from typing import Any

import pytest

from stream_dp.exact.bits import KeyedBits
from tests.support import gap_oracle as oracle
from tests.support.chance import pooled_p_value
from tests.support.gap_oracle import Cell, QuickBits, Tape

FALSE_ALARM = 1e-6


def golden(tape: Tape, what: str) -> Any:
    """One call of what a name of the vectors says."""
    numbers = re.findall(r"-?\d+", what.rsplit("(", maxsplit=1)[-1].split(")", maxsplit=1)[0])
    args = [int(number) for number in numbers]
    if what.startswith("alg"):
        table, rest = re.search(r"a=\[([\d,]+)\]", what), re.findall(r"[kst]=(\d+)", what)
        assert table is not None
        a, (k, s, t) = [int(value) for value in table[1].split(",")], (int(value) for value in rest)
        if what.startswith("algP"):
            return [list(one) for one in oracle.algorithm_p(tape, a, k, s, t)]
        output, levels = oracle.algorithm_4(tape, a, k, s, t)
        return [[list(one) for one in output], levels]
    calls: dict[str, Callable[..., Any]] = {
        "uniform": oracle.uniform,
        "bern_exp1": oracle.bernoulli_exp_01,
        "bern_exp": oracle.bernoulli_exp,
        "geometric": oracle.geometric,
        "dlaplace": oracle.discrete_laplace,
        "shuffle": oracle.shuffle,
        "trunc_geo_rej": oracle.truncated_by_rejection,
    }
    return tape.bits(8) if what.startswith("bits") else calls[what.split("(", maxsplit=1)[0]](tape, *args)


def test_every_listed_draw_comes_off_the_tape_with_the_listed_number_of_bits(vectors: dict[str, Any]) -> None:
    listed = vectors["golden_tape"]
    assert len(listed["vectors"]) == 12
    for what, row in listed["vectors"].items():
        tape = Tape(listed["seed"].encode())
        times = re.search(r" x(\d+)$", what) or re.search(r"bits (\d+)x8", what)
        found = [golden(tape, what) for _ in range(int(times[1]))] if times else golden(tape, what)
        assert (found, tape.used) == (row["output"], row["bits_used"]), what


def test_gaps_at_a_finer_level_are_rounded_after_the_correction(vectors: dict[str, Any]) -> None:
    for row in vectors["rounding"]["refined_gap"]:
        gap = oracle.refined_gap(row["A1"], row["A2"], row["refine"], smaller_rank=bool(row["x1_lt_x2"]))
        assert gap == row["gap"]


def in_law(name: str, draw: Callable[[QuickBits], int], law: dict[int, float], size: int = 5000) -> None:
    bits = QuickBits(KeyedBits(b"oracle", name.encode()))
    assert pooled_p_value(Counter(draw(bits) for _ in range(size)), law) > FALSE_ALARM


@pytest.mark.statistical
def test_the_primitives_of_the_oracle_have_the_listed_laws(vectors: dict[str, Any]) -> None:
    """False alarm: 1e-6 each."""
    primitives = vectors["primitives"]
    for name, listed in primitives["geometric_pmf"].items():
        s, t = (int(number) for number in re.findall(r"\d+", name))
        if t < 100:
            in_law(name, lambda bits, s=s, t=t: oracle.geometric(bits, s, t), dict(enumerate(map(float, listed))))  # type: ignore[misc]
    for name, listed in primitives["discrete_laplace_pmf"].items():
        s, t = (int(number) for number in re.findall(r"\d+", name))
        law = {sign * m: float(chance) for m, chance in enumerate(listed) for sign in (1, -1)}
        in_law(name, lambda bits, s=s, t=t: oracle.discrete_laplace(bits, s, t), law)  # type: ignore[misc]
    for name, listed in primitives["truncated_geometric_pmf"].items():
        s, t, base = (int(number) for number in re.findall(r"\d+", name))
        law = dict(enumerate(map(float, listed)))
        for draw in (oracle.truncated_by_remainder, oracle.truncated_by_rejection):
            in_law(name, lambda bits, d=draw, s=s, t=t, b=base: d(bits, s, t, b), law, 3000)  # type: ignore[misc]


@pytest.mark.statistical
def test_a_geometric_number_has_the_listed_moments(vectors: dict[str, Any]) -> None:
    """False alarm: 1e-6 (five deviations of the mean, a tenth of the variance)."""
    row = vectors["primitives"]["geometric_moments"]["s=1,t=20"]
    bits = QuickBits(KeyedBits(b"oracle", b"moments"))
    drawn = [oracle.geometric(bits, 1, 20) for _ in range(20_000)]
    mean = Fraction(sum(drawn), len(drawn))
    variance = Fraction(sum(x * x for x in drawn), len(drawn)) - mean**2
    assert abs(mean - Fraction(row["mean"])) < 5 * (float(row["var"]) / len(drawn)) ** 0.5
    assert abs(variance / Fraction(row["var"]) - 1) < Fraction(1, 10)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("size", "slack"), [(10_000, 0.15), pytest.param(100_000, 0.05, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_a_geometric_number_takes_as_many_calls_as_are_expected(
    vectors: dict[str, Any], size: int, slack: float
) -> None:
    """False alarm: 1e-5. Also what the published profile of the algorithm shows (Table 6), within 2 percent."""
    expected = vectors["primitives"]["expected_calls_per_geometric_large_t"]
    bits = QuickBits(KeyedBits(b"oracle", b"calls"))
    oracle.CALLS.clear()
    for _ in range(size):
        oracle.geometric(bits, 1, 16_000)
    found = {name: oracle.CALLS[name] / size for name in ("bernoulli", "uniform")}
    for name, key in (("bernoulli", "bernoulli_rational"), ("uniform", "uniform_int")):
        assert abs(found[name] - float(expected[key])) < slack
        published = float(expected["paper_measured"][name].split("=")[1])
        assert abs(found[name] / published - 1) < 0.03


def test_a_refinement_that_is_pruned_draws_for_the_first_only() -> None:
    """Table 6: k + 2 further draws for each level, where the boundary is not tied itself."""
    a = [40 - i // 2 for i in range(30)]
    for seed in range(40):
        bits = QuickBits(KeyedBits(b"oracle", b"levels %d" % seed))
        counts = []
        for prune in (True, False):
            oracle.CALLS.clear()
            _, levels = oracle.algorithm_4(bits, a, 10, 1, 3, prune=prune)
            counts.append((oracle.CALLS["geometric"] - len(a), levels))
        (pruned, levels), (whole, whole_levels) = counts
        assert 12 * levels <= pruned <= 20 * levels
        assert whole == 30 * whole_levels


def enumerated_4(a: list[int], k: int, base: int, levels: int, bound: int) -> dict[Cell, Fraction]:
    """The law of Algorithm 4 where the finest level has the ratio 1/2, for noise up to a bound, exactly.

    Ties that outlive the last level are settled by a uniform order of what is below it, which is what further levels
    would do.
    """
    n, rho = len(a), Fraction(1, 2) ** base**levels
    found: dict[Cell, Fraction] = {}

    def tell(noisy: tuple[int, ...], rank_of: Sequence[int], level: int, order: Sequence[int], share: Fraction) -> None:
        pairs = pairwise(order)
        gaps = tuple(
            oracle.refined_gap(noisy[i], noisy[j], base**level, smaller_rank=rank_of[x] < rank_of[x + 1])
            for x, (i, j) in enumerate(pairs)
        )
        cell = tuple(order[:k]), gaps
        found[cell] = found.get(cell, Fraction(0)) + share

    @cache
    def digits(level: int) -> list[Fraction]:
        ratio = Fraction(1, 2) ** base ** (levels - level)
        total = sum(ratio**m for m in range(base))
        return [ratio**m / total for m in range(base)]

    def settle(noisy: tuple[int, ...], level: int, share: Fraction) -> None:
        order = sorted(range(n), key=lambda i: -noisy[i])
        first = [noisy[i] for i in order[: k + 2]]
        if len(set(first)) == len(first):
            for ranks in permutations(range(k + 1)):
                tell(noisy, ranks, level, order[: k + 1], share / oracle.factorial(k + 1))
        elif level < levels:
            for more in product(range(base), repeat=n):
                chance = prod(digits(level + 1)[m] for m in more)
                settle(tuple(base * x + m for x, m in zip(noisy, more, strict=True)), level + 1, share * chance)
        else:
            for ranks in permutations(range(n)):
                order = sorted(range(n), key=lambda i: (-noisy[i], -ranks[i]))[: k + 1]
                tell(noisy, [ranks[i] for i in order], level, order, share / oracle.factorial(n))

    for noise in product(range(bound + 1), repeat=n):
        settle(tuple(map(add, a, noise)), 0, (1 - rho) ** n * rho ** sum(noise))
    return found


@pytest.mark.parametrize(
    ("a", "k", "base", "levels", "bound"), [([1, 0, 0], 1, 2, 2, 4), ([0, 1, 0], 2, 2, 1, 7), ([0, 0], 1, 3, 1, 12)]
)
def test_the_published_algorithm_has_the_law_of_rounded_real_noise_exactly(
    a: list[int], k: int, base: int, levels: int, bound: int
) -> None:
    rho = Fraction(1, 2) ** base**levels
    found, exact = enumerated_4(a, k, base, levels, bound), oracle.law(a, rho, k, 2)
    missing = 1 - (1 - rho ** (bound + 1)) ** len(a)
    assert sum(found.values()) == 1 - missing
    assert missing < Fraction(1, 10_000)
    for cell, chance in exact.items():
        assert found.get(cell, 0) <= chance <= found.get(cell, 0) + missing
