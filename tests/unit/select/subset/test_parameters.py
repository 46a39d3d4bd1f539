from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant

GOOD: dict[str, Any] = {"k": 3, "epsilon": Fraction(1, 2)}


def test_the_defaults_are_the_signed_score_with_gumbel_noise_for_users_who_join_or_leave() -> None:
    p = SubsetParameters(**GOOD)
    assert (p.gamma, p.variant, p.noise) == (Fraction(3, 4), Variant.SIGNED, ScoreNoise.GUMBEL)
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
    ],
)
def test_what_is_out_of_range_is_refused_by_name(path: str, value: object) -> None:
    with pytest.raises(ParameterError) as raised:
        SubsetParameters(**GOOD | {path: value})
    assert [fault.path for fault in raised.value.faults] == [path]


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ParameterError) as raised:
        SubsetParameters(0, 1.0, 2.0, None, None)  # type: ignore[arg-type]
    assert [fault.path for fault in raised.value.faults] == [
        "k",
        "epsilon",
        "gamma",
        "variant",
        "noise",
    ]
