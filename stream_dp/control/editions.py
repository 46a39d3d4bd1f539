"""The settings that hold: every version of them stands in the control topic, and which plan they come to is worked out.

A record has a number and whole sections of a configuration file, and says from which window on it holds for the views
that it changes. Nothing of it is ever deleted. Of several records with one number the first in the log counts. Which of
them are in effect is the subject of `stream_dp.control.acceptance`.

A view's settings from one such window to the next are an edition of it. Where an edition has another definition (a
change of anything that is counted or noised), its counts, windows and noise are kept under a name of their own; where
it does not, it goes on with those of the edition before. Of two editions that both begin before a window, the one that
was decided last holds for it. What is disclosed of the windows of all editions is as the newest settings say
(`stream_dp.control.editions`), and so are the words that readers are told (`ViewPlan.words`): a change of words alone
begins no edition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import msgspec

from stream_dp.config.differences import differences
from stream_dp.config.file_schema import ENTRIES
from stream_dp.config.plan import Edition, LedgerPlan, Plan, SharpenPlan, Unlock, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.config.yaml_data import join
from stream_dp.control.control_records import decode_control
from stream_dp.errors import ConfigError, Fault
from stream_dp.windows.encoding import MESSAGE_BYTES
from stream_dp.windows.events import clash
from stream_dp.windows.views import state_name

SETTINGS = b"settings/"
"""Control records under such a key are settings. Each has a key of its own, so that compaction leaves the first."""


class Posted(msgspec.Struct, tag_field="type", tag="settings", frozen=True):
    """Settings as they stand in the control topic.

    Attributes:
        number: 1 for those that the application was first started with; each number follows on the one before.
        sections: the data of the sections `sources`, `ledgers`, `ladders`, `audiences` and `views` of a valid file.
        begins: by view that is new or changed, the start of the first window for which that holds, in ms.
        ends: by view that is removed, the start of the first window that is not made any more.
        fingerprints: of all its views, in hexadecimal: files that they name are not in the record.
        at_ms: when it was written.
        note: why, in the words of whoever wrote it.
        accepted_ms: when the broker appended the acceptance; not part of the record.
    """

    number: int
    sections: dict[str, Any]
    begins: dict[str, int]
    ends: dict[str, int]
    fingerprints: dict[str, str]
    at_ms: int
    note: str = ""
    accepted_ms: int = 0


def encode_posted(posted: Posted) -> bytes:
    """Return settings as the value of a control record.

    Raises:
        ConfigError: they do not fit into one record, or contain a number that JSON cannot encode.
    """
    try:
        value = msgspec.json.encode(posted)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigError(f"the settings cannot be written to the control topic: {error}") from None
    if len(value) > MESSAGE_BYTES:
        raise ConfigError(
            f"the settings take {len(value)} bytes as a record; the limit is {MESSAGE_BYTES}. Put lists of keys "
            "into files or topics"
        )
    return value


def decode_posted(key: bytes | None, value: bytes | None) -> Posted | None:
    """The settings that a control record holds, None if it holds something else."""
    return decode_control(key, value, SETTINGS, Posted)


def first_record(plan: Plan, now_ms: int) -> Posted:
    """The settings of a first start.

    Args:
        plan: of the file that it is started with.
        now_ms: the wall clock; a view without a configured start begins with the window that it is in.
    """
    starts = {}
    for name, view in plan.views.items():
        first_ms = view.window.first_ms
        starts[name] = view.window.charged(now_ms).start_ms if first_ms is None else first_ms
    return next_record((), plan, starts, {}, now_ms, "the first start")


def next_record(
    known: Sequence[Posted],
    plan: Plan,
    begins: Mapping[str, int],
    ends: Mapping[str, int],
    at_ms: int,
    note: str = "",
    number: int | None = None,
) -> Posted:
    """The record that makes a plan hold.

    Args:
        known: the accepted settings so far.
        plan: what is wanted; of a file, or made from the sections of a record.
        begins: by view that is new or changed, the start of the first window for which that holds, in ms.
        ends: by view that is removed, the start of the first window that is not made any more.
        at_ms: the wall clock.
        note: why.
        number: number of the record; None: the one after the last known settings.
    """
    if number is None:
        number = known[-1].number + 1 if known else 1
    sections = {name: plan.raw[name] for name in ENTRIES}
    prints = {view.view: view.fingerprint.hex() for view in plan.newest.values()}
    return Posted(number, sections, dict(begins), dict(ends), prints, at_ms, note)


def plan_of(posted: Posted, local: Plan, only: Iterable[str] | None = None) -> Plan:
    """The plan of the sections of a record, as that of a file with them.

    Args:
        posted: the record.
        local: of a file of the application; what is not in the sections is as it says.
        only: the views that are planned; None: all.

    Raises:
        ConfigError: the views cannot be planned here, or a file that they name is not the one that it was.
    """
    views = posted.sections["views"]
    asked = set(views if only is None else only)
    needed = _needed(posted.sections, asked)
    chosen = {name: view for name, view in views.items() if name in needed}
    try:
        plan = build_plan({**local.raw, **posted.sections, "views": chosen}, local.folder)
    except ConfigError as error:
        raise ConfigError([Fault(_path(posted, fault.path), fault.message) for fault in error.faults]) from None
    faults = [
        Fault(
            _path(posted, join("views", name)),
            "a file that it names, its list of keys, was changed since these settings were posted, or another version "
            "of stream-dp posted them; put the former content back, and give a new list a file of its own name"
            f"{view.window.shape.remedy or (view.ledger.periods.remedy if view.windows_per_user else '')}",
        )
        for name, view in plan.views.items()
        if name in asked and view.fingerprint.hex() != posted.fingerprints.get(name)
    ]
    if faults:
        raise ConfigError(faults)
    return replace(plan, views={name: view for name, view in plan.views.items() if name in asked})


def _needed(sections: Mapping[str, Any], asked: Collection[str]) -> set[str]:
    """Return the views without which some cannot be planned as they were: sources of lists, and sharers of a budget."""
    views, ladders, found = sections["views"], sections["ladders"], set(asked)
    while True:
        chosen = [view for name, view in views.items() if name in found]
        lists = [view.get("catalogue") for view in chosen]
        sharing = {view["ledger"] for view in chosen if any("share" in one for one in ladders[view["ladder"]])}
        more = {made["from"] for made in lists if isinstance(made, Mapping) and "from" in made}
        more |= {name for name, view in views.items() if view["ledger"] in sharing}
        if more <= found:
            return found
        found |= more


def plan_holding(known: Sequence[Posted], local: Plan) -> Plan:
    """The plan that settings come to: every definition of every view, each with its editions.

    Args:
        known: the accepted settings; if there are none, the file's own plan is in effect.
        local: of a file of the application, which says what is peculiar to a machine: the broker, folders and files,
            when releases leave, how topics are made.

    Raises:
        ConfigError: as `plan_of`; a view was changed that the record does not say so of; or a source has the name of
            another one.
    """
    if not known:
        return local
    definitions: dict[str, list[ViewPlan]] = {}
    for record in known[:-1]:
        _follow(definitions, record, plan_of(record, local, record.begins).views if record.begins else {})
    last, newest = known[-1], plan_of(known[-1], local)
    _follow(definitions, last, newest.views)
    _check_sources(definitions)
    order = dict.fromkeys([*newest.views, *definitions])
    every = [one for name in order for one in disclosed(definitions[name], newest.views.get(name), newest.audiences)]
    return replace(
        local,
        views={one.name: _paid_by(newest.ledgers, one) for one in every},
        ledgers=newest.ledgers,
        audiences=newest.audiences,
        partitions=newest.partitions,
        raw={**local.raw, **last.sections},
        settings=last.number,
        disclosed_ms=_disclosed_ms(known),
        joined_ms=_joined_ms(known),
    )


def _disclosed_ms(known: Sequence[Posted]) -> dict[str, dict[str, int]]:
    """Return when settings were accepted that last changed what an audience may see of a view, by view and audience.

    A worker may miss some settings and go by later ones at once. So this is a property of the settings, whichever of
    them a worker has gone by.
    """
    found: dict[str, dict[str, int]] = {}
    before: Mapping[tuple[str, str], Any] = {}
    for record in known:
        now = _shown(record.sections)
        for view, audience in before.keys() | now.keys():
            if before.get((view, audience)) != now.get((view, audience)):
                found.setdefault(view, {})[audience] = record.accepted_ms
        before = now
    return found


def _joined_ms(known: Sequence[Posted]) -> dict[str, dict[str, int]]:
    """Return when settings were accepted that last added an audience to a view, by view and audience."""
    found: dict[str, dict[str, int]] = {}
    before: Collection[tuple[str, str]] = ()
    for record in known:
        now = _shown(record.sections).keys()
        for view, audience in now - before:
            found.setdefault(view, {})[audience] = record.accepted_ms
        before = now
    return found


def _shown(sections: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return what settings say about the levels of each view's audiences, by view and audience."""
    found: dict[tuple[str, str], Any] = {}
    for name, view in sections["views"].items():
        ladder = sections["ladders"].get(view["ladder"])
        for audience in view.get("audiences") or sections["audiences"]:
            found[name, audience] = (sections["audiences"].get(audience), ladder, view.get("sharpen"))
    return found


