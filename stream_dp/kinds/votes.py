"""The kind `keys`: the keys that enough users have, without counts; for lists that other views count.

Every user has one vote, shared evenly over their keys: with d keys, each gets 1/d of it (with Gaussian noise the root
of that). So a user's keys together move the sums by one vote, however many they are, and `items_per_user` may be
generous at no price in noise. A key is shown where its noisy sum reaches a threshold. Votes are counted in whole
parts. Source: Gopi, Gulhane, Kulkarni, Shen, Shokouhi and Yekhanin 2020, weighted Laplace and weighted Gaussian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import Any, Literal

import numpy as np

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.fields import DiscoveryDelta, Section
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, ViewBasis
from stream_dp.kinds.noise_levels import COARSEST, GAUSSIAN, NoiseLevel, table_rho
from stream_dp.kinds.public_lists import Counts
from stream_dp.kinds.sealing import SealedTable, Sealing, seal_counts
from stream_dp.lossless.levels import noise_parameter
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.models import Amount, ShownKey

MOST_PARTS = 840
"""Of a vote: the first eight numbers divide it."""
DISPLAY_DIGITS = 3


class KeysSettings(Section):
    """Keys of unknown ones that enough users have, without counts."""

    kind: Literal["keys"]
    delta: DiscoveryDelta


@dataclass(frozen=True, kw_only=True)
class KeysPlan(KindPlan):
    """The plan of a keys view. Its one level has noise in parts of a vote; its errors are in votes, rounded up.

    Attributes:
        delta: what one window adds to delta.
        minimum: smallest noisy sum of parts that is shown.
    """

    delta: Fraction
    minimum: int
    name = "keys"
    undivided = "a user's keys of a whole window share one vote"
    is_whole = True

    @property
    def moves(self) -> str:
        """One vote."""
        return "the sums of votes by at most one vote (with Gaussian noise in Euclidean length)"

    @property
    def identity(self) -> Sequence[object]:
        """Delta, the threshold and the weights of a user with one key and with the most."""
        return [str(self.delta), self.minimum, self.weights[0], self.weights[-1]]

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Delta, whatever is shown; the level pays for the rest."""
        return Cost(Fraction(0), self.delta)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise every sum, and keep the keys whose noisy sum reaches the threshold; the sums are not stored."""
        items = sorted(counts)
        keys, exact = [item.encode() for item in items], [counts[item] for item in items]
        digest, noisy, _ = seal_counts(keys, exact, self.levels, sealing)
        shown = [items[at] for at in np.flatnonzero(noisy >= self.minimum).tolist()]
        return SealedTable(digest, shown, [0] * len(shown))

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """Return the keys: there is one level."""
        return [self.fields(table, level, ()) for level in levels]

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The keys, and from how many votes on they are shown."""
        return {
            "vote_parts": self.weights[0],
            "minimum_parts": self.minimum,
            "items": tuple(ShownKey(item=item) for item in table.items),
        }

    def explain(self, keys_at_worst: str) -> Explanation:
        """Delta, and from how many votes on keys are shown.

        Details: `delta`, what one window adds to delta; `vote_parts` of a vote; `minimum_parts` of a shown key.
        """
        delta, votes = Amount.up(self.delta), decimal_up(Fraction(self.minimum, self.weights[0]), DISPLAY_DIGITS)
        return Explanation(
            shows="keys without counts",
            keys="Every user has one vote, shared evenly over their keys; a key is shown from "
            f"{votes} noisy votes on. Showing keys nobody named before costs delta {delta.decimal} a window.",
            seen=[f"from {votes} votes"],
            details={"delta": delta, "vote_parts": self.weights[0], "minimum_parts": self.minimum},
        )


def minimum_parts(level: NoiseLevel, weights: Sequence[int], delta: Fraction) -> int:
    """Return the smallest noisy sum for which one user shows a key of their own with a chance of at most delta.

    A user with d keys of their own adds weights[d - 1] or less to each of them, and each may show with delta / d. Of
    numbers of keys with one weight the largest asks for most.

    Args:
        level: the noise of a sum.
        weights: what a user with 1, 2, ... keys adds to each, never rising.
        delta: in (0, 1).

    Source: Gopi et al. 2020, with exact tails.
    """
    most = {weight: items for items, weight in enumerate(weights, start=1)}
    return max(weight - 1 + level.minimum_count(Fraction(delta, items)) for weight, items in most.items())


def plan_keys(settings: KeysSettings, basis: ViewBasis) -> KeysPlan:
    """Compute the weights, the noise and the threshold.

    Raises:
        ConfigError: the ladder has more than one level, epsilon is too small for so many items, or delta is too large.
    """
    (name, epsilon), *others = basis.ladder
    if others:
        words = f"must have one level, not {len(basis.ladder)}: later releases cannot make this noise finer"
        raise ConfigError([Fault("ladder", words)])
    parts, items, delta = min(MOST_PARTS, int(Fraction(epsilon, COARSEST))), basis.items_per_user, settings.delta
    weights = tuple(isqrt(parts**2 // d) if basis.noise == GAUSSIAN else parts // d for d in range(1, items + 1))
    if not weights[-1]:
        words = f"level {name!r} has epsilon {epsilon}: then a vote has {parts} parts, too few for {items} items"
        raise ConfigError([Fault("items_per_user", words)])
    (level,) = basis.levels(parts)
    a = noise_parameter(level.threshold) if basis.noise != GAUSSIAN else Fraction(1)
    for d, weight in enumerate(weights, start=1):
        # A hidden key of one user alone costs -ln(1 - p) in place of its move, p = delta / d. Of Gaussian noise that is
        # at most p / (1 - p); of Laplace noise 1 / (1 - p) <= (1/a)^w suffices, and (1/a)^w - 1 >= w (1/a - 1).
        paid = Fraction(weight**2, 2 * level.variance) if basis.noise == GAUSSIAN else Fraction(weight * (1 - a), a)
        if Fraction(delta, d - delta) > paid:
            raise ConfigError([Fault("delta", f"is too large beside epsilon {epsilon}: spend less, or more epsilon")])
    rho = table_rho(epsilon)
    level = replace(
        level,
        noise_interval=-(-level.noise_interval // parts),
        expected_error=level.expected_error * Fraction(1, parts),
        rho=rho,
        step_rho=rho,
    )
    minimum = minimum_parts(level, weights, delta)
    return KeysPlan(levels=(level,), sensitivity=1, weights=weights, delta=delta, minimum=minimum)


KEYS = Kind("keys", KeysSettings, plan_keys)
