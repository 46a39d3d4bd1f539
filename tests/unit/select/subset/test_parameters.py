from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.select.candidates import Neighbours
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant

GOOD: dict[str, Any] = {"k": 3, "epsilon": Fraction(1, 2)}


def test_the_defaults_are_the_signed_score_with_gumbel_noise_for_users_who_join_or_leave() -> None:
    p = SubsetParameters(**GOOD)
    assert (p.gamma, p.variant, p.noise) == (Fraction(3, 4), Variant.SIGNED, ScoreNoise.GUMBEL)
    assert (p.sensitivity, p.neighbours) == (Fraction(1, 2), Neighbours.ADD_OR_REMOVE)
    assert (p.rate_in, p.rate_out) == (Fraction(3, 8), Fraction(1, 8))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("k", 0),
        ("k", True),
        ("k", 2.0),
        ("epsilon", Fraction(-1, 10)),
        ("epsilon", 0.5),
        ("epsilon", float("inf")),
        ("epsilon", float("nan")),
        ("gamma", Fraction(-1, 4)),
        ("gamma", Fraction(5, 4)),
        ("gamma", 0.5),
        ("variant", "signed"),
        ("noise", "laplace"),
        ("neighbours", "replace"),
        ("sensitivity", Fraction(0)),
        ("sensitivity", Fraction(1, 3)),
        ("sensitivity", 0.5),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(path: str, value: object) -> None:
    with pytest.raises(ParameterError) as raised:
        SubsetParameters(**GOOD | {path: value})
    assert [fault.path for fault in raised.value.faults] == [path]


def test_half_a_user_is_no_sensitivity_where_users_are_replaced() -> None:
    with pytest.raises(ParameterError, match="sensitivity: must be at least 1 for neighbours replace, not 1/2"):
        SubsetParameters(**GOOD, neighbours=Neighbours.REPLACE)
    assert SubsetParameters(**GOOD, neighbours=Neighbours.REPLACE, sensitivity=Fraction(1)).rate_in == Fraction(3, 16)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        SubsetParameters(0, 1.0, 2.0, None, None, None, None)  # type: ignore[arg-type]
    assert [fault.path for fault in raised.value.faults] == [
        "k",
        "epsilon",
        "gamma",
        "variant",
        "noise",
        "neighbours",
        "sensitivity",
    ]
