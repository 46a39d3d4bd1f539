"""Consequences of replacing the configuration in effect: start, cost, and reasons to refuse.

Everything here follows from the two configurations, from what the workers and the ledgers have said, and from the
time. Nothing is asked and nothing is written.

Windows keep the settings that they were opened with. So the first window under new settings begins where one under
the former ones ends: at a start that both have in common (`boundary`). It stands in the record, whatever anybody's
clock shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from stream_dp.accounting import Cost
from stream_dp.config.crosschecks import readers
from stream_dp.config.differences import Setting, concerning, differences, sections_of
from stream_dp.config.explanation import describe
from stream_dp.config.forecast import backlog_faults, forecast
from stream_dp.config.loading import Sections
from stream_dp.config.plan import LedgerPlan, Plan, ViewPlan
from stream_dp.config.shares import Shares, asked, lasts_ms, windows_in
from stream_dp.control.editions import is_same_definition
from stream_dp.errors import ConfigError, Fault
from stream_dp.records.statement import LedgerStatement
from stream_dp.windows.durations import DAY_MS, format_duration, format_time

LEAD_MS = 30_000
"""Shortest time until new settings begin, by the view's clock: a worker must accept them at least 10 s ahead."""


@dataclass(frozen=True)
class Situation:
    """State of an application whose settings are to change.

    Attributes:
        now_ms: the wall clock.
        holding: the plan that its settings come to, with every definition of every view (`plan_holding`).
        clocks: by view, what its clock shows in the partition that is ahead, as far as workers have said.
        workers: whether any runs.
        statements: what the ledgers say of their newest periods.
    """

    now_ms: int
    holding: Plan
    clocks: Mapping[str, int] = field(default_factory=dict)
    workers: bool = False
    statements: Sequence[LedgerStatement] = ()

    def clock(self, view: ViewPlan) -> int | None:
        """Return the known clocks of a view; one that is not counted has those of its source."""
        if view.window.clock == "wall":
            return self.now_ms
        if self.is_counted(view.view) and view.view in self.clocks:
            return self.clocks[view.view]
        alike = {one.view for one in self.holding.views.values() if one.source.name == view.source.name}
        return max((clock_ms for name, clock_ms in self.clocks.items() if name in alike), default=None)

    def is_counted(self, view: str) -> bool:
        """Return True if there is a view of this name, which was not taken out."""
        return any(one.until_ms is None for one in self.definitions(view))

    def definitions(self, view: str) -> list[ViewPlan]:
        """The definitions of a view so far, also of one that was taken out, in the order in which they were decided."""
        return [one for one in self.holding.views.values() if one.view == view]


def boundary(
    latter: ViewPlan,
    situation: Situation,
    from_ms: int | None = None,
    *,
    is_taken_out: bool = False,
    backfill: bool = False,
) -> int:
    """Start of the first window under new settings of a view.

    Args:
        latter: the view as it is to be; of one that is taken out, as it is.
        situation: what is known of the application.
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        is_taken_out: it is to be no more: the end of its last window is looked for.
        backfill: a view that is new may begin with windows that are over.

    Raises:
        ConfigError: there is no such window, it would be one of the past, or nobody says what the view's clock shows.
    """
    asked = situation.definitions(latter.view)
    start_ms = None if is_taken_out else latter.window.first_ms
    if not asked and start_ms is not None and (backfill or start_ms > situation.now_ms):
        return start_ms
    ended = [] if situation.is_counted(latter.view) else [one.until_ms for one in asked if one.until_ms is not None]
    from_ms = max(_earliest(latter, asked, situation, from_ms), start_ms or 0, *ended)  # clocks may be told late
    moves = {one.begins_ms for one in asked} | {one.until_ms + 1 for one in asked if one.until_ms is not None}
    moves = {at_ms for at_ms in moves if at_ms > from_ms}
    for at_ms, until_ms in pairwise([from_ms, *sorted(moves), None]):
        assert at_ms is not None  # noqa: S101 - the last one is the end of a pair
        former = _in_force(asked, at_ms)
        own = latter.window.shape.paid.grid
        first_ms = own.first_from(at_ms) if former is None else former.window.shape.paid.grid.first_common(own, at_ms)
        if first_ms is not None and (until_ms is None or first_ms < until_ms):
            return first_ms
    raise ConfigError(
        "no window under the new settings begins where one under the present ones ends, so some would be cut; choose a "
        "size and a start so that they meet",
        path=f"views.{latter.view}.window",
    )


