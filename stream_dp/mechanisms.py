"""Differentially private mechanisms for programs and notebooks: from counts, epsilon and delta to results.

    from stream_dp import mechanisms as dp

    budget = dp.Budget(epsilon=3, delta="1e-6")
    shown = dp.histogram(counts, epsilon="0.5", delta="1e-7", items_per_user=3, budget=budget)

Neighbouring tables differ by everything that one user contributed (add or remove). One user moves at most
`items_per_user` counts, each by at most 1: bound contributions before you count.

* Numbers are exact: whole numbers, `Fraction`s, or text such as "0.5" and "1e-6". Floats are refused.
* Noise is exact integer noise from the operating system's generator. In tests a `Budget` may have other `bits`.
* A call that is given a `budget` reserves its worst case before it draws, and pays for what it returns. A call that the
  budget does not cover draws nothing.
* How long a call takes depends on the counts and on the noise. Do not let others measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeVar

from stream_dp.accounting import Cost, Ledger, Overdraft, cancel, commit, reserve, selection_cost
from stream_dp.errors import BudgetError, Fault, ParameterError, StateError
from stream_dp.exact.bits import BitSource, SystemBits
from stream_dp.exact.rationals import parse_exact
from stream_dp.lossless.discrete_laplace import coarsen, draw_noise, interval, sum_interval
from stream_dp.lossless.levels import discovery_delta, minimum_count, noise_parameter, threshold_for
from stream_dp.select.candidates import Neighbours, candidates
from stream_dp.select.gumbel import TopKParameters, known_domain_top_k, limited_domain_top_k
from stream_dp.select.lipschitz import SubsetParameters
from stream_dp.select.top_k_subset import canonical_top_k
from stream_dp.select.top_k_with_gaps import GapParameters, gap_top_k

__all__ = [
    "Budget",
    "Cost",
    "GapTopK",
    "LosslessCounts",
    "NoisyCounts",
    "NoisyHistogram",
    "RunningCounts",
    "TopK",
    "discrete_laplace_counts",
    "histogram",
    "top_k",
    "top_k_of_list",
    "top_k_subset",
    "top_k_with_gaps",
]

Exact = int | str | Fraction
"""An exact number: a whole number, a fraction, or text such as "0.25", "1/3" or "1e-6"."""
T = TypeVar("T")
Draw = Callable[[BitSource], tuple[T, Cost]]
"""Draws a result, and says what it costs."""

CONFIDENCE = Fraction(95, 100)
MOST_EPSILON = 40
"""Of one count: above it the noise is nearly always 0, and hides nothing."""


class Budget:
    """A privacy budget that calls pay from; an exact ledger in memory (specs/topk 3.4).

    Attributes:
        ledger: the ledger as it is now; immutable, so it can be kept and compared.
        bits: source of uniform bits.

    Guarantee: everything that was paid from it is together (epsilon, delta)-DP, whatever was asked in whatever order.
    It lives in this process: to keep it through restarts, store `accounting.encode(budget.ledger)`.
    """

    def __init__(self, epsilon: Exact, delta: Exact = 0, *, bits: BitSource | None = None) -> None:
        """Set the caps.

        Args:
            epsilon: of everything that is paid from it, above 0.
            delta: the same, from 0 to 1.
            bits: source of uniform bits for what is paid from it, for tests; the operating system's if it is None.

        Raises:
            ParameterError: a cap is not exact or out of range.
        """
        self.ledger = Ledger(_cost(_exact("epsilon", epsilon), _exact("delta", delta, zero=True)))
        self.bits: BitSource = bits or SystemBits()
        self._calls = 0

    @property
    def spent(self) -> Cost:
        """Cost of all that was paid so far."""
        return self.ledger.spent

    @property
    def left(self) -> Cost:
        """Rest of the budget."""
        return self.ledger.left

    def pay(self, worst: Cost, draw: Draw[T]) -> T:
        """Reserve, draw, and pay what the draw came to.

        Args:
            worst: the most it can cost.
            draw: draws the result from `bits`; called once the worst case is reserved.

        Raises:
            BudgetError: the budget does not cover the worst case; nothing was drawn or charged.
        """
        self._calls += 1
        call = str(self._calls)
        held = reserve(self.ledger, call, worst)
        if isinstance(held, Overdraft):
            raise BudgetError(f"this call can cost {_words(worst)}, and {_words(held.left)} is left")
        self.ledger = held
        try:
            result, cost = draw(self.bits)
        except BaseException:
            self.ledger = cancel(self.ledger, call)
            raise
        self.ledger = commit(self.ledger, call, cost, {}, view="")
        return result


@dataclass(frozen=True, slots=True)
class NoisyCounts:
    """Counts with noise.

    Attributes:
        counts: by key; a noisy count may be negative.
        interval_95: the noise of a count is at most this with at least 95 % chance, in counts.
        cost: what all that was drawn for it costs one user.
    """

    counts: Mapping[str, int]
    interval_95: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class NoisyHistogram:
    """The keys of an unknown domain with large noisy counts.

    Attributes:
        counts: by key, largest first; only keys whose noisy count is at least `minimum_count`.
        minimum_count: the smallest noisy count that is shown.
        interval_95: the noise of a count is at most this with at least 95 % chance, in counts.
        cost: what it costs one user.
    """

    counts: Mapping[str, int]
    minimum_count: int
    interval_95: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class TopK:
    """The selected keys, without counts.

    Attributes:
        keys: best first.
        complete: whether there are k of them; otherwise no other key stands out.
        cost: what it costs one user: what is returned is paid for.
    """

    keys: tuple[str, ...]
    complete: bool
    cost: Cost


@dataclass(frozen=True, slots=True)
class GapTopK:
    """The selected keys and how far each is ahead of the next.

    Attributes:
        keys: best first.
        gaps: by key, in counts, noisy, rounded down; the last is ahead of a key that is not shown.
        cost: what keys and gaps together cost one user.
    """

    keys: tuple[str, ...]
    gaps: tuple[int, ...]
    cost: Cost


# -- counts ---------------------------------------------------------------------------------------------------


def discrete_laplace_counts(
    counts: Mapping[str, int],
    epsilon: Exact,
    *,
    items_per_user: int = 1,
    budget: Budget | None = None,
) -> NoisyCounts:
    """Add discrete Laplace noise to the counts of public keys.

    Args:
        counts: a count for every key of a public list, zeros too. Keys that come from data void the guarantee: use
            `histogram`.
        epsilon: of the whole call, above 0.
        items_per_user: how many of the counts one user moves at most, each by at most 1.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP. Source: specs/lossless 7.1.
    """
    price = _exact("epsilon", epsilon)
    a = _level(price, items_per_user)
    exact, cost = _whole(counts), _cost(price)

    def draw(bits: BitSource) -> tuple[NoisyCounts, Cost]:
        noisy = {key: count + draw_noise(a, bits) for key, count in exact.items()}
        return NoisyCounts(noisy, interval(a, CONFIDENCE), cost), cost

    return _paid(budget, cost, draw)


def histogram(
    counts: Mapping[str, int],
    epsilon: Exact,
    delta: Exact,
    *,
    items_per_user: int = 1,
    budget: Budget | None = None,
) -> NoisyHistogram:
    """Show the keys of an unknown domain whose noisy counts are large, with these counts.

    Args:
        counts: the number of users of every key that somebody has.
        epsilon: of the whole call, above 0.
        delta: the chance that a key which only one user has is shown, for all items of that user; between 0 and 1.
        items_per_user: how many keys one user has at most.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: (epsilon, delta)-DP. Source: specs/lossless 2.9.4.
    """
    price, chance = _exact("epsilon", epsilon), _exact("delta", delta)
    a = _level(price, items_per_user)
    threshold = threshold_for(Fraction(price, items_per_user))
    least = minimum_count(threshold, Fraction(chance, items_per_user))
    discovery_delta([(threshold, least)], items_per_user)
    exact, cost = {key: count for key, count in _whole(counts, least=0).items() if count}, _cost(price, chance)

    def draw(bits: BitSource) -> tuple[NoisyHistogram, Cost]:
        noisy = [(key, count + draw_noise(a, bits)) for key, count in exact.items()]
        shown = sorted((row for row in noisy if row[1] >= least), key=lambda row: (-row[1], row[0]))
        return NoisyHistogram(dict(shown), least, interval(a, CONFIDENCE), cost), cost

    return _paid(budget, cost, draw)


class LosslessCounts:
    """Counts that are released again and again, each time sharper; all releases together cost what the sharpest does.

    The noise of every level is drawn together when the object is made; the exact counts are not kept. Reading a coarser
    level after a finer one is free, and so is reading a level twice.

    Attributes:
        epsilons: the levels, coarse to fine.

    Guarantee: what was read is together epsilon-DP for the largest epsilon that was read. Source: specs/lossless 2.3.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        epsilons: Sequence[Exact],
        *,
        items_per_user: int = 1,
        budget: Budget | None = None,
    ) -> None:
        """Draw the noise.

        Args:
            counts: a count for every key of a public list.
            epsilons: of the levels, at least two, coarse to fine.
            items_per_user: how many of the counts one user moves at most, each by at most 1.
            budget: pays for what is read.

        Raises:
            ParameterError: an argument is out of range or not exact, or the levels do not rise.
        """
        self.epsilons = tuple(_exact("epsilons", epsilon) for epsilon in epsilons)
        if len(self.epsilons) < 2 or any(a >= b for a, b in zip(self.epsilons, self.epsilons[1:], strict=False)):
            raise ParameterError([Fault("epsilons", "must be two or more, each larger than the one before")])
        self._levels = {epsilon: _level(epsilon, items_per_user) for epsilon in self.epsilons}
        self._bits, self._budget, self._paid = _bits(budget), budget, Fraction(0)
        if len(set(self._levels.values())) < len(self._levels):
            raise ParameterError([Fault("epsilons", "are too close: two of them come to the same noise")])
        finest, *coarser = reversed(self._levels.values())
        noisy = {key: count + draw_noise(finest, self._bits) for key, count in _whole(counts).items()}
        self._counts, fine = {finest: noisy}, finest
        for coarse in coarser:
            noisy = {key: coarsen(count, fine, coarse, self._bits) for key, count in noisy.items()}
            self._counts[coarse], fine = noisy, coarse

    @property
    def cost(self) -> Cost:
        """Cost to one user of all that was read so far."""
        return _cost(self._paid) if self._paid else Cost.ZERO

    def read(self, epsilon: Exact) -> NoisyCounts:
        """Release the counts at a level; the same at every repetition.

        Args:
            epsilon: one of `epsilons`.

        Raises:
            ParameterError: there is no such level.
            BudgetError: the budget does not cover what it adds.
        """
        level = _exact("epsilon", epsilon)
        if level not in self._levels:
            raise ParameterError([Fault("epsilon", f"must be one of {', '.join(map(str, self.epsilons))}")])
        added = max(level - self._paid, Fraction(0))

        def draw(bits: BitSource) -> tuple[NoisyCounts, Cost]:
            a = self._levels[level]
            return NoisyCounts(self._counts[a], interval(a, CONFIDENCE), _cost(max(level, self._paid))), _cost(added)

        found = _paid(self._budget, _cost(added), draw) if added else draw(self._bits)[0]
        self._paid += added
        return found


