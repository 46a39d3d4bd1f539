"""Who is to see what, worked out by replaying what was asked for: the oracle of all that can become finer, and end.

It has a budget that pays for everything. What is here follows the documents, window by window, without marks of how far
something has come, without rows and without crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.grants import Scope
from stream_dp.windows.shapes.paned import Paned


@dataclass(frozen=True)
class Asked:
    """A grant that was carried out: its rank, its audience and level, and by question which windows it is about."""

    rank: tuple[int, int]
    audience: str
    level: str
    scope: Scope
    turn: Mapping[str, int]
    """By question: the first window that was to come."""

    def has(self, view: ViewPlan, start: int) -> bool:
        if self.scope.views and view.view not in self.scope.views:
            return False
        if self.scope.windows != "all":  # a question that came later had no window then
            return (start < self.turn.get(view.name, start)) == (self.scope.windows == "retained")
        after_first = self.scope.from_ms is None or start >= self.scope.from_ms
        return after_first and (self.scope.until_ms is None or start < self.scope.until_ms)


@dataclass
class Question:
    """A question of a view, and what was released of it.

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
            ending = (end - window.shape.length_ms, end)
            is_step = (end - window.shape.pane.origin_ms) % window.shape.step_ms == 0
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
    questions: dict[str, Question] = field(default_factory=dict)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.learn(self.plan)

    # -- what happens ---------------------------------------------------------------------------------------------

    def learn(self, plan: Plan) -> None:
        self.plan = plan
        for name, view in plan.views.items():
            if name in self.questions:
                self.questions[name].plan = view
                steps = {
                    f"{audience} {step.after_ms} {step.level}"
                    for audience, unlocks in view.unlocks.items()
                    for step in unlocks
                }
                passed = self.questions[name].passed
                self.questions[name].passed = {one: passed[one] for one in passed if one in steps}
            else:
                behind = max([view.begins_ms, *(one.next_ms for one in self._of(view.view) if one.newest is not None)])
                self.questions[name] = Question(view, view.window.shape.first_from(behind))
        self.load()

    def load(self) -> None:
        """A process begins: an audience that came later is given what costs nothing."""
        self._expire()
        for question in self.questions.values():
            every_ms = None if question.plan.sharpen is None else question.plan.sharpen.every_ms
            if every_ms is not None and question.spent_ms is None:
                question.spent_ms = self._now(question) // every_ms * every_ms
            for audience in question.plan.audiences:
                for unit in question.retained():
                    self._welcome(question, unit, audience)
                question.show_all(audience)
        self._settle()

    def give(self, windows: Iterable[tuple[str, int]]) -> None:
        for name, start in windows:
            self.questions[name].waiting.add(start)
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

    def _of(self, view: str) -> list[Question]:
        return [one for one in self.questions.values() if one.plan.view == view]

    def _earlier(self, question: Question) -> list[Question]:
        return [*takewhile(lambda one: one is not question, self._of(question.plan.view))]

    def _turns(self) -> dict[str, int]:
        return {name: one.next_ms for name, one in self.questions.items()}

    def _now(self, question: Question) -> int:
        """By the event clock the end of the newest window of the view that had its turn."""
        if question.plan.window.clock == "wall":
            return self.now_ms
        over = [one.plan.window.shape.end(one.newest) for one in self._of(question.plan.view) if one.newest is not None]
        return max(over, default=0)

    def _time_without(self, view: ViewPlan) -> int:
        """Of a view that was taken out: by the event clock that of other views on its source, if there are any."""
        others = [one for one in self.questions.values() if not one.plan.is_removed]
        streams = [self._now(one) for one in others if one.plan.window.clock == "event"]
        return max(streams, default=self.now_ms) if view.window.clock == "event" else self.now_ms

    def _settle(self) -> None:
        """Windows are released in their order; what is due by then comes before the next one of an event clock."""
        self._expire()
        self._rise()
        while ready := [one for one in self.questions.values() if self._is_ready(one)]:
            for question in ready:
                self._release(question)
                if question.plan.window.clock == "event":
                    self._rise()
        self._rise()

    def _is_ready(self, question: Question) -> bool:
        is_first = all(one.is_over for one in self._earlier(question))
        return not question.is_over and is_first and question.next_ms in question.waiting

    def _release(self, question: Question) -> None:
        start, view = question.next_ms, question.plan
        question.waiting.discard(start)
        question.newest, question.next_ms = start, view.window.shape.next(start)
        if not view.windows.has(start):
            return
        unit = question.unit(start)
        if unit == start:
            levels = question.levels.setdefault(unit, {})
            for audience, at_start in view.at(start).audiences.items():
                decided = self._decided(view, unit, audience)
                levels[audience] = at_start if decided is None else _index(view, decided.level)
        question.stored.append(start)
        told = question.told(start)
        for window in told:
            question.shown[window], question.last[window] = {}, start
        for audience, at_start in view.at(start).audiences.items():
            decided = self._decided(view, unit, audience)
            for window in told if unit != start else ():
                question.caps[(*window, audience)] = at_start if decided is None else _index(view, decided.level)
        for audience in view.audiences:
            self._welcome(question, unit, audience)
        for window in told:
            for audience in question.levels[unit].keys() & {*view.at(start).audiences, *view.audiences}:
                question.show(window, audience)
        question.kept_ms = max(question.kept_ms, start - view.at(start).window.kept_ms)
        for one in self._earlier(question):
            one.kept_ms = max(one.kept_ms, start - one.plan.window.kept_ms)
        self._expire()

    def _expire(self) -> None:
        """What starts more than the retention before a window goes, of the earlier questions of its view as well.

        Of a view that was taken out no later window comes: it is one that would be over by now. Not before readers were
        told of a window behind it: nobody could tell up to where windows were released.
        """
        for one in self.questions.values():
            if one.plan.is_removed and one.is_over:
                shape = one.plan.window.shape
                newest = shape.next(shape.first_open(self._time_without(one.plan)), -1)
                one.kept_ms = max(one.kept_ms, min(one.next_ms, newest - one.plan.window.kept_ms))
            told = [last for other in self._of(one.plan.view) for last in other.last.values()]
            goes_on = one.newest is not None and not one.is_over
            kept_ms = min(one.kept_ms, (one.newest or 0) - one.plan.window.kept_ms) if goes_on else one.kept_ms
            one.stored = [at for at in one.stored if at >= min([kept_ms, *([max(told)] if told else [])])]

    def _welcome(self, question: Question, unit: int, audience: str) -> None:
        """Who has nothing of a unit, or less than they were granted, gets that as soon as somebody else has it."""
        levels = question.levels[unit]
        decided = self._decided(question.plan, unit, audience)
        level = question.plan.audiences[audience] if decided is None else _index(question.plan, decided.level)
        lacks = audience not in levels or (decided is not None and levels[audience] < level)
        if lacks and unit in question.stored and level <= max(levels.values()):
            levels[audience] = level

    def _carry_out(self, those: list[Asked]) -> None:
        """Of those that are carried out together the newest decides: what it is about is not given more before."""
        self.asked += those
        for question in self.questions.values():
            for audience in question.plan.audiences.keys() & {one.audience for one in those}:
                for unit in question.retained():
                    decided = self._decided(question.plan, unit, audience)
                    if decided in those:
                        self._raise(question, unit, audience, _index(question.plan, decided.level))
                question.show_all(audience)

    def _rise(self) -> None:
        for question in self.questions.values():
            self._unlock(question)
        for question in self.questions.values():
            self._sharpen(question)

    def _unlock(self, question: Question) -> None:
        """Every unlock of every window looks once, when it is due; one that was changed is another one."""
        view, now_ms = question.plan, self._now(question)
        steps = {
            f"{audience} {step.after_ms} {step.level}": (audience, step)
            for audience, unlocks in view.unlocks.items()
            for step in unlocks
        }
        for name, (audience, step) in steps.items():
            had = question.passed.get(name, set())
            old = [at for at in question.stored if view.window.charged(at).end_ms + step.after_ms <= now_ms]
            due = [at for at in old if at not in had]
            if due:
                question.passed = {one: question.passed.get(one, set()) for one in steps}
                question.passed[name] |= {*due}
            for start in due:
                unit = question.unit(start)
                if not self._is_lowered(question, unit, audience):
                    self._raise(question, unit, audience, step.level)

    def _sharpen(self, question: Question) -> None:
        """With a budget that pays for everything, every window of the periods since the last time is sharpened."""
        view, wanted = question.plan, question.plan.sharpen
        if wanted is None or question.spent_ms is None:
            return
        at_ms = self._now(question) // wanted.every_ms * wanted.every_ms
        if at_ms >= question.spent_ms // wanted.every_ms * wanted.every_ms + wanted.every_ms:
            first = view.ledger.periods.start_of(question.spent_ms)
            question.spent_ms = at_ms
            for unit in question.retained():
                over = first <= unit and view.window.shape.end(unit) <= at_ms
                if over and not self._is_lowered(question, unit, wanted.audience):
                    self._raise(question, unit, wanted.audience, wanted.level)

    def _is_lowered(self, question: Question, unit: int, audience: str) -> bool:
        decided = self._decided(question.plan, unit, audience)
        return decided is not None and _index(question.plan, decided.level) < question.plan.audiences[audience]

    def _raise(self, question: Question, unit: int, audience: str, level: int) -> None:
        """Somebody may see a unit as fine as that, and the windows of which they may see all so.

        What costs nothing more with it, others get.
        """
        levels = question.levels[unit]
        if unit in question.stored:
            levels[audience] = max(level, levels.get(audience, -1))
            question.lift(unit, audience, level)
            question.show_all(audience)
            for other in question.plan.audiences:
                self._welcome(question, unit, other)
                question.show_all(other)

    def _decided(self, view: ViewPlan, unit: int, audience: str) -> Asked | None:
        known = [level.name for level in view.levels]
        those = [one for one in self.asked if one.audience == audience and one.level in known and one.has(view, unit)]
        return max(those, key=lambda one: one.rank, default=None)

    # -- what holds in the end ------------------------------------------------------------------------------------

    def windows(self) -> dict[tuple[str, int, int, str], int]:
        """By view, start and end of a window and audience, the level that was told of it last."""
        return {
            (question.plan.view, *window, audience): level
            for question in self.questions.values()
            for window, levels in question.shown.items()
            for audience, level in levels.items()
        }


def _index(view: ViewPlan, level: str) -> int:
    return [one.name for one in view.levels].index(level)
