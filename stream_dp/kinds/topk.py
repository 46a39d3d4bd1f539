"""The kind `topk`: the most frequent keys in the order of a private selection, and their counts at the level.

The selection is paid once per window and shared by all audiences; only the counts of the chosen keys are noised, so
one user moves at most min(k, items_per_user) of what is published (specs/topk 2.11, specs/lossless 3.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds import selection
from stream_dp.kinds.base import Counts, Explanation, Kind, KindPlan, ViewBasis
from stream_dp.kinds.fields import DiscoveryDelta, Epsilon, Section
from stream_dp.kinds.lists import KeyList, ListField, ListSettings, PublicKeys, TopicSettings, load_list
from stream_dp.kinds.noise import NoiseLevel, noise_levels
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise, read_counts, seal_table
from stream_dp.kinds.selection import Expectation, Mechanism, Selection
from stream_dp.records.models import Amount, ItemCount, Release, absent
from stream_dp.windows.encoding import decode, encode
from stream_dp.windows.merging import largest

DISPLAY_DIGITS = 3

_UNKNOWN_DOMAIN = frozenset({"kbar", "selection.delta"})
_NEEDED: Mapping[Mechanism, frozenset[str]] = {
    "gumbel": _UNKNOWN_DOMAIN,
    "strict": _UNKNOWN_DOMAIN,
    "chosen-kbar": _UNKNOWN_DOMAIN,
    "laplace": _UNKNOWN_DOMAIN,
    "fixed-threshold": frozenset({"selection.delta"}),
    "known-domain": frozenset({"catalogue"}),
}
"""Settings that each mechanism needs, of those that depend on it; the others have no meaning for it."""


class SelectionSettings(Section):
    """Selection of a top-k's keys and its cost: epsilon for each draw, delta for each window."""

    mechanism: Mechanism = "gumbel"
    epsilon: Epsilon
    delta: DiscoveryDelta | None = None


class TopKSettings(Section):
    """The k most frequent of unknown keys, with their counts."""

    kind: Literal["topk"]
    k: Annotated[int, Field(ge=1, le=10_000)]
    kbar: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    catalogue: ListField | None = None
    selection: SelectionSettings


class RankedCount(ItemCount):
    """A selected key and its noisy count."""

    rank: int = Field(ge=1, description="Place in the selection, 1 first. Noisy counts need not fall with it.")
    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative."
    )


class TopKRelease(Release):
    """The most frequent of unknown keys, in the order of the selection."""

    kind: Literal["topk"] = Field(description="The most frequent of unknown keys.")
    k: int = Field(ge=1, description="How many keys were asked for.")
    complete: bool = Field(
        description="Whether k keys were found; false where the rest is too close to tell apart, and the list ended."
    )
    selection: Mechanism | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra=absent,
        description="How the keys were chosen, where it was not by draws with Gumbel noise. With fixed-threshold they "
        "are a set: their order is that of the keys and means nothing.",
    )
    items: tuple[RankedCount, ...] = Field(description="The keys selected, best first.")

    def extent(self) -> str:
        """Number of keys found, of those that were requested."""
        return f"{len(self.items)} of {self.k}" + ("" if self.complete else "; the rest cannot be told apart")


class ExpectationDetails(BaseModel):
    """Accuracy to be expected of a selection, in users, rounded up."""

    usually: str = Field(description="With this margin a key is shown nine times in ten.")
    all_found: str = Field(description="With this margin of the k-th count, k keys are shown in 95 % of windows.")
    shortfall: str = Field(description="No key is shown whose count is further below the k-th largest, in 95 %.")
    noise: str = Field(description="Chance that a window in which all counts are equal shows anything.")


class TopKDetails(BaseModel):
    """The numbers of a top-k: how its keys are chosen."""

    mechanism: Mechanism
    k: int
    kbar: int | None = Field(description="How many of the largest counts it looks at; null for a catalogue.")
    epsilon: Amount = Field(description="Of each draw; of each item of a user (laplace); of each of k keys (fixed).")
    delta: Amount = Field(description="What one window adds to delta, for all levels together.")
    draws: int = Field(description="Draws that are reserved for a window; 0 where every window has the same price.")
    margin: str | None = Field(
        description="How far, in users, a key must stand above the largest count outside the first kbar to be shown "
        "as often as not; null where no key has to."
    )
    expectation: ExpectationDetails | None = Field(
        description="What it can be expected to find; null where nothing can."
    )


class _Found(msgspec.Struct, array_like=True, frozen=True):
    """The payload of a sealed table: what the selection found, and what it has cost in draws."""

    complete: bool
    draws: int


