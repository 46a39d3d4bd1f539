from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any

from stream_dp.exact.reals import exp_neg
from stream_dp.select.gumbel import (
    GumbelTopK,
    TopKParameters,
    chance_of_noise,
    lead_for_all,
    lead_for_inclusion,
    shortfall,
    threshold,
)

CLOSE = Fraction("1e-9")


def inclusion(p: TopKParameters, lead: int, precision: int = 128) -> tuple[Fraction, Fraction]:
    """Enclose the chance that a lone item, `lead` users above the (kbar+1)-st count, is drawn against bottom."""
    exponent = p.epsilon * (lead - 1)
    lower, upper = (Fraction(bound, 1 << precision) for bound in exp_neg(abs(exponent), precision))
    if exponent < 0:
        return Fraction(lower, lower + p.odds), Fraction(upper, upper + p.odds)
    return Fraction(1, 1 + p.odds * upper), Fraction(1, 1 + p.odds * lower)


def close_above(value: Fraction, listed: Fraction) -> bool:
    return -CLOSE < value - listed < CLOSE


def test_the_statements_of_lemma_8_1(vectors: dict[str, Any]) -> None:
    for row in vectors["accuracy_lemma81"]:
        p = TopKParameters(row["k"], row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"])
        assert close_above(shortfall(p, row["beta"]), row["alpha"])
        assert close_above(lead_for_all(p, row["beta"]), row["gap_hk_minus_h_next_for_k_outputs"])


def test_an_item_alone_needs_the_threshold_for_an_even_chance_and_more_for_a_better_one(
    vectors: dict[str, Any], laws: Any
) -> None:
    p = TopKParameters(1, 1, Fraction("0.1"), Fraction("1e-6"), 1)
    assert abs(lead_for_inclusion(p, Fraction(1, 2)) - threshold(0, p)[1]) < CLOSE
    # ln(9) / epsilon above it for nine in ten
    assert abs(float(lead_for_inclusion(p, Fraction(9, 10)) - threshold(0, p)[1]) - 21.972245773362196) < 1e-9
    for lead in (0, 1, 100, 139, 200):
        lower, upper = inclusion(p, lead)
        share = laws.of_counts({b"a": 50 + lead, b"b": 50}, p)[GumbelTopK((b"a",), bottom=False)]
        assert lower <= share.upper
        assert share.lower <= upper
        assert upper - lower < Fraction(1, 10**30)
    rows = {float(row["eps_times_gap"]): row["gumbel"] for row in vectors["single_candidate_inclusion"]}
    for gap, listed in rows.items():
        delta = Fraction(exp(gap - 19))  # a lead of 20 at epsilon 1 is the gap above the threshold
        assert abs(inclusion(TopKParameters(1, 1, Fraction(1), delta), 20)[0] - listed) < CLOSE
        assert (
            abs(inclusion(TopKParameters(1, 1, Fraction(1), Fraction(1, 2)), 0)[0] - 1 / (1 + 2 * Fraction(exp(1))))
            < CLOSE
        )


def test_the_chance_of_anything_in_a_flat_table(vectors: dict[str, Any]) -> None:
    for row in vectors["flat_histogram_prob_not_bottom_first"]:
        p = TopKParameters(1, row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"])
        assert abs(chance_of_noise(p) / row["p"] - 1) < CLOSE
