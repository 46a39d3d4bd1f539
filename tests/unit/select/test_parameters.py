from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.select.candidates import Domain
from stream_dp.select.gumbel import TopKParameters, threshold
from stream_dp.select.one_shot import FixedThresholdParameters, LaplaceParameters

GOOD: dict[str, Any] = {
    "k": 2,
    "kbar": 3,
    "epsilon": Fraction(1, 2),
    "delta": Fraction(1, 20),
    "items_per_user": 2,
}


def variant(row: dict[str, Any]) -> Any:
    epsilon, delta = Fraction(row["eps"]), row["delta"]
    match row["variant"]:
        case "gumbel_alg1":
            return TopKParameters(1, row["kbar"], epsilon, delta, row["Delta"])
        case "strict_alg5":
            return TopKParameters(1, row["kbar"], epsilon, delta, row["Delta"], Domain.STRICT)
        case "laplace_alg4":
            return LaplaceParameters(1, row["kbar"], epsilon, delta, row["Delta"])
        case "fixed_alg8":
            return FixedThresholdParameters(1, epsilon, delta)


def test_thresholds_of_the_paper(vectors: dict[str, Any]) -> None:
    assert len(vectors["thresholds"]) == 20
    for row in vectors["thresholds"]:
        lower, upper = threshold(row["h_next"], variant(row))
        assert 0 < upper - lower < Fraction(1, 10**15)
        assert abs(lower - row["h_bot"]) < Fraction("1e-9")


def test_an_unbounded_user_can_move_kbar_items() -> None:
    unbounded = TopKParameters(10, 1000, Fraction("0.1"), Fraction("1e-8"))
    assert unbounded.multiplier == 1000
    assert threshold(100, unbounded) == threshold(
        100, TopKParameters(10, 1000, Fraction("0.1"), Fraction("1e-8"), items_per_user=10**6)
    )


def test_a_finer_threshold_lies_inside_a_coarser_one() -> None:
    p = TopKParameters(**GOOD)
    (coarse_lower, coarse_upper), (lower, upper) = threshold(7, p, 16), threshold(7, p, 200)
    assert coarse_lower <= lower < upper <= coarse_upper


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("k", 4),
        ("k", 2.0),
        ("k", True),
        ("kbar", 1),
        ("kbar", 0),
        ("items_per_user", 0),
        ("items_per_user", 1.5),
        ("epsilon", Fraction(0)),
        ("epsilon", Fraction(-1)),
        ("epsilon", 0.5),
        ("delta", Fraction(0)),
        ("delta", Fraction(1)),
        ("delta", 0.05),
        ("domain", "strict"),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ParameterError) as raised:
        TopKParameters(**{**GOOD, name: value})
    assert [fault.path for fault in raised.value.faults] == ["kbar" if value == 4 else name]


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        TopKParameters(k=0, kbar=0, epsilon=Fraction(0), delta=Fraction(2), items_per_user=0)
    assert [fault.path for fault in raised.value.faults] == ["k", "kbar", "items_per_user", "epsilon", "delta"]


def test_the_laplace_variant_needs_a_bound_on_the_user_that_kbar_holds() -> None:
    for items_per_user in (None, 0, 4):
        with pytest.raises(ParameterError) as raised:
            LaplaceParameters(2, 3, Fraction(1, 2), Fraction(1, 20), items_per_user)  # type: ignore[arg-type]
        assert [fault.path for fault in raised.value.faults] == ["kbar" if items_per_user == 4 else "items_per_user"]


def test_the_fixed_threshold_needs_a_delta_of_at_most_one_half() -> None:
    assert threshold(7, FixedThresholdParameters(1, Fraction(1), Fraction(1, 2))) == (Fraction(8), Fraction(8))
    with pytest.raises(ParameterError, match="at most 1/2"):
        FixedThresholdParameters(1, Fraction(1), Fraction(51, 100))
