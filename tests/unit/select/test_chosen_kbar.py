from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.select.candidates import candidates
from stream_dp.select.gumbel import ChosenKbarParameters, chosen_kbar_top_k, kbar_weights
from tests.support.tapes import RecordedBits

CLOSE = Fraction("1e-9")
PRECISION = 200


def law(counts: list[int], p: ChosenKbarParameters) -> dict[int, Fraction]:
    """The chance of every kbar, from counts in falling order that reach one place beyond the largest kbar."""
    weights = [lower for lower, _ in kbar_weights(counts[p.k : p.largest_kbar + 1], p, PRECISION)]
    return {kbar: Fraction(weight, sum(weights)) for kbar, weight in enumerate(weights, start=p.k)}


def test_kbar_follows_the_count_behind_it_and_not_delta(vectors: dict[str, Any]) -> None:
    row = vectors["alg6_kbar_selection"]
    for delta in (row["delta"], Fraction(1, 3)):
        p = ChosenKbarParameters(row["k"], row["dbar"], Fraction(row["eps"]), delta)
        found = law(row["sorted_counts"], p)
        assert [str(kbar) for kbar in found] == list(row["prob_recommended_h_i_plus_1"])
        for kbar, chance in found.items():
            assert abs(chance - row["prob_recommended_h_i_plus_1"][str(kbar)]) < CLOSE
        # Scored by its own count, as printed, it would be another law (E2).
        assert abs(found[8] - row["prob_literal_h_i"]["8"]) > Fraction(1, 10)


def falling(dbar: int, k: int, epsilon: float) -> list[int]:
    """Counts for which all scores are nearly equal: where the printed sign does most harm."""
    tail: list[int] = np.round(200 - np.log(np.arange(k, dbar + 1)) / epsilon).astype(int).tolist()
    return [1000] * k + tail


@pytest.mark.parametrize("dbar", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_neighbours_lose_at_most_epsilon_and_with_the_printed_sign_far_more(vectors: dict[str, Any], dbar: int) -> None:
    row = next(row for row in vectors["alg6_printed_sign_violation"] if row["dbar"] == dbar)
    epsilon, k = float(row["eps"]), row["k"]
    p = ChosenKbarParameters(k, dbar, Fraction(row["eps"]), Fraction("1e-6"))
    counts = falling(dbar, k, epsilon)
    places = [j for j in range(1, dbar - k + 1) if counts[k + j - 1] > counts[k + j]]
    shipped = printed = 0.0
    for j in places[:: max(1, len(places) // 8)]:
        more = [*counts]
        more[k + j] += 1
        one, other = law(counts, p), law(more, p)
        shipped = max(shipped, *(abs(np.log(float(one[kbar] / other[kbar]))) for kbar in one))
        laws = [printed_law(one[k:], k, epsilon) for one in (counts, more)]
        printed = max(printed, float(np.abs(np.log(laws[0] / laws[1])).max()))
    assert shipped == pytest.approx(float(row["max_abs_log_ratio_corrected"]), rel=1e-6, abs=0)
    assert shipped <= row["allowed"]
    assert printed == pytest.approx(float(row["max_abs_log_ratio_printed_sign"]), rel=1e-3, abs=0)
    assert printed > 5 * row["allowed"]


def printed_law(following: list[int], k: int, epsilon: float) -> Any:
    """The law of the smallest of score plus Gumbel noise, by quadrature; not what is shipped."""
    scores = epsilon * np.array(following) + np.log(np.arange(k, k + len(following)))
    x = np.linspace(scores.min() - 6, scores.min() + 22, 6001)
    survival = np.array([np.log(-np.expm1(-np.exp(-(x - score)))) for score in scores])
    total = survival.sum(0)
    density = [np.exp(-(x - score) - np.exp(-(x - score))) for score in scores]
    return np.array(
        [np.trapezoid(one * np.exp(total - alone), x) for one, alone in zip(density, survival, strict=True)]
    )


def test_a_call_pays_for_kbar_and_draws_at_most_one_item_less() -> None:
    p = ChosenKbarParameters(3, 6, Fraction(2), Fraction(1, 100))
    counts = {b"a": 60, b"b": 59, b"c": 58, b"d": 20, b"e": 1, b"f": 1, b"g": 1, b"h": 1}
    rows, h_next = candidates(counts, p.largest_kbar)
    seen = Counter[int]()
    for run in range(200):
        output = chosen_kbar_top_k(rows, h_next, p, KeyedBits(b"k", b"%d" % run))
        assert 3 <= output.kbar <= 6
        assert len(output.top.items) <= 2
        assert output.draws == len(output.top.items) + output.top.bottom + 1 <= p.k
        assert set(output.top.items) <= {item for item, _ in list(rows)[: output.kbar]}
        seen[output.kbar] += 1
    # kbar = 3 leaves d's 20 as h_next; 4 to 6 leave 1, and the smallest of them has the lowest threshold.
    assert seen[4] > seen[5] > 0 == seen[3]


@pytest.mark.parametrize("counts", [{}, {b"a": 5}, {b"a": 5, b"b": 4, b"c": 4}])
def test_with_fewer_keys_than_places_the_counts_that_follow_are_zero(counts: dict[bytes, int]) -> None:
    p = ChosenKbarParameters(2, 5, Fraction(1), Fraction(1, 100))
    rows, h_next = candidates(counts, p.largest_kbar)
    kbars = {chosen_kbar_top_k(rows, h_next, p, KeyedBits(b"k", b"%d" % run)).kbar for run in range(200)}
    assert kbars == {2, 3, 4, 5}


def test_parameters_and_rows_are_checked_before_anything_is_drawn() -> None:
    for name, value in {"k": 1, "largest_kbar": 2, "epsilon": Fraction(0), "delta": Fraction(1)}.items():
        good: dict[str, Any] = {"k": 3, "largest_kbar": 6, "epsilon": Fraction(1), "delta": Fraction(1, 10)}
        with pytest.raises(ParameterError) as raised:
            ChosenKbarParameters(**{**good, name: value})
        assert [fault.path for fault in raised.value.faults] == [name]
    p = ChosenKbarParameters(2, 3, Fraction(1), Fraction(1, 100))
    with pytest.raises(StateError, match="h_next must be 0"):
        chosen_kbar_top_k([(b"a", 3)], 2, p, RecordedBits(b""))