def presented(plan: Plan) -> Plan:
    """A plan as operators see it: of every view that was not removed its newest definition, under the view's name."""
    return replace(plan, views={name: replace(view, name=name) for name, view in plan.newest.items()})


def differing(file: Plan, number: int, sections: Mapping[str, Any], consequence: str) -> str | None:
    """Return a message if a file's settings differ from those in effect; None if they mean the same.

    Args:
        file: of the file.
        number: of the settings that hold.
        sections: their data.
        consequence: what is done about it.
    """
    paths = [setting.path for setting in differences(sections, file.raw)]
    if not paths:
        return None
    differ = ", ".join(paths)
    return f"settings {number} are in effect; the file differs in {differ}: {consequence}; run `stream-dp apply FILE`"


def beginnings(known: Iterable[Posted]) -> Mapping[str, int]:
    """Where each view began that there is, by its name; one that was taken out and came again, where it came again."""
    found: dict[str, int] = {}
    for record in known:
        found = {**record.begins, **{name: at_ms for name, at_ms in found.items() if name not in record.ends}}
    return found


def _follow(definitions: dict[str, list[ViewPlan]], record: Posted, views: Mapping[str, ViewPlan]) -> None:
    """Go on with the definitions of every view by one record, which plans some of them."""
    for name, until_ms in record.ends.items():
        definitions[name] = [_ended(one, until_ms) for one in definitions.get(name, ())]
    for name, view in views.items():
        asked = definitions.setdefault(name, [])
        last = asked[-1] if asked and asked[-1].until_ms is None else None
        goes_on = last is not None and is_same_definition(last, view)
        if name not in record.begins:
            if last is None or not goes_on:
                raise ConfigError("it is changed, and does not say when", path=_path(record, join("views", name)))
            asked[-1] = replace(view, name=last.name, editions=last.editions)
            continue
        number, first_ms = 1 + sum(len(one.editions) for one in asked), record.begins[name]
        if last is not None and goes_on and first_ms >= last.begins_ms:
            edition = view.as_edition(number, first_ms)
            asked[-1] = replace(view, name=last.name, editions=(*last.editions, edition))
        else:
            asked[:] = [_ended(one, first_ms) for one in asked]
            asked.append(replace(view, name=state_name(name, number)).begun(first_ms, number))


