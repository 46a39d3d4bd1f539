"""How new settings change what a day costs, and how long the ledgers pay for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.differences import Setting, concerning
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import LedgerPlan, Plan, ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms
from stream_dp.control.boundaries import Situation
from stream_dp.errors import Fault

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a ledger pays for all its views.

    Attributes:
        for_ms: from now on, or, where the running period was not charged yet, from the beginning of a period on.
        until_ms: until when that is; None where the running period was not charged yet.
        is_whole: whether that is to the end of the period.
    """

    for_ms: int
    until_ms: int | None
    is_whole: bool


@dataclass(frozen=True, slots=True)
class LedgerChange:
    """What becomes of a ledger.

    Attributes:
        ledger: its name.
        settings: what of it differs.
        day_before: what a day of all its views costs one user at worst; None for a new ledger.
        day_after: the same; None for one that is taken out.
        lasts_before: how long it pays for all its views; None for a new ledger.
        lasts_after: the same; None for one that is taken out.
    """

    ledger: str
    settings: tuple[Setting, ...]
    day_before: Cost | None
    day_after: Cost | None
    lasts_before: Lasting | None
    lasts_after: Lasting | None


def day(views: Sequence[ViewPlan]) -> Cost:
    """What a day of some views costs one user at worst, on their schedule.

    It is the mean over the days of a period, so a view of weekly windows has its part of a week.
    """
    costs = (
        asked(view, length) * Fraction(DAY_MS, length) for view in views for length in [view.ledger.periods.length_ms]
    )
    return sum(costs, Cost.ZERO)


def ledger_changes(
    before: Plan, after: Plan, settings: Sequence[Setting], begins: Mapping[str, int], situation: Situation
) -> Iterator[LedgerChange]:
    """The ledgers that something becomes of.

    Args:
        before: what holds, as the plan of a file.
        after: what is to hold.
        settings: everything that differs.
        begins: by view that is new, the start of its first window.
        situation: what is known of the application.
    """
    for name in dict.fromkeys([*after.ledgers, *before.ledgers]):
        former, latter = before.ledgers.get(name), after.ledgers.get(name)
        found = LedgerChange(
            ledger=name,
            settings=tuple(concerning(settings, "ledgers", {name})),
            day_before=None if former is None else day(_charged_to(name, before)),
            day_after=None if latter is None else day(_charged_to(name, after)),
            lasts_before=None if former is None else _lasting(before, former, situation, {}),
            lasts_after=None if latter is None else _lasting(after, latter, situation, begins),
        )
        if found.settings or (found.day_before, found.lasts_before) != (found.day_after, found.lasts_after):
            yield found


def starved(before: Plan, after: Plan) -> Iterator[Fault]:
    """Views whose new price would be paid by other views of their ledger, in a period that begins under it.

    A view with a `share` takes nothing from others but by it, so it is no fault whatever it costs. Nor is it one to
    take what others do not have today, as a view does that takes the place of another one.

    Args:
        before: what holds, as the plan of a file.
        after: what is to hold.
    """
    for ledger in after.ledgers.values():
        views, length = _charged_to(ledger.name, after), ledger.periods.length_ms
        former = {view.name: replace(view, ledger=ledger) for view in _charged_to(ledger.name, before)}
        dearer = [view for view in views if view.share is None and _is_dearer(view, former.get(view.name))]
        others = [view for view in views if view not in dearer]
        cheaper = [former[view.name] for view in dearer if view.name in former]
        with_them = Shares.of(ledger.budget, length, views)
        without = Shares.of(ledger.budget, length, [*others, *cheaper])
        had = _lasting_before(ledger, before)
        paid = {
            view.name: (
                _windows(view, lasts_ms(with_them, length, view)),
                _windows(view, min(lasts_ms(without, length, view), had.get(view.name, length))),
            )
            for view in others
        }
        victims = ", ".join(f"{now - then} of {now} of {name}" for name, (then, now) in paid.items() if then < now)
        if victims:
            for view in dearer:
                yield Fault(
                    f"views.{view.name}",
                    f"it would take windows from other views of ledger {ledger.name} in every new period: {victims}; "
                    "lower its price, raise the ledger's budget, or give it a `share` of the budget",
                )


def _is_dearer(view: ViewPlan, former: ViewPlan | None) -> bool:
    """Whether a view may take more of a period than before: all in all, or early, in fewer windows that cost more."""
    if former is None or former.share is not None:
        return True
    length = view.ledger.periods.length_ms
    costs_no_more = view.cost(view.planned_level) <= former.cost(former.planned_level)
    return not (costs_no_more and asked(view, length) <= asked(former, length))


def _lasting_before(ledger: LedgerPlan, before: Plan) -> dict[str, int]:
    """How far into a period each view of a ledger is paid for today; nothing where its periods are others."""
    views, was = _charged_to(ledger.name, before), before.ledgers.get(ledger.name)
    if was is None or was.periods.length_ms != ledger.periods.length_ms:
        return {}
    length = was.periods.length_ms
    shares = Shares.of(was.budget, length, views)
    return {view.name: lasts_ms(shares, length, view) for view in views}


def _windows(view: ViewPlan, time_ms: int) -> int:
    """How many windows of a view begin before a time of a period."""
    return view.charged.shape.whole_in(view.ledger.periods.length_ms, time_ms)


def _charged_to(ledger: str, plan: Plan) -> list[ViewPlan]:
    return [view for view in plan.views.values() if view.ledger.name == ledger]


def _lasting(plan: Plan, ledger: LedgerPlan, situation: Situation, begins: Mapping[str, int]) -> Lasting:
    """How long a ledger pays for all its views: what its period has left, or a whole period where none is charged."""
    views, length = _charged_to(ledger.name, plan), ledger.periods.length_ms
    for statement in situation.statements:
        account, reached = statement.account, statement.reached_ms
        clocks = [clock for view in views if (clock := situation.clock(view)) is not None]
        now_ms = max([reached, *clocks])
        if (account.name, account.population) == (ledger.name, ledger.population) and now_ms < account.period.end_ms:
            until = forecast(plan, statement, begins)[1]
            return Lasting(max(0, until - now_ms), until, until == account.period.end_ms)
    shares = Shares.of(ledger.budget, length, views)
    reach = min((lasts_ms(shares, length, view) for view in views), default=length)
    return Lasting(reach, None, reach == length)
