from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from experiments.gap.transactions import PUBLISHED, Transactions, find, item_counts, stand_in
from stream_dp.errors import ConfigError

SMALL = Transactions("Small", "small.dat", 3, 4)
LINES = b"1 2 7\n2 2 7 \n\n9 2\n"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_item_counts_once_in_every_transaction(tmp_path: Path, *, packed: bool) -> None:
    file = tmp_path / ("small.dat.gz" if packed else "small.dat")
    file.write_bytes(gzip.compress(LINES) if packed else LINES)

    assert find(tmp_path, SMALL) == file
    assert item_counts(file, SMALL) == [3, 2, 1, 1]


def test_a_file_of_other_numbers_is_not_taken_for_the_published_one(tmp_path: Path) -> None:
    file = tmp_path / "small.dat"
    file.write_bytes(b"1 2\n3 4\n")

    with pytest.raises(
        ConfigError, match=r"small\.dat is not Small: it has 2 and 4 transactions and items, not 3 and 4"
    ):
        item_counts(file, SMALL)


def test_a_damaged_file_is_said_to_be_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "small.dat.gz"
    file.write_bytes(gzip.compress(LINES)[:-4])

    with pytest.raises(ConfigError, match="cannot be read"):
        item_counts(file, SMALL)


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert find(tmp_path, SMALL) is None


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.name)
def test_made_up_counts_have_the_published_number_of_items_and_fall(one: Transactions) -> None:
    counts = stand_in(one)

    assert len(counts) == one.items
    assert counts == sorted(counts, reverse=True)
    assert 0 <= counts[-1] < counts[0] < one.records