def _in_force(asked: Sequence[ViewPlan], time_ms: int) -> ViewPlan | None:
    """The definition that has a window that ends at a time, or goes on over it; None if there is none."""
    open_then = [one for one in asked if one.begins_ms <= time_ms and (one.until_ms is None or time_ms <= one.until_ms)]
    return open_then[-1] if open_then else None


def _earliest(latter: ViewPlan, asked: Sequence[ViewPlan], situation: Situation, from_ms: int | None) -> int:
    """The earliest time at which new settings of a view can begin to hold.

    Where watermarks move its clock, that is ahead of what the clock shows, whatever the time of day is. Where nobody
    counts the view it is later by `max_ahead`: events that have been read may be so far ahead. This only keeps losses
    rare: what a partition missed it refuses as lost, whatever is worked out here (`stream_dp.windows.handover`).
    """
    path = f"views.{latter.view}"
    shown = situation.clock(asked[-1] if asked else latter)
    if shown is None and from_ms is None:
        raise ConfigError("watermarks move its clock, and no worker reports it; say when to begin: --from TIME", path)
    if shown is not None and from_ms is not None and from_ms < shown:
        raise ConfigError(
            f"--from {format_time(from_ms)} is past, its clock shows {format_time(shown)}: windows keep the settings "
            "that they were opened with; name a later time, or none",
            path,
        )
    lead_ms = LEAD_MS
    if latter.window.clock == "event" and not situation.is_counted(latter.view):
        lead_ms += latter.window.max_ahead_ms
    return max(from_ms or 0, 0 if shown is None else shown + lead_ms)


@dataclass(frozen=True, slots=True)
class Lasting:
    """Time until which a ledger pays for all its views.

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
    """Change of a ledger.

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
    """Return the worst-case cost per user and day of some views, on their schedule.

    It is the mean over the days of a period, so a view of weekly windows has its part of a week.
    """
    longest = [(view, view.ledger.periods.longest) for view in views]
    return sum((asked(view, period) * period.share(DAY_MS) for view, period in longest), Cost.ZERO)


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
        views, period = _charged_to(ledger.name, after), ledger.periods.longest
        former = {view.name: replace(view, ledger=ledger) for view in _charged_to(ledger.name, before)}
        dearer = [view for view in views if view.share is None and _is_dearer(view, former.get(view.name))]
        others = [view for view in views if view not in dearer]
        cheaper = [former[view.name] for view in dearer if view.name in former]
        with_them, without = _reaches(ledger, views), _reaches(ledger, [*others, *cheaper])
        had = _lasting_before(ledger, before)
        reach = {name: min(ms, had.get(name, period.length_ms)) for name, ms in without.items()}
        paid = [(view, windows_in(view, period, reach[view.name])) for view in others]
        fewer = [(view, now, now - windows_in(view, period, with_them[view.name])) for view, now in paid]
        victims = ", ".join(f"{gone} of {now} of {view.name}" for view, now, gone in fewer if gone > 0)
        if victims:
            for view in dearer:
                yield Fault(
                    f"views.{view.name}",
                    f"it would take windows from other views of ledger {ledger.name} in every new period: {victims}; "
                    "lower its price, raise the ledger's budget, or give it a `share` of the budget",
                )


def _is_dearer(view: ViewPlan, former: ViewPlan | None) -> bool:
    """Return True if a view may take more of a period than before: in total, or early, in fewer but dearer windows."""
    if former is None or former.share is not None:
        return True
    period = view.ledger.periods.longest
    costs_no_more = view.planned <= former.planned
    return not (costs_no_more and asked(view, period) <= asked(former, period))


def _lasting_before(ledger: LedgerPlan, before: Plan) -> dict[str, int]:
    """Return how far into a period each view of a ledger is paid for today; nothing where its periods differ."""
    was = before.ledgers.get(ledger.name)
    if was is None or was.periods.longest.length_ms != ledger.periods.longest.length_ms:
        return {}
    return _reaches(was, _charged_to(ledger.name, before))


