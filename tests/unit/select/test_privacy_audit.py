"""Every output of neighbouring tables, enumerated: the guarantee holds, and mutants that break it are flagged."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import Any

from stream_dp.accounting import selection_cost
from stream_dp.select import TopKParameters, candidates

Counts = Mapping[bytes, int]


def random_neighbours(random: Random) -> tuple[Counts, Counts, TopKParameters]:
    """Small tables full of ties at the edges that matter, and one user added who moves what they may."""
    items = [b"%d" % index for index in range(random.randint(1, 5))]
    items_per_user = random.choice([None, 1, 2])
    counts = {item: random.choice([0, 0, 1, 2, 5, 6, 6, 20]) for item in items}
    moved = random.sample(items, random.randint(1, min(items_per_user or len(items), len(items))))
    k = random.randint(1, 2)
    p = TopKParameters(
        k,
        random.randint(k, 4),
        random.choice([Fraction(1, 20), Fraction(1, 5), Fraction(1)]),
        random.choice([Fraction(1, 1000), Fraction(1, 50), Fraction(1, 5)]),
        items_per_user,
    )
    return counts, counts | {item: counts[item] + 1 for item in moved}, p


def test_random_neighbours_stay_within_delta_at_k_epsilon_and_at_the_price_of_each_output(laws: Any) -> None:
    random = Random(1905)
    tightest = Fraction(0)
    for _ in range(1000):
        counts, more, p = random_neighbours(random)
        one, other = laws.of_counts(counts, p), laws.of_counts(more, p)
        # Theorem 1 as printed (the proof has a gap, no violation is known) ...
        printed = laws.divergence(one, other, lambda _, p=p: p.k * p.epsilon)
        # ... and what the ledger relies on: every output at what it is charged.
        charged = laws.divergence(one, other, lambda o, p=p: selection_cost(o.draws, p.epsilon, p.delta).epsilon)
        assert printed.upper <= p.delta, (counts, more, p)
        assert charged.upper <= p.delta, (counts, more, p)
        tightest = max(tightest, printed.lower / p.delta)
    assert tightest > Fraction(99, 100)  # the audit reaches the bound, so a smaller constant would be flagged


def mutant_laws(laws: Any, name: str, pair: tuple[Counts, Counts], p: TopKParameters) -> tuple[Any, Any]:
    """What a wrong implementation would publish on both tables, named as in the vectors."""
    if name.startswith("strict domain with ln(Delta/delta)"):

        def law(counts: Counts) -> Any:
            rows, h_next = candidates(counts, p.kbar)
            return laws.of_rows([row for row in rows if row[1] > h_next], h_next, p)
    elif name.startswith("threshold without +1"):

        def law(counts: Counts) -> Any:
            rows, h_next = candidates(counts, p.kbar)
            return laws.of_rows(rows, h_next - 1, p)
    elif name.startswith("ties broken by arrival order"):

        def law(counts: Counts) -> Any:
            arrival = b"abcxyz" if counts == pair[0] else b"axyzbc"
            rows = sorted(counts.items(), key=lambda row: (-row[1], arrival.index(row[0])))
            return laws.of_rows(rows[: p.kbar], rows[p.kbar][1], p)
    elif name.startswith("store returned only kbar rows"):

        def law(counts: Counts) -> Any:
            return laws.of_rows(candidates(counts, p.kbar)[0], 0, p)
    elif name.startswith("kbar set to the number of keys present"):

        def law(counts: Counts) -> Any:
            return laws.of_counts(counts, TopKParameters(p.k, len(counts), p.epsilon, p.delta, p.items_per_user))
    else:
        assert name.startswith("user counted 3 times in one cell")

        def law(counts: Counts) -> Any:
            return laws.of_counts(counts, p)

    one, other = pair
    return law(one), law(other)


def test_every_mutant_of_the_vectors_is_flagged_and_the_shipped_code_is_not(vectors: dict[str, Any], laws: Any) -> None:
    assert len(vectors["negative_tests_exact"]) == 6
    for row in vectors["negative_tests_exact"]:
        name, delta = row["name"], row["delta"]
        one, other = ({i.encode(): c for i, c in row[key].items()} for key in ("counts", "counts_neighbour"))
        bounded = "Delta=1" in name
        p = TopKParameters(row["k"], row["kbar"], Fraction(row["eps"]), delta, 1 if bounded else None)
        total = Fraction(row["eps_total"])
        wrong = laws.divergence(*mutant_laws(laws, name, (one, other), p), lambda _, total=total: total)
        assert abs(wrong.lower - Fraction(row["H_wrong"])) < Fraction("1e-9"), name
        assert wrong.lower > delta, name
        if name.startswith(("user counted 3 times", "strict")):
            continue  # their repairs are other mechanisms: noise scaled to 3, and kbar in the strict threshold
        right = laws.divergence(laws.of_counts(one, p), laws.of_counts(other, p), lambda _, total=total: total)
        assert abs(right.upper - Fraction(row["H_right"])) < Fraction("1e-9"), name
        assert right.upper <= delta, name
