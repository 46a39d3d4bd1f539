from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from stream_dp.accounting.coalitions import Disclosure, coalition_cost, step_cost
from stream_dp.errors import ParameterError


def given_in(vector: Any) -> list[Disclosure]:
    return [Disclosure(path, reader, Fraction(cost)) for path, reader, cost in vector["inputs"]["ledger"]]


def test_vector_a01_a_coalition_pays_the_maximum_of_each_snapshot_and_the_sum_of_snapshots(
    analysis_vector: Callable[[str], Any],
) -> None:
    a01 = analysis_vector("A01")
    disclosures = given_in(a01)

    for names, cost in a01["expected"]["cost_of_coalition"].items():
        assert coalition_cost(disclosures, names.split("+")) == Fraction(cost)
    everybody = {disclosure.reader for disclosure in disclosures}
    assert coalition_cost(disclosures, everybody) == 2
    assert sum(disclosure.cost for disclosure in disclosures) == Fraction(a01["expected"]["naive_sum_for_everybody"])


def test_vector_a02_a_selection_is_paid_once_however_many_levels_are_measured(
    analysis_vector: Callable[[str], Any],
) -> None:
    a02 = analysis_vector("A02")
    price = Fraction(a02["inputs"]["rho_select"])
    levels = [Fraction(level) for level in a02["inputs"]["levels_measured"]]
    readers = [f"reader {index}" for index in range(len(levels))]
    measured = [Disclosure("counts", reader, level) for reader, level in zip(readers, levels, strict=True)]
    shared = [Disclosure("selection", reader, price) for reader in readers]
    repeated = [Disclosure(f"selection for {reader}", reader, price) for reader in readers]

    assert coalition_cost(shared + measured, readers) == Fraction(a02["expected"]["total"])
    assert coalition_cost(repeated + measured, readers) == Fraction(
        a02["expected"]["wrong_if_selection_repeated_per_level"]
    )


def test_vector_a04_a_step_is_charged_what_it_adds(analysis_vector: Callable[[str], Any]) -> None:
    a04 = analysis_vector("A04")
    held: list[Disclosure] = []
    charges = []
    for level in a04["inputs"]["levels_served_in_order"]:
        step = Disclosure("window", "alice", Fraction(level))
        charges.append(step_cost(held, ["alice"], step))
        held.append(step)

    assert charges == [Fraction(charge) for charge in a04["expected"]["charges"]]
    assert coalition_cost(held, ["alice"]) == sum(charges) == Fraction(a04["expected"]["total"])


def test_vector_g11_independent_releases_at_doubling_levels_cost_nearly_twice_the_finest(
    analysis_vector: Callable[[str], Any],
) -> None:
    g11 = analysis_vector("G11")
    levels = [Fraction(level) for level in g11["inputs"]["levels"]]
    independent = [Disclosure(f"noise of {level}", "alice", level) for level in levels]
    lossless = [Disclosure("one path", "alice", level) for level in levels]
    worst_rounding = Fraction(g11["expected"]["worst_rounding_factor"])

    cost = coalition_cost(independent, ["alice"])
    assert cost / levels[-1] == Fraction(g11["expected"]["sum_over_max"])
    assert cost / levels[-1] * worst_rounding < Fraction(g11["expected"]["worst_total_factor_bound"])
    assert coalition_cost(lossless, ["alice"]) == levels[-1]


def test_steps_add_up_to_the_cost_in_every_order(analysis_vector: Callable[[str], Any]) -> None:
    disclosures = given_in(analysis_vector("A01"))
    readers = ["alice", "bob"]

    for order in permutations(disclosures):
        charges = [step_cost(order[:index], readers, step) for index, step in enumerate(order)]
        assert sum(charges) == coalition_cost(disclosures, readers) == Fraction(11, 10)
        assert min(charges) == 0


def test_what_a_step_costs() -> None:
    held = [Disclosure("window 1", "bob", Fraction(1, 2))]

    def cost(path: str, reader: str, level: Fraction) -> Fraction:
        return step_cost(held, ["alice", "bob"], Disclosure(path, reader, level))

    assert cost("window 1", "alice", Fraction(1, 2)) == 0  # a friend holds it already
    assert cost("window 1", "alice", Fraction(3, 4)) == Fraction(1, 4)
    assert cost("window 1, late events", "bob", Fraction(1, 2)) == Fraction(1, 2)
    assert cost("window 1", "carol", Fraction(1)) == 0  # not of the coalition


@pytest.mark.parametrize("cost", [Fraction(-1), 0.5])
def test_a_cost_that_is_no_exact_fraction_is_refused(cost: Any) -> None:
    with pytest.raises(ParameterError, match="exact fraction"):
        Disclosure("window", "alice", cost)
