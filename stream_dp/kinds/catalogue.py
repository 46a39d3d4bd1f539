"""The kind `catalogue`: a noisy count for every key of a public list, under pure differential privacy.

The list is public and made without the data, so no key has to be discovered: there is no threshold and no delta, and
keys that nobody had stand there with their noise (specs/lossless 6.4). Top lists, gaps and shares follow from the
counts free of cost. The list is written in the configuration, in a file beside it, in a compacted topic, is a range
of numbers, or has the keys that another view has shown; the record names the version it was made from.

With `strict` a window takes the same random bits and steps whatever its counts are; such noise cannot be refined later,
so there is one level (specs/finite 2.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_up
from stream_dp.histograms.basic import basic_histogram
from stream_dp.histograms.counting_queries import GeometricTable, mean_absolute
from stream_dp.kinds.fields import Rank, Section
from stream_dp.kinds.kind import Explanation, Kind, ListedPlan, Showing, ViewBasis, largest_first
from stream_dp.kinds.noise_levels import table_level
from stream_dp.kinds.public_lists import LEFT_OUT, Counts, ListField, placed
from stream_dp.kinds.sealing import SealedTable, Sealing, exact_digest, read_counts, seal_table
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import ListedIn
from stream_dp.records.models import CountRow

UNIFORM_BITS = 64
DISPLAY_DIGITS = 3
NOTHING_IS_EMPTY = BeforeValidator(lambda value: {} if value is None else value)
"""A section without a setting has its defaults: `strict:` alone does not leave a view as it is without."""


class StrictSettings(Section):
    """Noise in a public number of random bits and steps."""

    largest_count: Annotated[int, Field(ge=1, le=(1 << 32) - 1)] = 1_000_000


class CatalogueSettings(Section):
    """Counts for every key of a public list."""

    kind: Literal["catalogue"]
    catalogue: ListField
    rank: Rank | None = None
    strict: Annotated[StrictSettings | None, NOTHING_IS_EMPTY] = None


@dataclass(frozen=True, kw_only=True)
class CataloguePlan(ListedPlan):
    """The plan of a catalogue."""

    name = "catalogue"

    undivided: ClassVar[str] = ""
    """Every pane of a window has a count for each key of one list, and these add up."""

    @property
    def identity(self) -> Sequence[object]:
        """The list."""
        return self.list_identity

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Nothing: which keys there are is public."""
        return Cost.ZERO

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise the count of every key of the list, 0 where nobody had it (specs/lossless 6.4)."""
        listed = self.domain(sealing.lists)
        exact = [counts.get(item, 0) for item in listed]
        return seal_table([*listed], exact, self.levels, sealing, listed.version.encode())

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """Every key with its count."""
        return self.total(table, column)

    def summand(self, table: SealedTable, level: int, noise: WindowNoise) -> Sequence[int]:
        """The count of every key."""
        return read_counts(table, self.levels, [level], noise)[0]

    def total(self, table: SealedTable, sums: Sequence[int]) -> dict[str, Any]:
        """Every key with the sum of its counts."""
        listed = ListedIn(version=table.payload.decode(), keys=len(table.items))
        rows = [CountRow(count, item) for item, count in zip(table.items, sums, strict=True)]
        return {"catalogue": listed, "items": largest_first(rows)}

    @property
    def showing(self) -> Showing | None:
        """All keys of the list, where it is fixed; of one that is made of releases nothing more is known."""
        return None if self.listed is None and self.made_of is None else Showing(listed=self.listed)

    def explain(self, keys_at_worst: str) -> Explanation:
        """Size of the list, or the place where it is; the details are `list_details`."""
        return Explanation(
            shows="a count for every listed value",
            keys=f"{self.list_in_words} It is public, so showing its keys costs nothing: no delta, and no key has to "
            f"stand out. {LEFT_OUT}{self.ranked_words}",
            seen=["all listed" if self.rank is None else f"first {self.rank}"] * len(self.levels),
            details=self.list_details,
        )


@dataclass(frozen=True, kw_only=True)
class StrictCataloguePlan(CataloguePlan):
    """The plan of a strict catalogue.

    Attributes:
        table: draws the noise of one count.
    """

    table: GeometricTable

    @property
    def made_up_keys(self) -> int:
        """0: all keys of the list get noise, whoever has them."""
        return 0

    undivided = "strict counts are never below 0, so the sums of those of small parts are too large on average"

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise the count of every key of the list, 0 where nobody had it, in its order (specs/finite 2.6)."""
        listed = self.domain(sealing.lists)
        exact = {item: counts.get(item, 0) for item in listed}
        digest = exact_digest({item.encode(): count for item, count in exact.items()}, sealing)
        noisy = basic_histogram(self.table, exact.values(), sealing.bits(b"noise"))
        return SealedTable(digest, list(exact), noisy, listed.version.encode())

    @property
    def showing(self) -> None:
        """None: counts are cut off."""

    def explain(self, keys_at_worst: str) -> Explanation:
        """The list, and what is peculiar to noise in a public number of bits.

        Details, beside the list: `largest_count`: larger counts count as this; `absent_mean`: mean count that is shown
        for a key that nobody has; `random_bits` of one key of the list.
        """
        table, plain = self.table, super().explain(keys_at_worst)
        mean = decimal_up(mean_absolute(table, 0), DISPLAY_DIGITS)
        words = (
            f"Strict: a window draws {table.bits} random bits for each key of the list and takes about the same time, "
            f"whatever its counts are. Counts above {table.bound} count as that, and none is shown below 0: a key that "
            f"nobody has gets {mean} on average, so do not add up the counts of many keys. Later releases cannot be "
            "sharper."
        )
        details = {"largest_count": table.bound, "absent_mean": mean, "random_bits": table.bits}
        return plain.model_copy(update={"keys": f"{plain.keys} {words}", "details": self.list_details | details})


def plan_catalogue(settings: CatalogueSettings, basis: ViewBasis) -> CataloguePlan:
    """Read the list, and compute the noise of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, the list cannot be used, or a strict ladder has more than one
            level.
    """
    place = placed(settings.catalogue, basis.folder, basis.application)
    listed = place["listed"]
    sensitivity = basis.items_per_user if listed is None else min(basis.items_per_user, listed.size)
    if settings.strict is None:
        return CataloguePlan(levels=basis.levels(sensitivity), sensitivity=sensitivity, rank=settings.rank, **place)
    if place["made_of"] is not None:
        raise ConfigError("a list that is made of releases is empty at first: leave strict out", "catalogue")
    bits = settings.strict.largest_count.bit_length()
    level = table_level(basis.ladder, sensitivity, count_bits=bits, uniform_bits=UNIFORM_BITS)
    return StrictCataloguePlan(levels=(level,), sensitivity=sensitivity, table=level.table, rank=settings.rank, **place)


CATALOGUE = Kind("catalogue", CatalogueSettings, plan_catalogue)