def _ended(view: ViewPlan, until_ms: int) -> ViewPlan:
    """A definition that ends at a time; no window of it is cut."""
    until_ms = max(view.begins_ms, view.window.shape.paid.first_open(until_ms))
    return view if view.until_ms is not None and view.until_ms <= until_ms else replace(view, until_ms=until_ms)


def _paid_by(ledgers: Mapping[str, LedgerPlan], view: ViewPlan) -> ViewPlan:
    """A definition under the budget that its ledger has now, which periods begin with; its periods fit its windows."""
    for ledger in ledgers.values():
        if ledger.fingerprint == view.ledger.fingerprint and (ledger.pool is None) == (view.ledger.pool is None):
            return replace(view, ledger=replace(ledger, periods=view.ledger.periods))
    return view


def is_same_definition(view: ViewPlan, other: ViewPlan) -> bool:
    """Return True if nothing is different of what is counted, when windows close, and what is noised."""
    times = ("window.grace_ms", "window.max_ahead_ms", "window.idle_ms", "window.catch_up_ms")
    closing = attrgetter("fingerprint", "window.clock", *times)
    return bool(closing(view) == closing(other))


def _check_sources(definitions: Mapping[str, Sequence[ViewPlan]]) -> None:
    """Check that sources keep their topic: their progress is stored under their name."""
    every = [one for asked in definitions.values() for one in asked]
    topics: dict[str, str] = {}
    for source in (one.source for one in every):
        if topics.setdefault(source.name, source.topic) != source.topic:
            raise ConfigError(
                f"its topic was {topics[source.name]}, and its progress is stored under its name; give a source with "
                "another topic a name of its own",
                path=f"sources.{source.name}",
            )
    for name in topics:
        if both := clash((one.item_field, one.has_lists) for one in every if one.source.name == name):
            raise ConfigError(
                f"no event can have both of the fields {both[0]!r} and {both[1]!r}, and windows of all settings are "
                "read from it; read the other field from a source of another topic and name",
                path=f"sources.{name}",
            )


