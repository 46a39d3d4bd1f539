"""Releases of every kind: what each adds to a record, and how a reader sums one up."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from stream_dp.errors import StateError
from stream_dp.histograms.compact import CompactHistogram
from stream_dp.records.models import Amount, DecimalText, ItemCount, PublicRecord, Release, ShownKey, optional

LEAST_SURE, MOST_SURE = 50, 99
"""Percent; below and above that no number is told."""

LITTLE = 5
"""Percent of items that a bound may leave out."""

Mechanism = Literal["gumbel", "strict", "chosen-kbar", "laplace", "fixed-threshold", "known-domain"]
"""Ways in which a top-k chooses its keys."""


class ListedIn(PublicRecord):
    """The public list that a release is about."""

    version: str = Field(
        pattern=r"^[0-9a-f]{16}$",
        description="Names the list by its content: equal lists have equal versions, wherever they stand. A range of "
        "numbers has a version of its own, which is not that of the same numbers written out.",
    )
    keys: int = Field(ge=0, description="How many keys it has. 0: one that is made of releases, before there is any.")


class RankedRelease(Release):
    """A release by noisy counts, which may have only the first of its keys."""

    least_count: ClassVar = 0
    """The least true count that a shown key may have."""
    rank: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "Only so many keys are shown, and none that is left out has a larger noisy count. Absent where none is."
    )
    two_sided_from: int | SkipJsonSchema[None] = optional(
        "Where keys are left out: as in a histogram, but for the lower end of 0 where the noisy count is smaller."
    )

    def interval(self, entry: ItemCount) -> tuple[int, int]:
        """As in every release, but that noise alone may have shown a key that has no two-sided one."""
        least, most = super().interval(entry)
        return (least if self.is_two_sided(entry) else self.least_count), most

    def is_two_sided(self, entry: ItemCount) -> bool:
        """False if noise alone may have shown the key."""
        return self.two_sided_from is None or entry.count >= self.two_sided_from


class WholeListRelease(RankedRelease):
    """Numbers for every key of a public list, or for the first of them."""

    catalogue: ListedIn = Field(description="The list.")

    def extent(self) -> str:
        """Number of keys of the list, and its version."""
        shown = "all" if self.rank is None else f"the first {self.rank} of"
        return f"{shown} {self.catalogue.keys} of list {self.catalogue.version}"


class CatalogueRelease(WholeListRelease):
    """Counts for every key of a public list."""

    title: ClassVar = "Release of a catalogue"
    kind: Literal["catalogue"] = Field(description="Counts for every key of a public list.")
    items: tuple[ItemCount, ...] = Field(
        description="Every key of the list and no other, largest noisy count first, then by key; with `rank` the first."
    )


class RunningRelease(WholeListRelease):
    """Totals since the start of the window, for every key of a public list."""

    title: ClassVar = "Release of running totals"
    kind: Literal["running"] = Field(description="Totals since the start of the window, for every key of a list.")
    items: tuple[ItemCount, ...] = Field(
        description="Every key of the list and no other, largest noisy total first, then by key; with `rank` the "
        "first. A total is the number of users who had the key since the start of the window, with the noise of the "
        "blocks that it is the sum of; it may be lower than at the end of an earlier pane."
    )


class HistogramItem(ItemCount):
    """A key of a histogram and its noisy count."""

    new: Literal[True] | SkipJsonSchema[None] = optional(
        "True for a key that is not on the list of known keys, where the release has one (`catalogue`)."
    )


class HistogramRelease(RankedRelease):
    """A histogram over unknown keys: every key with a noisy count of at least `minimum_count`, and all known keys."""

    title: ClassVar = "Release of a histogram"
    least_count: ClassVar = 1
    kind: Literal["histogram"] = Field(description="A histogram over unknown keys.")
    catalogue: ListedIn | SkipJsonSchema[None] = optional(
        "The list of known keys, where the view has `remember`: those that an audience was shown before. All of them "
        "are shown, with any noisy count, and their interval always has two sides. Other keys are marked `new`."
    )
    minimum_count: int = Field(
        ge=1,
        description="Keys with a smaller noisy count are not shown, so that one user alone cannot show a key. Known "
        "keys are.",
    )
    stays_from: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "Where the view has `remember`: a key of this release is known to later windows if its noisy count is at least "
        "this and the release is that of the audience which `remember` names."
    )
    two_sided_from: int = Field(
        ge=1,
        description="How to read a shown key that was not known: with at least 95 % chance, given that it is shown and "
        "whatever its true count is, that lies within noise_interval_95 of a noisy count that is at least this, and "
        "between 1 and the noisy count plus noise_interval_95 where the noisy count is smaller.",
    )
    items: tuple[HistogramItem, ...] = Field(description="The keys shown, largest noisy count first, then by key.")

    def is_two_sided(self, entry: ItemCount) -> bool:
        """False if noise alone may have shown the key."""
        is_known = self.catalogue is not None and isinstance(entry, HistogramItem) and not entry.new
        return is_known or super().is_two_sided(entry)

    def extent(self) -> str:
        """Number of keys shown, and the count from which on they are."""
        if (known := self.catalogue) is None:
            first = "" if self.rank is None else "the first "
            return f"{first}{len(self.items)} shown, from {self.minimum_count} up"
        new = sum(entry.new is True for entry in self.items)
        return f"all {known.keys} of list {known.version}, and {new} new, from {self.minimum_count} up"

    def remark(self, entry: ItemCount | ShownKey) -> str:
        """Say of a key that it was not known."""
        return "new" if isinstance(entry, HistogramItem) and entry.new else ""


class RankedCount(ItemCount):
    """A selected key and its noisy count."""

    rank: int = Field(ge=1, description="Place in the selection, 1 first. Noisy counts need not fall with it.")


class TopKRelease(Release):
    """The most frequent of unknown keys, in the order of the selection."""

    title: ClassVar = "Release of a top-k"
    kind: Literal["topk"] = Field(description="The most frequent of unknown keys.")
    k: int = Field(ge=1, description="How many keys were asked for.")
    complete: bool = Field(
        description="Whether k keys were found, or `paid`; false where the rest is too close to tell apart, and the "
        "list ended."
    )
    paid: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "How many keys the rest of the budget paid for, where these were fewer than k."
    )
    selection: Mechanism | SkipJsonSchema[None] = optional(
        "How the keys were chosen, where it was not by draws with Gumbel noise. With fixed-threshold they "
        "are a set: their order is that of the keys and means nothing."
    )
    items: tuple[RankedCount, ...] = Field(description="The keys selected, best first.")

    def extent(self) -> str:
        """Number of keys found, of those that were requested."""
        short = "" if self.paid is None else f"; the budget paid for {self.paid}"
        return f"{len(self.items)} of {self.k}{short}" + ("" if self.complete else "; the rest cannot be told apart")


class PureTopKRelease(Release):
    """The most frequent of unknown keys, under pure epsilon."""

    title: ClassVar = "Release of a pure top-k"
    kind: Literal["pure_topk"] = Field(description="The most frequent of unknown keys, without a delta.")
    k: int = Field(ge=1, description="At most so many keys are shown.")
    minimum_count: int = Field(
        ge=1,
        description="Keys with a smaller noisy count are not shown. Every possible key has noise: with 95 % chance no "
        "key that nobody has reaches this.",
    )
    within_95: int = Field(
        ge=0,
        description="With at least 95 % chance the noisy counts of all shown keys together are within this of the "
        "true ones. It is larger than noise_interval_95, which is about one key that was named beforehand.",
    )
    items: tuple[ItemCount, ...] = Field(
        description="The keys shown, largest noisy count first, then by key. Keys that tie with the next one are not "
        "shown, so there may be fewer than k."
    )

    def interval(self, entry: ItemCount) -> tuple[int, int]:
        """Ends of an interval for the true count of a shown key; with 95 % chance those of all shown keys hold."""
        return max(0, entry.count - self.within_95), entry.count + self.within_95

    def extent(self) -> str:
        """Number of keys shown, and the count from which on they are."""
        return f"{len(self.items)} of at most {self.k} shown, from {self.minimum_count} up"


@lru_cache(maxsize=16)
def _histogram(table: str) -> CompactHistogram:
    """Read a table; prepared for lookups it takes up to 1.5 MB, so a few are kept, however many releases are."""
    try:
        return CompactHistogram.from_bytes(b64decode(table, validate=True))
    except ValueError as error:
        raise StateError(f"the table of a lookup cannot be read: {error}") from error


class LookupRelease(Release):
    """A table that answers with a noisy count for every key, also those that nobody had."""

    title: ClassVar = "Release of a lookup table"
    kind: Literal["lookup"] = Field(description="A table that answers for every possible key.")
    table: str = Field(
        pattern=r"^[A-Za-z0-9+/]*={0,2}$",
        description="The table in base64, of one size whatever it was made from. `stream-dp lookup`, the series of the "
        "gateway, `count_of` of the client's records and `CompactHistogram` of `stream_dp.mechanisms` read it.",
    )
    absent_mean: DecimalText = Field(
        description="Decimal text: the mean answer for a key that nobody has, since answers are not negative. Do not "
        "add up answers of many keys."
    )
    items: tuple[ItemCount, ...] = Field(description="Empty: the table lists no keys.")

    def extent(self) -> str:
        """Size of the table."""
        return f"a table of {len(self.table) * 3 // 4:,} bytes that answers for every key"

    def entry(self, item: str) -> ItemCount | None:
        """As `count_of`."""
        count = self.count_of(item)
        return None if count is None else ItemCount.model_construct(item=item, count=count)

    def count_of(self, item: str) -> int | None:
        """Return the noisy count of any key, also of one that nobody has; None for one that is too long.

        Raises:
            StateError: the table is damaged.
        """
        if item not in self._answers:
            histogram = _histogram(self.table)
            if len(item.encode("utf-8", "surrogatepass")) > histogram.key_bytes:
                return None  # all of these share one answer
            self._answers[item] = histogram.lookup(item)
        return self._answers[item]

    @cached_property
    def _answers(self) -> dict[str, int]:
        return {}

    @property
    def is_empty(self) -> bool:
        """False: it answers for every key."""
        return False

    @property
    def empty(self) -> str:
        """The same: it lists no keys."""
        return self.extent()


class LeadingCount(RankedCount):
    """A chosen key, its noisy count, and its lead over the next one."""

    gap: Amount = Field(
        description="How far the key was ahead of the next in the selection, in users, with the selection's noise: "
        "rounded down to the resolution. The last key was so far ahead of one that is not told.",
    )
    wrong_at_most: DecimalText = Field(
        description="Decimal text: if the keys up to this rank were not those with the largest counts of the list, a "
        "gap as large as this would have at most this chance, whatever the counts are. Rounded up to 3 digits.",
    )
    margin_95: Amount | SkipJsonSchema[None] = optional(
        "The claim that the smallest count up to this rank is at least so many users ahead of all other "
        "keys of the list. Such a claim is false in 5 % of all windows at most, for each rank by itself. Absent where "
        "the gap is too small for one. Rounded down to tenths of a user."
    )
    combined: str = Field(
        pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$",
        description="Decimal text: the count estimated from all counts and gaps together. On average over the ranks it "
        "is closer than `count` (`combined_error`). It is a point estimate: a key that is first by luck alone is "
        "estimated too high. Rounded to hundredths, to the nearest.",
    )


class GapRelease(Release):
    """The first keys of a public list, and how far each is ahead of the next."""

    title: ClassVar = "Release of the first keys of a list, with gaps"
    kind: Literal["gap"] = Field(description="The first keys of a public list, with gaps.")
    catalogue: ListedIn = Field(description="The list.")
    k: int = Field(ge=0, description="How many keys are shown; fewer than the view asks for where the list is short.")
    scale: Amount = Field(description="Mean of the exponential noise that the selection gave to every count, in users.")
    resolution: Amount = Field(description="What gaps are rounded down to, in users.")
    combined_error: DecimalText = Field(
        description="Decimal text: mean squared error of `combined` as a part of that of `count`, where the counts are "
        "well apart. Rounded up to 3 digits."
    )
    items: tuple[LeadingCount, ...] = Field(description="The keys chosen, the first one first.")

    def extent(self) -> str:
        """Number of keys, and the size of the list."""
        return f"the first {self.k} of {self.catalogue.keys} of list {self.catalogue.version}"

    def remark(self, entry: ItemCount | ShownKey) -> str:
        """The lead of a key, and how sure the keys up to it are: "ahead by 31.2, first with 97 %"."""
        if not isinstance(entry, LeadingCount):
            return ""
        sure = min(MOST_SURE, int(100 * (1 - Fraction(entry.wrong_at_most))))
        places = "first" if entry.rank == 1 else f"first {entry.rank} right"
        return f"ahead by {entry.gap.decimal}, {places} " + (f"with {sure} %" if sure >= LEAST_SURE else "or not")


class SubsetRelease(Release):
    """The k largest counts of a public list, as a set."""

    title: ClassVar = "Release of a set of keys of a list"
    kind: Literal["subset"] = Field(description="A set of keys of a public list.")
    catalogue: ListedIn = Field(description="The list.")
    k: int = Field(ge=0, description="How many keys are shown; fewer than the view asks for where the list is short.")
    selection: Literal["canonical", "one-shot"] = Field(
        description="How they were chosen: all subsets of the list scored and one drawn, or one noise for each key."
    )
    items: tuple[ItemCount, ...] = Field(
        description="The keys chosen. They are a set: their order is that of the keys and means nothing."
    )

    def extent(self) -> str:
        """Number of keys, and the size of the list."""
        return f"{self.k} of {self.catalogue.keys} of list {self.catalogue.version}, in no order"


class KeysRelease(Release):
    """Keys of unknown ones that enough users have, without counts."""

    title: ClassVar = "Release of keys without counts"
    kind: Literal["keys"] = Field(description="Which keys exist, without counts.")
    vote_parts: int = Field(
        ge=1,
        description="Parts of a user's vote, v. A user with d keys gives each floor(v / d); with discrete gaussian "
        "noise floor(v / sqrt(d)). `noise` is of sums of parts, and `noise_interval_95` of sums of votes.",
    )
    minimum_parts: int = Field(ge=1, description="Keys with a smaller noisy sum of parts are not shown.")
    items: tuple[ShownKey, ...] = Field(description="The keys shown, in their own order, which means nothing.")

    def extent(self) -> str:
        """Number of keys shown."""
        return f"{len(self.items)} shown, without counts"


class BinCount(ItemCount):
    """A bin of users by their number of items, and what a bound at its upper end leaves out."""

    left_out: int | SkipJsonSchema[None] = optional(
        "Percent of all items that `items_per_user` at the upper end of the bin would leave out, to the nearest; of a "
        "user with more items than the grid has, one more counts. Absent of the last bin."
    )
    left_out_95: tuple[int, int] | SkipJsonSchema[None] = optional(
        "Ends of an interval for the true percentage, 95 % sure for all bins together."
    )


class BoundsRelease(Release):
    """Numbers of users by their number of items."""

    title: ClassVar = "Release of the numbers of items of users"
    kind: Literal["bounds"] = Field(description="How many users have 1, 2, ... items.")
    items: tuple[BinCount, ...] = Field(description="The bins in their order: `3-5`, and how many users are in it.")

    def remark(self, entry: ItemCount | ShownKey) -> str:
        """The share of items that a bound at the upper end of the bin leaves out."""
        if not isinstance(entry, BinCount) or entry.left_out_95 is None:
            return ""
        return "this bound leaves out {} % ({} to {} %)".format(entry.left_out, *entry.left_out_95)

    def extent(self) -> str:
        """The first bin whose bound leaves out little."""
        fits = next((one.item for one in self.items if one.left_out is not None and one.left_out <= LITTLE), "")
        words = f"a bound at the end of bin {fits} leaves out about" if fits else "every bound leaves out more than"
        return f"{words} {LITTLE} % of items" + (" or less" if fits else "")


RELEASES: Mapping[str, type[Release]] = {
    "bounds": BoundsRelease,
    "catalogue": CatalogueRelease,
    "gap": GapRelease,
    "histogram": HistogramRelease,
    "keys": KeysRelease,
    "lookup": LookupRelease,
    "pure_topk": PureTopKRelease,
    "running": RunningRelease,
    "subset": SubsetRelease,
    "topk": TopKRelease,
}
"""By kind."""
