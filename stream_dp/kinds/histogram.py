"""The kind `histogram`: every key whose noisy count reaches the level's minimum count, over unknown keys.

Which keys exist is unknown, so showing one costs delta. It is parted evenly over the levels and a user's items, which
gives each level its own minimum count (specs/lossless 2.9.5, per-level thresholds).

With `remember` the keys that an audience was shown in the newest windows are known: they are always shown, with their
noise. Only others need the minimum count. A known key leaves when no record of these windows has it as new, or with a
count that is above the noise of a key that nobody has.

With `strict` the noise of a window takes the same random bits and steps whatever is in it: the window keeps a public
number of contributions, and noise is drawn for so many keys, whether there are so many or not. A user's items may push
out those of others, which doubles the price; such noise cannot be refined later, so there is one level (specs/finite
2.6, pitfall 19).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.reals import smallest_power
from stream_dp.histograms.basic import basic_histogram, stability_threshold
from stream_dp.histograms.compact import truncated
from stream_dp.histograms.counting_queries import GeometricTable, ceil_log2
from stream_dp.histograms.key_space import KeySpace
from stream_dp.kinds.catalogue import NOTHING_IS_EMPTY, StrictSettings
from stream_dp.kinds.fields import DiscoveryDelta, Rank, Section, Text
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, ListPayload, Showing, ViewBasis, largest_first
from stream_dp.kinds.noise_levels import CONFIDENCE, LAPLACE, TruncatedLevel, table_level
from stream_dp.kinds.public_lists import (
    DEFAULT_KEEP,
    MOST_KEEP,
    Counts,
    KeyList,
    ReleaseSettings,
    check_keys,
    release_topic,
)
from stream_dp.kinds.sealing import Pruning, SealedTable, Sealing, exact_digest, seal_pruned
from stream_dp.lossless.levels import discovery_delta
from stream_dp.records.models import Amount, CountRow
from stream_dp.windows.encoding import decode, encode, in_order
from stream_dp.windows.events import MAX_ITEM_BYTES

MOST_ROWS = 1_000_000
ORDER_BITS = 128
MOST_STRICT_EPSILON = 1000
"""Of a window: uniform outputs have to be rarer than its e^-(epsilon / 2)."""
_KEYS = KeySpace(MAX_ITEM_BYTES)
_SPARE_BITS = 20
"""Uniform outputs are rarer than the delta of one key by this: they move neither thresholds nor intervals."""


class StrictHistogramSettings(StrictSettings):
    """Noise in a public number of random bits and steps, for a public number of contributions."""

    rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]


class RememberSettings(Section):
    """Keys that need no threshold: those that an audience was shown in the newest `keep` windows of the view."""

    audience: Text
    keep: Annotated[int, Field(ge=1, le=MOST_KEEP)] = DEFAULT_KEEP


class HistogramSettings(Section):
    """A histogram over unknown keys."""

    kind: Literal["histogram"]
    delta: DiscoveryDelta
    rank: Rank | None = None
    remember: RememberSettings | None = None
    strict: Annotated[StrictHistogramSettings | None, NOTHING_IS_EMPTY] = None


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
    def shown(self) -> Fraction:
        """Delta, shared out over a user's items."""
        return self.delta * Fraction(1, self.sensitivity)

    @property
    def identity(self) -> Sequence[object]:
        """Delta and the minimum counts, and what is remembered."""
        remembered = [] if self.made_of is None else [*self.topics, self.made_of.keep]
        return [str(self.delta), list(self.minimum_counts), *remembered]

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Delta, whatever is shown."""
        return Cost(Fraction(0), self.delta)

    def check_lists(self, lists: Mapping[str, KeyList]) -> None:
        """Refuse more remembered keys than a list may have."""
        for topic in self.topics:
            check_keys(lists[topic].keys, "remember.keep", 0)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise every count and every remembered key; of others, what no level shows is not stored.

        The payload says how many keys of the table are remembered: its first ones. Source: specs/lossless 6.4.
        """
        known = sealing.lists[self.topics[0]] if self.topics else KeyList.of(())
        others = {item: count for item, count in counts.items() if item not in known} if known.size else counts
        places, keys = in_order([*others])
        amounts = np.fromiter(others.values(), np.int64, len(others))[places].tolist()
        keys = [*(item.encode() for item in known), *keys]
        exact = [*(counts.get(item, 0) for item in known), *amounts]
        payload = encode(ListPayload(known.version, known.size)) if self.topics else b""
        return seal_pruned(keys, exact, self.levels, sealing, payload, Pruning(self.minimum_counts, known.size))

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The remembered keys, and those that reach the level's minimum count; with `remember` these are new."""
        least, rows = self.minimum_counts[level], zip(table.items, column, strict=True)
        listed = decode(ListPayload, table.payload).listed if self.topics else None
        found = [CountRow(count, item) for item, count in islice(rows, 0 if listed is None else listed.keys)]
        is_new = True if listed else None
        found += [CountRow(count, item, is_new) for item, count in rows if count >= least]
        return {**self.limits(level), "catalogue": listed, "items": largest_first(found)}

    def limits(self, level: int) -> Mapping[str, int]:
        """The minimum count, from which count on intervals have two sides, and from which on keys are remembered."""
        stays = {} if self.made_of is None else {"stays_from": self.stays_from[level]}
        return {"minimum_count": self.minimum_counts[level], "two_sided_from": self.two_sided_from[level], **stays}

    def least_shown(self, level: int) -> int | None:
        """The minimum count; None where keys are remembered, since these need none."""
        return self.minimum_counts[level] if self.made_of is None else None

    @property
    def stays_from(self) -> tuple[int, ...]:
        """For each level the smallest noisy count that keeps a key remembered; all new keys have it.

        A key that nobody has reaches it in at most 2.5 % of the windows: it is above the interval of the noise.
        """
        rows = zip(self.levels, self.minimum_counts, strict=True)
        return tuple(min(least, level.noise_interval + 1) for level, least in rows)

    @property
    def two_sided_from(self) -> tuple[int, ...]:
        """For each level the smallest noisy count whose interval has a lower end, among the keys that are shown."""
        return tuple(level.two_sided_from(least) for level, least in zip(self.levels, self.minimum_counts, strict=True))

    @property
    def showing(self) -> Showing | None:
        """Keys by their noisy counts; what will be remembered cannot be forecast."""
        return Showing(least=self.minimum_counts) if self.made_of is None else None

    def explain(self, keys_at_worst: str) -> Explanation:
        """Delta, and from which count on keys are shown.

        Details: `delta`, what one window adds to delta, for all levels together; by level the `minimum_counts`, the
        smallest noisy count that is shown, and `two_sided_from`, the smallest that says of its key, with 95 %, more
        than an upper bound; with `remember` also `stays_from`, the smallest that keeps a key known.
        """
        delta, made_of = Amount.up(self.delta), self.made_of
        first = "" if self.rank is None else f"first {self.rank}, "
        names = [level.name for level in self.levels]
        half = (f"{count} users at level {name}" for name, count in zip(names, self.minimum_counts, strict=True))
        ends = [one.law.largest for one in self.levels if isinstance(one, TruncatedLevel)]
        words = "".join(f" That also pays for noise that is never larger than {end}." for end in ends)
        known, columns = {}, {"shown\nfrom": [str(count) for count in self.minimum_counts]}
        if made_of is not None:
            words += (
                f" Keys that audience {made_of.audience} was shown in the newest {made_of.keep} released windows are "
                "known: they are shown with any count. A key leaves when none of these windows shows it from "
                "stays_from up; the noise of a key that nobody has seldom reaches that."
            )
            known = {"stays_from": dict(zip(names, self.stays_from, strict=True))}
            columns["stays\nfrom"] = [str(count) for count in self.stays_from]
        return Explanation(
            shows="keys and counts",
            keys=f"Showing keys nobody named before costs delta {delta.decimal} a window.{words}{self.ranked_words}",
            half=f"A {'new ' if known else ''}key is shown in half of the windows if it has {', '.join(half)}.",
            seen=[f"{first}from {count} users" + (", or known" if known else "") for count in self.minimum_counts],
            columns=columns,
            details={
                "delta": delta,
                "minimum_counts": dict(zip(names, self.minimum_counts, strict=True)),
                "two_sided_from": dict(zip(names, self.two_sided_from, strict=True)),
                **known,
            },
        )