def _path(posted: Posted, path: str) -> str:
    return f"settings {posted.number}: {path}"


@dataclass(frozen=True, slots=True)
class Held:
    """An edition of a view, and the windows that it holds for.

    Attributes:
        view: the view's name.
        edition: its number; 1 for the settings that the view began with.
        settings: the number of the record that made it.
        from_ms: start of its first window.
        until_ms: start of the first window that it does not hold for; None: it holds for all that begin later.
    """

    view: str
    edition: int
    settings: int
    from_ms: int
    until_ms: int | None

    @property
    def never_holds(self) -> bool:
        """True if another one was decided before it began, and took its place."""
        return self.until_ms is not None and self.until_ms <= self.from_ms


def editions(known: Sequence[Posted]) -> list[Held]:
    """Every edition of every view, views in the order in which they first began, their editions as they were decided.

    Of those that begin before a window the one that was decided last holds for it.

    Args:
        known: the accepted settings.
    """
    views = dict.fromkeys(view for record in known for view in record.begins)
    return [held for view in views for held in _of(view, known)]


def _of(view: str, known: Sequence[Posted]) -> Iterator[Held]:
    made = [record for record in known if view in record.begins]
    for number, record in enumerate(made, start=1):
        later = [one for one in known if one.number > record.number]
        ends = [at_ms for one in later for at_ms in (one.begins.get(view), one.ends.get(view)) if at_ms is not None]
        yield Held(view, number, record.number, record.begins[view], min(ends, default=None))


NOBODY = -1
"""The index of no level."""


