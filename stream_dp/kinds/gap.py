"""The kind `gap`: the first k keys of a public list, how far each is ahead of the next, and how sure that is.

One selection per window is paid for and shared by all audiences; the gaps come with it at no further cost
(specs/gap 1.3). The counts of the chosen keys are noised at the audience's level. What they and the gaps say together,
and what a gap proves, is computed from what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field
from pydantic.json_schema import SkipJsonSchema

from stream_dp.accounting import Cost
from stream_dp.exact.rationals import decimal_up
from stream_dp.exact.reals import log
from stream_dp.kinds.base import Counts, Explanation, Kind, ViewBasis
from stream_dp.kinds.fields import Epsilon, Section
from stream_dp.kinds.listing import LEFT_OUT, ListDetails, ListedCounts, ListedIn, ListedPlan, decimal, placed
from stream_dp.kinds.lists import ListField, PublicKeys
from stream_dp.kinds.noise import NoiseLevel, noise_levels
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, read_counts, seal_table
from stream_dp.records.models import Amount, ItemCount, Release, absent
from stream_dp.select.gap import (
    GapParameters,
    combine,
    gap_top_k,
    gaps_between,
    margin,
    variance_ratio,
    wrong_chance,
)
from stream_dp.select.parameters import Neighbours
from stream_dp.windows.encoding import decode, encode

MOST_NUMBERS = 10**9
"""Keys of a range of numbers."""
ONE_IN_TWENTY = Fraction(1, 20)
"""Of false claims: of margins in records, of what a plan expects."""
LEAST_SURE, MOST_SURE = 50, 99
"""Percent; below and above that no number is told."""
DISPLAY_DIGITS = 3
GAP_PLACES = 6
"""Decimal places in which every resolution can be told."""
COMBINED_PLACES = 2
_LOG_PRECISION = 64

Scale = Literal["general", "monotone"]


def _step(value: Fraction) -> Fraction:
    if value.numerator != 1 or 10**GAP_PLACES % value.denominator:
        raise ValueError('must be 1 or a part of it that a decimal can say, "1/10" or "0.25", not below "0.000001"')
    return value


class GapSelectionSettings(Section):
    """Selection of a gap view's keys, and its cost per window."""

    epsilon: Epsilon
    scale: Scale = "general"
    resolution: Annotated[Epsilon, AfterValidator(_step)] = Fraction(1, 10)


class GapSettings(Section):
    """The first k keys of a public list, and how far each is ahead of the next."""

    kind: Literal["gap"]
    catalogue: ListField
    k: Annotated[int, Field(ge=1, le=10_000)]
    selection: GapSelectionSettings


class LeadingCount(ItemCount):
    """A chosen key, its noisy count, and its lead over the next one."""

    rank: int = Field(ge=1, description="Place in the selection, 1 first. Noisy counts need not fall with it.")
    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative."
    )
    gap: str = Field(
        pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$",
        description="How far the key was ahead of the next in the selection, in users, with the selection's noise: "
        "rounded down to the resolution. The last key was so far ahead of one that is not told.",
    )
    wrong_at_most: str = Field(
        pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?(e-?[0-9]+)?$",
        description="If the keys up to this rank were not those with the largest counts of the list, a gap as large as "
        "this would have at most this chance, whatever the counts are. Rounded up.",
    )
    margin_95: str | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra=absent,
        description="The claim that the smallest count up to this rank is at least so many users ahead of all other "
        "keys of the list. Such a claim is false in 5 % of all windows at most, for each rank by itself. Absent where "
        "the gap is too small for one.",
    )
    combined: str = Field(
        pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$",
        description="The count estimated from all counts and gaps together: on average over the ranks closer than "
        "`count` (`combined_error`). It is a point estimate: a key that is first by luck alone is estimated too high.",
    )


