"""The transactions that the published secure gap mechanism was measured on, and counts made up in their place."""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stream_dp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Transactions:
    """A data set of the FIMI repository.

    Attributes:
        name: as the paper has it.
        file: its usual name, a transaction a line, items as numbers; also with ".gz" behind it.
        records: how many transactions there are.
        items: how many different items are in them.
    """

    name: str
    file: str
    records: int
    items: int


PUBLISHED = (
    Transactions("T40I10D100K", "T40I10D100K.dat", 100_000, 942),
    Transactions("BMS-POS", "BMS-POS.dat", 515_597, 1_657),
    Transactions("Kosarak", "kosarak.dat", 990_002, 41_270),
)


def find(folder: Path, one: Transactions) -> Path | None:
    """Return the path of the file, None where it is missing."""
    candidates = (folder / one.file, folder / f"{one.file}.gz")
    return next((file for file in candidates if file.is_file()), None)


def item_counts(file: Path, one: Transactions) -> list[int]:
    """In how many transactions each item is, the most frequent first.

    Raises:
        ConfigError: the file has other numbers of transactions or items than the published one, or cannot be read.
    """
    found: Counter[bytes] = Counter()
    records = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for line in lines:
                if items := set(line.split()):
                    found.update(items)
                    records += 1
    except (OSError, EOFError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if (records, len(found)) != (one.records, one.items):
        is_there, should = f"{records:,} and {len(found):,}", f"{one.records:,} and {one.items:,}"
        raise ConfigError(f"{file} is not {one.name}: it has {is_there} transactions and items, not {should}")
    return sorted(found.values(), reverse=True)


def stand_in(one: Transactions) -> list[int]:
    """As many counts that fall with the rank as those of such data do: 0.6 records / rank^1.1."""
    return [int(0.6 * one.records / rank**1.1) for rank in range(1, one.items + 1)]
