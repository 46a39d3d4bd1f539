"""The blocks that running totals need: what they add up to, how many a pane is in, and how long counts are kept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stream_dp.windows.shapes.running_totals import (
    Running,
    blocks_of,
    height,
    inner_blocks,
    most_blocks,
)
from stream_dp.windows.shapes.shape import Interval
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.factorization import cover

WINDOWS = range(1, 130)


def panes_of(last: int) -> range:
    """The panes of the block that ends with a pane, by its definition."""
    length = max(length for length in (1 << k for k in range(10)) if (last + 1) % length == 0)
    return range(last + 1 - length, last + 1)


def test_the_blocks_of_a_total_are_the_nodes_of_its_cover_one_after_another() -> None:
    for pane in WINDOWS:
        found = [(panes_of(last).start, last + 1) for last in blocks_of(pane)]
        assert found == list(cover(0, pane + 1, 1 << 10))
        assert len(found) == (pane + 1).bit_count()


def test_a_block_is_its_last_pane_and_the_blocks_inside_it() -> None:
    for pane in WINDOWS:
        inner = [one for last in inner_blocks(pane) for one in panes_of(last)]
        assert [*inner, pane] == list(panes_of(pane))


@pytest.mark.parametrize("panes", [*range(1, 40), 64, 96, 127, 128])
def test_no_pane_is_in_more_blocks_than_the_height_and_the_first_is_in_as_many(panes: int) -> None:
    blocks = [panes_of(last) for last in range(panes)]
    shares = [sum(pane in block for block in blocks) for pane in range(panes)]
    assert max(shares) == shares[0] == height(panes)
    assert 1 << height(panes) - 1 <= panes < 1 << height(panes)


@pytest.mark.parametrize("panes", [1, 2, 3, 7, 8, 24, 100])
def test_exact_counts_of_few_blocks_are_kept_each_until_its_only_use(panes: int) -> None:
    kept: set[int] = set()
    for pane in range(panes):
        assert kept.issuperset(inner_blocks(pane))
        kept -= set(inner_blocks(pane))
        if Running(Tiling(1), Tiling(panes)).is_needed_later(pane):
            kept.add(pane)
        assert len(kept) <= (pane + 1).bit_count()
        assert len(kept) < height(panes)
    assert kept == set()


def test_the_table_in_the_document_is_what_the_code_computes() -> None:
    text = (Path(__file__).parents[3] / "docs" / "kinds.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+)[^|]*\| (\d+)[^|]*\|$", text, re.MULTILINE)
    assert len(rows) == 7
    for panes, blocks, most in rows:
        assert (int(blocks), int(most)) == (height(int(panes)), most_blocks(int(panes)))
        assert int(most) == max(len(blocks_of(pane)) for pane in range(int(panes)))


def test_blocks_of_panes_in_time_begin_anew_with_every_window() -> None:
    """Windows of six panes of 5 ms, from 2 on: 0, 0-1, 2, 0-3, 4, 4-5."""
    shape = Running(Tiling(5, 2), Tiling(30, 2))
    assert shape.totals == 6
    for window in (-28, 2, 32):
        starts = range(window, window + 30, 5)
        totals = [shape.total(start) for start in starts]
        assert totals == [Interval(window, start + 5) for start in starts]
        blocks = [[start - window for start in shape.blocks(start)] for start in starts]
        assert blocks == [[0], [5], [5, 10], [15], [15, 20], [15, 25]]
        assert [[start - window for start in shape.inner(start)] for start in starts] == [
            [],
            [0],
            [],
            [5, 10],
            [],
            [20],
        ]
        assert [shape.is_needed_later(start) for start in starts] == [True, True, True, False, True, False]
