"""How a guarantee is lost, and that it is not: controls of specs/lossless 5, and what a coarse reader cannot see."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.exact.bits import KeyedBits
from stream_dp.lossless.discrete_laplace import mean_absolute
from stream_dp.lossless.levels import threshold_for
from stream_dp.lossless.sealed import seal
from tests.support.chosen import ordinarily
from tests.support.laplace_family import DiscreteLaplace, pmf
from tests.support.laplace_laws import bridge_pmf, tail
from tests.support.multiple_release import MultipleRelease
from tests.support.readings import read_rows_lmr1, rows_of

F = Fraction
LAPLACE = DiscreteLaplace()
Seen = tuple[bool, int]


# --------------------------------------------------------------------------------------------- H05, T7: hidden keys
def hidden_then_fine(every_number: Callable[..., Any], count: int, *, redrawn: bool) -> Any:
    """The law of (hidden at the coarse level, reading at the fine one) of a key with this count."""
    coarse, fine, threshold = F(1, 2), F(1, 3), 1

    def run(bits: Any) -> Seen:
        release = MultipleRelease(LAPLACE, {b"key": count})
        hidden = release.release(coarse, bits)[b"key"] < threshold
        if redrawn and hidden:
            release = MultipleRelease(LAPLACE, {b"key": count})
        return hidden, release.release(fine, bits)[b"key"]

    return every_number(run, F(1, 10**5))


def proven_ratio(law: Any, against: Any) -> Fraction:
    """The largest ratio of probabilities of one outcome that the decided mass proves, whatever the rest does."""
    ratios: list[Fraction] = [
        p / (against.decided.get(seen, F(0)) + against.missing) for seen, p in law.decided.items()
    ]
    return max(ratios)


def test_vector_h05_in_closed_form(vector: Callable[[str], Any]) -> None:
    h05 = vector("H05")
    coarse, fine = F(h05["inputs"]["a_coarse"]), F(h05["inputs"]["a_fine"])
    threshold = h05["inputs"]["threshold_ge"]
    redrawn, same = [], []
    for count in range(8):
        for y in range(-4, 14):
            both = [(1 - tail(coarse, threshold - c)) * pmf(fine, y - c) for c in (count, count + 1)]
            redrawn += [both[0] / both[1], both[1] / both[0]]
            path = [pmf(fine, y - c) for c in (count, count + 1)]  # hidden given y does not depend on the count
            same += [path[0] / path[1], path[1] / path[0]]

    assert max(redrawn) == F(h05["expected"]["max_ratio_redrawn"])
    assert max(same) == F(h05["expected"]["max_ratio_same_process"])


@pytest.mark.slow
def test_a_hidden_key_keeps_its_process_and_costs_the_fine_level(every_number: Callable[..., Any]) -> None:
    laws = [hidden_then_fine(every_number, count, redrawn=False) for count in (0, 1)]

    assert max(proven_ratio(laws[0], laws[1]), proven_ratio(laws[1], laws[0])) <= 3


@pytest.mark.slow
def test_redrawing_the_noise_of_a_hidden_key_costs_more(every_number: Callable[..., Any]) -> None:
    """Negative control: the outcome (hidden, large) is worth nearly the product of both levels."""
    laws = [hidden_then_fine(every_number, count, redrawn=True) for count in (0, 1)]

    assert max(proven_ratio(laws[0], laws[1]), proven_ratio(laws[1], laws[0])) > F(7, 2)


@pytest.mark.parametrize("count", ordinarily(1, range(8)))
def test_t7_given_the_fine_reading_being_hidden_does_not_depend_on_the_count(
    every_number: Callable[..., Any], count: int
) -> None:
    """P(hidden, y) = P(y) H(y) with the same H for every count, although the coarse level was drawn first."""
    law = hidden_then_fine(every_number, count, redrawn=False)

    def hidden_given(y: int) -> Fraction:
        return 1 - sum((bridge_pmf(F(1, 3), F(1, 2), w) for w in range(1 - y, 60)), F(0))

    def joint(seen: Seen) -> tuple[Fraction, Fraction]:
        hidden, y = seen
        chance = hidden_given(y) if hidden else 1 - hidden_given(y)
        return pmf(F(1, 3), y - count) * chance - F(1, 2**50), pmf(F(1, 3), y - count) * chance + F(1, 2**50)

    assert law.agrees_with(joint)
    assert law.missing < F(1, 10)


# ------------------------------------------------------------------------------------------------ C01: clamped state
def test_vector_c01_clamping_the_stored_value_biases_coarser_ones(vector: Callable[[str], Any]) -> None:
    c01 = vector("C01")
    fine = F(c01["inputs"]["a_fine"])
    # The bridge is symmetric, so the mean of the coarse reading is that of what is stored.
    clamped = sum(max(0, c01["inputs"]["count"] + z) * pmf(fine, z) for z in range(-80, 81))
    unclamped = sum((c01["inputs"]["count"] + z) * pmf(fine, z) for z in range(-80, 81))

    assert unclamped == F(c01["expected"]["mean_of_coarse_required"])
    expected = F(c01["expected"]["mean_of_coarse_if_state_is_clamped"])
    assert mean_absolute(fine) / 2 == expected
    assert 0 < expected - clamped < F(1, 10**30)


@pytest.mark.parametrize("clamped", [False, True])
def test_coarsening_a_clamped_value_has_another_law(every_number: Callable[..., Any], clamped: bool) -> None:
    coarse, fine = F(1, 2), F(1, 3)

    def run(bits: Any) -> int:
        release = MultipleRelease(LAPLACE, {b"key": 0})
        stored = release.release(fine, bits)[b"key"]
        state = {b"key": {fine: max(0, stored) if clamped else stored}}
        return MultipleRelease(LAPLACE, {b"key": 0}, state).release(coarse, bits)[b"key"]

    law = every_number(run)

    assert law.missing < F(1, 100)
    assert law.agrees_with(lambda z: pmf(coarse, z)) != clamped


# ----------------------------------------------------------------------------- T6: what a coarse reader cannot see
LADDER = [threshold_for(F(epsilon)) for epsilon in ("1/4", "1", "3")]
COUNTS = {b"%d" % i: i % 7 for i in range(60)}
MINIMUM = st.lists(st.integers(-3, 12), min_size=2, max_size=2)


@given(one=MINIMUM, other=MINIMUM, coarse=st.integers(1, 15), seed=st.binary(max_size=4))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_t6_the_coarse_release_is_the_same_under_other_fine_thresholds(
    one: list[int], other: list[int], coarse: int, seed: bytes
) -> None:
    exact = np.array([COUNTS[key] for key in sorted(COUNTS)], np.int64)
    fine = dict(zip(sorted(COUNTS), seal(exact, LADDER[-1], KeyedBits(b"t6", seed)).tolist(), strict=True))

    def released(minimum: list[int]) -> dict[bytes, int]:
        table = rows_of(fine, LADDER, KeyedBits(b"t6 excess", seed), asked=[0], least=[coarse, *minimum])
        return {key: value for key, (value,) in table.items() if value >= coarse}

    assert released(one) == released(other)


# ------------------------------------------------------------------------------------------- X02: changed digest
def test_changed_counts_under_an_old_digest_betray_the_change_and_under_their_own_do_not() -> None:
    """Negative control (specs/lossless 5, no. 3): the same noise on other counts shows one user exactly."""
    key, window = bytes(range(32)), b"view window"
    fine = {b"a": 10, b"b": 20}
    changed = {b"a": 11, b"b": 20}

    def read(table: dict[bytes, int], digest: bytes) -> dict[bytes, tuple[int, ...]]:
        return read_rows_lmr1(table, prf_key=key, window=window, digest=digest, thresholds=LADDER, finest=LADDER[-1])

    before, reused, own = read(fine, bytes(32)), read(changed, bytes(32)), read(changed, bytes(31) + b"1")

    assert [y - x for x, y in zip(before[b"a"], reused[b"a"], strict=True)] == [1, 1, 1]
    assert [y - x for x, y in zip(before[b"b"], reused[b"b"], strict=True)] == [0, 0, 0]
    assert [y - x for x, y in zip(before[b"a"], own[b"a"], strict=True)] != [1, 1, 1]
    assert own[b"b"] != before[b"b"]
