"""The kind `topk`: the most frequent keys in the order of a private selection, and their counts at the level.

The selection is paid once per window and shared by all audiences; only the counts of the chosen keys are noised, so
one user moves at most min(k, items_per_user) of what is published (specs/topk 2.11, specs/lossless 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from stream_dp.accounting import Cost, selection_cost
from stream_dp.accounting.composition import rho_within, zcdp_epsilon
from stream_dp.accounting.rounding import root_up
from stream_dp.accounting.selection import fixed_threshold_cost, laplace_selection_cost, laplace_selection_delta
from stream_dp.errors import ConfigError, Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.kinds.fields import DiscoveryDelta, Epsilon, Section
from stream_dp.kinds.kind import Explanation, Kind, KindPlan, Showing, ViewBasis
from stream_dp.kinds.public_lists import Counts, KeyList, ListField, PublicKeys, fixed_list
from stream_dp.kinds.sealing import SealedTable, Sealing, seal_table
from stream_dp.records.by_kind import Mechanism, RankedCount
from stream_dp.records.models import Amount
from stream_dp.select.candidates import Domain, Item, candidates
from stream_dp.select.gumbel import (
    ChosenKbarParameters,
    GumbelTopK,
    TopKParameters,
    chance_of_noise,
    chosen_kbar_top_k,
    known_domain_top_k,
    lead_for_all,
    lead_for_inclusion,
    limited_domain_top_k,
    shortfall,
    threshold,
)
from stream_dp.select.one_shot import FixedThresholdParameters, LaplaceParameters, fixed_threshold_top_k, laplace_top_k
from stream_dp.windows.encoding import decode, encode
from stream_dp.windows.merging import largest

DISPLAY_DIGITS = 3
NINE_IN_TEN, ONE_IN_TWENTY = Fraction(9, 10), Fraction(1, 20)
"""Of the statements in `expectation`."""

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


def expectation(p: TopKParameters) -> dict[str, str]:
    """Return the accuracy to be expected of a selection with Gumbel noise, in users, rounded up (specs/topk 4).

    Returns:
        `usually`: with this margin a key is shown nine times in ten. `all_found`: with this margin of the k-th count, k
        keys are shown in 95 % of windows. `shortfall`: no key is shown whose count is further below the k-th largest,
        in 95 %. `noise`: chance that a window in which all counts are equal shows anything.
    """
    found = {
        "usually": lead_for_inclusion(p, NINE_IN_TEN),
        "all_found": lead_for_all(p, ONE_IN_TWENTY),
        "shortfall": shortfall(p, ONE_IN_TWENTY),
        "noise": chance_of_noise(p),
    }
    return {name: decimal_up(value, DISPLAY_DIGITS) for name, value in found.items()}


class Found(msgspec.Struct, array_like=True, frozen=True):
    """The outcome and the price of a selection: the payload of a sealed table."""

    complete: bool
    """True if there are k keys, or `paid`; otherwise the list ended with bottom."""
    draws: int
    """The draws that are charged; 0 where a call has one price."""
    paid: int | None = None
    """Number of keys that could be paid for, where these were fewer than k."""


Chosen = tuple[Sequence[Item], Found]
"""The chosen keys, in the order they are published in, and what else was found."""


@dataclass(frozen=True)
class Selection:
    """Mechanism with which a view chooses its keys, and its cost.

    Attributes:
        mechanism: its name in the configuration.
        k: how many keys are wanted.
        kbar: how many of the largest counts it looks at, None for a catalogue.
        epsilon: of each draw; of each item of a user (`laplace`); of each key looked at (`fixed-threshold`).
        delta: what one window adds to delta.
        listed: the list of a known domain; None for an unknown one.
        margin: how far a key must stand above the count that follows the first kbar to be shown as often as not, in
            users, rounded up; None for a catalogue.
        expected: its `expectation`, None where nothing general can be said.
        most_draws: what is reserved, in draws; 0 where a call has one price.
        by_call: that price.
        choose: selects from the exact counts: of at least the kbar + 1 largest, of all for a catalogue.
    """

    mechanism: Mechanism
    k: int
    kbar: int | None
    epsilon: Fraction
    delta: Fraction
    margin: Fraction | None
    most_draws: int
    choose: Callable[[Mapping[str, int], BitSource], Chosen] = field(compare=False, repr=False)
    by_call: Cost | None = None
    listed: PublicKeys | None = None
    expected: Mapping[str, str] | None = None

    def cost(self, draws: int, *, pooled: bool) -> Cost:
        """Return the cost of so many draws, bottom included; `pooled` where the ledger has a pool."""
        if self.by_call is not None:
            return self.by_call
        return selection_cost(draws, self.epsilon, self.delta, pooled=pooled)

    def first(self, keys: int) -> Selection:
        """Return the selection of fewer keys: its first draws alone. Nobody sees what would follow, nor pays for it."""
        most = self.most_draws - self.k + keys

        def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
            items, found = self.choose(counts, bits)
            return items[:keys], Found(found.complete or len(items) >= keys, min(found.draws, most), keys)

        return replace(self, most_draws=most, choose=choose)

    @property
    def identity(self) -> list[object]:
        """All that may not change while state of the view exists."""
        numbers: list[object] = [self.k, self.kbar, str(self.epsilon), str(self.delta)]
        listed = None if self.listed is None else self.listed.version
        return numbers if self.mechanism == "gumbel" else [*numbers, self.mechanism, listed]


def by_draws(mechanism: Mechanism, p: TopKParameters) -> Selection:
    """Algorithm 1 over positive counts, paid by the draw (specs/topk 2.2, 3.4): `gumbel`.

    Or algorithm 5: only keys above the count behind the first kbar; a user's bound is of no use (specs/topk 2.3):
    `strict`.

    Raises:
        ConfigError, ParameterError: an argument is outside its range; as in every function here, with all faults.
    """

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        return _drawn(limited_domain_top_k(*candidates(counts, p.kbar, p.domain), p, bits))

    margin = threshold(0, p)[1]
    return Selection(mechanism, p.k, p.kbar, p.epsilon, p.delta, margin, p.k, choose, expected=expectation(p))


def chosen_kbar(k: int, kbar: int, epsilon: Fraction, delta: Fraction) -> Selection:
    """Algorithm 6: one more draw chooses how far to look, up to kbar, best just before a drop (specs/topk 2.6)."""
    if kbar <= k:
        raise ConfigError([Fault("kbar", f"must be above k = {k}, so that there is something to choose, not {kbar}")])
    p = ChosenKbarParameters(k + 1, kbar, epsilon, delta)

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        chosen = chosen_kbar_top_k(*candidates(counts, kbar), p, bits)
        return chosen.top.items, Found(not chosen.top.bottom, chosen.draws)

    return Selection("chosen-kbar", k, kbar, epsilon, delta, threshold(0, p.selection(kbar))[1], k + 1, choose)


def laplace(k: int, kbar: int, epsilon: Fraction, delta: Fraction, items_per_user: int) -> Selection:
    """Algorithm 4, paid by the call: cheap where a user has few items (specs/topk 2.4).

    Args:
        k: keys wanted.
        kbar: how many of the largest counts it looks at, at least `items_per_user`.
        epsilon: of each item of a user.
        delta: what is delivered; the threshold is made with a smaller one that is solved for.
        items_per_user: bound on the counts one user moves.
    """
    LaplaceParameters(k, kbar, epsilon, delta, items_per_user)  # lists every fault
    parameter = laplace_selection_delta(delta, items_per_user, epsilon)
    p = LaplaceParameters(k, kbar, epsilon, parameter, items_per_user)

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        top = laplace_top_k(*candidates(counts, kbar), p, bits)
        return top.items, Found(not top.bottom, 0)

    price = Cost(laplace_selection_cost(items_per_user, epsilon, parameter).epsilon, delta)
    return Selection("laplace", k, kbar, epsilon, delta, threshold(0, p)[1], 0, choose, price)


def fixed_threshold(k: int, epsilon: Fraction, delta: Fraction) -> Selection:
    """Algorithm 8, paid by the call: only keys that are among the true first k, as a set (specs/topk 2.9).

    Args:
        k: how many of the largest counts it looks at.
        epsilon: of each of them.
        delta: of the call; each of them has a k-th.
    """
    p = FixedThresholdParameters(k, epsilon, delta * Fraction(1, k))

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        items = fixed_threshold_top_k(*candidates(counts, k, Domain.STRICT), p, bits)
        return items, Found(len(items) == k, 0)

    price = fixed_threshold_cost(k, epsilon, p.delta)
    return Selection("fixed-threshold", k, k, epsilon, delta, threshold(0, p)[1], 0, choose, price)


def known_domain(k: int, epsilon: Fraction, listed: PublicKeys) -> Selection:
    """The first k of a public catalogue: no threshold, no bottom, no delta; k draws (specs/topk 2.8).

    What is counted besides is left out.
    """
    if k > listed.size:
        raise ConfigError([Fault("k", f"must be at most the {listed.size} items of the catalogue, not {k}")])

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        return _drawn(known_domain_top_k({key: counts.get(key, 0) for key in listed}, k, epsilon, bits))

    return Selection("known-domain", k, None, epsilon, Fraction(0), None, k, choose, listed=listed)


def _drawn(top: GumbelTopK) -> Chosen:
    return top.items, Found(not top.bottom, top.draws)


@dataclass(frozen=True, kw_only=True)
class TopKPlan(KindPlan):
    """The plan of a top-k.

    Attributes:
        selection: how its keys are chosen, and what that costs.
        basis: settings of the view.
    """

    selection: Selection
    basis: ViewBasis = field(compare=False, repr=False)
    name = "topk"

    @property
    def identity(self) -> Sequence[object]:
        """Parameters of the selection."""
        return self.selection.identity

    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """The whole selection (specs/topk 3.4)."""
        return self.selection.cost(self.selection.most_draws, pooled=pooled)

    @property
    def shorter(self) -> Sequence[TopKPlan]:
        """Those of the first keys alone, where draws have a price."""
        few = range(1, self.selection.k if self.selection.most_draws else 1)
        return [replace(self, selection=self.selection.first(keys)) for keys in few]

    def keys_spent(self, payload: bytes, *, pooled: bool) -> Cost:
        """The draws that were made, bottom included."""
        return self.selection.cost(decode(Found, payload).draws, pooled=pooled)

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys | None:
        """The catalogue, if there is one."""
        return self.selection.listed

    def needed(self, counts: Counts) -> Counts:
        """As many as the selection can look at, and the one that follows them; of a catalogue all."""
        kbar = self.selection.kbar
        return counts if kbar is None else largest(counts, kbar + 1)

    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Choose the keys and noise their counts (specs/topk 2.2, specs/lossless 6.4)."""
        chosen, found = self.selection.choose(counts, sealing.bits(b"selection"))
        items = [*map(str, chosen)]
        # What is frozen of a top-k is what was chosen; nothing is ever noised again under this salt.
        return seal_table(items, [counts.get(item, 0) for item in items], self.levels, sealing, encode(found))

    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """The chosen keys in their order, with the counts of the level."""
        mechanism, found = self.selection.mechanism, decode(Found, table.payload)
        ranked = enumerate(zip(table.items, column, strict=True), start=1)
        return {
            "k": self.selection.k,
            "complete": found.complete,
            "paid": found.paid,
            "selection": None if mechanism == "gumbel" else mechanism,
            "items": tuple(RankedCount(rank=rank, item=item, count=count) for rank, (item, count) in ranked),
        }

    @property
    def showing(self) -> Showing | None:
        """The keys that are drawn, of the mechanism without further conditions."""
        chosen = self.selection
        if chosen.mechanism != "gumbel" or chosen.kbar is None or chosen.margin is None:
            return None
        return Showing(k=chosen.k, kbar=chosen.kbar, epsilon=chosen.epsilon, margin=chosen.margin)

    def better(self, level: int, windows: int, slack: Fraction | None) -> str:
        """Compare the users with which a key is shown in half of the windows: a tenth fewer are clearly better.

        With a mechanism, that is beyond the count behind the first kbar; in a ranked histogram it is their number.
        What is charged to a pool is compared by the epsilon of a period, as if the view were alone in its ledger.
        """
        chosen, own, items = self.selection, self.levels[level], self.basis.items_per_user
        if chosen.kbar is None or chosen.margin is None:
            return ""
        k, kbar, delta, keys = chosen.k, chosen.kbar, chosen.delta, self.keys_at_worst(pooled=slack is not None)
        draw, call, counts = Fraction(keys.epsilon, k), Fraction(keys.epsilon, items), own.epsilon + keys.epsilon
        if slack is not None:
            period = zcdp_epsilon(windows * (own.rho + keys.rho), slack) + windows * keys.epsilon
            call = Fraction(period - zcdp_epsilon(windows * own.rho, slack), windows * items)
            rho = Fraction(rho_within(period, slack), windows)
            draw, counts = root_up(Fraction(8 * (rho - own.rho), k)), root_up(2 * items * rho)
        draw, call, counts = (Fraction(decimal_down(one, DISPLAY_DIGITS)) for one in (draw, call, counts))
        lead = f"if it has {{}} users more than key number {kbar + 1}"
        ways = {f"mechanism: gumbel {lead}": threshold(0, TopKParameters(k, kbar, draw, delta, items))[1]}
        if items <= kbar:
            ways[f"mechanism: laplace {lead}"] = laplace(k, kbar, call, delta, items).margin or chosen.margin
        with suppress(ConfigError):  # such noise may be out of bounds
            ranked = replace(self.basis, ladder=[("", counts)]).levels(items, Fraction(delta, items))[0]
            if ranked.noise_interval <= own.noise_interval:
                least = Fraction(ranked.minimum_count(Fraction(delta, items)))
                ways[f"a histogram with rank: {k} if it has {{}} users"] = least
        found = sorted((users, way) for way, users in ways.items() if 10 * users <= 9 * chosen.margin)
        return "; ".join(f"with {way.format(decimal_up(users, DISPLAY_DIGITS))}" for users, way in found)

    def explain(self, keys_at_worst: str) -> Explanation:
        """Explain the choice of keys, and its accuracy.

        Details are those of the `Selection`: `draws` that are reserved for a window, and the `margin` in users.
        """
        chosen = self.selection
        return Explanation(
            shows=f"the {chosen.k} most frequent, with counts",
            keys=_in_words(chosen, keys_at_worst),
            half=_half(chosen),
            seen=[f"top {chosen.k}"] * len(self.levels),
            details={
                "mechanism": chosen.mechanism,
                "k": chosen.k,
                "kbar": chosen.kbar,
                "epsilon": Amount.up(chosen.epsilon),
                "delta": Amount.up(chosen.delta),
                "draws": chosen.most_draws,
                "margin": None if chosen.margin is None else decimal_up(chosen.margin, DISPLAY_DIGITS),
                "expectation": chosen.expected,
            },
        )


