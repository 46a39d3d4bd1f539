"""Sums over panes by tree nodes: vector F01, exact answers, streams, sensitivity, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from tests.support.factorization import Factorization, RunningSums, cover, prefix_sums
from tests.support.laplace_family import DiscreteLaplace, pmf
from tests.support.laplace_laws import bridge_pmf
from tests.support.tapes import RecordedBits

F = Fraction
NO_BITS = RecordedBits(b"")


def matrices(factorization: Factorization) -> tuple[list[list[int]], list[list[int]]]:
    """L and R, dense."""
    left = [[int(place in row) for place in range(len(factorization.nodes))] for row in factorization.left]
    right = [[int(first <= pane < end) for pane in range(factorization.panes)] for first, end in factorization.nodes]
    return left, right


def times(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def test_vector_f01_prefix_sums_of_four_panes(vector: Callable[[str], Any]) -> None:
    f01 = vector("F01")
    factorization = prefix_sums(4)
    left, right = matrices(factorization)

    assert left == f01["inputs"]["L"]
    assert right == f01["inputs"]["R"]
    assert times(left, right) == f01["expected"]["A"]
    assert factorization.sensitivity == f01["expected"]["Delta2_sq_of_R"]
    gram = times(left, [list(column) for column in zip(*left, strict=True)])
    assert gram == f01["expected"]["L_Lt"]
    # Independent noise per node of variance Delta2^2 / (2 rho): here a level is a variance.
    for name, rho in (("cov_within_rho1", "rho_1"), ("cov_within_rho2", "rho_2"), ("cov_across", "rho_2")):
        level = F(factorization.sensitivity, 2) / F(f01["inputs"][rho])
        found = [[entry * level for entry in row] for row in gram]
        assert found == [list(map(F, row)) for row in f01["expected"][name]]


@given(panes=st.integers(1, 40), data=st.data())
@settings(derandomize=True, max_examples=80, deadline=None)
def test_answers_from_exact_nodes_are_the_sums(panes: int, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(-9, 9), min_size=panes, max_size=panes))
    prefix = prefix_sums(panes)

    assert list(prefix.answers(prefix.node_counts(counts))) == [sum(counts[:end]) for end in range(1, panes + 1)]


@pytest.mark.parametrize("factorization", [prefix_sums(1), prefix_sums(4), prefix_sums(11)])
def test_the_sensitivity_is_the_largest_column_of_r(factorization: Factorization) -> None:
    _, right = matrices(factorization)
    columns = list(zip(*right, strict=True))

    assert factorization.sensitivity == max(sum(column) for column in columns)
    assert factorization.sensitivity == max(sum(entry**2 for entry in column) for column in columns)


@given(first=st.integers(0, 60), length=st.integers(0, 60), largest=st.sampled_from([1, 4, 64]))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_a_cover_is_made_of_adjacent_aligned_nodes(first: int, length: int, largest: int) -> None:
    nodes = cover(first, first + length, largest)

    assert [pane for start, end in nodes for pane in range(start, end)] == list(range(first, first + length))
    for start, end in nodes:
        assert (end - start) & (end - start - 1) == 0
        assert start % (end - start) == 0
        assert end - start <= largest
    assert len(nodes) <= 2 * largest.bit_length() + length // largest


# ----------------------------------------------------------------------------------------------------------- streams
LEVELS = F(9, 10), F(1, 2), F(1, 10)


def running(
    panes: int, *, largest: int = 4, seed: bytes = b"stream"
) -> tuple[RunningSums[Any, Any, Any], list[dict[bytes, int]]]:
    sums = RunningSums(DiscreteLaplace(), [b"x", b"y"], coarsest=LEVELS[0], finest=LEVELS[2], largest=largest)
    bits = KeyedBits(b"running", seed)
    counts = [{b"x": pane, b"y": 10} if pane % 3 else {b"x": pane} for pane in range(panes)]
    for pane in counts:
        sums.close(pane, bits)
    return sums, counts


def test_a_running_sum_is_the_sum_of_its_nodes_and_repeats() -> None:
    sums, counts = running(11)
    bits = KeyedBits(b"running", b"read")
    for first, end in ((0, 11), (3, 10), (8, 11), (2, 3)):
        read = {level: sums.read(first, end, level, bits) for level in LEVELS}
        parts = [sums.read(*node, LEVELS[1], NO_BITS) for node in cover(first, end, 4)]

        assert read[LEVELS[1]] == {key: sum(part[key] for part in parts) for key in (b"x", b"y")}
        assert {level: sums.read(first, end, level, NO_BITS) for level in LEVELS} == read
    assert sums.closed == len(counts)
    assert sums.sensitivity == 3


def test_sums_go_on_from_their_stored_state_as_if_never_interrupted() -> None:
    sums, _ = running(7)
    sums.read(0, 7, LEVELS[1], KeyedBits(b"running", b"read"))
    again = RunningSums(
        DiscreteLaplace(), [b"x", b"y"], coarsest=LEVELS[0], finest=LEVELS[2], largest=4, state=sums.state
    )

    for each in (sums, again):
        each.close({b"x": 70}, KeyedBits(b"running", b"next"))
    assert again.state == sums.state
    assert again.closed == 8
    for level in LEVELS:
        bits = KeyedBits(b"running", b"after")
        assert again.read(0, 8, level, bits) == sums.read(0, 8, level, KeyedBits(b"running", b"after"))


def test_stored_sums_of_other_keys_are_refused() -> None:
    with pytest.raises(StateError, match="other keys"):
        RunningSums(
            DiscreteLaplace(), [b"z"], coarsest=LEVELS[0], finest=LEVELS[2], largest=4, state=running(3)[0].state
        )


def test_almost_noiseless_nodes_give_the_exact_sums() -> None:
    """A noise parameter of 2^-60 hits none of the 23 nodes."""
    tiny = F(1, 2**60)
    sums = RunningSums(DiscreteLaplace(), [0], coarsest=tiny * 2, finest=tiny, largest=8)
    bits = KeyedBits(b"running", b"tiny")
    for pane in range(12):
        sums.close({0: 3**pane}, bits)
        for width in range(1, pane + 2):
            expected = sum(3**p for p in range(pane + 1 - width, pane + 1))
            assert sums.read(pane + 1 - width, pane + 1, tiny, bits) == {0: expected}


def test_exact_counts_are_held_for_open_nodes_only() -> None:
    sums = RunningSums(DiscreteLaplace(), [0], coarsest=LEVELS[0], finest=LEVELS[2], largest=8)
    bits = KeyedBits(b"running", b"open")
    for pane in range(40):
        sums.close({0: 1}, bits)
        assert [end - first for (first, end), _ in sums._open] == [2**i for i in (2, 1, 0) if (pane + 1) % 8 >> i & 1]


@pytest.mark.slow
def test_the_answers_at_two_levels_have_the_law_of_one_path_per_node(every_number: Callable[..., Any]) -> None:
    """Two panes; the answers are the first pane by its node, and the sum by its own at both levels."""
    coarse, fine = F(1, 8), F(1, 16)

    def run(bits: Any) -> tuple[int, ...]:
        sums = RunningSums(DiscreteLaplace(), [0], coarsest=coarse, finest=fine, largest=2)
        sums.close({0: 1}, bits)
        early = sums.read(0, 1, coarse, bits)[0]
        sums.close({0: 2}, bits)
        return early - 1, sums.read(0, 2, coarse, bits)[0] - 3, sums.read(0, 2, fine, bits)[0] - 3

    law = every_number(run)

    assert law.missing < F(1, 20)
    assert law.agrees_with(
        lambda n: pmf(coarse, n[0]) * pmf(fine, n[2]) * bridge_pmf(fine, coarse, n[1] - n[2]),
        [(0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 1, 0)],
    )


# ----------------------------------------------------------------------------------------------------------- refusals
def test_what_makes_no_sense_is_refused() -> None:
    for refused in (
        lambda: prefix_sums(0),
        lambda: prefix_sums(4).node_counts([1, 2, 3]),
        lambda: prefix_sums(4).answers([1, 2, 3, 4]),
        lambda: RunningSums(DiscreteLaplace(), [0], coarsest=LEVELS[0], finest=LEVELS[2], largest=6),
        lambda: running(1)[0].close({b"unknown": 1}, KeyedBits(b"", b"")),
    ):
        with pytest.raises(ParameterError):
            refused()


@pytest.mark.parametrize("panes", [(0, 6), (4, 6), (3, 3), (-1, 2)])
def test_panes_that_are_not_closed_cannot_be_read(panes: tuple[int, int]) -> None:
    with pytest.raises(StateError, match="not all closed"):
        running(5)[0].read(*panes, LEVELS[1], KeyedBits(b"", b""))


def test_a_level_outside_the_range_cannot_be_read() -> None:
    with pytest.raises(StateError, match="outside the range"):
        running(5)[0].read(0, 5, F(1, 100), KeyedBits(b"", b""))