def _reaches(ledger: LedgerPlan, views: Sequence[ViewPlan]) -> dict[str, int]:
    """Return how far into a period a ledger pays for each of some views."""
    period = ledger.periods.longest
    shares = Shares.of(ledger.budget, period, views)
    return {view.name: lasts_ms(shares, period, view) for view in views}


def _charged_to(ledger: str, plan: Plan) -> list[ViewPlan]:
    return [view for view in plan.views.values() if view.ledger.name == ledger]


def _lasting(plan: Plan, ledger: LedgerPlan, situation: Situation, begins: Mapping[str, int]) -> Lasting:
    """Return how long a ledger pays for all its views: from the rest of its period, or from a whole one."""
    views, period = _charged_to(ledger.name, plan), ledger.periods.longest
    for statement in situation.statements:
        account, reached = statement.account, statement.reached_ms
        clocks = [clock for view in views if (clock := situation.clock(view)) is not None]
        now_ms = max([reached, *clocks])
        if (account.name, account.population) == (ledger.name, ledger.population) and now_ms < account.period.end_ms:
            until = forecast(plan, statement, begins)[1]
            return Lasting(max(0, until - now_ms), until, until == account.period.end_ms)
    reach = min(_reaches(ledger, views).values(), default=period.length_ms)
    return Lasting(reach, None, reach == period.length_ms)


@dataclass(frozen=True, slots=True)
class Disclosed:
    """Change of what is disclosed of a view's windows.

    Attributes:
        what: `audience NAME`, `sharpen`, `when_short`, `rank` or `retention`.
        before: as it is now; None: nothing.
        after: as it becomes; None: nothing.
    """

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FormerEdition:
    """An edition that there is already, of which something is disclosed differently.

    Attributes:
        view: the view's name.
        edition: its number.
        from_ms: start of its first window.
        until_ms: the start of the first window that is not of it; None: there is none.
        changes: what is different.
    """

    view: str
    edition: int
    from_ms: int
    until_ms: int | None
    changes: tuple[Disclosed, ...]


def former_editions(situation: Situation, after: Plan) -> Iterator[FormerEdition]:
    """The editions whose windows may be retained, or are still to be released, and are disclosed differently.

    Args:
        situation: what is known of the application before the change.
        after: the plan that holds behind it.
    """
    for was in situation.holding.views.values():
        becomes, clock_ms = after.views.get(was.name), situation.clock(was)
        before, latter = _disclosure(was), {} if becomes is None else _disclosure(becomes)
        pairs = [(what, before.get(what), latter.get(what)) for what in dict.fromkeys([*before, *latter])]
        changes = tuple(Disclosed(what, had, has) for what, had, has in pairs if had != has)
        view = becomes or was
        for edition in view.editions if changes else ():
            until_ms = view.until(edition)
            over = None if until_ms is None else was.window.shape.paid.end(until_ms) + was.window.kept_ms
            is_gone = over is not None and clock_ms is not None and over <= clock_ms
            never = until_ms is not None and until_ms <= edition.first_ms
            if edition.number in {one.number for one in was.editions} and not (is_gone or never):
                yield FormerEdition(was.view, edition.number, edition.first_ms, until_ms, changes)


def _disclosure(view: ViewPlan) -> dict[str, str]:
    """Return what is disclosed of the windows of a definition, in words."""
    found = {f"audience {name}": _rising(view, name, level) for name, level in view.audiences.items()}
    if view.sharpen is not None:
        level, every = view.levels[view.sharpen.level].name, format_duration(view.sharpen.every_ms)
        found["sharpen"] = f"{view.sharpen.audience} to {level} every {every}"
    if view.falls_back:
        found["when_short"] = "coarser"
    if view.kind.rank is not None:
        found["rank"] = str(view.kind.rank)
    found["retention"] = format_duration(view.window.retention_ms)
    return found


def _rising(view: ViewPlan, audience: str, level: int) -> str:
    unlocks = [(view.levels[step.level].name, step.after_ms) for step in view.unlocks.get(audience, ())]
    return ", ".join([view.levels[level].name, *(f"{name} after {format_duration(after)}" for name, after in unlocks)])


