"""The kind `catalogue`: a noisy count for every key of a public list, under pure differential privacy.

The list is public and made without the data, so no key has to be discovered: there is no threshold and no delta, and
keys that nobody had stand there with their noise (specs/lossless 6.4). Top lists, gaps and shares follow from the
counts free of cost. The list is written in the configuration, in a file beside it, in a compacted topic, or is a range
of numbers; the record names the version it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from stream_dp.accounting import Cost
from stream_dp.kinds.base import Counts, Explanation, Kind, ViewBasis
from stream_dp.kinds.fields import Section
from stream_dp.kinds.listing import LEFT_OUT, ListedIn, ListedPlan, placed
from stream_dp.kinds.lists import ListField, PublicKeys
from stream_dp.kinds.noise import NoiseLevel, noise_levels
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, read_counts, seal_table
from stream_dp.records.models import ItemCount, Release


class CatalogueSettings(Section):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"]
    catalogue: ListField


class CatalogueCount(ItemCount):
    """A key of the list and its noisy count."""

    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative."
    )


class CatalogueRelease(Release):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"] = Field(description="Counts for every key of a public list.")
    catalogue: ListedIn = Field(description="The list.")
    items: tuple[CatalogueCount, ...] = Field(
        description="Every key of the list and no other, largest noisy count first, then by key."
    )

    def extent(self) -> str:
        """Number of keys of the list, and its version."""
        return f"all {self.catalogue.keys} of list {self.catalogue.version}"


@dataclass(frozen=True)
class CataloguePlan(ListedPlan):
    """The plan of a catalogue."""

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    listed: PublicKeys | None
    topics: tuple[str, ...] = ()
    name = "catalogue"
    shown: ClassVar[type[ItemCount]] = CatalogueCount
    """Description of a key and its count in records."""

    @property
    def undivided(self) -> str:  # type: ignore[override]
        """Nothing where the list is fixed: every pane has a count for each of its keys, and these add up."""
        return "its list is in a topic and may be another one in every part" if self.topics else ""

    @property
    def identity(self) -> Sequence[object]:
        """The list."""
        return self.list_identity

    def keys_at_worst(self, *, squared: bool) -> Cost:
        """Nothing: which keys there are is public."""
        return Cost.ZERO

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise the count of every key of the list, 0 where nobody had it (specs/lossless 6.4)."""
        listed = self.domain(sealing.lists)
        return seal_table(listed, counts, self.levels, sealing, listed.version.encode())

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """Every key with its count."""
        return [self._fields(table, column) for column in read_counts(table, self.levels, levels, noise)]

    def summand(self, table: SealedTable, level: int, noise: WindowNoise) -> Sequence[int]:
        """The count of every key."""
        return read_counts(table, self.levels, [level], noise)[0]

    def total(self, table: SealedTable, sums: Sequence[int]) -> dict[str, Any]:
        """Every key with the sum of its counts."""
        return self._fields(table, sums)

    def _fields(self, table: SealedTable, column: Sequence[int]) -> dict[str, Any]:
        listed = ListedIn(version=table.payload.decode(), keys=len(table.items))
        return {"catalogue": listed, "items": self._ordered(table, column)}

    def explain(self, keys_at_worst: str) -> Explanation:
        """Size of the list, or the place where it is."""
        return Explanation(
            shows="a count for every listed value",
            keys=f"{self.list_in_words} It is public, so showing its keys costs nothing: no delta, and no key has to "
            f"stand out. {LEFT_OUT}",
            seen=["all listed"] * len(self.levels),
            columns={},
            details=self.list_details,
        )

    def _ordered(self, table: SealedTable, column: Sequence[int]) -> tuple[ItemCount, ...]:
        rows = sorted(zip(table.items, column, strict=True), key=lambda row: (-row[1], row[0]))
        return tuple([self.shown(item=item, count=count) for item, count in rows])


def plan_catalogue(settings: CatalogueSettings, basis: ViewBasis) -> CataloguePlan:
    """Read the list, and compute the noise of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the list cannot be used.
    """
    listed, topics = placed(settings.catalogue, basis.folder)
    sensitivity = basis.items_per_user if listed is None else min(basis.items_per_user, listed.size)
    return CataloguePlan(noise_levels(basis.ladder, sensitivity), sensitivity, listed, topics)


CATALOGUE = Kind("catalogue", "Release of a catalogue", CatalogueSettings, CatalogueRelease, plan_catalogue)
