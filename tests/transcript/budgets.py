"""The account of a ledger: periods, what they have spent, and whether a cost fits (sections 3 and 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stream_dp.accounting import Cost
from stream_dp.config.plan import LedgerPlan, ViewPlan
from stream_dp.config.shares import Shares

Interval: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Item:
    """Unit of charging: a window, a pane, or a window of running totals.

    Attributes:
        view: the view's name.
        definition: which of its definitions; each is charged separately.
        interval: its start and end.
        windows_per_user: the largest number of items of a period and definition that a user counts in; None for all.
    """

    view: str
    definition: tuple[object, ...]
    interval: Interval
    windows_per_user: int | None


class Period:
    """A period: its caps, what is kept for each view, and what was charged."""

    def __init__(self, interval: Interval, budget: Cost, shares: Shares, former: Mapping[Item, Cost]) -> None:
        """Begin a period with the charges of those that it overlaps."""
        self.interval = interval
        self.budget = budget
        self._shares = shares
        self.charges: dict[Item, Cost] = dict(former)

    def taken(self, more: Mapping[Item, Cost] | None = None) -> dict[str, Cost]:
        """Return, by view, the most that a user pays, with some more charges."""
        charges = dict(self.charges)
        for item, cost in (more or {}).items():
            charges[item] = charges.get(item, Cost.ZERO) + cost
        groups: dict[tuple[str, tuple[object, ...], int | None], list[Cost]] = {}
        for item, cost in charges.items():
            groups.setdefault((item.view, item.definition, item.windows_per_user), []).append(cost)
        found: dict[str, Cost] = {}
        for (view, _, most), costs in groups.items():
            found[view] = found.get(view, Cost.ZERO) + _dearest(costs, most)
        return found

    @property
    def spent(self) -> Cost:
        """The most that a user pays for everything charged so far."""
        return sum(self.taken().values(), Cost.ZERO)

    def fits(self, item: Item, cost: Cost) -> bool:
        """Return True if a cost fits under the caps and into the share of its view."""
        before = self.taken()
        after = self.taken({item: cost})
        if not sum(after.values(), Cost.ZERO) <= self.budget:
            return False
        grown = after[item.view] - before.get(item.view, Cost.ZERO)
        return grown <= self._shares.room(item.view, before)

    def leaves(self, item: Item, cost: Cost, kept: Cost) -> bool:
        """Return True if a cost fits and leaves a given amount."""
        after = sum(self.taken({item: cost}).values(), Cost.ZERO)
        return self.fits(item, cost) and after + kept <= self.budget


def _dearest(costs: Sequence[Cost], most: int | None) -> Cost:
    """Return the sum of the largest amounts of each entry: the price for a user who is in that many items."""
    if most is None or len(costs) <= most:
        return sum(costs, Cost.ZERO)
    amounts = [sum(sorted((getattr(cost, name) for cost in costs), reverse=True)[:most]) for name in _ENTRIES]
    return Cost(*amounts)


_ENTRIES = ("epsilon", "delta", "rho")


class Account:
    """All periods of a ledger."""

    def __init__(self) -> None:
        """Start with nothing charged."""
        self._begun: dict[Interval, Period] = {}

    def fits(self, item: Item, cost: Cost, ledger: LedgerPlan, views: Iterable[ViewPlan]) -> bool:
        """Return True if a cost fits into every period that the item is in."""
        return all(period.fits(item, cost) for period in self.periods(item, ledger, views))

    def periods(self, item: Item, ledger: LedgerPlan, views: Iterable[ViewPlan]) -> list[Period]:
        """Return the periods that an item is charged to: the one of the settings in effect comes first.

        A period that has not begun has the budget of the settings in effect.
        """
        found = [period for period in self._begun.values() if _overlap(period.interval, item.interval)]
        interval = ledger.periods.interval(item.interval[0])
        bounds = (interval.start_ms, interval.end_ms)
        if bounds in self._begun:
            current = self._begun[bounds]
        else:
            shares = Shares.of(ledger.budget, interval, views)
            current = Period(bounds, ledger.budget, shares, self._charged_in(bounds))
        return [current, *(period for period in found if period is not current)]

    def charge(self, item: Item, cost: Cost, ledger: LedgerPlan, views: Iterable[ViewPlan]) -> Period:
        """Charge a cost, and begin the period with it; return the period of the settings in effect."""
        periods = self.periods(item, ledger, views)
        self._begun[periods[0].interval] = periods[0]
        for period in periods:
            period.charges[item] = period.charges.get(item, Cost.ZERO) + cost
        return periods[0]

    def _charged_in(self, bounds: Interval) -> dict[Item, Cost]:
        """Return the charges of the periods that overlap a new one; an item counts once."""
        found: dict[Item, Cost] = {}
        for period in self._begun.values():
            if _overlap(period.interval, bounds):
                found.update(period.charges)
        return found


def _overlap(one: Interval, other: Interval) -> bool:
    return one[0] < other[1] and other[0] < one[1]
