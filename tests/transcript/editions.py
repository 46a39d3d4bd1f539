"""Settings in effect: which edition of a view a window belongs to, and since when it is counted (section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stream_dp.config.plan import Plan, ViewPlan
from tests.transcript.clock import Since
from tests.transcript.transcript import Control, Settings, TranscriptError, Verdict

SHORTEST_LEAD_MS = 10_000
"""Shortest time from the acceptance of settings to a boundary of an existing view on the wall clock."""


@dataclass(frozen=True)
class Edition:
    """Settings of a view for its windows from one on.

    Attributes:
        view: the view's name.
        number: of the edition, from 1.
        first_ms: windows that start at or after this are its own.
        until_ms: windows that start at or after this are not; None for no limit.
        plan: the parsed view.
    """

    view: str
    number: int
    first_ms: int
    until_ms: int | None
    plan: ViewPlan

    def has(self, start_ms: int) -> bool:
        """Return True if a window that starts at a time is one of the edition."""
        return self.first_ms <= start_ms and (self.until_ms is None or start_ms < self.until_ms)

    @property
    def definition(self) -> tuple[object, ...]:
        """Everything whose change makes windows be counted again."""
        window = self.plan.window
        fixed = (window.grace_ms, window.clock, window.max_ahead_ms, window.idle_ms, window.catch_up_ms)
        return (self.view, self.plan.fingerprint, *fixed)

    def limited(self, until_ms: int) -> Edition:
        """Return the edition with an end at a boundary, where that is earlier."""
        end_ms = until_ms if self.until_ms is None else min(self.until_ms, until_ms)
        return replace(self, until_ms=end_ms)


@dataclass(frozen=True)
class State:
    """State of the application under accepted settings.

    Attributes:
        offset: of the acceptance.
        plan: the parsed settings.
        editions: of each view that was ever there, by number.
        new_sources: the sources that no settings before these named.
    """

    offset: int
    plan: Plan
    editions: Mapping[str, tuple[Edition, ...]]
    new_sources: frozenset[str]

    def edition_of(self, view: str, start_ms: int) -> Edition | None:
        """Return the edition that a window belongs to."""
        return next((one for one in self.editions.get(view, ()) if one.has(start_ms)), None)

    def newest(self, view: str) -> ViewPlan | None:
        """Return the view's newest plan; None if it was taken out."""
        return self.plan.views.get(view)


class History:
    """All accepted settings, in the order in which they take effect."""

    def __init__(self, control: Sequence[Control]) -> None:
        """Follow the control topic."""
        self.states: tuple[State, ...] = tuple(_follow(control))

    def at(self, offsets_before: int) -> State | None:
        """Return the state in effect where the control topic was read up to an offset."""
        return next((one for one in reversed(self.states) if one.offset < offsets_before), None)

    def since(self, edition: Edition, start_ms: int, state: State) -> Since:
        """Return since when a window is counted by the definition of its edition without a break."""
        earliest = state
        for former in reversed(self.states):
            if former.offset >= state.offset:
                continue
            owner = former.edition_of(edition.view, start_ms)
            if owner is None or owner.definition != edition.definition:
                break
            earliest = former
        return Since(earliest.offset, edition.plan.source.name in earliest.new_sources)


def _follow(control: Sequence[Control]) -> Iterator[State]:
    posted: dict[int, Settings] = {}
    decided: set[int] = set()
    state: State | None = None
    for offset, record in enumerate(control):
        if isinstance(record, Settings):
            posted.setdefault(record.number, record)
        if not isinstance(record, Verdict) or record.number in decided:
            continue
        settings = posted.get(record.number)
        if settings is None:
            raise TranscriptError(f"settings {record.number} have a verdict and were not posted")
        decided.add(record.number)
        if record.accepted:
            state = _accept(state, settings, offset, record.append_ms)
            yield state


def _accept(former: State | None, settings: Settings, offset: int, append_ms: int) -> State:
    """Return the state after accepted settings."""
    if settings.plan is None:
        raise TranscriptError(f"settings {settings.number} were accepted and cannot be planned")
    editions = dict(former.editions) if former else {}
    for view, boundary_ms in settings.ends.items():
        editions[view] = tuple(one.limited(boundary_ms) for one in editions.get(view, ()))
    for view, plan in settings.plan.views.items():
        own = editions.get(view, ())
        if view in settings.starts:
            _check_lead(own, plan, settings.starts[view], append_ms)
            editions[view] = _begin(own, view, plan, settings.starts[view])
        elif not own or own[-1].definition != replace(own[-1], plan=plan).definition:
            raise TranscriptError(f"view {view} is counted otherwise and has no first window")
    _check_removed(former, settings)
    return State(offset, settings.plan, editions, _new_sources(former, settings.plan))


def _begin(own: tuple[Edition, ...], view: str, plan: ViewPlan, first_ms: int) -> tuple[Edition, ...]:
    """Return the editions of a view with one more, which has all windows from its first one on."""
    limited = tuple(one.limited(first_ms) for one in own)
    return (*limited, Edition(view, len(own) + 1, first_ms, None, plan))


def _check_lead(own: tuple[Edition, ...], plan: ViewPlan, first_ms: int, append_ms: int) -> None:
    is_made = bool(own) and own[-1].until_ms is None
    if is_made and plan.window.clock == "wall" and first_ms - append_ms < SHORTEST_LEAD_MS:
        raise TranscriptError(f"a change of view {plan.view} with a lead below 10 s was accepted")


def _check_removed(former: State | None, settings: Settings) -> None:
    if former is None or settings.plan is None:
        return
    gone = former.plan.views.keys() - settings.plan.views.keys() - settings.ends.keys()
    if gone:
        raise TranscriptError(f"views are taken out without a last window: {sorted(gone)}")


def _new_sources(former: State | None, plan: Plan) -> frozenset[str]:
    """Return the sources that these settings are the first to name; one that was named before is not new again."""
    used = frozenset(view.source.name for view in plan.views.values())
    known: set[str] = set()
    if former is not None:
        for editions in former.editions.values():
            known.update(one.plan.source.name for one in editions)
    return used - known