def disclosed(
    definitions: Sequence[ViewPlan], newest: ViewPlan | None, audiences: Collection[str]
) -> Iterator[ViewPlan]:
    """The definitions of a view with what the newest settings disclose of their windows.

    Args:
        definitions: with their editions, as they were decided.
        newest: the view by the newest settings; None where it was taken out.
        audiences: those of the newest settings.
    """
    former = dict.fromkeys(name for one in definitions for edition in one.editions for name in edition.audiences)
    for at, definition in enumerate(definitions, start=1):
        found = _disclosed(definition, newest, audiences)
        behind = (edition for one in definitions[at:] if not one.never_holds for edition in one.editions)
        yield replace(
            found,
            former=tuple(name for name in former if name not in found.audiences),
            later=tuple((edition.number, edition.first_ms) for edition in behind),
        )


def _disclosed(definition: ViewPlan, newest: ViewPlan | None, audiences: Collection[str]) -> ViewPlan:
    if newest is None:
        still = [{name: at for name, at in one.audiences.items() if name in audiences} for one in definition.editions]
        editions = tuple(replace(one, audiences=left) for one, left in zip(definition.editions, still, strict=True))
        return replace(definition, audiences={}, unlocks={}, sharpen=None, editions=editions, is_removed=True)
    named = level_indices(definition, newest)
    levels = [named[level.name] for level in newest.levels]
    found = {audience: levels[at] for audience, at in newest.audiences.items() if levels[at] != NOBODY}
    steps = {audience: tuple(_rising(newest.unlocks.get(audience, ()), levels, at)) for audience, at in found.items()}
    return replace(
        definition,
        audiences=found,
        unlocks={audience: rising for audience, rising in steps.items() if rising},
        sharpen=_sharpen(definition, newest, found, levels),
        falls_back=newest.falls_back,
        kind=definition.kind.presented_as(newest.kind),
        window=replace(definition.window, retention_ms=newest.window.retention_ms),
        editions=tuple(replace(one, audiences=_opened_with(one, found)) for one in definition.editions),
        named={name: at for name, at in named.items() if all(level.name != name for level in definition.levels)},
        words=newest.words,
    )


def level_indices(definition: ViewPlan, newest: ViewPlan) -> dict[str, int]:
    """Return the index in a definition's ladder of level names: its own, and those of the newest definition.

    Args:
        definition: the definition.
        newest: the view by the newest settings.
    """
    own = {level.name: at for at, level in enumerate(definition.levels)}
    order = {level.name: at for at, level in enumerate(newest.levels)}
    found = dict(own)
    for wanted in newest.levels:
        if wanted.name not in own:
            affordable = (at for at, level in enumerate(definition.levels) if level.epsilon <= wanted.epsilon)
            no_finer = (at for at in affordable if order.get(definition.levels[at].name, NOBODY) <= order[wanted.name])
            found[wanted.name] = max(no_finer, default=NOBODY)
    return found


def _opened_with(edition: Edition, found: Mapping[str, int]) -> dict[str, int]:
    """Who gets the windows of an edition when they are released."""
    own = edition.audiences
    still = {name: min(at, found[name]) for name, at in own.items() if name in found}
    return still or {name: min(at, max(own.values())) for name, at in found.items()}


def _rising(steps: Sequence[Unlock], levels: Sequence[int], had: int) -> Iterator[Unlock]:
    """The unlocks of an audience that show it more than it had; `levels` has the definition's for the newest ones."""
    for step in steps:
        if levels[step.level] > had:
            had = levels[step.level]
            yield Unlock(had, step.after_ms)


def _sharpen(
    definition: ViewPlan, newest: ViewPlan, found: Mapping[str, int], levels: Sequence[int]
) -> SharpenPlan | None:
    """Return the plan for leftover budget; None for windows of panes, for which no file may have one."""
    wanted, window = newest.sharpen, definition.window
    if wanted is None or wanted.audience not in found or definition.most_panes > 1 or window.shape.tells_totals:
        return None
    level = levels[wanted.level]
    return replace(wanted, level=level) if level > found[wanted.audience] else None