@dataclass(frozen=True, kw_only=True)
class StrictHistogramPlan(HistogramPlan):
    """The plan of a strict histogram; there is one level.

    Attributes:
        rows: contributions that a window keeps, and keys for which it draws noise.
        table: draws the noise of one count.
        sure_from: `two_sided_from` of the level.
    """

    rows: int
    table: GeometricTable
    sure_from: int

    @property
    def identity(self) -> Sequence[object]:
        """As of every histogram, and what is kept."""
        return [*super().identity, self.rows]

    @property
    def made_up_keys(self) -> int:
        """As many as rows are kept."""
        return self.rows

    @property
    def two_sided_from(self) -> tuple[int, ...]:
        """As of every histogram; of the counts that are kept."""
        return (self.sure_from,)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Noise `rows` counts, those of the kept keys and zeros; what is not shown is not stored (specs/finite 2.6)."""
        named = {item.encode(): counts[item] for item in sorted(counts)}
        salt = sealing.bits(b"order").bits(ORDER_BITS).to_bytes(ORDER_BITS // 8)
        clamped = {_KEYS.index(key): min(count, self.table.bound) for key, count in named.items()}
        kept = sorted(truncated(clamped, self.rows, salt).items())
        padded = [count for _, count in kept] + [0] * (self.rows - len(kept))
        noisy = basic_histogram(self.table, padded, sealing.bits(b"noise"))
        rows = zip((key for key, _ in kept), noisy, strict=False)  # the noise of no key is left over
        shown = [(_KEYS.key(key).decode(), value) for key, value in rows if value >= self.minimum_counts[0]]
        return SealedTable(exact_digest(named, sealing), [item for item, _ in shown], [value for _, value in shown])

    @property
    def showing(self) -> None:
        """None: counts are cut off, and keys are left out."""

    def explain(self, keys_at_worst: str) -> Explanation:
        """Delta, the minimum count, and what is peculiar to noise in a public number of bits.

        Details, beside those of every histogram: `rows`, contributions that a window keeps; `largest_count`: larger
        counts count as this; `random_bits` of a release, whatever is in it.
        """
        table, plain = self.table, super().explain(keys_at_worst)
        bits = ORDER_BITS + self.rows * table.bits
        words = (
            f"Strict: every window draws {bits:,} random bits and its noise takes about the same time, whatever is in "
            "it; only sorting the keys takes longer with more of them. A window keeps "
            f"{self.rows:,} contributions of one user to one key; of more, a random part of the keys is left out. "
            "Since a user's keys may push out others, a count has twice the noise that it has without strict. "
            f"Counts above {table.bound} count as that. Later releases cannot be sharper."
        )
        details = {"rows": self.rows, "largest_count": table.bound, "random_bits": bits}
        return plain.model_copy(update={"keys": f"{plain.keys} {words}", "details": plain.details | details})


def plan_histogram(settings: HistogramSettings, basis: ViewBasis) -> HistogramPlan:
    """Compute the noise and the minimum count of every level.

    Raises:
        ConfigError: a level's epsilon is out of bounds, delta is too large for the ladder (specs/lossless 2.9.5), or
            a strict ladder has more than one level or no count that could be shown.
    """
    remember = settings.remember
    if settings.strict is not None:
        if remember is not None:
            words = "a strict histogram has noise for a public number of keys, and this list grows; leave one out"
            raise ConfigError([Fault("remember", words)])
        return replace(_plan_strict(settings.delta, settings.strict, basis), rank=settings.rank)
    if remember is not None and settings.rank is not None:
        raise ConfigError([Fault("rank", "all known keys are shown with remember; leave one of them out")])
    items = basis.items_per_user
    levels = basis.levels(items, settings.delta * Fraction(1, items))
    share = settings.delta * Fraction(1, len(levels) * items)
    least = tuple(level.minimum_count(share) for level in levels)
    if basis.noise == LAPLACE:
        try:
            discovery_delta([(level.threshold, count) for level, count in zip(levels, least, strict=True)], items)
        except ParameterError as error:
            raise ConfigError([Fault("delta", fault.message) for fault in error.faults]) from None
    made_of = None if remember is None else ReleaseSettings(basis.view, remember.audience, remember.keep)
    return HistogramPlan(
        levels=levels,
        sensitivity=items,
        topics=() if made_of is None else (release_topic(basis.application, made_of.view, made_of.audience),),
        made_of=made_of,
        fewest_keys=1 if made_of is None else 0,
        delta=settings.delta,
        minimum_counts=least,
        rank=settings.rank,
    )


def _plan_strict(delta: Fraction, strict: StrictHistogramSettings, basis: ViewBasis) -> StrictHistogramPlan:
    """Compute the noise and the minimum count.

    Guarantee: the level's epsilon, and `delta`. Proof. A user's L contributions are inserted into the order of all and
    push at most L out, so the kept counts move by 2 L at most. Let r be the ratio of the table, b the largest count
    that is not shown, and p = Pr[M(1) > b]. What a key shows that is kept either way changes by r for each count moved.
    Of the keys that only one of two neighbours keeps, let 1 - h be the chance that one is shown, with the first, and
    1 - h' with the second. So what the first exceeds r^(2 L) times the second by is at most 1 - h, from what the
    second never shows, and max(0, h - h'), from the rest: together 1 - h or 1 - h'. Such a key with a count of j is
    shown with at most r^(j-1) p, and the counts of those of one neighbour add up to at most L. The sum of r^(j-1) is
    largest for L keys with one each or for one key with L: p max(L, r^(L-1)) has to be at most delta. That is less than
    by group privacy, p (1 + r^2 + ... + r^(2 L - 2)), unless L is 1.
    """
    items, (name, epsilon) = basis.items_per_user, basis.ladder[0]
    if epsilon > MOST_STRICT_EPSILON:
        raise ConfigError(
            [Fault("ladder", f"level {name!r} must have at most epsilon {MOST_STRICT_EPSILON} for strict")]
        )
    level = table_level(
        basis.ladder,
        2 * items,
        count_bits=strict.largest_count.bit_length(),
        uniform_bits=_uniform_bits(epsilon, delta, items),
    )
    table = level.table
    keys = max(Fraction(items), table.ratio ** (items - 1))
    least = stability_threshold(table, Fraction(delta, keys), sharp=True) + 1
    sure = _two_sided_from(table, least) if least <= table.bound else least
    if table.bound <= max(sure, 2 * level.noise_interval + 1):
        fault = f"no count up to {table.bound} stands out of the noise: raise it, or the level's epsilon"
        raise ConfigError([Fault("strict.largest_count", fault)])
    return StrictHistogramPlan(
        levels=(level,),
        sensitivity=2 * items,
        delta=delta,
        minimum_counts=(least,),
        rows=strict.rows,
        table=table,
        sure_from=sure,
    )


def _uniform_bits(epsilon: Fraction, delta: Fraction, items: int) -> int:
    """Bits g with 2^-g <= 2^-20 delta / (L e^(epsilon / 2)), which is at most 2^-20 / r of what one key may cost.

    Proof. r max(L, r^(L-1)) <= L r^L <= L e^(epsilon / 2), and e^(epsilon / 2) < 2^(3/4 epsilon).
    """
    keys = ceil_log2(-(-items * delta.denominator // delta.numerator))
    return _SPARE_BITS + keys - (-3 * epsilon.numerator // (4 * epsilon.denominator))


def _two_sided_from(table: GeometricTable, least: int) -> int:
    """Return a noisy count for a table that means what `levels.two_sided_from` means for unclamped noise.

    Where the noise is not clamped, cut or rounded, and never uniform, it is the same number; see there for t, s and
    what is missed. Let B = 1 - confidence, a = 1/r, g = 2^-(uniform bits), n the bound, b = least - 1, p = Pr[M(1) > b]
    and H_j = a^j / (1 + a), the chance of noise of at least j. The number is least + s with the smallest a^s <= B -
    g / (p - g).

    Proof. The tails of a table fall short of H_j by less than 2 units, which (1 - g) times is at most g / (n + 1)
    (`table_faults`), and there is at least so much of uniform outputs above b < n. So for c <= least the key is shown
    with at least (1 - g) H_(least - c), and p <= g + (1 - g) H_b.

    * c <= least: no miss above is shown. A miss below has at most g + (1 - g) H_(least + s - c), so given that the key
      is shown at most a^s + g / ((1 - g) H_b) <= a^s + g / (p - g).
    * c = least + d, 1 <= d < t: no miss above is shown. Since 2 t + 1 < n, the count t + 1 can be missed on both sides;
      that has at most B. Twice a miss below c has at most that and g, for uniform outputs that lie unevenly. The key
      is shown with at least (1 - g) (1 - H_2) >= (1 - g) (1 - a / 2). So a miss has at most B, given that the key is
      shown, if B (1 - a) >= 2 g; 1 - a is above 1/1002 (`sealing.COARSEST`), and g at most 2^-20.
    * c >= least + t: all noise of at most t is shown, so a miss has at most B given that the key is shown.

    Args:
        table: the noise, with 2 t + 1 below its bound.
        least: smallest noisy count that is shown, at most the bound; p is above g.
    """
    shown = table.draws - table.cdf(1, least - 1)
    uneven = Fraction(table.draws, (shown << table.g) - table.draws)
    return least + smallest_power(Fraction(table.base.u, table.base.w), 1 - CONFIDENCE - uneven)


HISTOGRAM = Kind("histogram", HistogramSettings, plan_histogram)
