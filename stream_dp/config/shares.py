"""Shares of a ledger's views in its budget, so that none of them starves another.

Every view has some of the budget kept for it. One with a `share` has that part of every entry, and no more. What the
others leave is for the views without one: each has its own windows kept from the start of the period up to the moment
that all of them are paid for, so that all last equally long. What is over pays for further windows, view by view, as
far as it goes; the rest is for whichever view comes first, to pay for sharper releases above all.

What is kept is fixed when a period begins, from the settings in effect then (`releases.accounts`), and holds until it
ends. A view whose settings change later, or that is new, has what was kept for it, if anything, and what nobody holds;
of that at most what its `share` is now. It is no part of the promise: the caps of the ledger hold whatever is kept for
whom.

Guarantee: in a period, a call of a view is admitted if it fits, with all the view has taken in the period, into what is
kept for it; whatever others asked for and got, in whatever order, and whatever became of their settings.

Proof. Call held, of a view, the larger of what it has taken and what is kept for it, entry by entry. All that is held
is within the budget: so it is at first, since no more is kept than there is; and a call is admitted only if it adds
nothing to what its view holds, or no more than nobody holds. So the ledger has left, for every view, at least what the
view holds less what it has taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES
from stream_dp.config.plan import ViewPlan
from stream_dp.windows.shapes.shape import Interval

Taken = Mapping[str, Cost]
"""By view, what it has spent and reserved; also views that are no longer configured."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Shares of one period's budget.

    Attributes:
        budget: the caps of the period.
        kept: by view. Together it is within the budget.
        most: of the views with a `share`, what each may have.
    """

    budget: Cost
    kept: Mapping[str, Cost]
    most: Mapping[str, Cost]

    @classmethod
    def of(cls, budget: Cost, period: Interval, views: Iterable[ViewPlan]) -> Shares:
        """Share a budget out.

        Args:
            budget: the caps of the period.
            period: the period; of those to come, one than which none is longer.
            views: all views of the ledger, the newest definition of each; the shares among them add up to 1 at most.
        """
        views = list(views)
        kept = most = most_of(budget, views)
        others = [view for view in views if view.share is None]
        rest = budget - sum(kept.values(), Cost.ZERO)
        reach = reach_ms(rest, period, others)
        kept = kept | {view.view: asked(view, period, reach) for view in others}
        over = budget - sum(kept.values(), Cost.ZERO)
        for view in others:
            cost = view.planned
            to_come = view.most_paid(windows_in(view, period)) - view.most_paid(windows_in(view, period, reach))
            more = cost * min(over.fits(cost), to_come)
            kept[view.view] += more
            over -= more
        return cls(budget, kept, most)

    def room(self, view: str, taken: Taken) -> Cost:
        """Return the budget that a view may still take without what is kept for others."""
        had, kept = taken.get(view, Cost.ZERO), self.kept.get(view, Cost.ZERO)
        room = kept.most(had) - had + self._free(taken)
        return room.least(self._rest(view, taken)) if view in self.most else room

    def covers(self, taken: Taken, more: Taken) -> bool:
        """Return True if views may take so much more together, none of them having to be refused."""
        after = {name: taken.get(name, Cost.ZERO) + more.get(name, Cost.ZERO) for name in taken.keys() | more.keys()}
        grown = self._held(after) <= self._held(taken) + self._free(taken)
        return grown and all(more.get(name, Cost.ZERO) <= self._rest(name, taken) for name in self.most)

    def _rest(self, view: str, taken: Taken) -> Cost:
        """Return the rest of a view's `share`."""
        had = taken.get(view, Cost.ZERO)
        return self.most[view].most(had) - had

    @cached_property
    def _kept(self) -> Cost:
        return sum(self.kept.values(), Cost.ZERO)

    @cached_property
    def _within(self) -> dict[str, Cost]:
        """By view, the last that it had taken and that was no more than what is kept for it."""
        return {}

    def _held(self, taken: Taken) -> Cost:
        """Return the sum over the views of what is kept for each or, where that is more, what it has taken."""
        held = self._kept
        for name, cost in taken.items():
            if self._within.get(name) is not cost:  # between two calls most views have taken nothing
                kept = self.kept.get(name, Cost.ZERO)
                if cost <= kept:
                    self._within[name] = cost
                else:
                    held += cost.most(kept) - kept
        return held

    def _free(self, taken: Taken) -> Cost:
        """Return the budget that is kept for no view."""
        held = self._held(taken)
        return self.budget.most(held) - held


def most_of(budget: Cost, views: Iterable[ViewPlan]) -> dict[str, Cost]:
    """Return the parts of a budget that the views with a `share` may have."""
    return {view.view: budget * view.share for view in views if view.share is not None}


def asked(view: ViewPlan, period: Interval, time_ms: int | None = None) -> Cost:
    """Return the worst-case cost of a view's windows that begin so far into a period, as their schedule ends."""
    return view.planned * view.most_paid(windows_in(view, period, time_ms))


def windows_in(view: ViewPlan, period: Interval, time_ms: int | None = None) -> int:
    """Return the number of a view's windows charged to a period; of these, those that begin before it is so old."""
    return view.charged.shape.whole_in(period, None if time_ms is None else period.start_ms + time_ms)


def reach_ms(budget: Cost, period: Interval, views: Sequence[ViewPlan], only: Sequence[str] = ENTRIES) -> int:
    """Return how far into a period a budget pays for every window of some views.

    Windows start with the period, and each is charged at worst from its start on (`asked`).

    Args:
        budget: the caps.
        period: the period.
        views: the views.
        only: names of the entries of the budget that count.
    """

    def exceeds(time_ms: int) -> bool:
        whole = sum((asked(view, period, time_ms) for view in views), Cost.ZERO)
        return not whole <= budget and any(getattr(whole, name) > getattr(budget, name) for name in only)

    end = period.length_ms
    return bisect_left(range(1, end), True, key=exceeds) if exceeds(end) else end


def lasts_ms(shares: Shares, period: Interval, view: ViewPlan) -> int:
    """Return how far into a period the share of a view pays for every window of it."""
    return reach_ms(shares.kept[view.view], period, [view])


def remedy(budget: Cost, period: Interval, views: Sequence[ViewPlan]) -> Sequence[ViewPlan] | None:
    """The views of a ledger with shares that last for the whole period, as few of them changed as may be.

    Args:
        budget: the caps of the period.
        period: the period.
        views: all views of the ledger, whose shares do not last.

    Returns:
        The views; None where the budget does not pay for the schedule, however it is shared out.
    """

    def lasts(views: Sequence[ViewPlan]) -> list[bool]:
        shares = Shares.of(budget, period, views)
        return [lasts_ms(shares, period, view) == period.length_ms for view in views]

    def needed(view: ViewPlan) -> ViewPlan:
        used = [(part, whole) for part, whole in zip(asked(view, period), budget, strict=True) if part]
        part = max((Fraction(part, whole) for part, whole in used if whole), default=Fraction(1))
        return replace(view, share=Fraction(-(-part.numerator * 100 // part.denominator), 100))

    suffices = zip(views, lasts(views), strict=True)
    raised = [view if view.share is None or enough else needed(view) for view, enough in suffices]
    moved = [view if view.share is None else needed(view) for view in views]
    none = [replace(view, share=None) for view in views]
    found = (some for some in (raised, moved, none) if _given(some) <= 1 and all(lasts(some)))
    return next(found, None)


def _given(views: Iterable[ViewPlan]) -> Fraction:
    return sum((view.share for view in views if view.share is not None), Fraction(0))