def _in_words(chosen: Selection, keys_at_worst: str) -> str:
    worst = " at worst" if chosen.most_draws else ""
    price = f"Choosing the keys ({chosen.mechanism}) costs {keys_at_worst} a window{worst}, once for all "
    if chosen.margin is None:
        return price + "audiences; the catalogue is public, so no key has to stand out."
    shown = (
        f"{price}audiences. A key is compared with the most frequent key outside the first {chosen.kbar}: with "
        f"{decimal_up(chosen.margin, DISPLAY_DIGITS)} users more, it is shown in half of the windows"
    )
    expected = chosen.expected
    if expected is None:
        return shown + "."
    return (
        f"{shown}, with {expected['usually']} more in 9 of 10. If key number {chosen.k} has {expected['all_found']} "
        f"more, all {chosen.k} keys are shown in 95 % of the windows. In 95 % of the windows, every key that is shown "
        f"has at most {expected['shortfall']} users fewer than key number {chosen.k}."
    )


def _half(chosen: Selection) -> str:
    if chosen.margin is None or chosen.kbar is None:
        return ""
    lead = f"{decimal_up(chosen.margin, DISPLAY_DIGITS)} users more than key number {chosen.kbar + 1}"
    return f"A key is shown in half of the windows if it has {lead}."