class _Block(NamedTuple):
    """Panes side by side: how many, their exact counts together, and these with noise."""

    size: int
    exact: dict[str, int]
    noisy: dict[str, int]


class RunningCounts:
    """Totals of public keys since the start of a stream, one release at the end of every pane, paid for once.

    Noise is added to blocks of panes that a binary tree makes, so the error of a total grows with the logarithm of the
    number of panes.

    Guarantee: all totals together are epsilon-DP. Source: specs/lossless 2.8.
    """

    def __init__(
        self,
        keys: Collection[str],
        panes: int,
        epsilon: Exact,
        *,
        items_per_user: int = 1,
        budget: Budget | None = None,
    ) -> None:
        """Begin a stream and pay for all of it.

        Args:
            keys: the public list.
            panes: how many there are at most.
            epsilon: of the whole stream, above 0.
            items_per_user: how many counts one user moves in the whole stream at most, each by at most 1.
            budget: pays for it.

        Raises:
            ParameterError: an argument is out of range or not exact.
            BudgetError: the budget does not cover it.
        """
        price = _exact("epsilon", epsilon)
        self.panes = _positive("panes", panes)
        # A pane is in at most one block of 1, 2, 4, ... panes each (the proof is in `windows.shapes.running_totals`).
        moved = _positive("items_per_user", items_per_user) * panes.bit_length()
        self._level = _level(price, moved)
        self._keys, self._closed = sorted(set(keys)), 0
        self._blocks: list[_Block] = []
        self._bits, self.cost = _bits(budget), _cost(price)
        _paid(budget, self.cost, lambda _: (None, self.cost))

    def close_pane(self, counts: Mapping[str, int]) -> NoisyCounts:
        """Add a pane and release the totals up to its end.

        Args:
            counts: of the pane, by key; a key that is left out counts 0.

        Raises:
            ParameterError: a key is not on the list.
            StateError: there are more panes than were paid for.
        """
        if self._closed == self.panes:
            raise StateError(f"this stream was paid for {self.panes} panes; all of them are closed")
        pane = _whole(counts)
        if not pane.keys() <= set(self._keys):
            raise ParameterError([Fault("counts", "has a key that is not on the list")])
        exact, size = {key: pane.get(key, 0) for key in self._keys}, 1
        while self._blocks and self._blocks[-1].size == size:  # two of one size side by side are one of the next
            half = self._blocks.pop()
            exact, size = {key: half.exact[key] + count for key, count in exact.items()}, 2 * size
        noisy = {key: count + draw_noise(self._level, self._bits) for key, count in exact.items()}
        self._blocks.append(_Block(size, exact, noisy))
        self._closed += 1
        totals = {key: sum(block.noisy[key] for block in self._blocks) for key in self._keys}
        closed = self._closed
        return NoisyCounts(totals, sum_interval(self._level, closed.bit_count(), CONFIDENCE), self.cost)


