"""The kind `histogram`: every key whose noisy count reaches the level's minimum count, over unknown keys.

Which keys exist is unknown, so showing one costs delta. It is parted evenly over the levels and a user's items, which
gives each level its own minimum count (specs/lossless 2.9.5, per-level thresholds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.kinds.fields import DiscoveryDelta, Section
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, ViewBasis, largest_first
from stream_dp.kinds.public_lists import Counts
from stream_dp.kinds.sealing import CONFIDENCE, SealedTable, Sealing, noise_levels, seal_counts
from stream_dp.lossless.levels import discovery_delta, minimum_count, two_sided_from
from stream_dp.lossless.sealed import prune
from stream_dp.records.models import Amount


class HistogramSettings(Section):
    """A histogram over unknown keys."""

    kind: Literal["histogram"]
    delta: DiscoveryDelta


class HistogramDetails(BaseModel):
    """The numbers of a histogram."""

    delta: Amount = Field(description="What one window adds to delta, for all levels together.")
    minimum_counts: dict[str, int] = Field(description="By level: the smallest noisy count that is shown.")
    two_sided_from: dict[str, int] = Field(
        description="By level: the smallest noisy count that says of its key, with 95 %, more than an upper bound."
    )


@dataclass(frozen=True, kw_only=True)
class HistogramPlan(KindPlan):
    """The plan of a histogram.

    Attributes:
        delta: what one window adds to delta, for all levels together.
        minimum_counts: for each level the smallest noisy count that is shown.
    """

    delta: Fraction
    minimum_counts: tuple[int, ...]
    name = "histogram"

    @property
    def identity(self) -> Sequence[object]:
        """Delta and the minimum counts."""
        return [str(self.delta), list(self.minimum_counts)]

    def keys_at_worst(self, *, squared: bool) -> Cost:
        """Delta, whatever is shown."""
        return Cost(Fraction(0), self.delta)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise every count; what no level shows is not stored (specs/lossless 6.4)."""
        exact = {item.encode(): counts[item] for item in sorted(counts)}  # in the order of the bytes too
        digest, fine = seal_counts(exact, self.levels, sealing)
        ladder = zip((level.threshold for level in self.levels), self.minimum_counts, strict=True)
        kept = prune(fine, sealing.noise, digest, list(ladder))
        return SealedTable(digest, [item.decode() for item in kept], list(kept.values()))

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The keys that reach the level's minimum count."""
        least = self.minimum_counts[level]
        rows = zip(table.items, column, strict=True)
        return {**self.limits(level), "items": largest_first(row for row in rows if row[1] >= least)}

    def limits(self, level: int) -> Mapping[str, int]:
        """The minimum count, and from which count on intervals have two sides."""
        return {"minimum_count": self.minimum_counts[level], "two_sided_from": self.two_sided_from[level]}

    @property
    def two_sided_from(self) -> tuple[int, ...]:
        """For each level the smallest noisy count whose interval has a lower end, among the keys that are shown."""
        return tuple(
            two_sided_from(level.threshold, least, CONFIDENCE)
            for level, least in zip(self.levels, self.minimum_counts, strict=True)
        )

    def least_shown(self, level: int) -> int:
        """The level's minimum count."""
        return self.minimum_counts[level]

    def explain(self, keys_at_worst: str) -> Explanation:
        """Delta, and from which count on keys are shown."""
        delta = Amount.up(self.delta)
        names = [level.name for level in self.levels]
        return Explanation(
            shows="keys and counts",
            keys=f"Showing keys nobody named before costs delta {delta.decimal} a window.",
            seen=[f"from {count} users" for count in self.minimum_counts],
            columns={"shown\nfrom": [str(count) for count in self.minimum_counts]},
            details=HistogramDetails(
                delta=delta,
                minimum_counts=dict(zip(names, self.minimum_counts, strict=True)),
                two_sided_from=dict(zip(names, self.two_sided_from, strict=True)),
            ),
        )


def plan_histogram(settings: HistogramSettings, basis: ViewBasis) -> HistogramPlan:
    """Compute the noise and the minimum count of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or delta is too large for the ladder (specs/lossless 2.9.5).
    """
    items = basis.items_per_user
    levels = noise_levels(basis.ladder, items, settings.delta * Fraction(1, items))
    share = settings.delta * Fraction(1, len(levels) * items)
    least = tuple(minimum_count(level.threshold, share) for level in levels)
    try:
        discovery_delta([(level.threshold, count) for level, count in zip(levels, least, strict=True)], items)
    except ParameterError as error:
        raise ConfigError([Fault("delta", fault.message) for fault in error.faults]) from None
    return HistogramPlan(levels=levels, sensitivity=items, delta=settings.delta, minimum_counts=least)


HISTOGRAM = Kind("histogram", HistogramSettings, plan_histogram)