class GapRelease(Release):
    """The first keys of a public list, and how far each is ahead of the next."""

    kind: Literal["gap"] = Field(description="The first keys of a public list, with gaps.")
    catalogue: ListedIn = Field(description="The list.")
    k: int = Field(ge=1, description="How many keys are shown.")
    scale: Amount = Field(description="Mean of the exponential noise that the selection gave to every count, in users.")
    resolution: Amount = Field(description="What gaps are rounded down to, in users.")
    combined_error: str = Field(
        description="Mean squared error of `combined` as a part of that of `count`, where the counts are well apart."
    )
    items: tuple[LeadingCount, ...] = Field(description="The keys chosen, the first one first.")

    def extent(self) -> str:
        """Number of keys, and the size of the list."""
        return f"the first {self.k} of {self.catalogue.keys} of list {self.catalogue.version}"

    def remark(self, entry: ItemCount) -> str:
        """The lead of a key, and how sure the keys up to it are: "ahead by 31.2, first with 97 %"."""
        if not isinstance(entry, LeadingCount):
            return ""
        sure = min(MOST_SURE, int(100 * (1 - Fraction(entry.wrong_at_most))))
        places = "first" if entry.rank == 1 else f"first {entry.rank} right"
        return f"ahead by {entry.gap}, {places} " + (f"with {sure} %" if sure >= LEAST_SURE else "or not")


class GapDetails(ListDetails):
    """The numbers of a gap view."""

    k: int
    epsilon: Amount = Field(description="Of the selection of one window, gaps included.")
    scale: Amount = Field(description="Mean of the noise of the selection, in users.")
    resolution: Amount = Field(description="Of a gap, in users.")
    certain_95: str = Field(description="A key with a gap of this many users is where it belongs, with 95 %.")
    shortfall: str | None = Field(
        description="In 95 % of the windows no chosen key lies further below the k-th, in users; null for a list in a "
        "topic."
    )


class _GapPayload(msgspec.Struct, array_like=True, frozen=True):
    """The payload of a sealed table: the list, and the gaps in steps of the resolution."""

    version: str
    keys: int
    gaps: list[int]


