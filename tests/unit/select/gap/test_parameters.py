"""What a selection with gaps is asked to do: the noise of it, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.select.candidates import Neighbours
from stream_dp.select.top_k_with_gaps import GapParameters, GridNoise
from tests.support.gap_oracle import law, loss, ratio_of

ONE = Fraction(1)


def parameters(row: dict[str, Any]) -> GapParameters:
    """Of a row of the vectors."""
    neighbours = Neighbours.ADD_OR_REMOVE if row["monotone"] else Neighbours.REPLACE
    resolution = 1 / Fraction(row["gamma_star"])
    assert resolution.denominator == 1
    epsilon = Fraction(row["eps"]) / Fraction(row.get("Delta", 1))  # for counts that one user moves by 1
    return GapParameters(row["k"], epsilon, int(resolution), bool(row["monotone"]), neighbours)


def test_the_noise_is_reduced_as_listed(vectors: dict[str, Any]) -> None:
    for row in vectors["params"]:
        p = parameters(row)
        assert (p.exponent.numerator, p.exponent.denominator) == (row["s"], row["t"])
        assert p.noise == GridNoise(row["s"], row["t"])
        factor = 1 if row["monotone"] else 2
        assert p.scale == factor * row["k"] * Fraction(row["Delta"]) / Fraction(row["eps"])


def test_a_number_that_is_not_exact_is_refused_with_its_name() -> None:
    for wrong, name in (
        ({"epsilon": 0.1}, "epsilon"),
        ({"epsilon": Fraction(0)}, "epsilon"),
        ({"epsilon": 1}, "epsilon"),
        ({"k": 0}, "k"),
        ({"k": True}, "k"),
        ({"resolution": Fraction(10)}, "resolution"),
        ({"resolution": 0}, "resolution"),
        ({"monotone": 1, "neighbours": Neighbours.ADD_OR_REMOVE}, "monotone"),
        ({"neighbours": "add or remove"}, "neighbours"),
    ):
        given: dict[str, Any] = {"k": 1, "epsilon": ONE, "resolution": 10} | wrong
        with pytest.raises(ParameterError) as refused:
            GapParameters(**given)
        assert [fault.path for fault in refused.value.faults] == [name]


def test_every_fault_is_told() -> None:
    with pytest.raises(ParameterError) as refused:
        GapParameters(0, Fraction(-1), 0)
    assert {fault.path for fault in refused.value.faults} == {"k", "epsilon", "resolution"}


def test_noise_of_half_the_scale_needs_the_word_that_users_are_added_or_removed() -> None:
    for stated in ({}, {"neighbours": Neighbours.REPLACE}):
        with pytest.raises(ParameterError, match="add or remove"):
            GapParameters(1, ONE, 10, monotone=True, **stated)
    halved = GapParameters(1, ONE, 10, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    for neighbours in Neighbours:
        assert GapParameters(1, ONE, 10, neighbours=neighbours).scale == 2 * halved.scale


def test_neighbours_lose_what_is_listed_and_never_more_than_epsilon_unless_the_halved_scale_is_misused(
    vectors: dict[str, Any],
) -> None:
    for row in vectors["privacy_loss"]:
        a, other, resolution = row["a"], row["a_prime"], 2
        moved = [y - x for x, y in zip(a, other, strict=True)]
        assert max(map(abs, moved)) == resolution
        one_way = min(moved) >= 0 or max(moved) <= 0
        halved = row["scale"] == "k/eps"
        neighbours = Neighbours.ADD_OR_REMOVE if halved else Neighbours.REPLACE
        p = GapParameters(row["k"], Fraction(row["eps"]), resolution, halved, neighbours=neighbours)
        assert (p.exponent.numerator, p.exponent.denominator) == (row["s"], row["t"])
        rho = ratio_of(row["s"], row["t"])
        largest = row["m_max"] if p.k == 1 else 4
        found = loss(law(a, rho, p.k, largest), law(other, rho, p.k, largest), least=0)
        if p.k == 1:
            assert found == pytest.approx(float(row["max_abs_log_ratio"]), rel=0, abs=1e-12)
        allowed = 1 if one_way or not halved else 2
        assert found <= allowed * p.epsilon + Fraction("1e-12")
        assert "NEGATIVE" not in row["note"] or found > 1.9
