"""Multiple release in any order: the exact joint law through every outcome of the coins, state, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from tests.support.chosen import ordinarily
from tests.support.discrete_gaussian import Marks, OddRatioLadder
from tests.support.laplace_family import DiscreteLaplace, pmf
from tests.support.laplace_laws import bridge_pmf
from tests.support.multiple_release import MultipleRelease, RangeRelease
from tests.support.tapes import RecordedBits

F = Fraction
NO_BITS = RecordedBits(b"")
Readings = tuple[int, ...]

LAPLACE_LEVELS = F(1, 3), F(1, 6), F(1, 12)
ORDERS = list(permutations(range(3)))


def laplace_joint(readings: Readings) -> Fraction:
    coarse, mid, fine = LAPLACE_LEVELS
    c, m, f = readings
    return pmf(fine, f) * bridge_pmf(fine, mid, m - f) * bridge_pmf(mid, coarse, c - m)


def in_order(family: Any, levels: tuple[Any, ...], order: tuple[int, ...], count: int, bits: Any) -> Readings:
    """The noise of the releases at all levels, asked for in this order."""
    release = MultipleRelease(family, {b"key": count})
    found = {i: release.release(levels[i], bits)[b"key"] for i in order}
    return tuple(found[i] - count for i in range(len(levels)))


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_joint_law_is_that_of_one_path_in_every_order(
    every_number: Callable[..., Any], order: tuple[int, ...]
) -> None:
    law = every_number(lambda bits: in_order(DiscreteLaplace(), LAPLACE_LEVELS, order, 4, bits))

    assert law.agrees_with(laplace_joint, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1)])
    assert law.missing <= F(1, 30)


@pytest.mark.slow
@pytest.mark.parametrize("order", ordinarily(1, [(2, 0, 1), (2, 1, 0)]), ids=str)
def test_after_erasing_the_counts_the_joint_law_is_the_same(
    every_number: Callable[..., Any], order: tuple[int, ...]
) -> None:
    coarse, _, fine = LAPLACE_LEVELS

    def run(bits: Any) -> Readings:
        release = RangeRelease.close(DiscreteLaplace(), {b"key": 4}, coarsest=coarse, finest=fine, bits=bits)
        found = {i: release.release(LAPLACE_LEVELS[i], bits)[b"key"] - 4 for i in order}
        return tuple(found[i] for i in range(3))

    law = every_number(run)

    assert law.agrees_with(laplace_joint, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)])
    assert law.missing <= F(1, 30)


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
    ladder = OddRatioLadder(F(9, 5), (1, 3, 15))
    stored = {
        b"a": {1: Marks(7, (1, 15), ()), 15: Marks(7, (15,), ())},
        b"b": {1: Marks(7, (1,), ()), 15: Marks(7, (15,), ())},
    }
    release = RangeRelease(ladder, stored)

    with pytest.raises(StateError, match="do not continue"):
        release.release(3, KeyedBits(b"key", b""))
    assert release.paths == stored


def test_state_with_missing_readings_is_refused() -> None:
    family = DiscreteLaplace()
    with pytest.raises(StateError, match="the same levels for every key"):
        RangeRelease(family, {b"a": {F(1, 2): 25, F(1, 4): 20}, b"b": {F(1, 2): 20}})
    with pytest.raises(StateError, match="no range"):
        RangeRelease(family, {b"a": {F(1, 2): 25}})
    with pytest.raises(StateError, match="other keys"):
        MultipleRelease(family, {b"a": 1}, {b"b": {F(1, 2): 3}})
