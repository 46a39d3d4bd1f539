"""The kind `gap`: the first k keys of a public list, how far each is ahead of the next, and how sure that is.

One selection per window is paid for and shared by all audiences; the gaps come with it at no further cost
(specs/gap 1.3). The counts of the chosen keys are noised at the audience's level. What they and the gaps say together,
and what a gap proves, is computed from what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from stream_dp.accounting import Cost
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.fields import Epsilon, Section, must
from stream_dp.kinds.kind import Explanation, Kind, ListedPlan, ListPayload, ViewBasis, most_chosen
from stream_dp.kinds.noise_levels import exceeded
from stream_dp.kinds.public_lists import LEFT_OUT, Counts, ListedCounts, ListField, placed
from stream_dp.kinds.sealing import SealedTable, Sealing, seal_table
from stream_dp.records.by_kind import LeadingCount
from stream_dp.records.models import Amount
from stream_dp.select.candidates import Neighbours
from stream_dp.select.top_k_with_gaps import (
    GapParameters,
    combine,
    gap_top_k,
    gaps_between,
    margin,
    variance_ratio,
    wrong_chance,
)
from stream_dp.windows.encoding import decode, encode

MOST_NUMBERS = 10**9
"""Keys of a range of numbers."""
ONE_IN_TWENTY = Fraction(1, 20)
"""Of false claims: of margins in records, of what a plan expects."""
DISPLAY_DIGITS = 3
GAP_PLACES = 6
"""Decimal places in which every resolution can be written."""
COMBINED_PLACES = 2

Scale = Literal["general", "monotone"]


_STEP = must(
    lambda step: step.numerator == 1 and 10**GAP_PLACES % step.denominator == 0,
    'be 1 or a part of it that a decimal can say, "1/10" or "0.25", not below "0.000001"',
)


class GapSelectionSettings(Section):
    """Selection of a gap view's keys, and its cost per window."""

    epsilon: Epsilon
    scale: Scale = "general"
    resolution: Annotated[Epsilon, _STEP] = Fraction(1, 10)


class GapSettings(Section):
    """The first k keys of a public list, and how far each is ahead of the next."""

    kind: Literal["gap"]
    catalogue: ListField
    k: Annotated[int, Field(ge=1, le=10_000)]
    selection: GapSelectionSettings


class _GapPayload(ListPayload, array_like=True, frozen=True):
    """The payload of a sealed table: the list, and the gaps in steps of the resolution."""

    gaps: list[int]


