"""Inequality (1) as a test of integers, and the table of tails that it certifies: sound, and not by luck."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_dp.errors import ParameterError
from stream_dp.histograms import counting_queries
from stream_dp.histograms.counting_queries import (
    Base,
    GeometricTable,
    TruncatedGeometric,
    distance_limit,
    least_cutoff,
    table_faults,
)
from tests.support.query_laws import clamped_geometric, digest, distance, law, laws, thresholds, worst_ratio

BASES = [
    Base.dyadic(0),
    Base.dyadic(1),
    Base.dyadic(6),
    Base(607, 1000),
    Base(1, 50),
    Base((1 << 64) - 1, 1 << 64),
    Base.within(Fraction(1, 100)),
    Base.within(Fraction(5, 4)),
    Base.within(Fraction(40)),
]
SHAPES = [(1, 1), (2, 1), (2, 6), (4, 3)]


class Table(GeometricTable):
    """A table with another number of bits than the certificate asks for."""

    def __init__(self, h: int, base: Base, g: int, point: int) -> None:
        super().__init__(h, base, g)
        self.point = point
        self.bits = h + g + point
        self.draws = 1 << self.bits
        self._one = 1 << point


def tail(base: Base, j: int) -> Fraction:
    """Pr[noise >= j]."""
    return Fraction(base.u, base.u + base.w) * Fraction(base.u, base.w) ** (j - 1)


def without_floor(table: GeometricTable, count: int) -> list[Fraction]:
    """The law of the table where the output is not the uniform one."""
    gamma = Fraction(1, 1 << table.g)
    return [(p - gamma / (table.bound + 1)) / (1 - gamma) for p in law(table, count)]


# 43


def test_the_limit_is_that_of_the_lemma_and_above_its_bound_by_a_series(vectors: dict[str, Any]) -> None:
    for row in vectors["lemma3_2_rhs"]:
        epsilon, gamma, least = (Fraction(row[name]) for name in ("eps", "gamma", "min_prob"))
        limit = distance_limit(Base.within(epsilon).ratio, gamma, least)
        series = (epsilon / 2 - (epsilon / 2) ** 3 / 3) * gamma / (1 - gamma) * least
        assert float(series) == pytest.approx(row["rhs_rational_lower_bound"], rel=1e-12)
        assert float(limit) == pytest.approx(row["rhs"], rel=1e-8)
        assert series <= limit


@pytest.mark.parametrize(("ratio", "gamma"), [(Fraction(3, 2), Fraction(1, 4)), (Fraction(33, 32), Fraction(1, 100))])
def test_a_mixture_at_the_limit_is_pure_and_one_beyond_it_is_not(ratio: Fraction, gamma: Fraction) -> None:
    p = Fraction(1, 4)

    def worst(moved: Fraction) -> Fraction:
        """Of two outputs, when the approximation moves both inputs the wrong way."""
        one, other = [p + moved, 1 - p - moved], [p / ratio - moved, 1 - p / ratio + moved]
        found = worst_ratio([[(1 - gamma) * x + gamma / 2 for x in row] for row in (one, other)])
        assert found is not None
        return found

    limit = distance_limit(ratio, gamma, Fraction(1, 2))
    assert worst(limit) == ratio
    assert worst(limit * Fraction(1001, 1000)) > ratio


def test_the_least_cutoff_passes_the_test_of_integers_and_one_less_fails() -> None:
    for base in BASES[:5]:
        for bound, g in ((1, 2), (9, 3), (1000, 10**9)):
            u, w, t = base.u, base.w, least_cutoff(bound, base, g)

            def passes(t: int, u: int = u, w: int = w, bound: int = bound, g: int = g) -> bool:
                return bool(2 * (g - 1) * (bound + 1) * u ** (t + 1) <= (w - u) * w**t)

            assert passes(t)
            assert t == 0 or not passes(t - 1)


def test_a_tail_that_is_one_too_short_is_refused_at_the_start() -> None:
    least = least_cutoff(200, Base.dyadic(1), 2)
    TruncatedGeometric(200, Base.dyadic(1), 2, least)
    with pytest.raises(ParameterError, match=f"t: must be a whole number of at least {least}, not {least - 1}"):
        TruncatedGeometric(200, Base.dyadic(1), 2, least - 1)


# 10


def test_small_tables_are_the_listed_ones(vectors: dict[str, Any]) -> None:
    for row in vectors["derived_dyadic_sampler"]:
        table = GeometricTable(row["h"], Base.dyadic(row["k"]), row["g"])
        assert (table.bound, table.point, table.bits) == (row["n"], row["B"], row["random_bits_R"])
        assert [str(x) for x in table.tails[1 : min(12, row["n"]) + 1]] == row["G"][: row["n"]]
        for count, expected in row["sha256_of_hexcsv_F_c"].items():
            assert digest(thresholds(table, int(count))) == expected
        worst = worst_ratio(laws(table))
        assert worst is not None
        assert worst <= table.ratio == Fraction(row["ledger_ratio_per_count"])
        assert float(worst) == pytest.approx(row["max_neighbour_ratio"], rel=1e-12)
        moved = max(
            distance(without_floor(table, c), clamped_geometric(table.bound, table.base, c))
            for c in range(table.bound + 1)
        )
        assert float(moved) == pytest.approx(row["tv_to_clamped_geometric"], rel=1e-9)
        assert moved <= Fraction((1 << table.h) + 1, 1 << table.point + 1)


def test_long_tables_have_the_listed_hashes(vectors: dict[str, Any]) -> None:
    for row in vectors["dyadic_recurrence"]:
        table = GeometricTable(row["h"], Base.dyadic(row["k"]), row["g"])
        assert (table.point, table.bits) == (row["B"], row["R"])
        listed = _to_the_first_zero(table)
        assert (len(listed), digest(listed)) == (row["table_len"], row["sha256_hexcsv_G"])
        assert list(table.tails[1:]) == listed[:-1][: table.bound]


def _to_the_first_zero(table: GeometricTable) -> list[int]:
    """The recurrence as listed: the tails up to the first 0, although a draw needs no more than n of them."""
    found = list(table.tails[1:])
    if len(found) == table.bound:
        guarded = (1 << table.point + 64) * table.base.u // (table.base.u + table.base.w)
        found = []
        while guarded >> 64:
            found.append(guarded >> 64)
            guarded = guarded * table.base.u // table.base.w
    return [*found, 0]


@pytest.mark.parametrize("base", BASES, ids=str)
def test_a_tail_falls_short_by_less_than_two_units_for_every_base(base: Base) -> None:
    table = GeometricTable(9, base, 5)
    for j in range(1, table.bound + 1):
        found = table.tails[j] if j < len(table.tails) else 0
        assert 0 <= tail(base, j) * (1 << table.point) - found < 2


@pytest.mark.parametrize("base", BASES, ids=str)
@pytest.mark.parametrize(("h", "g"), SHAPES)
def test_a_table_keeps_to_the_ratio_of_its_base_and_to_its_certified_distance(h: int, g: int, base: Base) -> None:
    table = GeometricTable(h, base, g)
    worst = worst_ratio(laws(table))
    assert worst is not None
    assert worst <= table.ratio == base.ratio
    limit = distance_limit(base.ratio, Fraction(1, 1 << g), Fraction(1, 1 << h))
    for count in range(table.bound + 1):
        row = [0, *thresholds(table, count)]
        assert all(a < b for a, b in pairwise(row))
        assert row[-1] == table.draws
        moved = distance(without_floor(table, count), clamped_geometric(table.bound, base, count))
        assert moved < Fraction((1 << h) + 1, 1 << table.point) <= limit


def test_the_point_is_enough_for_every_base_and_a_bit_or_two_less_is_refused() -> None:
    for base in BASES:
        for h in (1, 2, 5, 24, 40):
            for g in (1, 2, 30, 100):
                point = GeometricTable(h, base, g).point
                assert table_faults(h, base, g, point) == []
                assert [fault.path for fault in table_faults(h, base, g, point - 2)] == ["point"]


def test_too_few_bits_break_the_ratio_so_the_certificate_is_needed() -> None:
    base, h, g = Base.dyadic(4), 2, 4
    table = Table(h, base, g, GeometricTable(h, base, g).point - 3)
    assert table_faults(h, base, g, table.point) != []
    worst = worst_ratio(laws(table))
    assert worst is not None
    assert worst > table.ratio


def test_without_its_uniform_outputs_a_table_is_refused_by_the_check() -> None:
    table = GeometricTable(5, Base.dyadic(1), 1)
    assert len(table.tails) <= table.bound
    assert worst_ratio([without_floor(table, count) for count in range(table.bound + 1)]) is None


def test_a_base_too_near_1_for_the_guard_bits_is_refused_at_the_start() -> None:
    GeometricTable(3, Base((1 << 64) - 1, 1 << 64), 3)
    with pytest.raises(ParameterError) as caught:
        GeometricTable(3, Base(1 << 64, (1 << 64) + 1), 3)
    assert [fault.path for fault in caught.value.faults] == ["base"]


# 13


def test_the_laws_are_computed_without_arrays() -> None:
    """Arrays serve the search of `basic` alone; floats anywhere are found by tests/unit/test_no_floats.py."""
    assert "numpy" not in Path(counting_queries.__file__).read_text()