def plan_topk(settings: TopKSettings, basis: ViewBasis) -> TopKPlan:
    """Plan the selection, and the noise of the counts of what it chooses.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the selection's parameters are.
    """
    chosen = _selection(settings, basis)
    sensitivity = min(settings.k, basis.items_per_user)
    levels = basis.levels(sensitivity)
    return TopKPlan(levels=levels, sensitivity=sensitivity, selection=chosen, basis=basis)


def _selection(settings: TopKSettings, basis: ViewBasis) -> Selection:
    """Mechanism with which a top-k chooses its keys.

    Raises:
        ConfigError: a key is missing that the mechanism needs, one is there that it has no use for, or a value is
            outside its range; paths are relative to the view.
    """
    k, kbar, given, items_per_user = settings.k, settings.kbar, settings.selection, basis.items_per_user
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
            return known_domain(k, given.epsilon, fixed_list(settings.catalogue, basis.folder))
        delta = given.delta or Fraction(0)
        if given.mechanism == "fixed-threshold":
            return fixed_threshold(k, given.epsilon, delta)
        if given.mechanism == "chosen-kbar":
            return chosen_kbar(k, kbar or 0, given.epsilon, delta)
        if given.mechanism == "laplace":
            return laplace(k, kbar or 0, given.epsilon, delta, items_per_user)
        domain = Domain.STRICT if given.mechanism == "strict" else Domain.POSITIVE
        return by_draws(given.mechanism, TopKParameters(k, kbar or 0, given.epsilon, delta, items_per_user, domain))
    except (ConfigError, ParameterError) as error:
        inside = {name: f"selection.{name}" for name in ("epsilon", "delta")}
        raise ConfigError([replace(fault, path=inside.get(fault.path, fault.path)) for fault in error.faults]) from None


TOPK = Kind("topk", TopKSettings, plan_topk)