# -- selections -----------------------------------------------------------------------------------------------


def top_k(
    counts: Mapping[str, int],
    k: int,
    epsilon: Exact,
    delta: Exact,
    *,
    candidates_at_most: int | None = None,
    items_per_user: int | None = None,
    budget: Budget | None = None,
) -> TopK:
    """Select up to k of the most frequent keys of an unknown domain, in order, without their counts.

    Args:
        counts: the number of users of every key that somebody has.
        k: how many keys are wanted, at least 1.
        epsilon: of each key that is returned, above 0.
        delta: of the call, between 0 and 1.
        candidates_at_most: how many of the largest counts are looked at; ten times k if it is None.
        items_per_user: how many keys one user has at most; None if nothing bounds it, which takes larger counts.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover k keys.

    Guarantee: (r (epsilon + delta), delta)-DP for r keys returned, one more where fewer than k are.
    Source: specs/topk 2.2, 3.4.
    """
    price, chance = _exact("epsilon", epsilon), _exact("delta", delta)
    kbar = 10 * _positive("k", k) if candidates_at_most is None else candidates_at_most
    p = TopKParameters(k, kbar, price, chance, items_per_user)
    exact = _whole(counts, least=0)

    def draw(bits: BitSource) -> tuple[TopK, Cost]:
        found = limited_domain_top_k(*candidates(exact, p.kbar, p.domain), p, bits)
        cost = selection_cost(found.draws, price, chance)
        return TopK(tuple(map(str, found.items)), not found.bottom, cost), cost

    return _paid(budget, selection_cost(k, price, chance), draw)