@dataclass(frozen=True)
class GapPlan(ListedPlan):
    """The plan of a gap view.

    Attributes:
        parameters: of the selection.
    """

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    listed: PublicKeys | None
    parameters: GapParameters
    topics: tuple[str, ...] = ()
    name = "gap"

    @property
    def fewest_keys(self) -> int:
        """One more than are shown: the last of them has a gap, too."""
        return self.parameters.k + 1

    @property
    def identity(self) -> Sequence[object]:
        """The list, and what the selection is made of."""
        p = self.parameters
        return [*self.list_identity, p.k, str(p.epsilon), p.monotone, p.resolution]

    def keys_at_worst(self, *, squared: bool) -> Cost:
        """The selection, gaps included (specs/gap 3.2)."""
        return Cost(self.parameters.epsilon, Fraction(0))

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Choose the keys with their gaps, and noise their counts (specs/gap 2.6, specs/lossless 6.4)."""
        listed = self.domain(sealing.lists)
        counted = ListedCounts.of(listed, counts)
        bits = sealing.entropy(sealing.context(b"selection"))
        chosen = gap_top_k(counted.counts, counted.zeros, self.parameters, bits)
        payload = encode(_GapPayload(listed.version, listed.size, list(chosen.gaps)))
        return seal_table(counted.named(chosen.items), counted.counts, self.levels, sealing, payload)

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """The keys in their order with the counts of the level, their leads, and what both say together."""
        chosen = decode(_GapPayload, table.payload)
        listed = ListedIn(version=chosen.version, keys=chosen.keys)
        columns = zip(levels, read_counts(table, self.levels, levels, noise), strict=True)
        return [
            self.shown(level, listed, list(zip(table.items, column, chosen.gaps, strict=True)))
            for level, column in columns
        ]

    def shown(self, level: int, listed: ListedIn, rows: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
        """Return the fields of the record of a level.

        Args:
            level: index into the ladder.
            listed: the list.
            rows: the keys in their order, each with its noisy count and its gap in steps of the resolution.
        """
        p, gaps = self.parameters, [gap for _, _, gap in rows]
        combined = combine([count for _, count, _ in rows], gaps_between(gaps, p), self._variance_ratio(level))
        together = enumerate(zip(rows, [decimal(best, COMBINED_PLACES) for best in combined], strict=True), start=1)
        return {
            "catalogue": listed,
            "k": p.k,
            "scale": Amount.up(p.scale),
            "resolution": Amount.up(Fraction(1, p.resolution)),
            "combined_error": self._combined_error(level),
            "items": tuple(
                LeadingCount(rank=rank, item=item, count=count, combined=best, **_lead(gap, p))
                for rank, ((item, count, gap), best) in together
            ),
        }

    def _variance_ratio(self, level: int) -> Fraction:
        return variance_ratio(self.parameters, self.levels[level].epsilon * Fraction(1, self.sensitivity))

    def _combined_error(self, level: int) -> str:
        lam, k = self._variance_ratio(level), self.parameters.k
        return decimal_up(Fraction(1 + lam * k, k + lam * k), DISPLAY_DIGITS)

    def explain(self, keys_at_worst: str) -> Explanation:
        """Explain the choice, the lead that makes it sure, and how much the gaps improve the counts."""
        p, details = self.parameters, self._details()
        one_way = ", as for users who move all counts one way," if p.monotone else ""
        sentences = [
            f"Choosing {p.k} keys with their gaps costs {keys_at_worst} a window, once for all audiences",
            f"Every count gets exponential noise of mean {details.scale.decimal}{one_way} and gaps are told in steps "
            f"of {details.resolution.decimal}",
            f"A key with a gap of {details.certain_95} users is where it belongs, with 95 %",
        ]
        if details.shortfall is not None:
            sentences.append(f"In 95 % of the windows no key is shown that lies {details.shortfall} below the k-th")
        return Explanation(
            shows=f"the first {p.k} of the listed values, how far each is ahead of the next, and counts",
            keys=f"{self.list_in_words} {'. '.join(sentences)}. {LEFT_OUT}",
            seen=[f"first {p.k}"] * len(self.levels),
            columns={"mse left\nby gaps": [self._combined_error(level) for level in range(len(self.levels))]},
            details=details,
        )

    def _details(self) -> GapDetails:
        p, listed = self.parameters, self.list_details
        others = None if listed.keys is None else _behind(p, ONE_IN_TWENTY * Fraction(1, listed.keys - p.k))
        return GapDetails(
            **listed.model_dump(),
            k=p.k,
            epsilon=Amount.up(p.epsilon),
            scale=Amount.up(p.scale),
            resolution=Amount.up(Fraction(1, p.resolution)),
            certain_95=_behind(p, ONE_IN_TWENTY),
            shortfall=others,
        )


def _behind(p: GapParameters, chance: Fraction) -> str:
    """Return the value that exponential noise exceeds with a chance, in users, rounded up: scale ln(1 / chance)."""
    _, above = log(Fraction(1, chance), _LOG_PRECISION)
    return decimal_up(p.scale * Fraction(above, 1 << _LOG_PRECISION), DISPLAY_DIGITS)


@lru_cache(maxsize=1 << 14)
def _lead(gap: int, p: GapParameters) -> dict[str, Any]:
    """Return the remark of a record on a gap."""
    least = margin(gap, ONE_IN_TWENTY, p)
    return {
        "gap": decimal(Fraction(gap, p.resolution), GAP_PLACES).rstrip("0").rstrip("."),
        "wrong_at_most": decimal_up(wrong_chance(gap, p), DISPLAY_DIGITS),
        "margin_95": None if least is None else decimal(Fraction(int(least * 10), 10), 1),
    }


def plan_gap(settings: GapSettings, basis: ViewBasis) -> GapPlan:
    """Read the list, and plan the selection and the noise of the counts of what it chooses.

    Raises:
        ConfigError: a level's epsilon is out of bounds, the list cannot be used, or it has not more than k keys.
    """
    given = settings.selection
    # Neighbours of every view differ by one user, who adds 0 or 1 to each count: that is what monotone stands on.
    parameters = GapParameters(
        settings.k,
        given.epsilon,
        given.resolution.denominator,
        monotone=given.scale == "monotone",
        neighbours=Neighbours.ADD_OR_REMOVE,
    )
    listed, topics = placed(settings.catalogue, basis.folder, fewest=settings.k + 1, most_numbers=MOST_NUMBERS)
    sensitivity = min(settings.k, basis.items_per_user)
    return GapPlan(noise_levels(basis.ladder, sensitivity), sensitivity, listed, parameters, topics)


GAP = Kind("gap", "Release of the first keys of a list, with gaps", GapSettings, GapRelease, plan_gap)
