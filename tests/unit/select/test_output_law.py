"""The exact law of the shipped code against the vectors of specs/topk 7."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any

import pytest

from stream_dp.errors import StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.select.candidates import Domain, candidates
from stream_dp.select.gumbel import GumbelTopK, TopKParameters, limited_domain_top_k, peel
from stream_dp.select.one_shot import Exact, NoisyThreshold, noisy_top_k
from stream_dp.select.peeling import BOTTOM
from tests.support.items import text
from tests.support.tapes import RecordedBits

CLOSE = Fraction("1e-9")
HALF, TWENTIETH = Fraction(1, 2), Fraction(1, 20)


DOMAINS = {"alg1": Domain.WHOLE, "positive": Domain.POSITIVE, "strict": Domain.STRICT}


def parameters(row: dict[str, Any], k: int | None = None) -> TopKParameters:
    domain = DOMAINS[row.get("domain_rule", "positive")]
    wanted = row["k"] if k is None else k
    return TopKParameters(wanted, row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"], domain)


def table(counts: dict[str, int]) -> dict[bytes, int]:
    return {item.encode(): count for item, count in counts.items()}


def outcome(names: list[str]) -> GumbelTopK:
    return GumbelTopK(tuple(name.encode() for name in names if name != "_BOT_"), "_BOT_" in names)


def test_exact_output_distributions(vectors: dict[str, Any], laws: Any) -> None:
    assert len(vectors["exact_output_distributions_gumbel"]) == 7
    for row in vectors["exact_output_distributions_gumbel"]:
        p = parameters(row)
        assert p.multiplier == row["m"]
        law = laws.of_counts(table(row["counts"]), p)
        assert law.keys() == {outcome(listed["output"]) for listed in row["outcomes"]}, row["name"]
        for listed in row["outcomes"]:
            assert abs(law[outcome(listed["output"])].lower - Fraction(listed["p"])) < CLOSE, row["name"]


def test_a_table_without_a_single_count_gives_bottom_and_costs_one_draw() -> None:
    output = limited_domain_top_k([], 0, TopKParameters(3, 5, HALF, TWENTIETH), KeyedBits(b"k", b"empty"))
    assert (output, output.draws) == (GumbelTopK((), bottom=True), 1)


@pytest.mark.parametrize("mutant", ["wrong_noiseless_threshold_gumbel", "wrong_gumbel_scale_2_over_eps", "laplace"])
def test_an_item_alone_follows_the_logistic_curve_and_none_of_the_wrong_ones(
    vectors: dict[str, Any], laws: Any, mutant: str
) -> None:
    furthest = Fraction(0)
    for row in vectors["single_candidate_inclusion"]:
        # kbar = 1 and epsilon = 1: the gap to h_bot is (40 - 20 - 1) + ln delta.
        delta = Fraction(exp(row["eps_times_gap"] - 19))
        law = laws.of_counts({b"a": 40, b"b": 20}, TopKParameters(1, 1, Fraction(1), delta))
        included = law[GumbelTopK((b"a",), bottom=False)].lower
        assert abs(included - row["gumbel"]) < CLOSE
        furthest = max(furthest, abs(included - Fraction(row[mutant])))
    assert furthest > Fraction("0.01")


def test_a_flat_table_rarely_gives_anything_but_bottom(vectors: dict[str, Any], laws: Any) -> None:
    for row in vectors["flat_histogram_prob_not_bottom_first"]:
        counts = {b"%04d" % item: 8 for item in range(row["kbar"] + 1)}
        law = laws.of_counts(counts, parameters(row, k=1))
        assert abs(1 - law[GumbelTopK((), bottom=True)].lower - Fraction(row["p"])) < CLOSE


def test_an_item_at_the_edge_of_the_candidates_appears_as_rarely_as_allowed(laws: Any) -> None:
    p = TopKParameters(2, 2, Fraction(1), TWENTIETH)
    law = laws.of_counts({b"a": 100, b"b": 10, b"c": 11}, p)
    assert abs(sum(x.lower for output, x in law.items() if b"c" in output.items) - Fraction(1, 41)) < CLOSE


def test_injected_noise_decides_as_in_the_one_shot_form(vectors: dict[str, Any]) -> None:
    assert len(vectors["noise_injection"]) == 9
    for row in vectors["noise_injection"]:
        p = parameters(row)
        rows, h_next = candidates(table(row["counts"]), p.kbar, p.domain)
        noise = [Fraction(row["noise"][text(item)]) for item, _ in rows]
        bar = NoisyThreshold(h_next, p, Exact(Fraction(row["noise_bot"])))
        lower, upper = bar.enclose(64)
        assert lower - CLOSE < row["v_bot"] < upper + CLOSE
        one_shot = noisy_top_k(rows, [Exact(value) for value in noise], bar, p.k)
        assert (one_shot.items, one_shot.bottom) == (outcome(row["output"]).items, outcome(row["output"]).bottom)

        # The shipped loop with the largest noisy score, of what is left, for a draw (Gumbel-max).
        scores = {place: count + noise[place] for place, (_, count) in enumerate(rows)} | {BOTTOM: lower}

        def largest(scores: dict[int, Fraction] = scores) -> int:
            place = max(scores, key=lambda place: scores[place])
            del scores[place]
            return place

        assert peel(rows, p.k, largest) == outcome(row["output"])


@pytest.mark.parametrize("shift", [1, 10**12])
def test_adding_a_constant_to_all_counts_changes_no_probability(laws: Any, shift: int) -> None:
    p = TopKParameters(2, 3, HALF, TWENTIETH)
    counts = {b"a": 12, b"b": 11, b"c": 9, b"d": 5}
    assert laws.of_counts(counts, p) == laws.of_counts({i: c + shift for i, c in counts.items()}, p)


def test_counts_below_the_one_that_follows_change_nothing(laws: Any) -> None:
    p = TopKParameters(2, 3, HALF, TWENTIETH)
    counts = {b"a": 12, b"b": 11, b"c": 9, b"d": 5}
    assert laws.of_counts(counts, p) == laws.of_counts(counts | {b"e": 5, b"f": 1}, p)


def test_a_full_list_has_no_bottom_and_every_list_is_paid_for_by_its_draws() -> None:
    p = TopKParameters(3, 4, Fraction(2), Fraction(1, 2), 1)
    rows, h_next = candidates({b"a": 4, b"b": 4, b"c": 3, b"d": 1, b"e": 1, b"f": 1}, 4)
    lengths = set()
    for run in range(400):
        output = limited_domain_top_k(rows, h_next, p, KeyedBits(b"k", run.to_bytes(2, "big")))
        assert set(output.items) <= {item for item, _ in rows}
        assert len(set(output.items)) == len(output.items)
        assert output.bottom == (len(output.items) < 3)
        assert output.draws == len(output.items) + output.bottom
        lengths.add(len(output.items))
    assert {2, 3} <= lengths


@pytest.mark.parametrize(
    ("rows", "h_next", "fault"),
    [
        ([(b"a", 3), (b"b", 2), (b"c", 1), (b"d", 1)], 1, "kbar is 3"),
        ([(b"a", 3), (b"b", 0)], 0, "positive"),
        ([(b"a", 3), (b"b", -1)], 0, "whole number"),
        ([(b"a", 3.0)], 0, "whole number"),
        ([(b"a", float("nan"))], 0, "whole number"),
        ([(b"a", 1 << 62)], 0, "whole number"),
        ([(b"a", 3), (b"b", 2), (b"c", 2)], 3, "at least h_next"),
        ([(b"a", 3), (b"b", 2)], 2, "h_next must be 0"),
        ([(b"a", 2), (b"b", 3)], 0, "descending"),
        ([(b"b", 3), (b"a", 3)], 0, "ascending"),
        ([(b"a", 3), (b"a", 3)], 0, "distinct"),
        ([(b"a", 3)], -1, "whole number"),
    ],
)
def test_rows_that_candidates_never_returns_are_refused_before_anything_is_drawn(
    rows: list[tuple[bytes, int]], h_next: int, fault: str
) -> None:
    with pytest.raises(StateError, match=fault):
        limited_domain_top_k(rows, h_next, TopKParameters(2, 3, HALF, TWENTIETH), RecordedBits(b""))


def test_the_same_bits_give_the_same_selection() -> None:
    rows, h_next = candidates({b"a": 12, b"b": 11, b"c": 9, b"d": 5}, 3)
    p = TopKParameters(2, 3, HALF, TWENTIETH)
    for run in range(50):
        one, other = (limited_domain_top_k(rows, h_next, p, KeyedBits(b"k", b"%d" % run)) for _ in range(2))
        assert one == other
