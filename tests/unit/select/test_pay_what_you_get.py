"""Whole ledgers, enumerated: the shipped selection, its price and the ledger together keep the ledger's promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import comb, exp
from random import Random
from typing import Any

import pytest

from stream_dp.accounting import Cost, Ledger, commit, reserve, selection_cost
from stream_dp.select.gumbel import GumbelTopK, TopKParameters

Table = dict[bytes, int]
Price = Callable[[GumbelTopK], Cost]


def transcripts(laws: Any, tables: list[Table], p: TopKParameters, budget: Cost, price: Price) -> dict[Any, Any]:
    """All sequences of outputs one ledger can produce, with their probabilities.

    The reader adapts: after a lone bottom it asks for one item among fewer candidates, else for as many as are left.
    """
    law: dict[Any, Any] = {}
    open_ends: list[Any] = [((), Ledger(budget), laws.power_of_e(Fraction(0)))]
    while open_ends:
        assert len(law) < 1_000, "the ledger admits far more calls than its budget holds"
        seen, ledger, probability = open_ends.pop()
        if len(seen) == len(tables):
            law[seen] = probability
            continue
        wanted = 1 if seen and seen[-1] == GumbelTopK((), bottom=True) else p.k
        for k in range(wanted, 0, -1):
            asked = replace(p, k=k, kbar=p.kbar + k - p.k)
            outcome = reserve(ledger, "call", selection_cost(k, p.epsilon, p.delta))
            if isinstance(outcome, Ledger):
                break
        else:
            open_ends.append(((*seen, None), ledger, probability))
            continue
        for output, share in laws.of_counts(tables[len(seen)], asked).items():
            charged = commit(outcome, "call", price(output), {}, view="pages")
            open_ends.append(((*seen, output), charged, probability.times(share)))
    return law


def random_stream(random: Random, calls: int, items_per_user: int | None) -> tuple[list[Table], list[Table]]:
    one, other = [], []
    for _ in range(calls):
        counts = {item: random.randint(0, 4) + random.choice([0, 0, 12]) for item in (b"a", b"b", b"c", b"d")}
        moved = random.sample(sorted(counts), random.randint(0, items_per_user or 4))
        one.append(counts)
        other.append(counts | {item: counts[item] + 1 for item in moved})
    return one, other


@pytest.mark.slow
def test_a_ledger_of_several_adaptive_calls_keeps_its_budget(laws: Any) -> None:
    random = Random(45)
    tightest = Fraction(0)
    for _ in range(250):
        calls, draws = random.randint(1, 3), random.randint(2, 4)
        epsilon = random.choice([Fraction(1, 20), Fraction(3, 10), Fraction(1)])
        delta = random.choice([Fraction(1, 1000), Fraction(1, 50)])
        p = TopKParameters(2, 2, epsilon, delta, random.choice([None, 1]))
        budget = Cost(draws * (epsilon + delta), calls * delta)

        def price(output: GumbelTopK, p: TopKParameters = p) -> Cost:
            return selection_cost(output.draws, p.epsilon, p.delta)

        one, other = (
            transcripts(laws, stream, p, budget, price) for stream in random_stream(random, calls, p.items_per_user)
        )
        excess = laws.divergence(one, other, lambda _, budget=budget: budget.epsilon)
        assert excess.upper <= budget.delta
        print(float(excess.lower / budget.delta))
        tightest = max(tightest, excess.lower / budget.delta)
    assert tightest > Fraction(1, 2)


def test_a_ledger_that_lets_bottom_go_free_is_flagged(vectors: dict[str, Any], laws: Any) -> None:
    row = vectors["uncharged_bottom_violation"][0]
    epsilon, calls = Fraction(row["eps"]), row["max_calls"]
    # item : bottom = delta e^(epsilon (101 - 0 - 1)), which is the row's ratio for this delta.
    p = TopKParameters(1, 1, epsilon, Fraction(float(row["item_to_bottom_weight_ratio"]) * exp(-100 * epsilon)), 1)
    budget = Cost(row["k_star"] * (epsilon + p.delta), calls * p.delta)

    def leak(price: Price) -> Any:
        one, other = (transcripts(laws, [{b"a": count}] * calls, p, budget, price) for count in (101, 102))
        return laws.divergence(one, other, lambda _: row["k_star"] * epsilon)

    assert leak(lambda o: selection_cost(o.draws, p.epsilon, p.delta)).upper <= budget.delta
    free = leak(lambda o: Cost(len(o.items) * (epsilon + p.delta), p.delta))
    assert abs(free.lower - Fraction(row["delta_leak_at_kstar_eps"])) < Fraction("1e-9")
    assert free.lower > 100 * budget.delta


def test_free_bottoms_leak_as_listed_over_longer_ledgers(vectors: dict[str, Any]) -> None:
    for row in vectors["uncharged_bottom_violation"]:
        ratio, epsilon = float(row["item_to_bottom_weight_ratio"]), float(row["eps"])
        draws, calls = row["k_star"], row["max_calls"]
        p, q = ratio / (1 + ratio), ratio * exp(epsilon) / (1 + ratio * exp(epsilon))
        # A transcript ends with the last item that can be paid for, or with the last call.
        ends = [(comb(calls_made - 1, draws - 1), draws, calls_made) for calls_made in range(draws, calls + 1)]
        ends += [(comb(calls, items), items, calls) for items in range(draws)]
        leak = sum(
            ways
            * max(
                0.0, p**items * (1 - p) ** (made - items) - exp(draws * epsilon) * q**items * (1 - q) ** (made - items)
            )
            for ways, items, made in ends
        )
        assert abs(leak - float(row["delta_leak_at_kstar_eps"])) < 1e-9