@dataclass(frozen=True)
class TopKPlan(KindPlan):
    """The plan of a top-k.

    Attributes:
        selection: how its keys are chosen, and what that costs.
    """

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    selection: Selection
    name = "topk"

    @property
    def identity(self) -> Sequence[object]:
        """Parameters of the selection."""
        return self.selection.identity

    def keys_at_worst(self, *, squared: bool) -> Cost:
        """The whole selection (specs/topk 3.4)."""
        return self.selection.cost(self.selection.most_draws, squared=squared)

    def keys_spent(self, payload: bytes, *, squared: bool) -> Cost:
        """The draws that were made, bottom included."""
        return self.selection.cost(decode(_Found, payload).draws, squared=squared)

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys | None:
        """The catalogue, if there is one."""
        return self.selection.listed

    def needed(self, counts: Counts) -> Counts:
        """As many as the selection can look at, and the one that follows them; the keys of a catalogue."""
        kbar = self.selection.kbar
        return super().needed(counts) if kbar is None else largest(counts, kbar + 1)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Choose the keys and noise their counts (specs/topk 2.2, specs/lossless 6.4)."""
        chosen = self.selection.choose(counts, sealing.entropy(sealing.context(b"selection")))
        # What is frozen of a top-k is what was chosen; nothing is ever noised again under this salt.
        return seal_table(chosen.items, counts, self.levels, sealing, encode(_Found(chosen.complete, chosen.draws)))

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """The chosen keys in their order, with the counts of the level."""
        found, mechanism = decode(_Found, table.payload), self.selection.mechanism
        return [
            {
                "k": self.selection.k,
                "complete": found.complete,
                "selection": None if mechanism == "gumbel" else mechanism,
                "items": tuple(
                    RankedCount(rank=rank, item=item, count=count)
                    for rank, (item, count) in enumerate(zip(table.items, column, strict=True), start=1)
                ),
            }
            for column in read_counts(table, self.levels, levels, noise)
        ]

    def explain(self, keys_at_worst: str) -> Explanation:
        """Explain the choice of keys, and its accuracy."""
        chosen = self.selection
        return Explanation(
            shows=f"the {chosen.k} most frequent, with counts",
            keys=_in_words(chosen, keys_at_worst),
            seen=[f"top {chosen.k}"] * len(self.levels),
            columns={},
            details=TopKDetails(
                mechanism=chosen.mechanism,
                k=chosen.k,
                kbar=chosen.kbar,
                epsilon=Amount.up(chosen.epsilon),
                delta=Amount.up(chosen.delta),
                draws=chosen.most_draws,
                margin=None if chosen.margin is None else decimal_up(chosen.margin, DISPLAY_DIGITS),
                expectation=None if chosen.expectation is None else _expectation(chosen.expectation),
            ),
        )


def _expectation(expected: Expectation) -> ExpectationDetails:
    return ExpectationDetails(
        usually=decimal_up(expected.usually, DISPLAY_DIGITS),
        all_found=decimal_up(expected.all_found, DISPLAY_DIGITS),
        shortfall=decimal_up(expected.shortfall, DISPLAY_DIGITS),
        noise=decimal_up(expected.noise, DISPLAY_DIGITS),
    )


def _in_words(chosen: Selection, keys_at_worst: str) -> str:
    worst = " at worst" if chosen.most_draws else ""
    price = f"Choosing the keys ({chosen.mechanism}) costs {keys_at_worst} a window{worst}, once for all "
    if chosen.margin is None:
        return price + "audiences; the catalogue is public, so no key has to stand out."
    stands = (
        f"{price}audiences. A key that stands {decimal_up(chosen.margin, DISPLAY_DIGITS)} users above every key that "
        f"is not among the first {chosen.kbar} is shown as often as not"
    )
    if chosen.expectation is None:
        return stands + "."
    expected = _expectation(chosen.expectation)
    return (
        f"{stands}, one that stands {expected.usually} above nine times in ten. Where the k-th stands "
        f"{expected.all_found} above, all {chosen.k} come in 95 % of the windows. No key that is shown lies more than "
        f"{expected.shortfall} users below the k-th, in 95 % as well."
    )


def plan_topk(settings: TopKSettings, basis: ViewBasis) -> TopKPlan:
    """Plan the selection, and the noise of the counts of what it chooses.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the selection's parameters are.
    """
    chosen = plan_selection(settings, basis.items_per_user, basis.folder)
    sensitivity = min(settings.k, basis.items_per_user)
    return TopKPlan(noise_levels(basis.ladder, sensitivity), sensitivity, chosen)


def plan_selection(settings: TopKSettings, items_per_user: int, folder: Path) -> Selection:
    """Mechanism with which a top-k chooses its keys.

    Args:
        settings: what the configuration says.
        items_per_user: bound on the counts one user moves.
        folder: what the file of a catalogue is relative to.

    Raises:
        ConfigError: a key is missing that the mechanism needs, one is there that it has no use for, or a value is
            outside its range; paths are relative to the view.
    """
    k, kbar, given = settings.k, settings.kbar, settings.selection
    needed = _NEEDED[given.mechanism]
    values = {"kbar": kbar, "catalogue": settings.catalogue, "selection.delta": given.delta}
    faults = [
        Fault(path, f"is required by {given.mechanism}")
        if path in needed
        else Fault(path, f"has no meaning for {given.mechanism}; leave it out")
        for path, value in values.items()
        if (value is None) == (path in needed)
    ]
    if faults:
        raise ConfigError(faults)
    try:
        if settings.catalogue is not None:
            return selection.known_domain(k, given.epsilon, _catalogue(settings.catalogue, folder))
        delta = given.delta or Fraction(0)
        if given.mechanism == "fixed-threshold":
            return selection.fixed_threshold(k, given.epsilon, delta)
        if given.mechanism == "chosen-kbar":
            return selection.chosen_kbar(k, kbar or 0, given.epsilon, delta)
        bounded = {"gumbel": selection.gumbel, "strict": selection.strict, "laplace": selection.laplace}
        return bounded[given.mechanism](k, kbar or 0, given.epsilon, delta, items_per_user)
    except (ConfigError, ParameterError) as error:
        inner = {"epsilon", "delta"}
        raise ConfigError(
            [
                Fault(f"selection.{fault.path}" if fault.path in inner else fault.path, fault.message)
                for fault in error.faults
            ]
        ) from None


def _catalogue(settings: ListSettings, folder: Path) -> PublicKeys:
    if isinstance(settings, TopicSettings):
        raise ConfigError(
            [Fault("catalogue", "a list in a topic may change, and k of it are drawn: write it here, or name a file")]
        )
    return load_list(settings, "catalogue", folder)


TOPK = Kind("topk", "Release of a top-k", TopKSettings, TopKRelease, plan_topk)
