"""What it means to put one configuration in the place of another that holds: from when on, at what price, and why not.

Everything here follows from the two configurations, from what the workers and the ledgers have said, and from the
time. Nothing is asked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from stream_dp.accounting import Cost
from stream_dp.config.backlog import backlog_faults
from stream_dp.config.crosschecks import readers
from stream_dp.config.differences import Setting, differences, sections_of
from stream_dp.config.explanation import describe
from stream_dp.config.loading import Sections
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.boundaries import Situation, boundary
from stream_dp.control.former import FormerEdition
from stream_dp.control.outlook import LedgerChange, day, ledger_changes, starved
from stream_dp.control.settings import is_same_question
from stream_dp.errors import ConfigError, Fault

BACKFILL = "apply it with --backfill; windows of what workers have read of the topic already are refused as lost"


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The noise of a count at a level: half the width of its 95 % interval, None where there is no such level."""

    level: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What becomes of a view.

    Attributes:
        view: its name.
        change: what it is beside what holds.
        at_ms: start of the first window under its new settings; of a view that is taken out, the end of its last one.
        settings: what differs and concerns it.
        goes_on: nothing of what is counted or of how noise is drawn differs, so windows go on with what is stored.
        day_before: what a day costs one user at worst, on its schedule; None for a new view.
        day_after: the same; None for a view that is taken out.
        levels: of its ladders, coarse to fine.
    """

    view: str
    change: Literal["new", "changed", "removed"]
    at_ms: int
    settings: tuple[Setting, ...]
    goes_on: bool
    day_before: Cost | None
    day_after: Cost | None
    levels: tuple[LevelChange, ...]


@dataclass(frozen=True)
class Proposal:
    """What putting a configuration in the place of another means.

    Attributes:
        settings: everything that differs.
        views: those that something becomes of.
        ledgers: those that something becomes of.
        warnings: what the new configuration has to be warned of, and the former did not.
        faults: why it cannot be; none of it happens then.
        former: the editions that there are already whose windows are disclosed differently, once that is worked out.
    """

    settings: tuple[Setting, ...]
    views: tuple[ViewChange, ...]
    ledgers: tuple[LedgerChange, ...]
    warnings: tuple[str, ...]
    faults: tuple[Fault, ...]
    former: tuple[FormerEdition, ...] = ()

    @property
    def begins(self) -> dict[str, int]:
        """By view that is new or changed, the start of its first window under the new settings."""
        return {one.view: one.at_ms for one in self.views if one.change != "removed"}

    @property
    def ends(self) -> dict[str, int]:
        """By view that is taken out, the end of its last window."""
        return {one.view: one.at_ms for one in self.views if one.change == "removed"}

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            ConfigError: with every reason.
        """
        if self.faults:
            raise ConfigError(self.faults)


def propose(
    before: Plan, after: Plan, situation: Situation, *, from_ms: int | None = None, backfill: bool = False
) -> Proposal:
    """What it means to put one configuration in the place of another.

    Args:
        before: what holds, as the plan of a file (`plan_of`).
        after: what is to hold.
        situation: what is known of the application.
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        backfill: views that are new begin with windows that are over already.
    """
    former, latter = sections_of(before.raw), sections_of(after.raw)
    settings = tuple(differences(before.raw, after.raw))
    faults = [*_restarts(before, after, situation)]
    views: list[ViewChange] = []
    for name in dict.fromkeys([*after.views, *before.views]):
        was, becomes = before.views.get(name), after.views.get(name)
        view = becomes or was
        if view is None or was == becomes:
            continue
        try:
            at_ms = boundary(view, situation, from_ms, is_taken_out=becomes is None, backfill=backfill)
        except ConfigError as error:
            faults += error.faults
        else:
            views.append(_view(name, was, becomes, at_ms, _own(name, [former, latter], settings)))
    if not backfill:
        fresh = {name for name in after.views if not situation.questions(name)}
        faults += backlog_faults(after, fresh, situation.now_ms, BACKFILL)
    new = {one.view: one.at_ms for one in views if one.change == "new"}
    faults += starved(before, after)
    known = describe(before).warnings
    return Proposal(
        settings=settings,
        views=tuple(views),
        ledgers=tuple(ledger_changes(before, after, settings, new, situation)),
        warnings=tuple(words for words in describe(after).warnings if words not in known),
        faults=tuple(faults),
    )


def _restarts(before: Plan, after: Plan, situation: Situation) -> Iterator[Fault]:
    """What changes only while no worker runs."""
    if not situation.workers:
        return
    questions = sorted(situation.holding.views.values(), key=lambda view: view.until_ms is None)
    used = {view.source.name: view.source for view in questions}
    for source in {view.source.name: view.source for view in after.views.values()}.values():
        if used.get(source.name) != source:
            what = "differs from what the workers read" if source.name in used else "is read by no worker yet"
            yield Fault(
                f"sources.{source.name}",
                f"it {what}, and they subscribe to topics when they start; stop all workers, apply, start them again",
            )
    for name, ledger in after.ledgers.items():
        former = before.ledgers.get(name)
        if former is not None and former.population != ledger.population:
            yield Fault(
                f"ledgers.{name}.population",
                "what was spent is kept under these words, and other words are other people, with a budget of their "
                "own; if that is meant, stop all workers, apply, start them again",
            )


def _view(
    name: str, former: ViewPlan | None, latter: ViewPlan | None, at_ms: int, settings: Sequence[Setting]
) -> ViewChange:
    return ViewChange(
        view=name,
        change="new" if former is None else "removed" if latter is None else "changed",
        at_ms=at_ms,
        settings=tuple(settings),
        goes_on=former is not None and latter is not None and is_same_question(former, latter),
        day_before=None if former is None else day([former]),
        day_after=None if latter is None else day([latter]),
        levels=tuple(_levels(former, latter)),
    )


def _own(name: str, both: Sequence[Sections], settings: Sequence[Setting]) -> list[Setting]:
    """The settings that concern a view: its own, and those of the entries that it refers to."""
    named: dict[str, set[str]] = {"views": {name}}
    for sections in both:
        if (view := sections.views.get(name)) is not None:
            references = {"sources": [view.source], "ledgers": [view.ledger], "ladders": [view.ladder]}
            for section, entries in {**references, "audiences": readers(sections, view)}.items():
                named.setdefault(section, set()).update(entries)
    return [one for one in settings if one.entry in named.get(one.section, ())]


def _levels(former: ViewPlan | None, latter: ViewPlan | None) -> Iterator[LevelChange]:
    before, after = (
        {} if view is None else {level.name: level.interval_of(view.window.summands) for level in view.levels}
        for view in (former, latter)
    )
    for name in dict.fromkeys([*after, *before]):
        yield LevelChange(name, before.get(name), after.get(name))
