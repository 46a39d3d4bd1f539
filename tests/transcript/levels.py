"""Levels that audiences may see of a window, by settings, grants, unlocks and leftovers (section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stream_dp.config.plan import ViewPlan
from tests.transcript.editions import Edition, State
from tests.transcript.transcript import Grant

NOTHING = -1
"""The level of an audience that sees nothing."""


class Decided(Protocol):
    """Properties of a window that a level depends on."""

    @property
    def edition(self) -> Edition:
        """Its edition."""

    @property
    def start_ms(self) -> int:
        """Its start."""

    @property
    def decided_ms(self) -> int:
        """Its tick time."""


@dataclass(frozen=True)
class Step:
    """An unlock of one window for one audience, or its part in a run of leftovers, that was carried out."""

    view: str
    audience: str
    start_ms: int
    level: str
    after_ms: int | None


@dataclass(frozen=True)
class Carried:
    """A grant that was carried out, and its rank."""

    tick_ms: int
    offset: int
    grant: Grant

    def covers(self, audience: str, window: Decided) -> bool:
        """Return True if the grant is about a window of an audience."""
        grant = self.grant
        if grant.audience != audience or (grant.views is not None and window.edition.view not in grant.views):
            return False
        if window.start_ms < grant.from_ms or (grant.until_ms is not None and window.start_ms >= grant.until_ms):
            return False
        if window.decided_ms >= self.tick_ms:
            return grant.scope != "retained"
        return grant.scope != "future"


@dataclass
class Clearances:
    """Grants, unlocks and leftovers that were carried out, and the levels that follow from them."""

    grants: list[Carried] = field(default_factory=list)
    steps: set[Step] = field(default_factory=set)

    def level(self, audience: str, window: Decided, state: State) -> int:
        """Return the index, in the ladder of the window, of the finest level that an audience may see."""
        newest = state.newest(window.edition.view)
        start = start_level(audience, window.edition, newest)
        granted = self._granted(audience, window, newest)
        if granted is not None and granted < start:
            return granted
        if newest is None or audience not in newest.audiences:
            return start
        levels = [start, *self._raised(audience, window, newest)]
        if granted is not None:
            levels.append(granted)
        return max(levels)

    def _granted(self, audience: str, window: Decided, newest: ViewPlan | None) -> int | None:
        """The level of the newest grant for a window; None without one."""
        ranked = sorted(self.grants, key=lambda one: (one.tick_ms, one.offset), reverse=True)
        for carried in ranked:
            level = level_in(window.edition.plan, newest, carried.grant.level)
            if level is not None and carried.covers(audience, window):
                return level
        return None

    def _raised(self, audience: str, window: Decided, newest: ViewPlan) -> list[int]:
        """The levels of unlocks and leftovers that were carried out and that the settings still have."""
        asked = {(newest.levels[unlock.level].name, unlock.after_ms) for unlock in newest.unlocks.get(audience, ())}
        sharpen = newest.sharpen
        found: list[int] = []
        for name, after_ms in asked:
            if Step(newest.view, audience, window.start_ms, name, after_ms) in self.steps:
                found.append(index_in(window.edition.plan, newest, name))
        if sharpen is not None and sharpen.audience == audience:
            name = newest.levels[sharpen.level].name
            if Step(newest.view, audience, window.start_ms, name, None) in self.steps:
                found.append(index_in(window.edition.plan, newest, name))
        return found


def start_level(audience: str, edition: Edition, newest: ViewPlan | None) -> int:
    """Return the level that an audience starts with, for a window of an edition, under the newest settings.

    An audience that the window was opened with sees no more than then and than now. Another one sees what it starts
    with now. If none of the former audiences is left, it is at most the finest of their levels.
    """
    then = edition.plan.audiences
    if newest is None:
        return then.get(audience, NOTHING)
    if audience not in newest.audiences:
        return NOTHING
    now = index_in(edition.plan, newest, newest.levels[newest.audiences[audience]].name)
    if audience in then:
        return min(then[audience], now)
    is_anyone_left = any(name in newest.audiences for name in then)
    return now if is_anyone_left else min(now, max(then.values(), default=NOTHING))


def index_in(plan: ViewPlan, newest: ViewPlan, name: str) -> int:
    """Return the index of a level of the newest ladder in a window; NOTHING if the window has no such level."""
    found = level_in(plan, newest, name)
    return NOTHING if found is None else found


def level_in(plan: ViewPlan, newest: ViewPlan | None, name: str) -> int | None:
    """Return the index of a level, by name, in the ladder of a window; None if no ladder of the view has it.

    Where the window's ladder lacks a level of the newest one, its finest level counts that costs no more epsilon and
    that the newest ladder does not call finer.
    """
    if name == "none":
        return NOTHING
    own = _names(plan)
    if name in own:
        return own[name]
    if newest is None or name not in _names(newest):
        return None
    order = _names(newest)
    wanted = newest.levels[order[name]]
    fitting = [
        at
        for at, level in enumerate(plan.levels)
        if level.epsilon <= wanted.epsilon and order.get(level.name, order[name]) <= order[name]
    ]
    return max(fitting, default=NOTHING)


def _names(plan: ViewPlan) -> Mapping[str, int]:
    return {level.name: at for at, level in enumerate(plan.levels)}
