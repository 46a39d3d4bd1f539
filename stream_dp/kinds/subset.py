"""The kind `subset`: the k largest counts of a public list as one private choice of a set, without an order.

The set is paid for as a whole, not key by key: a fraction of what k draws cost, where epsilon is above a threshold that
follows from public numbers (specs/subset 3.6). Below it a choice by one noise for each key finds more; a configuration
says which, or lets the rule decide. The counts of the chosen keys are noised at the audience's level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from stream_dp.accounting import Cost, selection_cost
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.fields import Epsilon, Exact, Section, must
from stream_dp.kinds.kind import Explanation, Kind, ListedPlan, ListPayload, ViewBasis, most_chosen
from stream_dp.kinds.noise_levels import exceeded
from stream_dp.kinds.public_lists import LEFT_OUT, Counts, ListedCounts, ListField, placed
from stream_dp.kinds.sealing import SealedTable, Sealing, seal_table
from stream_dp.records.models import Amount, ItemCount
from stream_dp.select.candidates import Neighbours
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant
from stream_dp.select.top_k_subset import MARGIN, canonical_top_k, critical_epsilon, worst_miss
from stream_dp.select.top_k_with_gaps import GapParameters, one_shot_top_k
from stream_dp.windows.encoding import decode, encode

MOST_NUMBERS = 10**12
"""Keys of a range of numbers."""
ONE_IN_TWENTY = Fraction(1, 20)
DISPLAY_DIGITS = 3

Mechanism = Literal["canonical", "one-shot", "auto"]


def _profile(value: object) -> dict[int, int]:
    """Counts by rank, ranks rising; a file has ranks as text."""
    if isinstance(value, dict) and value and all(str(rank).isdecimal() for rank in value):
        counts = {int(str(rank)): count for rank, count in value.items()}
        if all(isinstance(count, int) and not isinstance(count, bool) for count in counts.values()):
            return dict(sorted(counts.items()))
    raise ValueError("write counts by rank, {1: 5000, 100: 900, 1000: 20}: what the keys from that rank on may have")


class SubsetSelectionSettings(Section):
    """Selection of the set, and its cost per window."""

    epsilon: Epsilon
    mechanism: Mechanism = "canonical"
    noise: Literal["gumbel", "exponential"] | None = None
    gamma: Annotated[Exact, must(lambda part: part <= 1, "be from 0 to 1")] | None = None
    loss: Literal["signed", "paper"] | None = None
    profile: Annotated[dict[int, int], PlainValidator(_profile)] | None = None


class SubsetSettings(Section):
    """The k largest counts of a public list, as a set."""

    kind: Literal["subset"]
    catalogue: ListField
    k: Annotated[int, Field(ge=1, le=1_000)]
    selection: SubsetSelectionSettings


@dataclass(frozen=True, kw_only=True)
class SubsetPlan(ListedPlan):
    """The plan of a subset view.

    Attributes:
        parameters: of the canonical selection; k and epsilon hold for the one-shot one as well.
        one_shot: whether one noise for each key chooses.
        critical: the critical epsilon of the profile, None without one.
    """

    parameters: SubsetParameters
    one_shot: bool
    critical: Fraction | None
    name = "subset"

    @property
    def mechanism(self) -> Literal["canonical", "one-shot"]:
        """The mechanism that chooses."""
        return "one-shot" if self.one_shot else "canonical"

    @property
    def identity(self) -> Sequence[object]:
        """The list, and what the selection is made of."""
        p = self.parameters
        how = ["one-shot"] if self.one_shot else [str(p.gamma), str(p.variant), str(p.noise)]
        return [*self.list_identity, p.k, str(p.epsilon), *how]

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """The selection; one of Gumbel noise is a draw of an exponential mechanism (specs/subset 3.3)."""
        p = self.parameters
        if self.one_shot or p.noise is not ScoreNoise.GUMBEL:
            return Cost(p.epsilon, Fraction(0))
        return selection_cost(1, p.epsilon, Fraction(0), pooled=pooled)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Choose the set, and noise the counts of its keys (specs/subset 2.6, specs/lossless 6.4).

        Of a list with too few keys for k a smaller set is chosen, with the same noise: that costs no more.
        """
        p, listed = self.parameters, self.domain(sealing.lists)
        counted, items = ListedCounts.of(listed, counts), list[str]()
        choose = _one_shot_top_k if self.one_shot else canonical_top_k
        if k := most_chosen(p.k, listed.size):
            fitted = replace(p, k=k, epsilon=p.epsilon * Fraction(k, p.k) if self.one_shot else p.epsilon)
            chosen = choose(counted.counts, counted.zeros, fitted, sealing.bits(b"selection"))
            items = sorted(counted.named(chosen))  # any other order would tell ranks (P1)
        payload = encode(ListPayload(listed.version, listed.size))
        exact = [counts.get(item, 0) for item in items]
        return seal_table(items, exact, self.levels, sealing, payload)

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The keys in their own order, with the counts of the level."""
        rows = zip(table.items, column, strict=True)
        return {
            "catalogue": decode(ListPayload, table.payload).listed,
            "k": len(table.items),
            "selection": self.mechanism,
            "items": tuple(ItemCount(item=item, count=count) for item, count in rows),
        }

    @property
    def feasible(self) -> bool | None:
        """True if epsilon is enough by the profile; None without one."""
        return None if self.critical is None else self.parameters.epsilon >= MARGIN * self.critical

    def explain(self, keys_at_worst: str) -> Explanation:
        """Explain the choice of the set, what it may miss, and whether it is feasible.

        Details, beside the list: `k`; `mechanism`; `epsilon` of the selection of one window; `missed`: in 95 % of the
        windows no more is missed, in users: canonical, gamma times what the worst chosen key lies below the k-th, and
        (1 - gamma) times what the best key left out lies above it; one-shot, what a chosen key lies below the k-th;
        null for a list in a topic; `critical_epsilon`, by the profile: below about this epsilon the canonical choice is
        nearly a uniform one; `feasible`: whether epsilon is at least 1.3 times that; both null without a profile, or
        for a list in a topic.
        """
        p, missed = self.parameters, self._missed()
        price = f"Choosing the set ({self.mechanism}) costs {keys_at_worst} a window, once for all audiences."
        sentences = [self.list_in_words, price, *self._expected(missed), LEFT_OUT]
        return Explanation(
            shows=f"{p.k} of the listed values, the most frequent ones as a set, with counts",
            keys=" ".join(sentences),
            seen=[f"top {p.k}"] * len(self.levels),
            details={
                **self.list_details,
                "k": p.k,
                "mechanism": self.mechanism,
                "epsilon": Amount.up(p.epsilon),
                "missed": None if missed is None else _short(missed),
                "critical_epsilon": None if self.critical is None else _short(self.critical),
                "feasible": self.feasible,
            },
        )

    def _missed(self) -> Fraction | None:
        if self.listed is None:
            return None
        miss = _one_shot_miss if self.one_shot else worst_miss
        return miss(self.listed.size, self.parameters, ONE_IN_TWENTY)

    def _expected(self, missed: Fraction | None) -> Iterator[str]:
        p = self.parameters
        if missed is not None and self.one_shot:
            yield f"In 95 % of the windows no key is shown that lies {_short(missed)} users below the k-th."
        elif missed is not None:
            words = []
            if p.gamma > 0:
                words.append(f"no key is shown that lies {_short(Fraction(missed, p.gamma))} users below the k-th")
            if p.gamma < 1:
                words.append(f"none is missing that lies {_short(Fraction(missed, 1 - p.gamma))} above it")
            yield f"In 95 % of the windows {', and '.join(words)}."
        if self.critical is not None:
            if self.feasible:
                verdict = "is enough"
            elif self.one_shot:
                verdict = "is less, so one noise for each key chooses, which then finds more"
            else:
                verdict = "is less, so the set may be nearly a random one: take one-shot, or more epsilon"
            yield (
                f"By the profile a canonical choice needs {_short(MARGIN)} times an epsilon of "
                f"{_short(self.critical)}; {decimal_up(p.epsilon)} {verdict}."
            )


def _short(value: Fraction) -> str:
    return decimal_up(value, DISPLAY_DIGITS)


def _one_shot_top_k(counts: Mapping[str, int], zeros: int, p: SubsetParameters, bits: BitSource) -> tuple[object, ...]:
    """The same k and epsilon for one noise for each key; a view's users are added or removed."""
    noise = GapParameters(p.k, p.epsilon, resolution=1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    return one_shot_top_k(counts, zeros, noise, bits)


def _one_shot_miss(keys: int, p: SubsetParameters, alpha: Fraction) -> Fraction:
    """K / epsilon ln((n - k) / alpha): noise is above 0, and that of n - k keys above this with probability alpha."""
    return exceeded(Fraction(p.k, p.epsilon), Fraction(alpha, keys - p.k))


def plan_subset(settings: SubsetSettings, basis: ViewBasis) -> SubsetPlan:
    """Read the list, choose the mechanism by public numbers, and plan the noise of the counts of what is chosen.

    Raises:
        ConfigError: a level's epsilon is out of bounds, the list cannot be used, or settings do not go together.
    """
    given, k = settings.selection, settings.k
    place = placed(settings.catalogue, basis.folder, basis.application, fewest=k + 1, most_numbers=MOST_NUMBERS)
    listed = place["listed"]
    faults = []
    if given.mechanism == "one-shot":
        faults += [
            Fault(f"selection.{name}", "has no meaning for one-shot; leave it out")
            for name in ("noise", "gamma", "loss")
            if getattr(given, name) is not None
        ]
    if given.mechanism == "auto" and given.profile is None:
        faults.append(Fault("selection.profile", "is required by auto: the rule decides by public numbers"))
    if given.profile is not None and listed is None:
        faults.append(Fault("selection.profile", "needs a list that is written down: its size is part of the rule"))
    if faults:
        raise ConfigError(faults)
    try:
        parameters = SubsetParameters(
            k,
            given.epsilon,
            Fraction(3, 4) if given.gamma is None else given.gamma,
            Variant(given.loss or "signed"),
            ScoreNoise(given.noise or "gumbel"),
        )
        critical = None
        if given.profile is not None and listed is not None:
            critical = critical_epsilon(list(given.profile.items()), listed.size, parameters)
    except ParameterError as error:
        raise ConfigError([Fault(f"selection.{fault.path}", fault.message) for fault in error.faults]) from None
    one_shot = given.mechanism == "one-shot" or (
        given.mechanism == "auto" and critical is not None and parameters.epsilon < MARGIN * critical
    )
    sensitivity = min(k, basis.items_per_user)
    return SubsetPlan(
        levels=basis.levels(sensitivity),
        sensitivity=sensitivity,
        parameters=parameters,
        one_shot=one_shot,
        critical=critical,
        **place,
    )


SUBSET = Kind("subset", SubsetSettings, plan_subset)
