"""Clocks in bulk on words that are chosen: they are those of the scalar threshold process, word for word."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.exact.aes import Blocks
from stream_dp.lossless import bulk as module
from stream_dp.lossless.bulk import bulk_clocks
from stream_dp.lossless.levels import WORD
from tests.support.chosen import examples, ordinarily
from tests.support.threshold_process import clocks

LEADS = [0, 1, 2, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF]
RESTS = [0, 1, 2**47, 2**48 - 1]
EDGES = [lead << 48 | rest for lead in LEADS for rest in RESTS]
WORDS = st.sampled_from(EDGES) | st.integers(0, WORD - 1)
LEVELS = (st.sampled_from(EDGES) | st.integers(1, WORD - 1)).filter(bool)
SIDES = st.tuples(st.lists(WORDS, max_size=23), st.lists(WORDS, max_size=23))


class Script:
    """Words of the keys 0, 1, ... as given; behind them every word is the largest."""

    def __init__(self, keys: list[tuple[list[int], list[int]]]) -> None:
        longest = max((len(words) for sides in keys for words in sides), default=0)
        self._words = np.full((len(keys), 2, longest // 4 * 4 + 8), WORD - 1, np.uint64)
        for row, sides in enumerate(keys):
            for side, words in enumerate(sides):
                self._words[row, side, : len(words)] = words
        self.addresses = np.array([[row, 0] for row in range(len(keys))], np.uint64).reshape(-1, 2)
        self.rests_read = 0

    def leads(self, addresses: Blocks, block: int | NDArray[np.uint64]) -> NDArray[np.uint16]:
        at = np.minimum(4 * np.asarray(block, np.int64), self._words.shape[2] - 4) + np.zeros(len(addresses), np.int64)
        words = self._words[addresses[:, 0, None, None], np.arange(2)[:, None], at[:, None, None] + np.arange(4)]
        return (words >> np.uint64(48)).astype(np.uint16).reshape(-1, 8)

    def rests(self, addresses: Blocks, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        self.rests_read += len(words)
        words = np.minimum(words, np.uint64(self._words.shape[2] - 1))  # behind it all are the same
        return self._words[addresses[:, 0], :, words] & np.uint64(2**48 - 1)


def reference(keys: list[tuple[list[int], list[int]]], level: int) -> list[list[int]]:
    return [[clocks([*words, WORD - 1], (level,))[0] for words in sides] for sides in keys]


@examples(60, 250, given(keys=st.lists(SIDES, max_size=12), level=LEVELS), derandomize=True)
def test_clocks_in_bulk_are_those_of_the_threshold_process(keys: list[tuple[list[int], list[int]]], level: int) -> None:
    script = Script(keys)

    found = bulk_clocks(script, script.addresses, level).T

    assert found.dtype == np.int64
    assert found.tolist() == reference(keys, level)


@examples(
    30,
    120,
    given(keys=st.lists(SIDES, max_size=12), level=LEVELS, rows=st.integers(1, 5), blocks=st.integers(1, 7)),
    derandomize=True,
)
def test_clocks_do_not_depend_on_how_the_work_is_cut(
    keys: list[tuple[list[int], list[int]]], level: int, rows: int, blocks: int
) -> None:
    script = Script(keys)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows)
        monkeypatch.setattr(module, "_blocks_per_round", lambda _: blocks)

        assert bulk_clocks(script, script.addresses, level).T.tolist() == reference(keys, level)


@pytest.mark.parametrize("level", ordinarily(1, [3, 1, 5, 7]))
def test_every_stream_of_five_three_bit_words_on_either_side(level: int) -> None:
    """All 8^5 streams at once, one key each; the other side has the stream that is read backwards."""
    streams = [[word << 61 for word in stream] for stream in product(range(8), repeat=5)]
    keys = [(stream, stream[::-1]) for stream in streams]
    script = Script(keys)

    found = bulk_clocks(script, script.addresses, level << 61).T

    assert found.tolist() == reference(keys, level << 61)
    assert script.rests_read == 0


def test_rests_are_read_only_where_a_lead_equals_that_of_the_level() -> None:
    level = 0x8000 << 48 | 5
    below, at, above = 0x8000 << 48 | 4, level, 0x8001 << 48
    script = Script([([0x7FFF << 48, below, at], [above]), ([above], [below, below, above])])

    assert bulk_clocks(script, script.addresses, level).T.tolist() == [[2, 0], [0, 2]]
    assert script.rests_read == 4


def test_clocks_go_past_many_rounds() -> None:
    keys = [([0] * n, [0] * (n // 3)) for n in (0, 1, 3, 4, 5, 63, 64, 257, 5000)]
    script = Script(keys)

    for level in (1, 2**63, WORD - 1):
        assert bulk_clocks(script, script.addresses, level).T.tolist() == reference(keys, level)


def test_one_round_is_longest_for_the_coarsest_level_and_its_sum_fits() -> None:
    lengths = [
        module._blocks_per_round(level) for level in (1, 2**63, WORD - (WORD >> 8), WORD - (WORD >> 12), WORD - 1)
    ]

    assert lengths == sorted(lengths)
    assert lengths[0] == 1
    assert 32 * lengths[-1] < 2**16


def test_no_keys_have_no_clocks() -> None:
    assert bulk_clocks(Script([]), np.empty((0, 2), np.uint64), 2**63).shape == (2, 0)
