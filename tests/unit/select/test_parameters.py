from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ConfigError
from stream_dp.select import TopKParameters, threshold

GOOD: dict[str, Any] = {
    "k": 2,
    "kbar": 3,
    "epsilon": Fraction(1, 2),
    "delta": Fraction(1, 20),
    "items_per_user": 2,
}


def test_thresholds_of_the_paper(vectors: dict[str, Any]) -> None:
    for row in vectors["thresholds"]:
        p = TopKParameters(1, row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"])
        lower, upper = threshold(row["h_next"], p)
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
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as raised:
        TopKParameters(**{**GOOD, name: value})
    assert [fault.path for fault in raised.value.faults] == ["kbar" if value == 4 else name]


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        TopKParameters(k=0, kbar=0, epsilon=Fraction(0), delta=Fraction(2), items_per_user=0)
    assert [fault.path for fault in raised.value.faults] == ["k", "kbar", "items_per_user", "epsilon", "delta"]
