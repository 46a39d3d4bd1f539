"""The published sparse histograms: exact laws, privacy ratios, traces and sizes of specs/finite, and wrong variants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from math import factorial
from typing import Any

import pytest

from experiments.finite.samplers import geo_sample
from experiments.finite.sparse import (
    Cell,
    Draw,
    Law,
    OrderLaw,
    Release,
    above_next,
    binomial_counts,
    capped_inverse_delta,
    denominator,
    distance,
    distinct_sample,
    fallback_law,
    inverse_delta,
    keep_heavy_law,
    mixed_law,
    order_law,
    pure_sparse_histogram,
    rounded_step,
    simulated_law,
    sparse_histogram,
    worst_ratio,
)
from stream_dp.histograms.counting_queries import CountingQuery, ceil_log2, distance_limit

E_BELOW = sum((Fraction(1, factorial(i)) for i in range(20)), Fraction(0))
SIZES = [(1, 3, 1, 4), (1, 4, 2, 4), (2, 5, 1, 4)]
"""n, |X|, 1 / epsilon, 1 / beta_1."""


def pmf(query: CountingQuery) -> list[list[Fraction]]:
    """At [c][z], the probability of z at the count c."""
    everything = range(query.bound + 1)
    return [[Fraction(query.cdf(c, z) - query.cdf(c, z - 1), query.draws) for z in everything] for c in everything]


def at_zero(query: CountingQuery) -> list[int]:
    return [query.cdf(0, z) for z in range(query.bound + 1)]


def tables(n: int, universe: int) -> list[tuple[int, ...]]:
    """The counts of all datasets of n rows."""
    return [counts for counts in product(range(n + 1), repeat=universe) if sum(counts) == n]


def neighbours(n: int, universe: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of tables that differ by the substitution of one row."""
    for one, other in product(tables(n, universe), repeat=2):
        if sum(abs(x - y) for x, y in zip(one, other, strict=True)) == 2:
            yield one, other


@cache
def ideal(n: int, universe: int, e: int, k: int) -> dict[tuple[int, ...], Law]:
    return {counts: keep_heavy_law(pmf(geo_sample(n, e)), counts, k) for counts in tables(n, universe)}


def approximate(n: int, universe: int, e: int, k: int, s: int) -> dict[tuple[int, ...], Law]:
    query = geo_sample(n, e)
    laws = {}
    for counts in tables(n, universe):
        orders = order_law(at_zero(query), counts.count(0), k + 1, rounded_step(s))
        laws[counts] = simulated_law(pmf(query), counts, k, orders)
    return laws


def released(text: str) -> Release:
    return tuple((int(key), int(count)) for key, count in json.loads(text))


@pytest.mark.parametrize(("n", "universe", "e", "_"), SIZES)
def test_the_simulation_has_the_law_of_noise_on_every_key(n: int, universe: int, e: int, _: int) -> None:
    query = geo_sample(n, e)
    for counts, law in ideal(n, universe, e, n).items():
        assert simulated_law(pmf(query), counts, n, order_law(at_zero(query), counts.count(0), n + 1)) == law


def test_laws_and_worst_ratios_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    assert [(r["n"], r["X"], r["inv_eps"], r["inv_beta1"]) for r in vectors["keepheavy_puresparse_exact"]] == SIZES
    for row in vectors["keepheavy_puresparse_exact"]:
        n, universe, e, beta = row["n"], row["X"], row["inv_eps"], row["inv_beta1"]
        delta = inverse_delta(e, beta, universe, n)
        s = denominator(universe, n, n, delta)
        assert (str(delta), str(s)) == (row["inv_delta"], row["s"])
        heavy, rounded, fallback = (
            ideal(n, universe, e, n),
            approximate(n, universe, e, n, s),
            fallback_law(universe, n, n),
        )
        pure = {counts: mixed_law(law, fallback, Fraction(1, beta)) for counts, law in rounded.items()}
        first = (n, *[0] * (universe - 1))
        for name, law in (("KeepHeavy", heavy[first]), ("PureSparse", pure[first])):
            listed = row[f"{name}_pmf_D=(1,..,1)"]
            if listed != "omitted":
                assert law == {released(text): Fraction(p) for text, p in listed.items()}
        assert all(distance(heavy[counts], rounded[counts]) <= Fraction(1, delta) for counts in heavy)
        assert worst(heavy, n, universe) == Fraction(row["KeepHeavy_max_ratio"]) == geo_sample(n, e).ratio ** 2
        ratio = worst(pure, n, universe)
        assert ratio is not None
        assert float(ratio) == row["PureSparse_max_ratio"]
        assert ratio**e <= E_BELOW


def worst(laws: dict[tuple[int, ...], Law], n: int, universe: int) -> Fraction | None:
    """The largest ratio over all neighbours; None where one of them cannot have an outcome of the other."""
    ratios = [worst_ratio(laws[one], laws[other]) for one, other in neighbours(n, universe)]
    return None if None in ratios else max(filter(None, ratios))


