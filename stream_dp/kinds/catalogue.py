"""The kind `catalogue`: a noisy count for every key of a public list, under pure differential privacy.

The list is public and made without the data, so no key has to be discovered: there is no threshold and no delta, and
keys that nobody had stand there with their noise (`lossless 6.4`). Top lists, gaps and shares follow from the counts
free of cost. The list is written in the configuration, in a file beside it, or in a compacted topic; the record names
the version it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, Field

from stream_dp.accounting import Cost
from stream_dp.kinds.base import Counts, Explanation, Kind, KindPlan, ViewBasis
from stream_dp.kinds.lists import KeyList, ListField, TopicSettings, check_keys, load_list
from stream_dp.kinds.noise import NoiseLevel, noise_levels
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, read_counts, seal_counts
from stream_dp.kinds.settings import Section
from stream_dp.records.models import ItemCount, PublicRecord, Release


class CatalogueSettings(Section):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"]
    catalogue: ListField


class CatalogueList(PublicRecord):
    """The public list that a release is about."""

    version: str = Field(
        pattern=r"^[0-9a-f]{16}$",
        description="Names the list by its content: equal lists have equal versions, wherever they stand.",
    )
    keys: int = Field(ge=1, description="How many keys it has.")


class CatalogueCount(ItemCount):
    """A key of the list and its noisy count."""

    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative."
    )


class CatalogueRelease(Release):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"] = Field(description="Counts for every key of a public list.")
    catalogue: CatalogueList = Field(description="The list.")
    items: tuple[CatalogueCount, ...] = Field(
        description="Every key of the list and no other, largest noisy count first, then by key."
    )

    def extent(self) -> str:
        """How many keys the list has, and which version of it this is."""
        return f"all {self.catalogue.keys} of list {self.catalogue.version}"


class CatalogueDetails(BaseModel):
    """The numbers of a catalogue."""

    keys: int | None = Field(description="How many keys the list has; null for one in a topic.")
    version: str | None = Field(description="Version of the list; null for one in a topic.")
    topic: str | None = Field(description="The topic that the list stands in; null for one that is written down.")


@dataclass(frozen=True)
class CataloguePlan(KindPlan):
    """The plan of a catalogue.

    Attributes:
        listed: the list, None where it stands in a topic.
        topics: that topic.
        members: the keys of a list that is written down, for look-ups.
    """

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    listed: KeyList | None
    topics: tuple[str, ...] = ()
    members: frozenset[str] = field(default=frozenset(), repr=False)
    name = "catalogue"

    @property
    def identity(self) -> Sequence[object]:
        """Where the list stands, and its version where that may not change."""
        return [None if self.listed is None else self.listed.version, *self.topics]

    def keys_at_worst(self, *, squared: bool) -> Cost:
        """Nothing: which keys there are is public."""
        return Cost.ZERO

    def needed(self, counts: Counts) -> Counts:
        """The keys of the list; a list in a topic is looked at when the window is sealed, so all of them for it."""
        if self.listed is None:
            return counts
        return {item: count for item, count in counts.items() if item in self.members}

    def check_lists(self, lists: Mapping[str, KeyList]) -> None:
        """Refuse a list in a topic that has no key, too many keys or one that no event can have."""
        for topic in self.topics:
            check_keys(lists[topic].keys, "catalogue.topic")

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise the count of every key of the list, 0 where nobody had it (`lossless 6.4`)."""
        listed = self._current(sealing.lists)
        exact = {key.encode(): counts.get(key, 0) for key in listed.keys}
        digest, fine = seal_counts(exact, self.levels, sealing)
        values = [fine[key] for key in exact]
        return SealedTable(digest, list(listed.keys), values, listed.version.encode())

    def _current(self, lists: Mapping[str, KeyList]) -> KeyList:
        return lists[self.topics[0]] if self.listed is None else self.listed

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """Every key with its count."""
        listed = CatalogueList(version=table.payload.decode(), keys=len(table.items))
        return [
            {"catalogue": listed, "items": _ordered(table, column)}
            for column in read_counts(table, self.levels, levels, noise)
        ]

    def explain(self, keys_at_worst: str) -> Explanation:
        """How large the list is, or where it stands."""
        if self.listed is None:
            where = f"The list stands in topic {self.topics[0]} and is read when a worker starts."
            details = CatalogueDetails(keys=None, version=None, topic=self.topics[0])
        else:
            where = f"The list has {len(self.listed.keys)} keys, version {self.listed.version}."
            details = CatalogueDetails(keys=len(self.listed.keys), version=self.listed.version, topic=None)
        return Explanation(
            shows="a count for every listed value",
            keys=f"{where} It is public, so showing its keys costs nothing: no delta, and no key has to stand out. "
            "What is counted besides is left out.",
            columns={},
            details=details,
        )


def _ordered(table: SealedTable, column: Sequence[int]) -> tuple[CatalogueCount, ...]:
    rows = sorted(zip(table.items, column, strict=True), key=lambda row: (-row[1], row[0]))
    return tuple([CatalogueCount(item=item, count=count) for item, count in rows])


def plan_catalogue(settings: CatalogueSettings, basis: ViewBasis) -> CataloguePlan:
    """Read the list, and compute the noise of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the list cannot be used.
    """
    if isinstance(settings.catalogue, TopicSettings):
        levels = noise_levels(basis.ladder, basis.items_per_user)
        return CataloguePlan(levels, basis.items_per_user, None, (settings.catalogue.topic,))
    listed = load_list(settings.catalogue, "catalogue", basis.folder)
    sensitivity = min(basis.items_per_user, len(listed.keys))
    return CataloguePlan(noise_levels(basis.ladder, sensitivity), sensitivity, listed, members=frozenset(listed.keys))


CATALOGUE = Kind("catalogue", "Release of a catalogue", CatalogueSettings, CatalogueRelease, plan_catalogue)
