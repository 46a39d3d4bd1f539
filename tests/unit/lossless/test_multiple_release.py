"""Multiple release in any order: the exact joint law through every outcome of the coins, state, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits, RecordedBits
from stream_dp.exact.laws import poisson_pmf
from stream_dp.lossless.families import discrete_laplace
from stream_dp.lossless.families.discrete_gaussian import OddRatioLadder
from stream_dp.lossless.families.discrete_laplace import DiscreteLaplace
from stream_dp.lossless.families.negative_binomial import NegativeBinomial
from stream_dp.lossless.families.poisson import Poisson
from stream_dp.lossless.families.popcount import PrefixPopcount
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.families.two_clocks import EpsilonClock, GeometricClock, TwoClocks, clock_bridge_pmf, clock_pmf
from stream_dp.lossless.kernels import Sides, TwoSided
from stream_dp.lossless.multiple_release import MultipleRelease, RangeRelease
from tests.support.enclosures import PRECISION, real

F = Fraction
NO_BITS = RecordedBits(b"")
Readings = tuple[int, ...]

LAPLACE_LEVELS = F(1, 3), F(1, 6), F(1, 12)
ORDERS = list(permutations(range(3)))


def laplace_joint(readings: Readings) -> Fraction:
    coarse, mid, fine = LAPLACE_LEVELS
    c, m, f = readings
    bridges = discrete_laplace.bridge_pmf(fine, mid, m - f) * discrete_laplace.bridge_pmf(mid, coarse, c - m)
    return discrete_laplace.pmf(fine, f) * bridges


def clock_joint(readings: Readings) -> Fraction:
    coarse, mid, fine = LAPLACE_LEVELS
    c, m, f = readings
    if not f <= m <= c:
        return F(0)
    return clock_pmf(fine, f) * clock_bridge_pmf(fine, mid, m - f) * clock_bridge_pmf(mid, coarse, c - m)


def poisson_joint(readings: Readings) -> tuple[Fraction, Fraction]:
    rates = F(1), F(1, 2), F(1, 4)
    c, m, f = readings
    steps = (rates[2], f), (rates[1] - rates[2], m - f), (rates[0] - rates[1], c - m)
    low = high = F(1)
    for rate, k in steps:
        lower, upper = real(poisson_pmf(rate, k, PRECISION))
        low, high = low * lower, high * upper
    return low, high


def popcount_joint(readings: Readings) -> Fraction:
    c, m, f = readings
    family = PrefixPopcount()
    return family.pmf(1, f) * family.bridge_pmf(1, 3, m - f) * family.bridge_pmf(3, 5, c - m)


def share_joint(readings: Readings) -> tuple[Fraction, Fraction]:
    coarse, mid, fine = LAPLACE_LEVELS
    c, m, f = readings
    family = NegativeBinomial(F(1, 2))
    low = high = F(1)
    for a, b, k in ((F(0), fine, f), (fine, mid, m - f), (mid, coarse, c - m)):
        lower, upper = real(family.bridge_pmf(a, b, k, PRECISION))
        low, high = low * lower, high * upper
    return low, high


FAMILIES: list[Any] = [
    pytest.param(DiscreteLaplace(), LAPLACE_LEVELS, laplace_joint, 6, F(1, 30), id="discrete Laplace"),
    pytest.param(TwoClocks(), LAPLACE_LEVELS, laplace_joint, 6, F(1, 30), id="two clocks"),
    pytest.param(GeometricClock(), LAPLACE_LEVELS, clock_joint, 6, F(1, 1000), id="one clock"),
    pytest.param(Poisson(), (F(1), F(1, 2), F(1, 4)), poisson_joint, 6, F(1, 1000), id="Poisson"),
    pytest.param(PrefixPopcount(), (5, 3, 1), popcount_joint, 6, F(0), id="popcount"),
    pytest.param(NegativeBinomial(F(1, 2)), LAPLACE_LEVELS, share_joint, 6, F(1, 100), id="half a clock"),
]


def in_order(family: Any, levels: tuple[Any, ...], order: tuple[int, ...], count: int, bits: Any) -> Readings:
    """The noise of the releases at all levels, asked for in this order."""
    release = MultipleRelease(family, {b"key": count})
    found = {i: release.release(levels[i], bits)[b"key"] for i in order}
    return tuple(found[i] - count for i in range(len(levels)))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(("family", "levels", "joint", "cutoff", "open_mass"), FAMILIES)
def test_the_joint_law_is_that_of_one_path_in_every_order(
    every_number: Callable[..., Any],
    family: Any,
    levels: tuple[Any, ...],
    joint: Callable[[Readings], Any],
    cutoff: int,
    open_mass: Fraction,
    order: tuple[int, ...],
) -> None:
    law = every_number(lambda bits: in_order(family, levels, order, 4, bits), F(1, 10**cutoff))

    assert law.agrees_with(joint, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1)])
    assert law.missing <= open_mass


@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0)], ids=str)
@pytest.mark.parametrize(("family", "levels", "joint", "cutoff", "open_mass"), FAMILIES)
def test_after_erasing_the_counts_the_joint_law_is_the_same(
    every_number: Callable[..., Any],
    family: Any,
    levels: tuple[Any, ...],
    joint: Callable[[Readings], Any],
    cutoff: int,
    open_mass: Fraction,
    order: tuple[int, ...],
) -> None:
    def run(bits: Any) -> Readings:
        release = RangeRelease.close(family, {b"key": 4}, coarsest=levels[0], finest=levels[2], bits=bits)
        return tuple(release.release(level, bits)[b"key"] - 4 for level in levels)

    law = every_number(run, F(1, 10**cutoff))

    assert law.agrees_with(joint, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)])
    assert law.missing <= open_mass


def test_noise_drawn_anew_for_every_level_is_told_apart(every_number: Callable[..., Any]) -> None:
    """Negative control: the marginals are right, the joint law is not."""

    def independent(bits: Any) -> Readings:
        return tuple(DiscreteLaplace().fresh(level, bits) for level in LAPLACE_LEVELS)

    law = every_number(independent)

    assert law.missing < F(1, 100)
    assert not law.agrees_with(laplace_joint)


def test_bridging_from_any_two_levels_instead_of_the_nearest_is_told_apart(every_number: Callable[..., Any]) -> None:
    """Negative control (specs/lossless 5, no. 14): coarse drawn from fine although mid is there already."""
    coarse, mid, fine = LAPLACE_LEVELS
    family = DiscreteLaplace()

    def wrong(bits: Any) -> Readings:
        f = family.fresh(fine, bits)
        m = family.coarsen(f, fine, mid, bits)
        return family.coarsen(f, fine, coarse, bits), m, f

    law = every_number(wrong)

    assert law.missing < F(1, 100)
    assert not law.agrees_with(laplace_joint)


def test_marks_of_a_gaussian_ladder_have_the_same_law_in_every_order(every_number: Callable[..., Any]) -> None:
    ladder = OddRatioLadder(F(1, 2), (1, 3, 9))
    laws = [
        every_number(lambda bits, o=order: in_order(ladder, (1, 3, 9), o, 2, bits), F(1, 10**6)) for order in ORDERS
    ]
    for law in laws:
        assert law.missing < F(1, 500)
        for other in laws:
            for readings, found in law.decided.items():
                assert found <= other.decided.get(readings, 0) + other.missing + law.rounding


# --------------------------------------------------------------------------------------------------------- repetition
ANY_FAMILY: list[Any] = [
    pytest.param(DiscreteLaplace(), (F(9, 10), F(3, 4), F(1, 2), F(1, 4)), id="discrete Laplace"),
    pytest.param(TwoClocks(), (F(9, 10), F(3, 4), F(1, 2), F(1, 4)), id="two clocks"),
    pytest.param(TwoSided(EpsilonClock()), (F(1, 10), F(1, 2), F(1), F(2)), id="epsilon clocks"),
    pytest.param(Skellam(), (F(9), F(5), F(2), F(1, 2)), id="Skellam"),
    pytest.param(PrefixPopcount(), (64, 40, 9, 2), id="popcount"),
    pytest.param(TwoSided(NegativeBinomial(F(1, 3))), (F(9, 10), F(3, 4), F(1, 2), F(1, 4)), id="shares"),
    pytest.param(OddRatioLadder(F(30), (1, 3, 15, 45)), (1, 3, 15, 45), id="discrete Gaussian"),
]
COUNTS = {b"b": 5, b"a": 0, b"c": 17}


@pytest.mark.parametrize(("family", "levels"), ANY_FAMILY)
def test_a_repetition_gives_the_same_integers_and_draws_nothing(family: Any, levels: tuple[Any, ...]) -> None:
    for order in permutations(range(4)):
        release = MultipleRelease(family, COUNTS)
        bits = KeyedBits(b"key", bytes(order))
        first = {i: release.release(levels[i], bits) for i in order}

        assert {i: release.release(levels[i], NO_BITS) for i in range(4)} == first
        assert list(first[0]) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("family", "levels"), ANY_FAMILY)
def test_a_release_goes_on_from_its_stored_state(family: Any, levels: tuple[Any, ...]) -> None:
    release = MultipleRelease(family, COUNTS)
    before = release.release(levels[2], KeyedBits(b"key", b"1"))
    again = MultipleRelease(family, COUNTS, release.paths)

    assert again.release(levels[2], NO_BITS) == before
    for level in (levels[0], levels[3], levels[1]):
        source = b"next %r" % str(level).encode()
        assert again.release(level, KeyedBits(b"key", source)) == release.release(level, KeyedBits(b"key", source))


@pytest.mark.parametrize(("family", "levels"), ANY_FAMILY)
def test_a_range_release_holds_its_finest_release_and_nothing_else_of_the_counts(
    family: Any, levels: tuple[Any, ...]
) -> None:
    bits = KeyedBits(b"key", b"range")
    release = RangeRelease.close(family, COUNTS, coarsest=levels[0], finest=levels[3], bits=bits)

    for key, path in release.paths.items():
        assert path[levels[3]] == family.zero + release.release(levels[3], NO_BITS)[key]
    again = RangeRelease(family, release.paths)
    mid = again.release(levels[1], bits)
    assert again.release(levels[1], NO_BITS) == mid
    assert again.release(levels[0], NO_BITS) == release.release(levels[0], NO_BITS)


@given(order=st.permutations(range(4)), seed=st.binary(max_size=6))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_one_sided_readings_are_monotone_whatever_the_order(order: list[int], seed: bytes) -> None:
    levels = F(9, 10), F(3, 4), F(1, 2), F(1, 4)
    release = MultipleRelease(GeometricClock(), COUNTS)
    bits = KeyedBits(b"monotone", seed)
    for i in order:
        release.release(levels[i], bits)

    coarse_to_fine = [release.release(level, NO_BITS) for level in levels]
    for key, count in COUNTS.items():
        readings = [row[key] for row in coarse_to_fine]
        assert readings == sorted(readings, reverse=True)
        assert readings[-1] >= count


# ----------------------------------------------------------------------------------------------------------- refusals
def test_a_level_outside_the_range_is_refused_and_changes_nothing() -> None:
    bits = KeyedBits(b"key", b"range")
    release = RangeRelease.close(DiscreteLaplace(), COUNTS, coarsest=F(3, 4), finest=F(1, 2), bits=bits)
    before = release.paths
    for level in (F(1, 4), F(9, 10)):
        with pytest.raises(StateError, match="outside the range"):
            release.release(level, bits)
    assert release.paths == before


def test_ends_of_a_range_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ParameterError, match="must be finer than"):
        RangeRelease.close(
            DiscreteLaplace(), COUNTS, coarsest=F(1, 4), finest=F(1, 2), bits=KeyedBits(b"key", b"range")
        )


def test_corrupt_state_is_refused_and_left_as_it_is() -> None:
    stored = {b"a": {F(10): 25, F(4): 20}, b"b": {F(10): 20, F(4): 25}}
    release = RangeRelease(Poisson(), stored)

    with pytest.raises(StateError, match="below the finer one"):
        release.release(F(6), KeyedBits(b"key", b""))
    assert release.paths == stored


def test_state_with_missing_readings_is_refused() -> None:
    with pytest.raises(StateError, match="the same levels for every key"):
        RangeRelease(Poisson(), {b"a": {F(10): 25, F(4): 20}, b"b": {F(10): 20}})
    with pytest.raises(StateError, match="no range"):
        RangeRelease(Poisson(), {b"a": {F(10): 25}})
    with pytest.raises(StateError, match="other keys"):
        MultipleRelease(Poisson(), {b"a": 1}, {b"b": {F(1): 3}})


def test_keys_join_with_a_complete_path_and_once() -> None:
    release: Any = MultipleRelease(TwoClocks(), {b"a": 3})
    release.release(F(1, 2), KeyedBits(b"key", b"join"))
    release.track({b"0": 0}, {b"0": {F(1, 2): Sides(4, 1)}})

    assert release.release(F(1, 2), NO_BITS)[b"0"] == 3
    assert list(release.release(F(1, 2), NO_BITS)) == [b"0", b"a"]
    assert len(release) == 2
    with pytest.raises(StateError, match="join once"):
        release.track({b"0": 0}, {b"0": {F(1, 2): Sides(4, 1)}})
    with pytest.raises(StateError, match="at every level"):
        release.track({b"z": 0}, {b"z": {}})
