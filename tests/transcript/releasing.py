"""Decides one window, one step of a level, and what became free by them (section 3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stream_dp.accounting import Cost
from stream_dp.config.plan import LedgerPlan, ViewPlan
from tests.transcript.budgets import Account
from tests.transcript.editions import State
from tests.transcript.levels import NOTHING, Clearances
from tests.transcript.predictions import Entry, Outbox, Place, Reason, Record
from tests.transcript.windows import Bill, Output, Unit, Windows

Price: TypeAlias = Callable[[str, int, str], Cost | None]
"""Function from view, start and level of a window to the cost of its first release; None for the worst case."""

Outcome: TypeAlias = Literal["nothing", "released", "refused"]


@dataclass
class Releasing:
    """Windows, levels and account of one ledger.

    Attributes:
        state: the settings in effect.
        price: what first releases cost.
        retired: the keys whose secrets are gone.
    """

    state: State
    price: Price
    windows: Windows = field(default_factory=Windows)
    clearances: Clearances = field(default_factory=Clearances)
    account: Account = field(default_factory=Account)
    outbox: Outbox = field(default_factory=Outbox)
    entries: list[Entry] = field(default_factory=list)
    retired: set[str] = field(default_factory=set)

    def level(self, audience: str, unit: Unit) -> int:
        """Return the finest level that an audience may see of a unit."""
        return self.clearances.level(audience, unit, self.state)

    def audiences(self, unit: Unit) -> list[str]:
        """Return the audiences that might read a unit, by name."""
        newest = self.state.newest(unit.view)
        return sorted({*unit.edition.plan.audiences, *(newest.audiences if newest else ())})

    # A window

    def decide(self, unit: Unit, place: Place) -> None:
        """Decide a window or pane, its record, and what became free by it."""
        for audience in self.audiences(unit):
            level = self.level(audience, unit)
            if level > NOTHING:
                unit.wanted[audience] = level
        if not unit.wanted:
            return
        unit.reason = self._pay(unit, place)
        if unit.reason is None:
            unit.had = {name: min(level, unit.bill.finest) for name, level in unit.wanted.items()}
        output = self.windows.add(unit)
        if output is not None:
            self._post_first(output, place)
        self.release_free([unit], place)

    def _pay(self, unit: Unit, place: Place) -> Reason | None:
        """Charge a unit with its bill, or find out why it is refused. A budget is asked before a loss is known."""
        bill = unit.bill
        if bill.reason is not None:
            return bill.reason
        pays = unit.edition.plan.window.pays(unit.start_ms)
        level = self._affordable(unit) if pays else bill.finest
        if level is None:
            bill.reason = "budget"
        elif unit.closing.is_lost or level == NOTHING:
            bill.reason = "lost"
        elif pays:
            name = unit.edition.plan.levels[level].name
            cost = self.price(unit.view, unit.start_ms, name)
            bill.finest = level
            self._charge(bill, unit.edition.plan.cost(level) if cost is None else cost, place, unit.edition.plan)
        return bill.reason

    def _affordable(self, unit: Unit) -> int | None:
        """The finest level of a first release that the ledger pays for; None for none."""
        plan = unit.edition.plan
        levels = sorted(set(unit.wanted.values()), reverse=True)
        tried = levels if self._falls_back(unit) else levels[:1]
        for level in tried:
            if self._fits(unit.bill, plan.cost(level), plan):
                return level
        return None

    def _falls_back(self, unit: Unit) -> bool:
        newest = self.state.newest(unit.view)
        return (newest or unit.edition.plan).falls_back

    def _post_first(self, output: Output, place: Place) -> None:
        for audience in output.readers():
            if output.reason is not None:
                self._refuse(output, audience, output.reason, place, output.closed_ms)
            else:
                self._publish(output, audience, place, output.closed_ms)

    # A step to a finer level

    def raise_level(self, unit: Unit, audience: str, place: Place, *, pays: bool) -> Outcome:
        """Bring an audience to its level of a released unit.

        Args:
            unit: the unit.
            audience: the audience.
            place: the event that asks.
            pays: whether the event asks for what costs something; then a refusal is published.
        """
        level = self.level(audience, unit)
        if not unit.is_released or level <= unit.had.get(audience, NOTHING) or unit.key in self.retired:
            return "nothing"
        cost = self.step_cost(unit, level)
        if cost != Cost.ZERO and not pays:
            return "nothing"
        if cost != Cost.ZERO and not self._fits(unit.bill, cost, unit.edition.plan):
            for output in self.windows.outputs_with(unit):
                self._refuse(output, audience, "budget", place)
            return "refused"
        unit.bill.finest = max(unit.bill.finest, level)
        if cost != Cost.ZERO:
            self._charge(unit.bill, cost, place, unit.edition.plan)
        unit.had[audience] = level
        for output in self.windows.outputs_with(unit):
            self._publish(output, audience, place)
        return "released"

    def step_cost(self, unit: Unit, level: int) -> Cost:
        """Return what a level of a released unit costs beyond the finest that was charged."""
        return unit.edition.plan.counts(level, unit.bill.finest)

    def release_free(self, units: Iterable[Unit], place: Place) -> None:
        """Release what costs nothing more, by audience, view and window start."""
        bills = {id(unit.bill) for unit in units}
        concerned = [unit for unit in self.windows.released() if id(unit.bill) in bills]
        names: set[str] = set()
        for unit in concerned:
            names.update(self.audiences(unit))
        for audience in sorted(names):
            for unit in sorted(concerned, key=lambda one: (one.view, one.start_ms)):
                if audience in self.audiences(unit):
                    self.raise_level(unit, audience, place, pays=False)

    def run(self, units: Iterable[Unit], audience: str, place: Place) -> None:
        """Carry out one run, the units in their order, and release what became free by it."""
        raised: list[Unit] = []
        for unit in units:
            if self.raise_level(unit, audience, place, pays=True) == "released":
                raised.append(unit)
        self.release_free(raised, place)

    # A lowering

    def void(self, tick_ms: int) -> None:
        """Void the records that are above what their audience may see after a lowering at a tick."""
        for output in self.windows.outputs:
            for audience, places in output.posted.items():
                allowed = min(self.level(audience, unit) for unit in output.units)
                for at in places:
                    self._void_above(output, audience, at, allowed, tick_ms)

    def _void_above(self, output: Output, audience: str, at: int, allowed: int, tick_ms: int) -> None:
        record = self.outbox.record(at)
        level = NOTHING if record.level is None else _index(output.edition.plan, record.level)
        is_above = level > allowed if record.kind == "release" else allowed == NOTHING
        if record.kind == "tombstone" or not is_above:
            return
        if not self.outbox.void(at, tick_ms, self.state.plan.slots) or output.is_expired:
            return
        if record.kind == "release":
            output.had[audience] = self._level_left(output, audience)
            for unit in output.units:
                others = self.windows.outputs_with(unit)
                unit.had[audience] = max(other.had.get(audience, NOTHING) for other in others)

    def _level_left(self, output: Output, audience: str) -> int:
        """The finest level of an output that really leaves for an audience."""
        level = NOTHING
        for at in output.posted.get(audience, ()):
            record = self.outbox.record(at)
            if record.level is not None and record.voided_ms is None:
                level = max(level, _index(output.edition.plan, record.level))
        return level

    # Records and charges

    def _publish(self, output: Output, audience: str, place: Place, closed_ms: int | None = None) -> None:
        """Post a release where an audience has all units at a finer level than its last record."""
        level = output.level(audience)
        if output.reason is not None or level <= output.had.get(audience, NOTHING):
            return
        output.had[audience] = level
        output.revisions[audience] = output.revisions.get(audience, 0) + 1
        self._post(output, audience, place, closed_ms, level=output.edition.plan.levels[level].name)

    def _refuse(
        self, output: Output, audience: str, reason: Reason, place: Place, closed_ms: int | None = None
    ) -> None:
        self._post(output, audience, place, closed_ms, reason=reason)

    def _post(
        self,
        output: Output,
        audience: str,
        place: Place,
        closed_ms: int | None,
        *,
        level: str | None = None,
        reason: Reason | None = None,
    ) -> None:
        revision = output.revisions.get(audience, 0) + (1 if level is None else 0)
        record = Record(
            place,
            "refusal" if level is None else "release",
            output.edition.view,
            audience,
            output.edition.number,
            output.start_ms,
            output.end_ms,
            level=level,
            revision=revision,
            reason=reason,
            list_version=None if level is None else output.units[-1].list_version,
            is_interrupted=any(unit.closing.is_interrupted for unit in output.units),
        )
        at = self.outbox.post(record, self.state.plan.slots, closed_ms)
        output.posted.setdefault(audience, []).append(at)

    def _fits(self, bill: Bill, cost: Cost, plan: ViewPlan) -> bool:
        return self.account.fits(bill.item, cost, self.ledger(plan), self.views(plan))

    def _charge(self, bill: Bill, cost: Cost, place: Place, plan: ViewPlan) -> None:
        period = self.account.charge(bill.item, cost, self.ledger(plan), self.views(plan))
        start_ms = bill.item.interval[0]
        self.entries.append(Entry(place, bill.item.view, start_ms, period.interval, cost, period.spent, period.budget))

    def ledger(self, plan: ViewPlan) -> LedgerPlan:
        """Return the ledger of a view by the settings in effect; it is known by its population."""
        ledgers = self.state.plan.ledgers.values()
        return next((one for one in ledgers if one.population == plan.ledger.population), plan.ledger)

    def views(self, plan: ViewPlan) -> Collection[ViewPlan]:
        """Return the views that share the ledger of a view, by the settings in effect, by name."""
        views = sorted(self.state.plan.views.values(), key=lambda view: view.view)
        return [view for view in views if view.ledger.population == plan.ledger.population]


def _index(plan: ViewPlan, name: str) -> int:
    return next(at for at, level in enumerate(plan.levels) if level.name == name)
