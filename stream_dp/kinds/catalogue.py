"""The kind `catalogue`: a noisy count for every key of a public list, under pure differential privacy.

The list is public and made without the data, so no key has to be discovered: there is no threshold and no delta, and
keys that nobody had stand there with their noise (specs/lossless 6.4). Top lists, gaps and shares follow from the
counts free of cost. The list is written in the configuration, in a file beside it, in a compacted topic, or is a range
of numbers; the record names the version it was made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.accounting import Cost
from stream_dp.kinds.fields import Section
from stream_dp.kinds.kind import Explanation, Kind, ListedPlan, ViewBasis, largest_first
from stream_dp.kinds.public_lists import LEFT_OUT, Counts, ListField, placed
from stream_dp.kinds.sealing import SealedTable, Sealing, noise_levels, read_counts, seal_table
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import ListedIn


class CatalogueSettings(Section):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"]
    catalogue: ListField


@dataclass(frozen=True, kw_only=True)
class CataloguePlan(ListedPlan):
    """The plan of a catalogue."""

    name = "catalogue"

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

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """Every key with its count."""
        return self.total(table, column)

    def summand(self, table: SealedTable, level: int, noise: WindowNoise) -> Sequence[int]:
        """The count of every key."""
        return read_counts(table, self.levels, [level], noise)[0]

    def total(self, table: SealedTable, sums: Sequence[int]) -> dict[str, Any]:
        """Every key with the sum of its counts."""
        listed = ListedIn(version=table.payload.decode(), keys=len(table.items))
        return {"catalogue": listed, "items": largest_first(zip(table.items, sums, strict=True))}

    def explain(self, keys_at_worst: str) -> Explanation:
        """Size of the list, or the place where it is."""
        return Explanation(
            shows="a count for every listed value",
            keys=f"{self.list_in_words} It is public, so showing its keys costs nothing: no delta, and no key has to "
            f"stand out. {LEFT_OUT}",
            seen=["all listed"] * len(self.levels),
            details=self.list_details,
        )


def plan_catalogue(settings: CatalogueSettings, basis: ViewBasis) -> CataloguePlan:
    """Read the list, and compute the noise of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the list cannot be used.
    """
    listed, topics = placed(settings.catalogue, basis.folder)
    sensitivity = basis.items_per_user if listed is None else min(basis.items_per_user, listed.size)
    levels = noise_levels(basis.ladder, sensitivity)
    return CataloguePlan(levels=levels, sensitivity=sensitivity, listed=listed, topics=topics)


CATALOGUE = Kind("catalogue", CatalogueSettings, plan_catalogue)
