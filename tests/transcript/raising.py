"""Events that raise levels: grants, unlocks and leftovers (section 3, stages 1, 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stream_dp.accounting import Cost
from stream_dp.config.plan import SharpenPlan, ViewPlan
from tests.transcript.budgets import Period
from tests.transcript.editions import Edition, State
from tests.transcript.levels import NOTHING, Carried, Step, index_in
from tests.transcript.predictions import Place
from tests.transcript.releasing import Releasing
from tests.transcript.windows import Unit

Undecided = Callable[[], list[tuple[Edition, int]]]


@dataclass
class Raising:
    """Carries out what raises levels of released windows.

    Attributes:
        releasing: windows, levels and account.
        undecided: each edition with its first window that was not decided.
        grid_ms: by view, the last time of leftovers that was carried out or came before there were any.
        ends_ms: by view, the latest end of its windows that were decided by watermark.
    """

    releasing: Releasing
    undecided: Undecided
    grid_ms: dict[str, int] = field(default_factory=dict)
    ends_ms: dict[str, int] = field(default_factory=dict)

    def learn(self, state: State, tick_ms: int) -> None:
        """Let the leftovers of new settings begin at the first of their times that is still to come."""
        for name, view in state.plan.views.items():
            if view.sharpen is None:
                self.grid_ms.pop(name, None)
                continue
            now_ms = tick_ms if view.window.clock == "wall" else self.ends_ms.get(name)
            if now_ms is not None:
                self.grid_ms.setdefault(name, _grid_time(view.sharpen, now_ms))

    # Stage 1

    def grant(self, carried: Carried, place: Place) -> None:
        """Carry out a grant for released windows, by view and window start."""
        audience = carried.grant.audience
        covered = [
            unit
            for unit in self.releasing.windows.released()
            if carried.covers(audience, unit) and audience in self.releasing.audiences(unit)
        ]
        covered.sort(key=lambda unit: (unit.view, unit.start_ms))
        self.releasing.run(covered, audience, place)

    # Stage 3

    def unlock(self, tick_ms: int, place: Place) -> None:
        """Carry out the unlocks that are due: by the wall clock, and those that settings made due at once."""
        due: list[tuple[int, str, str, int, Step, Unit]] = []
        for name, view in self.releasing.state.plan.views.items():
            now_ms = tick_ms if view.window.clock == "wall" else self.ends_ms.get(name)
            if now_ms is not None:
                due += self._unlocks(view, now_ms)
        self._carry_out(due, place)

    def _unlocks(self, view: ViewPlan, now_ms: int) -> list[tuple[int, str, str, int, Step, Unit]]:
        """The unlocks of a view that are due at a time, with what they are ordered by."""
        found: list[tuple[int, str, str, int, Step, Unit]] = []
        for unit in self.releasing.windows.of_view(view.view):
            if not unit.is_released:
                continue
            for audience, unlocks in view.unlocks.items():
                for unlock in unlocks:
                    time_ms = unit.edition.plan.window.at_age(unit.start_ms, unlock.after_ms)
                    name = view.levels[unlock.level].name
                    step = Step(view.view, audience, unit.start_ms, name, unlock.after_ms)
                    if time_ms <= now_ms and step not in self.releasing.clearances.steps:
                        found.append((time_ms, view.view, audience, unit.start_ms, step, unit))
        return found

    def _carry_out(self, due: list[tuple[int, str, str, int, Step, Unit]], place: Place) -> None:
        for _, _, audience, _, step, unit in sorted(due, key=lambda one: one[:4]):
            self.releasing.clearances.steps.add(step)
            self.releasing.run([unit], audience, place)

    # Stage 4

    def sharpen(self, tick_ms: int, place: Place) -> None:
        """Spend the leftovers of views on the wall clock whose time has come."""
        for name, view in sorted(self.releasing.state.plan.views.items()):
            if view.window.clock == "wall":
                self._sharpen_at(name, view, tick_ms, place)

    def _sharpen_at(self, name: str, view: ViewPlan, now_ms: int, place: Place) -> None:
        """Carry out one run, that of the latest time."""
        if view.sharpen is None or name not in {edition.view for edition, _ in self.undecided()}:
            return
        time_ms = _grid_time(view.sharpen, now_ms)
        if time_ms <= self.grid_ms.setdefault(name, time_ms):
            return
        self.grid_ms[name] = time_ms
        self._spend(view, view.sharpen, time_ms - view.sharpen.every_ms, place)

    def _spend(self, view: ViewPlan, sharpen: SharpenPlan, former_ms: int, place: Place) -> None:
        """Sharpen the newest windows first, until the next one does not fit.

        Windows of a period that ended before the former time are left out: that run came after its last windows.
        """
        units = sorted(self.releasing.windows.of_view(view.view), key=lambda unit: unit.start_ms, reverse=True)
        raised: list[Unit] = []
        for unit in units:
            if not unit.is_released or unit.key in self.releasing.retired:
                continue
            period = self._period(unit)
            if period.interval[1] < former_ms:
                continue
            outcome = self._sharpen(unit, view, sharpen, period, place)
            if outcome is None:
                break
            if outcome:
                raised.append(unit)
        self.releasing.release_free(raised, place)

    def _sharpen(self, unit: Unit, view: ViewPlan, sharpen: SharpenPlan, period: Period, place: Place) -> bool | None:
        """Sharpen one window; return True if something was released, None if it does not fit."""
        step = Step(view.view, sharpen.audience, unit.start_ms, view.levels[sharpen.level].name, None)
        steps = self.releasing.clearances.steps
        is_new = step not in steps
        steps.add(step)
        level = self.releasing.level(sharpen.audience, unit)
        cost = self.releasing.step_cost(unit, level) if level > unit.had.get(sharpen.audience, NOTHING) else Cost.ZERO
        if cost != Cost.ZERO and not self._leaves_enough(unit, level, sharpen, period):
            if is_new:
                steps.remove(step)
            return None
        return self.releasing.raise_level(unit, sharpen.audience, place, pays=True) == "released"

    def _leaves_enough(self, unit: Unit, level: int, sharpen: SharpenPlan, period: Period) -> bool:
        """Return True if a level fits next to the reserve and the later windows and unlocks."""
        cost = self.releasing.step_cost(unit, level)
        former = unit.bill.finest
        unit.bill.finest = max(former, level)
        kept = period.budget * sharpen.reserve + self._to_come(period) + self._unlocks_to_come(period)
        unit.bill.finest = former
        return period.leaves(unit.bill.item, cost, kept)

    def _to_come(self, period: Period) -> Cost:
        """Return the scheduled cost of the windows of the period that were not decided."""
        total = Cost.ZERO
        for edition, next_ms in self.undecided():
            charged = edition.plan.charged
            first_ms = charged.shape.first_from(max(next_ms, period.interval[0]))
            until_ms = period.interval[1] if edition.until_ms is None else min(period.interval[1], edition.until_ms)
            windows = charged.begun(first_ms, until_ms) if first_ms < until_ms else 0
            total += edition.plan.planned * edition.plan.most_paid(windows)
        return total

    def _unlocks_to_come(self, period: Period) -> Cost:
        """Return the remaining cost of the unlocks of released windows of the period."""
        total = Cost.ZERO
        for unit in self.releasing.windows.released():
            view = self.releasing.state.newest(unit.view)
            if view is None or not period.interval[0] <= unit.start_ms < period.interval[1]:
                continue
            if not unit.edition.plan.window.pays(unit.start_ms):
                continue
            levels = self._levels_to_come(view, unit)
            finer = sorted({level for level in levels if level > unit.bill.finest})
            total += unit.edition.plan.steps(finer, unit.bill.finest)
        return total

    def _levels_to_come(self, view: ViewPlan, unit: Unit) -> Iterator[int]:
        """The levels of unlocks of a window that were not carried out."""
        for audience, unlocks in view.unlocks.items():
            for unlock in unlocks:
                name = view.levels[unlock.level].name
                step = Step(view.view, audience, unit.start_ms, name, unlock.after_ms)
                if step not in self.releasing.clearances.steps:
                    yield index_in(unit.edition.plan, view, name)

    def _period(self, unit: Unit) -> Period:
        plan = unit.edition.plan
        return self.releasing.account.periods(unit.bill.item, self.releasing.ledger(plan), self.releasing.views(plan))[
            0
        ]

    # By watermark

    def pass_time(self, edition: Edition, end_ms: int, place: Place) -> None:
        """Carry out the unlocks and leftovers that come directly after a window read by watermarks."""
        name = edition.view
        self.ends_ms[name] = max(end_ms, self.ends_ms.get(name, end_ms))
        view = self.releasing.state.newest(name)
        if view is None:
            return
        self._carry_out(self._unlocks(view, self.ends_ms[name]), place)
        self._sharpen_at(name, view, self.ends_ms[name], place)


def _grid_time(sharpen: SharpenPlan, now_ms: int) -> int:
    """The latest time of leftovers up to now."""
    return now_ms - now_ms % sharpen.every_ms
