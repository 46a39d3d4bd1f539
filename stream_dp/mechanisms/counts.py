"""Noisy counts: of public keys, of unknown ones with a threshold, released again and again, and running totals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, SupportsIndex

from stream_dp.accounting import Cost
from stream_dp.errors import Fault, ParameterError, StateError
from stream_dp.exact.bits import SystemBits
from stream_dp.lossless.discrete_laplace import coarsen, draw_noise, interval, sum_interval
from stream_dp.lossless.levels import discovery_delta, minimum_count, noise_parameter, threshold_for
from stream_dp.mechanisms.budget import Budget, Counts, Exact, cost_of, key_text, number, paying, positive, whole

CONFIDENCE = Fraction(95, 100)
MOST_EPSILON = 40
"""Of one count: above it the noise is nearly always 0, and hides nothing."""


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


def discrete_laplace_counts(
    counts: Counts,
    epsilon: Exact,
    *,
    items_per_user: SupportsIndex = 1,
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
    price = number("epsilon", epsilon)
    a = _level(price, positive("items_per_user", items_per_user))
    exact, cost = whole(counts), cost_of(price)

    with paying(budget, cost) as call:
        noisy = {key: count + draw_noise(a, call.bits) for key, count in exact.items()}
    return NoisyCounts(noisy, interval(a, CONFIDENCE), cost)


def histogram(
    counts: Counts,
    epsilon: Exact,
    delta: Exact,
    *,
    items_per_user: SupportsIndex = 1,
    budget: Budget | None = None,
) -> NoisyHistogram:
    """Show the keys of an unknown domain whose noisy counts are large, with these counts.

    Args:
        counts: the number of users for each key that occurs.
        epsilon: of the whole call, above 0.
        delta: the chance that a key which only one user has is shown, for all items of that user; between 0 and 1.
        items_per_user: how many keys one user has at most.
        budget: pays for it.

    Raises:
        ParameterError: an argument is out of range or not exact.
        BudgetError: the budget does not cover it.

    Guarantee: (epsilon, delta)-DP. Source: specs/lossless 2.9.4.
    """
    price, chance = number("epsilon", epsilon), number("delta", delta)
    items = positive("items_per_user", items_per_user)
    a = _level(price, items)
    threshold = threshold_for(Fraction(price, items))
    least = minimum_count(threshold, Fraction(chance, items))
    discovery_delta([(threshold, least)], items)
    exact, cost = {key: count for key, count in whole(counts, least=0).items() if count}, cost_of(price, chance)

    with paying(budget, cost) as call:
        noisy = [(key, count + draw_noise(a, call.bits)) for key, count in exact.items()]
        shown = sorted((row for row in noisy if row[1] >= least), key=lambda row: (-row[1], row[0]))
    return NoisyHistogram(dict(shown), least, interval(a, CONFIDENCE), cost)


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
        counts: Counts,
        epsilons: Sequence[Exact],
        *,
        items_per_user: SupportsIndex = 1,
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
        self.epsilons = tuple(number("epsilons", epsilon) for epsilon in epsilons)
        if len(self.epsilons) < 2 or any(a >= b for a, b in zip(self.epsilons, self.epsilons[1:], strict=False)):
            raise ParameterError([Fault("epsilons", "must be two or more, each larger than the one before")])
        items = positive("items_per_user", items_per_user)
        self._levels = {epsilon: _level(epsilon, items) for epsilon in self.epsilons}
        bits = SystemBits() if budget is None else budget.bits
        self._budget, self._paid = budget, Fraction(0)
        if len(set(self._levels.values())) < len(self._levels):
            raise ParameterError([Fault("epsilons", "are too close: two of them come to the same noise")])
        finest, *coarser = reversed(self._levels.values())
        noisy = {key: count + draw_noise(finest, bits) for key, count in whole(counts).items()}
        self._counts, fine = {finest: noisy}, finest
        for coarse in coarser:
            noisy = {key: coarsen(count, fine, coarse, bits) for key, count in noisy.items()}
            self._counts[coarse], fine = noisy, coarse

    @property
    def cost(self) -> Cost:
        """Cost to one user of all that was read so far."""
        return cost_of(self._paid) if self._paid else Cost.ZERO

    def read(self, epsilon: Exact) -> NoisyCounts:
        """Release the counts at a level; the same at every repetition.

        Args:
            epsilon: one of `epsilons`.

        Raises:
            ParameterError: there is no such level.
            BudgetError: the budget does not cover what it adds.
        """
        level = number("epsilon", epsilon)
        if level not in self._levels:
            raise ParameterError([Fault("epsilon", f"must be one of {', '.join(map(str, self.epsilons))}")])
        if level > self._paid:
            with paying(self._budget, cost_of(level - self._paid)):
                pass
            self._paid = level
        a = self._levels[level]
        return NoisyCounts(self._counts[a], interval(a, CONFIDENCE), self.cost)


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
        panes: SupportsIndex,
        epsilon: Exact,
        *,
        items_per_user: SupportsIndex = 1,
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
        price = number("epsilon", epsilon)
        self.panes = positive("panes", panes)
        # A pane is in at most one block of 1, 2, 4, ... panes each (the proof is in `windows.shapes.running_totals`).
        moved = positive("items_per_user", items_per_user) * self.panes.bit_length()
        self._level = _level(price, moved)
        self._keys = sorted({key_text("keys", key) for key in keys})
        self._closed = 0
        self._blocks: list[_Block] = []
        self.cost = cost_of(price)
        with paying(budget, self.cost) as call:
            self._bits = call.bits

    def close_pane(self, counts: Counts) -> NoisyCounts:
        """Add a pane and release the totals up to its end.

        Args:
            counts: of the pane, by key; a key that is left out counts 0.

        Raises:
            ParameterError: a key is not on the list.
            StateError: there are more panes than were paid for.
        """
        if self._closed == self.panes:
            raise StateError(f"this stream was paid for {self.panes} panes; all of them are closed")
        pane = whole(counts)
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


def _level(epsilon: Fraction, items_per_user: int) -> Fraction:
    """The noise parameter with which `items_per_user` counts of one user cost epsilon."""
    each = Fraction(epsilon, items_per_user)
    if each > MOST_EPSILON:
        raise ParameterError([Fault("epsilon", f"must be at most {MOST_EPSILON} for each count that one user moves")])
    return noise_parameter(threshold_for(each))
