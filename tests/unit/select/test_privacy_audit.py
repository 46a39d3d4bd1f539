"""Every output of neighbouring tables, enumerated: the guarantee holds, and mutants that break it are flagged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import exp
from random import Random
from typing import Any

import pytest

from stream_dp.accounting import selection_cost
from stream_dp.select.candidates import Domain, candidates
from stream_dp.select.gumbel import GumbelTopK, TopKParameters
from tests.support.chosen import ordinarily

Counts = Mapping[bytes, int]


def random_neighbours(random: Random, domain: Domain) -> tuple[Counts, Counts, TopKParameters]:
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
        domain,
    )
    return counts, counts | {item: counts[item] + 1 for item in moved}, p


@pytest.mark.parametrize("number", [150, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", ordinarily(1, Domain))
def test_random_neighbours_stay_within_delta_at_k_epsilon_and_at_the_price_of_each_output(
    laws: Any, vectors: dict[str, Any], domain: Domain, number: int
) -> None:
    random = Random(1905)
    tightest = Fraction(0)
    for _ in range(number):
        counts, more, p = random_neighbours(random, domain)
        one, other = laws.of_counts(counts, p), laws.of_counts(more, p)
        # Theorem 1 as printed (the proof has a gap, no violation is known) ...
        printed = laws.divergence(one, other, lambda _, p=p: p.k * p.epsilon)
        # ... and what the ledger relies on: every output at what it is charged.
        charged = laws.divergence(one, other, lambda o, p=p: selection_cost(o.draws, p.epsilon, p.delta).epsilon)
        assert printed.upper <= p.delta, (counts, more, p)
        assert charged.upper <= p.delta, (counts, more, p)
        tightest = max(tightest, printed.lower / p.delta)
    assert tightest > Fraction(99, 100)  # the audit reaches the bound, so a smaller constant would be flagged
    assert tightest < vectors["exact_audit_random_neighbours"]["must_be_at_most"]


def mutant_laws(laws: Any, name: str, pair: tuple[Counts, Counts], p: TopKParameters) -> tuple[Any, Any]:
    """What a wrong implementation would publish on both tables, named as in the vectors."""
    if name.startswith("strict domain with ln(Delta/delta)"):

        def law(counts: Counts) -> Any:
            rows, h_next = candidates(counts, p.kbar)
            return laws.oracle_of_rows([row for row in rows if row[1] > h_next], h_next, p)
    elif name.startswith("threshold without +1"):

        def law(counts: Counts) -> Any:
            rows, h_next = candidates(counts, p.kbar)
            return laws.oracle_of_rows(rows, h_next, p, plus=0)
    elif name.startswith("ties broken by arrival order"):

        def law(counts: Counts) -> Any:
            arrival = b"abcxyz" if counts == pair[0] else b"axyzbc"
            rows = sorted(counts.items(), key=lambda row: (-row[1], arrival.index(row[0])))
            return laws.oracle_of_rows(rows[: p.kbar], rows[p.kbar][1], p)
    elif name.startswith("store returned only kbar rows"):

        def law(counts: Counts) -> Any:
            return laws.oracle_of_rows(candidates(counts, p.kbar)[0], 0, p)
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
        if name.startswith("user counted 3 times"):
            continue  # its repair is another mechanism: noise scaled to 3
        if name.startswith("strict"):
            p = replace(p, domain=Domain.STRICT)
        right = laws.divergence(laws.of_counts(one, p), laws.of_counts(other, p), lambda _, total=total: total)
        assert abs(right.upper - Fraction(row["H_right"])) < Fraction("1e-9"), name
        assert right.upper <= delta, name


def test_peeling_on_the_common_candidates_is_no_equality_and_the_hardened_statement_does_not_need_it(
    vectors: dict[str, Any], laws: Any
) -> None:
    row = vectors["lemma56_counterexample"]
    p = TopKParameters(row["k"], row["kbar"], Fraction(row["eps"]), row["delta"])
    counts = {item.encode(): count for item, count in row["counts"].items()}
    rows, h_next = candidates(counts, p.kbar)
    whole = laws.of_rows(rows, h_next, p)
    common = laws.oracle_of_rows([one for one in rows if one[0] == b"a"], h_next, p)
    good = sum(share.lower for output, share in whole.items() if b"b" not in output.items)
    for listed in row["rows"]:
        output = GumbelTopK(tuple(i.encode() for i in listed["output"] if i != "_BOT_"), "_BOT_" in listed["output"])
        assert abs(whole[output].lower - Fraction(listed["lhs"])) < Fraction("1e-9")
        assert abs(common[output].lower * good - Fraction(listed["rhs"])) < Fraction("1e-9")
        # Step (ii) of the proof that is used instead (specs/topk 3.4).
        assert whole[output].lower <= common[output].upper


def test_noise_of_another_scale_than_the_threshold_is_flagged(vectors: dict[str, Any]) -> None:
    for row in vectors["mismatched_scale_bad_event"]:
        m, delta, scale = row["m"], Fraction(row["delta"]), row["noise_scale_times_eps"]
        bad = m / (m + float(m / delta) ** (1 / scale))
        assert bad == pytest.approx(float(row["p_bad"]), rel=1e-9, abs=0)
        assert (bad <= delta) == (scale == 1)


def test_a_threshold_or_a_published_count_with_bare_gumbel_noise_is_flagged(vectors: dict[str, Any]) -> None:
    published = {row["eps"]: row["delta_at_same_eps"] for row in vectors["gumbel_noisy_count_release_violation"]}
    for row in vectors["noiseless_threshold_gumbel_violation"]:
        epsilon = float(row["eps"])
        # A count x above the fixed threshold is returned with probability 1 - exp(-e^(epsilon x)).
        worst = max(
            exp(-exp(epsilon * x / 1000)) - exp(epsilon) * exp(-exp(epsilon * (x / 1000 + 1)))
            for x in range(0, 40_000, 5)
        )
        assert worst == pytest.approx(float(row["delta_leak"]), rel=1e-5, abs=0)
        assert published[row["eps"]] == row["delta_leak"]  # the same event of the noisy count


def test_an_item_at_the_edge_appears_rarely_in_the_strict_domain_and_with_the_wrong_multiplier_often(laws: Any) -> None:
    counts = {b"%02d" % i: 6 for i in range(50)} | {b"z": 5}
    strict = TopKParameters(1, 50, Fraction(1, 2), Fraction(1, 100), 1, Domain.STRICT)
    shipped = laws.of_counts(counts, strict)
    assert abs(1 - shipped[GumbelTopK((), bottom=True)].lower - Fraction(1, 101)) < Fraction("1e-9")
    mutant = laws.oracle_of_rows(*candidates(counts, 50), replace(strict, domain=Domain.POSITIVE))
    assert abs(1 - mutant[GumbelTopK((), bottom=True)].lower - Fraction(1, 3)) < Fraction("1e-9")


def test_counts_that_move_both_ways_lose_twice_as_much(laws: Any) -> None:
    """Retractions, or replacing a user, are no neighbours: one draw may cost two epsilon then (specs/topk P12)."""
    p = TopKParameters(1, 21, Fraction(1, 2), Fraction(1, 10**6))

    def law(first: int, others: int) -> Any:
        return laws.of_counts({b"a": first, b"z": 1} | {b"%02d" % i: others for i in range(20)}, p)

    one = law(50, 51)
    assert laws.divergence(one, law(51, 51), lambda _: p.epsilon).upper <= p.delta
    both_ways = law(51, 50)
    assert laws.divergence(one, both_ways, lambda _: p.epsilon).lower > 1000 * p.delta
    assert laws.divergence(one, both_ways, lambda _: 2 * p.epsilon).upper <= p.delta


def test_a_selection_says_its_items_and_bottom_and_nothing_else() -> None:
    """Not how many passed the threshold beyond k, no count, no gap (specs/topk P13, P14)."""
    assert GumbelTopK.__slots__ == ("items", "bottom")
