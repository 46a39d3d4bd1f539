"""Choice of a top-k's keys: the mechanisms of `stream_dp.select` as a view uses them, with their costs.

All of them choose once per window, for all audiences; the counts of the chosen keys are noised at the audience's level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, Self, cast

from stream_dp.accounting import Cost, selection_cost
from stream_dp.accounting.selection import (
    fixed_threshold_cost,
    laplace_selection_cost,
    laplace_selection_delta,
)
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.bits import BitSource
from stream_dp.kinds.lists import PublicKeys
from stream_dp.select import (
    ChosenKbarParameters,
    Domain,
    FixedThresholdParameters,
    LaplaceParameters,
    TopK,
    TopKParameters,
    candidates,
    chosen_kbar_top_k,
    fixed_threshold_top_k,
    known_domain_top_k,
    laplace_top_k,
    limited_domain_top_k,
    threshold,
)
from stream_dp.select.candidates import Item
from stream_dp.select.parameters import chance_of_noise, lead_for_all, lead_for_inclusion, shortfall

NINE_IN_TEN, ONE_IN_TWENTY = Fraction(9, 10), Fraction(1, 20)
"""Of the statements in `Expectation`."""

Mechanism = Literal["gumbel", "strict", "chosen-kbar", "laplace", "fixed-threshold", "known-domain"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Result of a selection.

    Attributes:
        items: the chosen keys, in the order they are published in.
        complete: whether there are k of them; otherwise the list ended with bottom.
        draws: what is charged, 0 where a call has one price.
    """

    items: tuple[str, ...]
    complete: bool
    draws: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """Accuracy to be expected of a selection with Gumbel noise; in users, rounded up (specs/topk 4).

    Attributes:
        usually: the lead over the count that follows the first kbar with which a key is shown nine times in ten.
        all_found: the lead of the k-th largest count with which k keys are shown in 95 % of the windows.
        shortfall: in 95 % of the windows no key is shown whose count is further below the k-th largest.
        noise: the chance that a window in which all counts are equal shows anything.
    """

    usually: Fraction
    all_found: Fraction
    shortfall: Fraction
    noise: Fraction

    @classmethod
    def of(cls, p: TopKParameters) -> Self:
        """The statements about a selection's parameters."""
        return cls(
            lead_for_inclusion(p, NINE_IN_TEN),
            lead_for_all(p, ONE_IN_TWENTY),
            shortfall(p, ONE_IN_TWENTY),
            chance_of_noise(p),
        )


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
        expectation: what it can be expected to find, None where nothing general can be said.
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
    expectation: Expectation | None = None

    def cost(self, draws: int, *, squared: bool) -> Cost:
        """Return the cost of so many draws, bottom included; `squared` where the ledger has a part for draws."""
        if self.by_call is not None:
            return self.by_call
        return selection_cost(draws, self.epsilon, self.delta, squared=squared)

    @property
    def identity(self) -> list[object]:
        """All that may not change while state of the view exists."""
        numbers: list[object] = [self.k, self.kbar, str(self.epsilon), str(self.delta)]
        listed = None if self.listed is None else self.listed.version
        return numbers if self.mechanism == "gumbel" else [*numbers, self.mechanism, listed]


def gumbel(k: int, kbar: int, epsilon: Fraction, delta: Fraction, items_per_user: int) -> Selection:
    """Algorithm 1 over positive counts, paid by the draw (specs/topk 2.2, 3.4).

    Raises:
        ConfigError, ParameterError: an argument is outside its range; as in every function here, with all faults.
    """
    return _by_draws("gumbel", TopKParameters(k, kbar, epsilon, delta, items_per_user))


def strict(k: int, kbar: int, epsilon: Fraction, delta: Fraction, items_per_user: int) -> Selection:
    """Algorithm 5: only keys above the count behind the first kbar; a user's bound is of no use (specs/topk 2.3)."""
    return _by_draws("strict", TopKParameters(k, kbar, epsilon, delta, items_per_user, Domain.STRICT))


def _by_draws(mechanism: Mechanism, p: TopKParameters) -> Selection:
    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        return _drawn(limited_domain_top_k(*candidates(counts, p.kbar, p.domain), p, bits))

    margin, expectation = threshold(0, p)[1], Expectation.of(p)
    return Selection(mechanism, p.k, p.kbar, p.epsilon, p.delta, margin, p.k, choose, expectation=expectation)


def chosen_kbar(k: int, kbar: int, epsilon: Fraction, delta: Fraction) -> Selection:
    """Algorithm 6: one more draw chooses how far to look, up to kbar, best just before a drop (specs/topk 2.6)."""
    if kbar <= k:
        raise ConfigError([Fault("kbar", f"must be above k = {k}, so that there is something to choose, not {kbar}")])
    p = ChosenKbarParameters(k + 1, kbar, epsilon, delta)

    def choose(counts: Mapping[str, int], bits: BitSource) -> Chosen:
        chosen = chosen_kbar_top_k(*candidates(counts, kbar), p, bits)
        return Chosen(_text(chosen.top.items), not chosen.top.bottom, chosen.draws)

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
        return Chosen(_text(top.items), not top.bottom, 0)

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
        return Chosen(_text(items), len(items) == k, 0)

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


def _drawn(top: TopK) -> Chosen:
    return Chosen(_text(top.items), not top.bottom, top.draws)


def _text(items: tuple[Item, ...]) -> tuple[str, ...]:
    return cast("tuple[str, ...]", items)