def top_k_of_list(
    counts: Mapping[str, int],
    keys: Collection[str],
    k: int,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> TopK:
    """Select the k most frequent keys of a public list, in order, without their counts.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list.
        k: how many keys are wanted, at most as many as are listed.
        epsilon: of each key, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: (k epsilon)-DP. Source: specs/topk 2.8.
    """
    price = _exact("epsilon", epsilon)
    exact = _listed(counts, keys, _positive("k", k))
    cost = selection_cost(k, price, Fraction(0))

    def draw(bits: BitSource) -> tuple[TopK, Cost]:
        found = known_domain_top_k(exact, k, price, bits)
        return TopK(tuple(map(str, found.items)), complete=True, cost=cost), cost

    return _paid(budget, cost, draw)


def top_k_with_gaps(
    counts: Mapping[str, int],
    keys: Collection[str],
    k: int,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> GapTopK:
    """Select the k most frequent keys of a public list and how far each is ahead of the next; the gaps are free.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list, more than k keys.
        k: how many keys are wanted.
        epsilon: of the whole call, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP, however many counts one user moves up, each by at most 1. Source: specs/gap 2.6 to 2.8.
    """
    price = _exact("epsilon", epsilon)
    p = GapParameters(k, price, 1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    exact, cost = _listed(counts, keys, k + 1), _cost(price)

    def draw(bits: BitSource) -> tuple[GapTopK, Cost]:
        found = gap_top_k(exact, 0, p, bits)
        return GapTopK(tuple(map(str, found.items)), found.gaps, cost), cost

    return _paid(budget, cost, draw)


def top_k_subset(
    counts: Mapping[str, int],
    keys: Collection[str],
    k: int,
    epsilon: Exact,
    *,
    budget: Budget | None = None,
) -> frozenset[str]:
    """Select the k most frequent keys of a public list as a set: for large k far more exact than an ordered list.

    Args:
        counts: the number of users of every key; keys that are not listed are left out.
        keys: the public list.
        k: how many keys are wanted, at most as many as are listed.
        epsilon: of the whole call, above 0.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: epsilon-DP, however many counts one user moves up, each by at most 1. Source: specs/subset 2.6.
    """
    price = _exact("epsilon", epsilon)
    p, exact, cost = SubsetParameters(k, price), _listed(counts, keys, k), _cost(price)

    def draw(bits: BitSource) -> tuple[frozenset[str], Cost]:
        return frozenset(map(str, canonical_top_k(exact, 0, p, bits))), cost

    return _paid(budget, cost, draw)


# -- arguments ------------------------------------------------------------------------------------------------


def _paid(budget: Budget | None, worst: Cost, draw: Draw[T]) -> T:
    return draw(SystemBits())[0] if budget is None else budget.pay(worst, draw)


def _bits(budget: Budget | None) -> BitSource:
    return SystemBits() if budget is None else budget.bits


def _cost(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Cost:
    return Cost(epsilon, delta)


def _words(cost: Cost) -> str:
    return f"epsilon {cost.epsilon} and delta {cost.delta}"


def _exact(name: str, value: Exact, *, zero: bool = False) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | str | Fraction):
        raise ParameterError([Fault(name, f'must be exact: write Fraction(1, 2) or "0.5", not {value!r}')])
    try:
        number = parse_exact(value) if isinstance(value, str) else Fraction(value)
    except ValueError as error:
        raise ParameterError([Fault(name, str(error))]) from None
    if number < 0 or (number == 0 and not zero):
        raise ParameterError([Fault(name, f"must be above 0, not {value}")])
    return number


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError([Fault(name, f"must be a whole number of at least 1, not {value!r}")])
    return value


def _level(epsilon: Fraction, items_per_user: int) -> Fraction:
    """The noise parameter with which `items_per_user` counts of one user cost epsilon."""
    each = Fraction(epsilon, _positive("items_per_user", items_per_user))
    if each > MOST_EPSILON:
        raise ParameterError([Fault("epsilon", f"must be at most {MOST_EPSILON} for each count that one user moves")])
    return noise_parameter(threshold_for(each))


def _whole(counts: Mapping[str, int], *, least: int | None = None) -> dict[str, int]:
    """The counts in the order of their keys: the order in which a program met them decides nothing."""
    for count in counts.values():
        if isinstance(count, bool) or not isinstance(count, int) or (least is not None and count < least):
            kind = "a whole number" if least is None else "a number of users"
            raise ParameterError([Fault("counts", f"every count must be {kind}")])
    return dict(sorted(counts.items()))


def _listed(counts: Mapping[str, int], keys: Collection[str], fewest: int) -> dict[str, int]:
    listed = dict.fromkeys(sorted(keys))
    if len(listed) < fewest:
        raise ParameterError([Fault("keys", f"must be at least {fewest}, not {len(listed)}")])
    return _whole({key: counts.get(key, 0) for key in listed}, least=0)
