"""How new settings change what a day costs, and how long the ledgers pay for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.differences import Setting, concerning
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import LedgerPlan, Plan, ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms
from stream_dp.control.boundaries import Situation

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


def _charged_to(ledger: str, plan: Plan) -> list[ViewPlan]:
    return [view for view in plan.views.values() if view.ledger.name == ledger]


def _lasting(plan: Plan, ledger: LedgerPlan, situation: Situation, begins: Mapping[str, int]) -> Lasting:
    """How long a ledger pays for all its views: what its period has left, or a whole period where none is charged."""
    views, length = _charged_to(ledger.name, plan), ledger.periods.length_ms
    for statement in situation.statements:
        account, reached = statement.account, statement.history[-1][0]
        clocks = [clock for view in views if (clock := situation.clock(view)) is not None]
        now_ms = max([reached, *clocks])
        if (account.name, account.population) == (ledger.name, ledger.population) and now_ms < account.period.end_ms:
            until = forecast(plan, statement, begins)[1]
            return Lasting(max(0, until - now_ms), until, until == account.period.end_ms)
    shares = Shares.of(ledger.budget, length, views)
    reach = min((lasts_ms(shares, length, view) for view in views), default=length)
    return Lasting(reach, None, reach == length)
