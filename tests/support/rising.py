"""Who is to see what, worked out by replaying what was asked for: the oracle of all that can become finer, and end.

It has a budget that pays for everything. What is here follows the documents, window by window, without marks of how far
something has come, without rows and without crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grant_records import Scope
from stream_dp.windows.shapes.paned import Paned


@dataclass(frozen=True)
class Asked:
    """A grant that was carried out: its rank, its audience and level, and by definition which windows it is about."""

    rank: tuple[int, int]
    audience: str
    level: str
    scope: Scope
    turn: Mapping[str, int]
    """By definition: the first window that was to come."""

    def has(self, view: ViewPlan, start: int) -> bool:
        if self.scope.views and view.view not in self.scope.views:
            return False
        if self.scope.windows != "all":  # a definition that came later had no window then
            return (start < self.turn.get(view.name, start)) == (self.scope.windows == "retained")
        after_first = self.scope.from_ms is None or start >= self.scope.from_ms
        return after_first and (self.scope.until_ms is None or start < self.scope.until_ms)


@dataclass
class Definition:
    """A definition of a view, and what was released of it.

    What is charged by itself, a unit, is a window, a pane, or of totals all panes of one window.
    """

    plan: ViewPlan
    next_ms: int
    kept_ms: int = -(1 << 62)
    """What starts before it has expired, but for what is never taken back."""
    waiting: set[int] = field(default_factory=set)
    """Windows or panes that were counted and not yet released."""
    stored: list[int] = field(default_factory=list)
    """Those that were released and have not expired."""
    levels: dict[int, dict[str, int]] = field(default_factory=dict)
    """By unit, who has which level; also of what has expired."""
    shown: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    """By start and end of the windows that readers were told of, who has which level."""
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """By the same, the window or pane that it was released with."""
    caps: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """Of totals behind the first of a window: the level that an audience might see when it was released."""
    passed: dict[str, set[int]] = field(default_factory=dict)
    """By unlock, the units that had their turn."""
    newest: int | None = None
    """The last that had its turn, released or not."""
    spent_ms: int | None = None
    """The time of the grid at which it was sharpened by what was left."""

    def unit(self, start: int) -> int:
        return self.plan.window.charged(start).start_ms

    def retained(self) -> list[int]:
        """The units that can still become finer."""
        return [start for start in self.stored if self.unit(start) == start]

    @property
    def is_over(self) -> bool:
        return self.plan.until_ms is not None and self.next_ms >= self.plan.until_ms

    def panes(self, window: tuple[int, int]) -> Iterable[int]:
        return self.plan.window.shape.starts(*window)

    def told(self, start: int) -> list[tuple[int, int]]:
        """The window that readers are told of with a window or pane; none, or one."""
        window, end = self.plan.at(start).window, self.plan.window.shape.end(start)
        if isinstance(window.shape, Paned):
            ending = (end - window.shape.window_ms, end)
            is_step = (end - window.shape.pane.origin_ms) % window.shape.every_ms == 0
            return [ending] if is_step and {*self.panes(ending)} <= {*self.stored} else []
        return [(self.unit(start), end)]

    def has(self, window: tuple[int, int], audience: str) -> int:
        """The finest level that an audience has of all of a window, -1 for none."""
        units = self.panes(window) if self.is_paned(window) else [self.unit(self.last[window])]
        return min(self.levels[unit].get(audience, -1) for unit in units)

    def is_paned(self, window: tuple[int, int]) -> bool:
        return self.plan.at(self.last[window]).window.shape.is_sum

    def show(self, window: tuple[int, int], audience: str) -> None:
        """Readers are told of a window as fine as they may see it, unless something of it has expired."""
        needed = self.panes(window) if self.is_paned(window) else [self.unit(self.last[window]), self.last[window]]
        level = min(self.has(window, audience), self.caps.get((*window, audience), 99))
        if {*needed} <= {*self.stored} and level >= 0:
            self.shown[window][audience] = max(level, self.shown[window].get(audience, -1))

    def lift(self, unit: int, audience: str, level: int) -> None:
        """An audience may see a window in whose midst it saw less as fine as that again."""
        caps = self.caps
        caps.update({at: max(had, level) for at, had in caps.items() if at[0] == unit and at[2] == audience})

    def show_all(self, audience: str) -> None:
        for window in self.shown:
            self.show(window, audience)


@dataclass
class Replay:
    """What every audience has of every window, with a budget that pays for everything."""

    plan: Plan
    waiting: list[tuple[int, int, str, str, Scope]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    definitions: dict[str, Definition] = field(default_factory=dict)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.learn(self.plan)

    # -- what happens ---------------------------------------------------------------------------------------------

    def learn(self, plan: Plan) -> None:
        self.plan = plan
        for name, view in plan.views.items():
            if name in self.definitions:
                self.definitions[name].plan = view
                steps = {
                    f"{audience} {step.after_ms} {step.level}"
                    for audience, unlocks in view.unlocks.items()
                    for step in unlocks
                }
                passed = self.definitions[name].passed
                self.definitions[name].passed = {one: passed[one] for one in passed if one in steps}
            else:
                behind = max([view.begins_ms, *(one.next_ms for one in self._of(view.view) if one.newest is not None)])
                self.definitions[name] = Definition(view, view.window.shape.first_from(behind))
        self.load()

    def load(self) -> None:
        """A process begins: an audience that came later is given what costs nothing."""
        self._expire()
        for definition in self.definitions.values():
            every_ms = None if definition.plan.sharpen is None else definition.plan.sharpen.every_ms
            if every_ms is not None and definition.spent_ms is None:
                definition.spent_ms = self._now(definition) // every_ms * every_ms
            for audience in definition.plan.audiences:
                for unit in definition.retained():
                    self._welcome(definition, unit, audience)
                definition.show_all(audience)
        self._settle()

    def give(self, windows: Iterable[tuple[str, int]]) -> None:
        for name, start in windows:
            self.definitions[name].waiting.add(start)
        self._settle()

    def grant(
        self, number: int, audience: str, level: str | None, now_ms: int, scope: Scope, at_ms: int | None
    ) -> None:
        if at_ms is not None:
            self.waiting = [one for one in self.waiting if (one[0], one[2], one[4]) != (at_ms, audience, scope)]
        if level is not None and at_ms is not None:
            self.waiting.append((at_ms, number, audience, level, scope))
        elif level is not None:
            self._carry_out([Asked((now_ms, number), audience, level, scope, self._turns())])

    def tell(self, now_ms: int) -> None:
        self.now_ms = now_ms
        due = [one for one in self.waiting if one[0] <= now_ms]
        self.waiting = [one for one in self.waiting if one[0] > now_ms]
        turns = self._turns()
        self._carry_out(
            [Asked((at_ms, number), audience, level, scope, turns) for at_ms, number, audience, level, scope in due]
        )
        self._settle()

    # -- what comes of it -----------------------------------------------------------------------------------------

    def _of(self, view: str) -> list[Definition]:
        return [one for one in self.definitions.values() if one.plan.view == view]

    def _earlier(self, definition: Definition) -> list[Definition]:
        return [*takewhile(lambda one: one is not definition, self._of(definition.plan.view))]

    def _turns(self) -> dict[str, int]:
        return {name: one.next_ms for name, one in self.definitions.items()}

    def _now(self, definition: Definition) -> int:
        """By the event clock the end of the newest window of the view that had its turn."""
        if definition.plan.window.clock == "wall":
            return self.now_ms
        over = [
            one.plan.window.shape.end(one.newest) for one in self._of(definition.plan.view) if one.newest is not None
        ]
        return max(over, default=0)

    def _time_without(self, view: ViewPlan) -> int:
        """Of a view that was taken out: by the event clock that of other views on its source, if there are any."""
        others = [one for one in self.definitions.values() if not one.plan.is_removed]
        streams = [self._now(one) for one in others if one.plan.window.clock == "event"]
        return max(streams, default=self.now_ms) if view.window.clock == "event" else self.now_ms

    def _settle(self) -> None:
        """Windows are released in their order; what is due by then comes before the next one of an event clock."""
        self._expire()
        self._rise()
        while ready := [one for one in self.definitions.values() if self._is_ready(one)]:
            for definition in ready:
                self._release(definition)
                if definition.plan.window.clock == "event":
                    self._rise()
        self._rise()

    def _is_ready(self, definition: Definition) -> bool:
        is_first = all(one.is_over for one in self._earlier(definition))
        return not definition.is_over and is_first and definition.next_ms in definition.waiting

    def _release(self, definition: Definition) -> None:
        start, view = definition.next_ms, definition.plan
        definition.waiting.discard(start)
        definition.newest, definition.next_ms = start, view.window.shape.next(start)
        if not view.windows.has(start):
            return
        unit = definition.unit(start)
        if unit == start:
            levels = definition.levels.setdefault(unit, {})
            for audience, at_start in view.at(start).audiences.items():
                decided = self._decided(view, unit, audience)
                levels[audience] = at_start if decided is None else _index(view, decided.level)
        definition.stored.append(start)
        told = definition.told(start)
        for window in told:
            definition.shown[window], definition.last[window] = {}, start
        for audience, at_start in view.at(start).audiences.items():
            decided = self._decided(view, unit, audience)
            for window in told if unit != start else ():
                definition.caps[(*window, audience)] = at_start if decided is None else _index(view, decided.level)
        for audience in view.audiences:
            self._welcome(definition, unit, audience)
        for window in told:
            for audience in definition.levels[unit].keys() & {*view.at(start).audiences, *view.audiences}:
                definition.show(window, audience)
        definition.kept_ms = max(definition.kept_ms, start - view.at(start).window.kept_ms)
        for one in self._earlier(definition):
            one.kept_ms = max(one.kept_ms, start - one.plan.window.kept_ms)
        self._expire()

    def _expire(self) -> None:
        """What starts more than the retention before a window goes, of the earlier definitions of its view as well.

        Of a view that was taken out no later window comes: it is one that would be over by now. Not before readers were
        told of a window behind it: nobody could tell up to where windows were released.
        """
        for one in self.definitions.values():
            if one.plan.is_removed and one.is_over:
                shape = one.plan.window.shape
                newest = shape.next(shape.first_open(self._time_without(one.plan)), -1)
                one.kept_ms = max(one.kept_ms, min(one.next_ms, newest - one.plan.window.kept_ms))
            told = [last for other in self._of(one.plan.view) for last in other.last.values()]
            goes_on = one.newest is not None and not one.is_over
            kept_ms = min(one.kept_ms, (one.newest or 0) - one.plan.window.kept_ms) if goes_on else one.kept_ms
            one.stored = [at for at in one.stored if at >= min([kept_ms, *([max(told)] if told else [])])]

    def _welcome(self, definition: Definition, unit: int, audience: str) -> None:
        """Who has nothing of a unit, or less than they were granted, gets that as soon as somebody else has it."""
        levels = definition.levels[unit]
        decided = self._decided(definition.plan, unit, audience)
        level = definition.plan.audiences[audience] if decided is None else _index(definition.plan, decided.level)
        lacks = audience not in levels or (decided is not None and levels[audience] < level)
        if lacks and unit in definition.stored and level <= max(levels.values()):
            levels[audience] = level

    def _carry_out(self, those: list[Asked]) -> None:
        """Of those that are carried out together the newest decides: what it is about is not given more before."""
        self.asked += those
        for definition in self.definitions.values():
            for audience in definition.plan.audiences.keys() & {one.audience for one in those}:
                for unit in definition.retained():
                    decided = self._decided(definition.plan, unit, audience)
                    if decided in those:
                        self._raise(definition, unit, audience, _index(definition.plan, decided.level))
                definition.show_all(audience)

    def _rise(self) -> None:
        for definition in self.definitions.values():
            self._unlock(definition)
        for definition in self.definitions.values():
            self._sharpen(definition)

    def _unlock(self, definition: Definition) -> None:
        """Every unlock of every window looks once, when it is due; one that was changed is another one."""
        view, now_ms = definition.plan, self._now(definition)
        steps = {
            f"{audience} {step.after_ms} {step.level}": (audience, step)
            for audience, unlocks in view.unlocks.items()
            for step in unlocks
        }
        for name, (audience, step) in steps.items():
            had = definition.passed.get(name, set())
            old = [at for at in definition.stored if view.window.charged(at).end_ms + step.after_ms <= now_ms]
            due = [at for at in old if at not in had]
            if due:
                definition.passed = {one: definition.passed.get(one, set()) for one in steps}
                definition.passed[name] |= {*due}
            for start in due:
                unit = definition.unit(start)
                if not self._is_lowered(definition, unit, audience):
                    self._raise(definition, unit, audience, step.level)

    def _sharpen(self, definition: Definition) -> None:
        """With a budget that pays for everything, every window of the periods since the last time is sharpened."""
        view, wanted = definition.plan, definition.plan.sharpen
        if wanted is None or definition.spent_ms is None:
            return
        at_ms = self._now(definition) // wanted.every_ms * wanted.every_ms
        if at_ms >= definition.spent_ms // wanted.every_ms * wanted.every_ms + wanted.every_ms:
            first = view.ledger.periods.start_of(definition.spent_ms)
            definition.spent_ms = at_ms
            for unit in definition.retained():
                over = first <= unit and view.window.shape.end(unit) <= at_ms
                if over and not self._is_lowered(definition, unit, wanted.audience):
                    self._raise(definition, unit, wanted.audience, wanted.level)

    def _is_lowered(self, definition: Definition, unit: int, audience: str) -> bool:
        decided = self._decided(definition.plan, unit, audience)
        return decided is not None and _index(definition.plan, decided.level) < definition.plan.audiences[audience]

    def _raise(self, definition: Definition, unit: int, audience: str, level: int) -> None:
        """Somebody may see a unit as fine as that, and the windows of which they may see all so.

        What costs nothing more with it, others get.
        """
        levels = definition.levels[unit]
        if unit in definition.stored:
            levels[audience] = max(level, levels.get(audience, -1))
            definition.lift(unit, audience, level)
            definition.show_all(audience)
            for other in definition.plan.audiences:
                self._welcome(definition, unit, other)
                definition.show_all(other)

    def _decided(self, view: ViewPlan, unit: int, audience: str) -> Asked | None:
        known = [level.name for level in view.levels]
        those = [one for one in self.asked if one.audience == audience and one.level in known and one.has(view, unit)]
        return max(those, key=lambda one: one.rank, default=None)

    # -- what holds in the end ------------------------------------------------------------------------------------

    def windows(self) -> dict[tuple[str, int, int, str], int]:
        """By view, start and end of a window and audience, the level that was told of it last."""
        return {
            (definition.plan.view, *window, audience): level
            for definition in self.definitions.values()
            for window, levels in definition.shown.items()
            for audience, level in levels.items()
        }


def _index(view: ViewPlan, level: str) -> int:
    return [one.name for one in view.levels].index(level)