BACKFILL = "apply it with --backfill; windows of what workers have read of the topic already are refused as lost"


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The noise of a count at a level: half the width of its 95 % interval, None where there is no such level."""

    level: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class ViewChange:
    """Change of a view.

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
class SettingsChange:
    """Consequences of replacing one configuration by another.

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
) -> SettingsChange:
    """Return the consequences of replacing one configuration by another.

    Args:
        before: what holds, as the plan of a file (`plan_of`).
        after: what is to hold.
        situation: what is known of the application.
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        backfill: views that are new begin with windows that are over already.
    """
    former, latter = sections_of(before.raw), sections_of(after.raw)
    settings = tuple(differences(before.raw, after.raw))
    faults = [*fixed_faults(before, after), *(restart_faults(situation.holding, after) if situation.workers else ())]
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
            views.append(
                ViewChange(
                    view=name,
                    change="new" if was is None else "removed" if becomes is None else "changed",
                    at_ms=at_ms,
                    settings=tuple(_own(name, [former, latter], settings)),
                    goes_on=was is not None and becomes is not None and is_same_definition(was, becomes),
                    day_before=None if was is None else day([was]),
                    day_after=None if becomes is None else day([becomes]),
                    levels=tuple(_levels(was, becomes)),
                )
            )
    if not backfill:
        fresh = {name for name in after.views if not situation.definitions(name)}
        faults += backlog_faults(after, fresh, situation.now_ms, BACKFILL)
    new = {one.view: one.at_ms for one in views if one.change == "new"}
    faults += starved(before, after)
    known = describe(before).warnings
    return SettingsChange(
        settings=settings,
        views=tuple(views),
        ledgers=tuple(ledger_changes(before, after, settings, new, situation)),
        warnings=(*_pools(before, after), *(words for words in describe(after).warnings if words not in known)),
        faults=tuple(faults),
    )


def _pools(before: Plan, after: Plan) -> Iterator[str]:
    """Yield warnings of ledgers that get a pool, or lose one."""
    for name, ledger in after.ledgers.items():
        former = before.ledgers.get(name)
        if former is not None and (former.pool is None) != (ledger.pool is None):
            has, costs = ("no pool", "in rho") if former.pool is None else ("a pool", "without one")
            yield (
                f"ledger {name}: a period that has begun has {has}, and refuses what is charged {costs} until it ends. "
                "Let the change be in effect from the start of a period on (--from)"
            )


def fixed_faults(before: Plan, after: Plan) -> Iterator[Fault]:
    """Yield the faults of changes that a started application can never make, whether workers run or not.

    Args:
        before: the plan in effect.
        after: the plan that replaces it.
    """
    if after.partitions != before.partitions:
        for source in {view.source.name: view.source for view in after.newest.values()}.values():
            yield Fault(
                f"sources.{source.name}.partitions",
                f"the topics of the application were created with {before.partitions} partitions, not "
                f"{source.partitions}, and state is kept by partition; give an application with another number a "
                "new name",
            )


def restart_faults(holding: Plan, after: Plan) -> Iterator[Fault]:
    """Yield the faults of changes that are possible only while no worker runs.

    Args:
        holding: what workers count by, with every definition of every view.
        after: what is to hold.
    """
    definitions = sorted(holding.views.values(), key=lambda view: view.until_ms is None)
    used = {view.source.name: view.source for view in definitions}
    again = "stop all workers, apply, start them again"
    for source in {view.source.name: view.source for view in after.newest.values()}.values():
        if used.get(source.name) != source:
            what = "differs from what the workers read" if source.name in used else "is read by no worker yet"
            yield Fault(f"sources.{source.name}", f"it {what}, and they subscribe to topics when they start; {again}")
    for name, ledger in after.ledgers.items():
        former = holding.ledgers.get(name)
        if former is not None and former.population != ledger.population:
            yield Fault(
                f"ledgers.{name}.population",
                f"what was spent is kept under these words, and other words are other people, with a budget of their "
                f"own; if that is meant, {again}",
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


def _levels(former: ViewPlan | None, latter: ViewPlan | None) -> list[LevelChange]:
    before, after = _noise(former), _noise(latter)
    return [LevelChange(name, before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before])]


def _noise(view: ViewPlan | None) -> dict[str, int]:
    return {} if view is None else {one.name: one.interval_of(view.window.shape.summands) for one in view.levels}
