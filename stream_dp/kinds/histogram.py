"""The kind `histogram`: every key whose noisy count reaches the level's minimum count, over unknown keys.

Which keys exist is unknown, so showing one costs delta. It is parted evenly over the levels and a user's items, which
gives each level its own minimum count (specs/lossless 2.9.5, per-level thresholds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pydantic import BaseModel, Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.kinds.base import Counts, Explanation, Kind, KindPlan, ViewBasis
from stream_dp.kinds.fields import DiscoveryDelta, Section
from stream_dp.kinds.noise import CONFIDENCE, NoiseLevel, noise_levels
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, read_counts, seal_counts
from stream_dp.lossless.levels import discovery_delta, minimum_count, two_sided_from
from stream_dp.lossless.sealed import prune
from stream_dp.records.models import Amount, ItemCount, Release


class HistogramSettings(Section):
    """A histogram over unknown keys."""

    kind: Literal["histogram"]
    delta: DiscoveryDelta


class HistogramRelease(Release):
    """A histogram over unknown keys: every key with a noisy count of at least `minimum_count`."""

    kind: Literal["histogram"] = Field(description="A histogram over unknown keys.")
    minimum_count: int = Field(
        ge=1, description="Keys with a smaller noisy count are not shown, so that one user alone cannot show a key."
    )
    two_sided_from: int = Field(
        ge=1,
        description="How to read a shown key: with at least 95 % chance, given that it is shown and whatever its true "
        "count is, that lies within noise_interval_95 of a noisy count that is at least this, and between 1 and the "
        "noisy count plus noise_interval_95 where the noisy count is smaller.",
    )
    items: tuple[ItemCount, ...] = Field(description="The keys shown, largest noisy count first, then by key.")

    def interval(self, count: int) -> tuple[int, int]:
        """As in every release, but that a count near the minimum may be shown by its noise alone."""
        least, most = super().interval(count)
        return (least if count >= self.two_sided_from else 1), most

    def extent(self) -> str:
        """Number of keys shown, and the count from which on they are."""
        return f"{len(self.items)} shown, from {self.minimum_count} up"


class HistogramDetails(BaseModel):
    """The numbers of a histogram."""

    delta: Amount = Field(description="What one window adds to delta, for all levels together.")
    minimum_counts: dict[str, int] = Field(description="By level: the smallest noisy count that is shown.")
    two_sided_from: dict[str, int] = Field(
        description="By level: the smallest noisy count that says of its key, with 95 %, more than an upper bound."
    )


@dataclass(frozen=True)
class HistogramPlan(KindPlan):
    """The plan of a histogram.

    Attributes:
        delta: what one window adds to delta, for all levels together.
        minimum_counts: for each level the smallest noisy count that is shown.
    """

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
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
        kept = prune(
            fine,
            prf_key=sealing.noise.prf_key,
            window=sealing.noise.name,
            digest=digest,
            ladder=list(ladder),
        )
        return SealedTable(digest, [item.decode() for item in kept], list(kept.values()))

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """The keys that reach the level's minimum count."""
        return [
            {
                "minimum_count": self.minimum_counts[level],
                "two_sided_from": self.two_sided_from[level],
                "items": _shown(table, column, self.minimum_counts[level]),
            }
            for level, column in zip(levels, read_counts(table, self.levels, levels, noise), strict=True)
        ]

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


def _shown(table: SealedTable, column: Sequence[int], least: int) -> tuple[ItemCount, ...]:
    rows = [row for row in zip(table.items, column, strict=True) if row[1] >= least]
    rows.sort(key=lambda row: (-row[1], row[0]))
    return tuple([ItemCount(item=item, count=count) for item, count in rows])


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
    return HistogramPlan(levels, items, settings.delta, least)


HISTOGRAM = Kind("histogram", "Release of a histogram", HistogramSettings, HistogramRelease, plan_histogram)
