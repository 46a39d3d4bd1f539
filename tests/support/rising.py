"""Who is to see what, worked out by replaying what was asked for: the oracle of clearances that grow."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.control.grants import Scope
from tests.support.releasing import Desk, shown_cost


@dataclass(frozen=True)
class Asked:
    """A grant that was carried out: its rank, its audience and level, and by view which windows it is about."""

    rank: tuple[int, int]
    audience: str
    level: str
    scope: Scope
    turn: dict[str, int]
    """By view: the first window that was to come."""

    def has(self, view: str, start: int) -> bool:
        if self.scope.views and view not in self.scope.views:
            return False
        if self.scope.windows != "all":
            return (start < self.turn[view]) == (self.scope.windows == "retained")
        after_first = self.scope.from_ms is None or start >= self.scope.from_ms
        return after_first and (self.scope.until_ms is None or start < self.scope.until_ms)


@dataclass
class Replay:
    """What every audience has of every window, with a budget that pays for everything."""

    plan: Plan
    waiting: list[tuple[int, int, str, str, Scope]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    held: dict[tuple[str, int, str], int] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    passed: set[tuple[str, int, str, int]] = field(default_factory=set)
    """Unlocks that had their turn, by view, window, audience and level."""
    now_ms: int = 0
    sharpened_ms: dict[str, int] = field(default_factory=dict)
    """By view: when it was sharpened by what was left."""

    def __post_init__(self) -> None:
        self.turns = dict.fromkeys(self.plan.views, 0)

    def give(self, view: str, start: int) -> None:
        self.turns[view] = self.plan.views[view].window.shape.next(start)
        for audience, at_start in self.plan.views[view].audiences.items():
            decided = self._decided(view, start, audience)
            self.held[view, start, audience] = at_start if decided is None else self._index(view, decided.level)
        self._unlock()

    def grant(self, number: int, audience: str, level: str, now_ms: int, scope: Scope, at_ms: int | None) -> None:
        self.waiting = [
            one for one in self.waiting if (one[0], one[2], one[4]) != (at_ms, audience, scope) or at_ms is None
        ]
        if at_ms is None:
            self._carry_out([Asked((now_ms, number), audience, level, scope, dict(self.turns))])
        else:
            self.waiting.append((at_ms, number, audience, level, scope))

    def withdraw(self, audience: str, scope: Scope, at_ms: int | None) -> None:
        self.waiting = [one for one in self.waiting if (one[0], one[2], one[4]) != (at_ms, audience, scope)]

    def tell(self, now_ms: int) -> None:
        due = [one for one in self.waiting if one[0] <= now_ms]
        self.waiting = [one for one in self.waiting if one[0] > now_ms]
        self._carry_out(
            [
                Asked((at_ms, number), audience, level, scope, dict(self.turns))
                for at_ms, number, audience, level, scope in due
            ]
        )
        self.now_ms = now_ms
        self._unlock()
        self._sharpen()

    def _unlock(self) -> None:
        """Every unlock of every window looks once, when it is due; the level is one that the audience has not."""
        for view, start, audience in self.held:
            planned = self.plan.views[view]
            for step in planned.unlocks.get(audience, ()):
                one = (view, start, audience, step.level)
                if planned.window.shape.end(start) + step.after_ms <= self.now_ms and one not in self.passed:
                    self.passed.add(one)
                    self._raise(view, start, audience, step.level)

    def _sharpen(self) -> None:
        """With a budget that pays for everything, every window of the periods since the last time is sharpened."""
        for name, view in self.plan.views.items():
            if view.sharpen is None:
                continue
            at_ms = self.now_ms - self.now_ms % view.sharpen.every_ms
            done = self.sharpened_ms.get(name, 0)
            if at_ms > done:
                for of, start, audience in self.held:
                    recent = start >= done - done % view.ledger.periods.length_ms
                    over = view.window.shape.end(start) <= at_ms
                    if (of, audience) == (name, view.sharpen.audience) and recent and over:
                        self._raise(name, start, audience, view.sharpen.level)
                self.sharpened_ms[name] = at_ms

    def _raise(self, view: str, start: int, audience: str, level: int) -> None:
        decided = self._decided(view, start, audience)
        lowered = decided is not None and self._index(view, decided.level) < self.plan.views[view].audiences[audience]
        if not lowered:
            self.held[view, start, audience] = max(self.held[view, start, audience], level)

    def _carry_out(self, those: list[Asked]) -> None:
        """Of those that are carried out together the newest decides: what it is about is not given more before."""
        self.asked += those
        for view, start, audience in self.held:
            decided = self._decided(view, start, audience)
            if decided in those:
                held = self.held[view, start, audience]
                self.held[view, start, audience] = max(held, self._index(view, decided.level))

    def _decided(self, view: str, start: int, audience: str) -> Asked | None:
        those = [one for one in self.asked if one.audience == audience and one.has(view, start)]
        return max((one for one in those if self._has_level(view, one.level)), key=lambda one: one.rank, default=None)

    def _has_level(self, view: str, name: str) -> bool:
        return name in [level.name for level in self.plan.views[view].levels]

    def _index(self, view: str, name: str) -> int:
        return [level.name for level in self.plan.views[view].levels].index(name)


def check_final(desk: Desk, held: dict[tuple[str, int, str], int]) -> None:
    """Every audience has the levels it is to have, as if each window had been released so at once, and so it was paid.

    The finest reading of a window is that of its sealed table; its cost is that of its finest level alone.
    """
    desk.auditor.settled()
    found = {
        (name, record.window.start_ms, audience): [level.name for level in view.levels].index(record.level.name)
        for name, view in desk.plan.views.items()
        for audience in view.audiences
        for record in desk.records(name, audience)
        if record.type == "release"
    }
    assert found == held
    spent: dict[int, Cost] = {}
    for name, start in {(name, start) for name, start, _ in held}:
        view = desk.plan.views[name]
        finest = max(level for (of, at, _), level in held.items() if (of, at) == (name, start))
        period = view.ledger.periods.start_of(start)
        spent[period] = spent.get(period, Cost.ZERO) + shown_cost(view, finest, draws=0)
    assert {period: desk.ledger(period).spent for period in spent} == spent
    for name, audience in {(name, audience) for name, _, audience in held}:
        revisions = {(r.window.start_ms, r.revision, r.level.name) for r in desk.records(name, audience)}
        assert len(revisions) == len({of[:2] for of in revisions}), (
            "a revision has one level; the auditor saw its bytes"
        )