@dataclass(frozen=True, kw_only=True)
class GapPlan(ListedPlan):
    """The plan of a gap view.

    Attributes:
        parameters: of the selection.
    """

    parameters: GapParameters
    name = "gap"

    @property
    def identity(self) -> Sequence[object]:
        """The list, and what the selection is made of."""
        p = self.parameters
        return [*self.list_identity, p.k, str(p.epsilon), p.monotone, p.resolution]

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """The selection, gaps included (specs/gap 3.2)."""
        return Cost(self.parameters.epsilon, Fraction(0))

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Choose the keys with their gaps, and noise their counts (specs/gap 2.6, specs/lossless 6.4).

        Of a list with too few keys for k fewer are chosen, with the same noise: that costs less than what is charged.
        """
        p, listed = self.parameters, self.domain(sealing.lists)
        counted, items, gaps = ListedCounts.of(listed, counts), list[str](), list[int]()
        if k := most_chosen(p.k, listed.size):
            fitted = replace(p, k=k, epsilon=p.epsilon * Fraction(k, p.k))
            chosen = gap_top_k(counted.counts, counted.zeros, fitted, sealing.bits(b"selection"))
            items, gaps = counted.named(chosen.items), list(chosen.gaps)
        payload = encode(_GapPayload(listed.version, listed.size, gaps))
        exact = [counts.get(item, 0) for item in items]
        return seal_table(items, exact, self.levels, sealing, payload)

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The keys in their order with the counts of the level, their leads, and what both say together."""
        p, chosen = self.parameters, decode(_GapPayload, table.payload)
        combined = combine(column, gaps_between(chosen.gaps, p), self._variance_ratio(level)) if column else []
        rows = zip(table.items, column, chosen.gaps, combined, strict=True)
        return {
            "catalogue": chosen.listed,
            "k": len(table.items),
            "scale": Amount.up(p.scale),
            "resolution": Amount.up(Fraction(1, p.resolution)),
            "combined_error": self._combined_error(level, len(table.items)),
            "items": tuple(
                LeadingCount(
                    rank=rank, item=item, count=count, combined=decimal(best, COMBINED_PLACES), **_lead(gap, p)
                )
                for rank, (item, count, gap, best) in enumerate(rows, start=1)
            ),
        }

    def _variance_ratio(self, level: int) -> Fraction:
        return variance_ratio(self.parameters, self.levels[level].variance)

    def _combined_error(self, level: int, k: int) -> str:
        lam, k = self._variance_ratio(level), max(1, k)  # of none and of one there is nothing to combine
        return decimal_up(Fraction(1 + lam * k, k + lam * k), DISPLAY_DIGITS)

    def explain(self, keys_at_worst: str) -> Explanation:
        """Explain the choice, the lead that makes it sure, and how much the gaps improve the counts.

        Details, beside the list: `k`; `epsilon` of the selection of one window, gaps included; `scale`: mean of the
        noise of the selection, in users; `resolution` of a gap, in users; `certain_95`: a key with a gap of this many
        users is where it belongs, with 95 %; `shortfall`: in 95 % of the windows no chosen key lies further below the
        k-th, in users; null for a list in a topic.
        """
        p = self.parameters
        scale, resolution = Amount.up(p.scale), Fraction(1, p.resolution)
        certain, shortfall = _behind(p, ONE_IN_TWENTY), None
        if self.listed is not None:
            shortfall = _behind(p, ONE_IN_TWENTY * Fraction(1, self.listed.size - p.k))
        halved = " (half of what it is without `scale: monotone`)" if p.monotone else ""
        sentences = [
            f"Choosing {p.k} keys with their gaps costs {keys_at_worst} a window, once for all audiences",
            f"To choose the keys, each count gets exponential noise of mean {scale.decimal}{halved}",
            f"Gaps are rounded down to {decimal_up(resolution)}",
            f"If a key is {certain} users ahead of the next, it is in its place with a probability of 95 %",
        ]
        if shortfall is not None:
            sentences.append(f"In 95 % of the windows no key is shown that lies {shortfall} below the k-th")
        return Explanation(
            shows=f"the first {p.k} of the listed values, how far each is ahead of the next, and counts",
            keys=f"{self.list_in_words} {'. '.join(sentences)}. {LEFT_OUT}",
            seen=[f"first {p.k}"] * len(self.levels),
            columns={"error left\nwith gaps": [self._combined_error(level, p.k) for level in range(len(self.levels))]},
            details={
                **self.list_details,
                "k": p.k,
                "epsilon": Amount.up(p.epsilon),
                "scale": scale,
                "resolution": Amount.up(resolution),
                "certain_95": certain,
                "shortfall": shortfall,
            },
        )


def _behind(p: GapParameters, chance: Fraction) -> str:
    return decimal_up(exceeded(p.scale, chance), DISPLAY_DIGITS)


@lru_cache(maxsize=1 << 14)
def _lead(gap: int, p: GapParameters) -> dict[str, Any]:
    """Return the remark of a record on a gap."""
    least = margin(gap, ONE_IN_TWENTY, p)
    return {
        "gap": Amount.down(Fraction(gap, p.resolution)),
        "wrong_at_most": decimal_up(wrong_chance(gap, p), DISPLAY_DIGITS),
        "margin_95": None if least is None else Amount.down(Fraction(int(least * 10), 10)),
    }


def decimal(value: Fraction, places: int) -> str:
    """A number to so many decimal places, the nearest, for readers."""
    scaled = round(value * 10**places)
    sign, digits = "-" if scaled < 0 else "", str(abs(scaled)).rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else f"{sign}{digits}"


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
    fewest = settings.k + 1  # the last key that is shown has a gap, too
    place = placed(settings.catalogue, basis.folder, basis.application, fewest=fewest, most_numbers=MOST_NUMBERS)
    sensitivity = min(settings.k, basis.items_per_user)
    return GapPlan(levels=basis.levels(sensitivity), sensitivity=sensitivity, parameters=parameters, **place)


GAP = Kind("gap", GapSettings, plan_gap)
