from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import StateError
from stream_dp.lossless.levels import WORD
from tests.support.chosen import examples
from tests.support.threshold_process import clocks

WORDS = st.lists(st.integers(min_value=0, max_value=WORD - 1), max_size=40)
LADDER = st.lists(st.integers(min_value=1, max_value=WORD - 1), min_size=1, max_size=6)


@pytest.mark.parametrize("pair", ["6,3", "7,2"])
def test_vector_d11_joint_law_over_all_streams_of_five_three_bit_words(vector: Callable[[str], Any], pair: str) -> None:
    """Three-bit words are 64-bit words of which only the top three bits are random."""
    d11 = vector("D11")
    length, shift = d11["inputs"]["J"], 64 - d11["inputs"]["bits"]
    thresholds = [int(level) << shift for level in pair.split(",")]
    joint: Counter[tuple[int, ...]] = Counter()
    for stream in product(range(8), repeat=length):
        try:
            joint[clocks((word << shift for word in stream), thresholds)] += 1
        except StateError:
            continue

    expected = d11["expected"]["joint_probability_of_G_coarse_G_fine"][pair]
    law = {f"{coarse},{fine}": Fraction(n, 8**length) for (coarse, fine), n in joint.items() if coarse <= 2}
    assert law == {clock: Fraction(p) for clock, p in expected.items()}


@examples(80, 300, given(words=WORDS, ladder=LADDER), derandomize=True)
def test_each_clock_counts_the_words_before_the_first_that_reaches_its_level(
    words: list[int], ladder: list[int]
) -> None:
    stream = [*words, WORD - 1]

    found = clocks(iter(stream), ladder)

    assert found == tuple(next(j for j, word in enumerate(stream) if word >= level) for level in ladder)


@examples(80, 300, given(words=WORDS, ladder=LADDER), derandomize=True)
def test_a_coarser_clock_is_never_below_a_finer_one(words: list[int], ladder: list[int]) -> None:
    found = clocks(iter([*words, WORD - 1]), sorted(ladder))

    assert list(found) == sorted(found)


def test_words_after_the_last_clock_are_left_in_the_stream() -> None:
    stream = iter([1, 5, 3, 7, 2])

    assert clocks(stream, (4, 2)) == (1, 1)
    assert list(stream) == [3, 7, 2]


def test_a_stream_that_ends_too_early_is_refused() -> None:
    with pytest.raises(StateError, match="ended before a clock stopped"):
        clocks(iter([0, 1, 2]), (2, 3))