@pytest.mark.parametrize(("n", "universe", "size"), [(1, 3, 4), (2, 5, 51), (2, 4, 33)])
def test_the_fallback_has_every_release_and_the_stated_least_probability(n: int, universe: int, size: int) -> None:
    law = fallback_law(universe, n, n)
    every = {()} | {
        tuple(zip(keys, counts, strict=True))
        for number in range(1, n + 1)
        for keys in product(range(1, universe + 1), repeat=number)
        for counts in product(range(1, n + 1), repeat=number)
        if list(keys) == sorted(set(keys))
    }

    assert law.keys() == every
    assert len(law) == size
    assert sum(law.values()) == 1
    assert min(law.values()) == Fraction(factorial(n), ((n + 1) * universe) ** n) >= Fraction(1, (3 * universe) ** n)


def test_a_distance_from_the_exact_ratio_gives_that_ratio(vectors: dict[str, Any]) -> None:
    assert len(vectors["derived_puresparse_exact_ledger"]) == 3
    for row in vectors["derived_puresparse_exact_ledger"]:
        n, universe, e, beta = row["n"], row["X"], row["inv_eps"], row["inv_beta1"]
        price, fallback = geo_sample(n, e).ratio ** 2, fallback_law(universe, n, n)
        limit = distance_limit(price, Fraction(1, beta), min(fallback.values()))
        delta = -(-limit.denominator // limit.numerator)
        s = 1 << ceil_log2(denominator(universe, n, n, delta))
        assert (str(delta), str(s), price) == (row["inv_delta"], row["s_power_of_two"], Fraction(row["ledger_ratio"]))
        rounded = approximate(n, universe, e, n, s)
        ratio = worst(
            {counts: mixed_law(law, fallback, Fraction(1, beta)) for counts, law in rounded.items()}, n, universe
        )
        assert ratio is not None
        assert float(ratio) == row["max_ratio"]
        assert ratio <= price


def test_a_cap_below_n_is_as_private(vectors: dict[str, Any]) -> None:
    row = vectors["derived_topk_exact"]
    n, k, universe, e, beta = row["n"], row["K"], row["X"], row["inv_eps"], row["inv_beta1"]
    delta = capped_inverse_delta(e, beta, universe, n, k)
    s = denominator(universe, n, k, delta)
    assert (delta, s) == (row["inv_delta"], row["s"]) == (144, 3456)
    query, fallback = geo_sample(n, e), fallback_law(universe, n, k)
    heavy, rounded = ideal(n, universe, e, k), approximate(n, universe, e, k, s)
    for counts, law in heavy.items():
        assert simulated_law(pmf(query), counts, k, order_law(at_zero(query), counts.count(0), k + 1)) == law
    assert float(max(distance(heavy[counts], rounded[counts]) for counts in heavy)) == row["max_TV"] <= row["delta"]
    ratio = worst({counts: mixed_law(law, fallback, Fraction(1, beta)) for counts, law in rounded.items()}, n, universe)
    assert ratio is not None
    assert float(ratio) == row["max_ratio"]
    assert ratio <= E_BELOW


# Wrong variants: each changes the law of the simulation, or what neighbours can release.


def at_the_nth(cells: Sequence[Cell], k: int) -> Release:
    return above_next(cells, k - 1) if k > 1 else tuple(cell for cell in cells if cell[1] > max(c for _, c in cells))


def with_ties(cells: Sequence[Cell], k: int) -> Release:
    cut = sorted((count for _, count in cells), reverse=True)[k]
    return tuple(sorted(cell for cell in cells if cell[1] >= max(cut, 1)))[:k]


def mutant_law(
    query: CountingQuery,
    counts: Sequence[int],
    k: int,
    cut: Callable[[Sequence[Cell], int], Release] = above_next,
    names: Callable[[list[int], list[int], int], list[tuple[int, ...]]] | None = None,
    orders: Callable[[list[int], int, int], OrderLaw] = order_law,
) -> Law:
    """The law of the simulation with one part exchanged."""
    rows, law = pmf(query), dict[Release, Fraction]()
    held = [key for key, count in enumerate(counts, 1) if count]
    empty = [key for key, count in enumerate(counts, 1) if not count]
    listed = names(held, empty, k + 1) if names else list(permutations(empty, k + 1))
    for noisy in product(range(query.bound + 1), repeat=len(held)):
        chance = Fraction(1, len(listed))
        for key, z in zip(held, noisy, strict=True):
            chance *= rows[counts[key - 1]][z]
        for values, share in orders(at_zero(query), len(empty), k + 1).items():
            for keys in listed:
                cells = [*zip(held, noisy, strict=True), *zip(keys, values, strict=True)]
                release = cut(cells, k)
                law[release] = law.get(release, Fraction(0)) + chance * share
    return law


def independent(cdf: list[int], m: int, places: int) -> OrderLaw:
    """Noise for k + 1 keys alone, as if no others were there."""
    return order_law(cdf, places, places)


def too_few(cdf: list[int], m: int, places: int) -> OrderLaw:
    """One value less than the cut needs: the last is 0."""
    law: OrderLaw = {}
    for values, chance in order_law(cdf, m, places).items():
        law[(*values[:-1], 0)] = law.get((*values[:-1], 0), Fraction(0)) + chance
    return law


MUTANTS: dict[str, dict[str, Any]] = {
    "cut at the n-th": {"cut": at_the_nth},
    "ties kept": {"cut": with_ties},
    "names from all keys": {"names": lambda held, empty, r: list(permutations(held + empty, r))},
    "names with repetition": {"names": lambda held, empty, r: list(product(empty, repeat=r))},
    "independent candidates": {"orders": independent},
    "one value too few": {"orders": too_few},
}


def test_no_wrong_variant_has_the_law_of_noise_on_every_key() -> None:
    query, k = geo_sample(2, 1), 2
    laws = [(counts, ideal(2, 5, 1, k)[counts]) for counts in ((2, 0, 0, 0, 0), (1, 1, 0, 0, 0))]

    def survives(parts: dict[str, Any]) -> bool:
        return all(mutant_law(query, counts, k, **parts) == right for counts, right in laws)

    assert survives({})
    assert [name for name, parts in MUTANTS.items() if survives(parts)] == []


def test_noise_on_observed_keys_alone_tells_who_was_there() -> None:
    rows = pmf(geo_sample(1, 1))
    laws = [{((key, z),) if z else (): rows[1][z] for z in range(2)} for key in (1, 2)]

    assert worst_ratio(*laws) is None


# Runs of the published mechanisms.


class Tape:
    """Draws that a test chose beforehand."""

    def __init__(self, draws: Sequence[int]) -> None:
        self.left = list(draws)

    def __call__(self, d: int) -> int:
        drawn = self.left.pop(0)
        assert 1 <= drawn <= d
        return drawn


def test_traces_of_the_vectors_repeat(vectors: dict[str, Any]) -> None:
    assert len(vectors["trace_sparse_histogram"]) == 5
    for row in vectors["trace_sparse_histogram"]:
        counts = {key: row["D"].count(key) for key in set(row["D"])}
        query = geo_sample(row["n"], row["inv_eps"])
        assert query.draws == row["d"]
        found = sparse_histogram(query, row["X"], counts, row.get("K", row["n"]), row["s"], Tape(row["tape"]))
        assert [list(cell) for cell in found] == row["release"]


def test_distinct_keys_are_those_of_the_vectors_and_uniform(vectors: dict[str, Any]) -> None:
    assert len(vectors["distinct_sample"]) == 4
    for row in vectors["distinct_sample"]:
        assert distinct_sample(row["m"], row["A"], len(row["z"]), Tape(row["z"])) == row["out"]
    found = [tuple(distinct_sample(6, [2, 5], 2, Tape(z))) for z in product(range(1, 5), range(1, 4))]
    assert sorted(found) == sorted(permutations([1, 3, 4, 6], 2))


def law_of_run(run: Callable[[Draw], Release]) -> Law:
    """The law of a run: every draw is looked at."""
    law: Law = {}
    open_tapes: list[tuple[list[int], Fraction]] = [([], Fraction(1))]
    while open_tapes:
        tape, chance = open_tapes.pop()
        asked: list[int] = []

        def draw(d: int, tape: list[int] = tape, asked: list[int] = asked) -> int:
            asked.append(d)
            if len(asked) > len(tape):
                raise IndexError
            return tape[len(asked) - 1]

        try:
            release = run(draw)
            law[release] = law.get(release, Fraction(0)) + chance
        except IndexError:
            open_tapes += [([*tape, drawn], chance / asked[-1]) for drawn in range(1, asked[-1] + 1)]
    return law


def test_the_law_of_the_pure_run_is_the_mixture_of_the_laws() -> None:
    query, s = geo_sample(1, 1), 60
    orders = order_law(at_zero(query), 2, 2, rounded_step(s))
    mixture = mixed_law(simulated_law(pmf(query), (1, 0, 0), 1, orders), fallback_law(3, 1, 1), Fraction(1, 2))

    assert law_of_run(lambda draw: pure_sparse_histogram(query, 3, {1: 1}, 1, 2, s, draw)) == mixture
    assert binomial_counts(s, 2, 2, 2, 5) != [0, 0, s]


def test_sizes_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    assert [row["log2_s_ceil"] for row in vectors["puresparse_sizes"]] == [251, 6644, 65677, 655952]
    for row in vectors["puresparse_sizes"]:
        n, universe = row["n"], 1 << row["log2_X"]
        delta = inverse_delta(row["inv_eps"], row["inv_beta1"], universe, n)
        s = denominator(universe, n, n, delta)
        assert (ceil_log2(delta), ceil_log2(s)) == (row["log2_inv_delta_ceil"], row["log2_s_ceil"])
        assert hashlib.sha256(f"{s:x}".encode()).hexdigest() == row["sha256_s"]
    assert len(vectors["derived_topk_sizes"]) == 3
    for row in vectors["derived_topk_sizes"]:
        n, k, universe = row["n"], row["K"], 1 << row["log2_X"]
        delta = capped_inverse_delta(row["inv_eps"], row["inv_beta1"], universe, n, k)
        assert ceil_log2(delta) == row["log2_inv_delta_ceil"]
        assert ceil_log2(denominator(universe, n, k, delta)) == row["log2_s_ceil"]
