"""The kind `pure_topk`: the k most frequent of keys that nobody listed, under pure epsilon: no delta at all.

Every possible key of at most `key_bytes` bytes gets noise, also those that nobody has; the k keys above all others are
shown. Among so many keys noise alone reaches far, so a count has to be large to stand out, and that grows with the
length of keys, where a threshold of a `histogram` grows with 1/delta. Noise is drawn in a public number of random bits
and cannot be refined later, so there is one level (specs/finite 2.9, D3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.histograms.key_space import KeySpace
from stream_dp.histograms.pure_top_k import FLOOR_BITS, PureTopK, top_texts
from stream_dp.kinds.fields import Section
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, ViewBasis, largest_first
from stream_dp.kinds.noise_levels import table_level
from stream_dp.kinds.public_lists import Counts
from stream_dp.kinds.sealing import SealedTable, Sealing, exact_digest
from stream_dp.records.models import CountRow

MOST_KEY_BYTES = 64
FALLBACK_BITS = 20
"""In one of 2^20 windows the release is random and says nothing: that is what makes epsilon pure."""
ONE_IN_TWENTY = Fraction(1, 20)


class PureTopKSettings(Section):
    """The most frequent of unknown keys, under pure epsilon."""

    kind: Literal["pure_topk"]
    k: Annotated[int, Field(ge=1, le=100)]
    key_bytes: Annotated[int, Field(ge=1, le=MOST_KEY_BYTES)] = 32
    largest_count: Annotated[int, Field(ge=1, le=(1 << 32) - 1)] = 1_000_000


@dataclass(frozen=True, kw_only=True)
class PureTopKPlan(KindPlan):
    """The plan of a pure top-k.

    Attributes:
        draw: the mechanism.
        keys: numbers every possible key.
        minimum_count: the smallest noisy count that is shown.
        within_95: with 95 % no count of any possible key is further from the true one.
    """

    draw: PureTopK
    keys: KeySpace
    minimum_count: int
    within_95: int
    name = "pure_topk"

    @property
    def identity(self) -> Sequence[object]:
        """The mechanism, and the space of keys."""
        draw = self.draw
        return [draw.k, self.keys.max_bytes, draw.items_per_user, draw.fallback_bits, self.minimum_count]

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Nothing: the level pays for keys and counts together."""
        return Cost.ZERO

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Draw the release (specs/finite 2.9).

        What no event can have as a key is noise, and so is a count below the minimum: both are left out, which is
        post-processing.
        """
        named = {item.encode(): counts[item] for item in sorted(counts)}
        shown = top_texts(self.draw, self.keys, counts, self.minimum_count, sealing.bits(b"noise"))
        return SealedTable(exact_digest(named, sealing), [item for item, _ in shown], [count for _, count in shown])

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The keys with their counts."""
        rows = [CountRow(count, item) for item, count in zip(table.items, column, strict=True)]
        numbers = {"k": self.draw.k, "within_95": self.within_95}
        return {**self.limits(level), **numbers, "items": largest_first(rows)}

    def limits(self, level: int) -> Mapping[str, int]:
        """The minimum count."""
        return {"minimum_count": self.minimum_count}

    def explain(self, keys_at_worst: str) -> Explanation:
        """From which count on a key can be shown, and why.

        Details: `k`; `key_bytes`: longer keys are not shown; `largest_count`: larger counts count as this;
        `minimum_count`, the smallest noisy count that is shown; `within_95`: in 95 % of the windows all shown counts
        are within this of the true ones; `random_bits` of one observed key.
        """
        draw, bits = self.draw, self.draw.universe.bit_length()
        return Explanation(
            shows=f"the {draw.k} most frequent keys and their counts",
            keys=f"Every possible key of at most {self.keys.max_bytes} bytes takes part, about 2^{bits - 1} of them, "
            f"so showing keys costs no delta. Keys with a noisy count below {self.minimum_count} are not shown; one "
            f"window of 20 at most shows a key that nobody has. One release of 2^{draw.fallback_bits} is random. "
            f"In 95 % of the windows all shown counts are within {self.within_95} of the true ones. "
            f"Longer keys are not shown; counts above {draw.query.bound} count as that.",
            half=f"A key is shown in half of the windows if it has {self.minimum_count} users.",
            seen=[f"from {self.minimum_count} users"],
            columns={"shown\nfrom": [str(self.minimum_count)]},
            details={
                "k": draw.k,
                "key_bytes": self.keys.max_bytes,
                "largest_count": draw.query.bound,
                "minimum_count": self.minimum_count,
                "within_95": self.within_95,
                "random_bits": draw.query.bits,
            },
        )


def plan_pure_topk(settings: PureTopKSettings, basis: ViewBasis) -> PureTopKPlan:
    """Compute the noise, the simulation of the keys that nobody has, and the minimum count.

    Raises:
        ConfigError: the ladder has more than one level, epsilon is out of bounds, or no count could be shown.
    """
    keys, items = KeySpace(settings.key_bytes), basis.items_per_user
    level = table_level(
        basis.ladder,
        items,
        count_bits=settings.largest_count.bit_length(),
        uniform_bits=keys.size.bit_length() + FLOOR_BITS,
    )
    try:
        draw = PureTopK(level.table, settings.k, keys.size, items, FALLBACK_BITS)
    except ParameterError as error:
        raise ConfigError([Fault("k", fault.message) for fault in error.faults]) from None
    within = draw.within(ONE_IN_TWENTY)
    if within >= level.table.bound:
        fault = f"no count up to {level.table.bound} stands out of noise of {within}: raise it, or the level's epsilon"
        raise ConfigError([Fault("largest_count", fault)])
    return PureTopKPlan(
        levels=(level,),
        sensitivity=items,
        draw=draw,
        keys=keys,
        minimum_count=draw.least_spurious(ONE_IN_TWENTY) + 1,
        within_95=within,
    )


PURE_TOPK = Kind("pure_topk", PureTopKSettings, plan_pure_topk)
