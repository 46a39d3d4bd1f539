"""Checks across the parts of a configuration, on whatever could be read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise
from types import MappingProxyType

from stream_dp.config.access import access_faults, registry_faults
from stream_dp.config.file_schema import (
    SHORTEST_MS,
    LedgerConfig,
    LevelConfig,
    SourceConfig,
    UnlockConfig,
    ViewConfig,
)
from stream_dp.config.loading import Sections, unknown
from stream_dp.config.yaml_data import Data, join
from stream_dp.errors import Fault
from stream_dp.kinds import KINDS
from stream_dp.kinds.fields import check_topic
from stream_dp.kinds.kind import KindPlan
from stream_dp.kinds.public_lists import PUBLIC, ReleaseSettings
from stream_dp.windows.durations import CalendarUnit, format_duration, format_time
from stream_dp.windows.events import clash
from stream_dp.windows.shapes import asked_shape
from stream_dp.windows.shapes.shape import Settings, Shape
from stream_dp.windows.shapes.tumbling import Tiling

DEAD_LETTERS = "dead-letters"
"""Part behind the application's id in the names of the topics that others read."""
KAFKA_PREFIX = "__"
OWNERS_TOPIC = "stream-dp-owners"
"""The topic in which applications claim theirs, behind the prefix that they share."""
MOST_AUDIENCES = 1000
MOST_RELEASE_TOPICS = 2000
"""Of an application. Where its audiences, its views or its topics stand in one row or record, that is no large one."""
_REFERENCES = {"source": "sources", "ledger": "ledgers", "ladder": "ladders"}


def cross_check(sections: Sections) -> list[Fault]:
    """Every fault between parts that are right by themselves.

    References are checked even of entries that are wrong elsewhere; a reference to an entry that is there but
    wrong is no fault of its own.
    """
    checks = (_sources, _fields, _populations, _many, _copies, _shares)
    faults = [fault for check in checks for fault in check(sections)]
    if sections.broker is not None:
        faults += access_faults(sections.broker)
    if sections.registry is not None:
        faults += registry_faults(sections.registry)
    faults += _formats(sections)
    for name, ladder in sections.ladders.items():
        faults += ladder_faults(join("ladders", name), ladder)
    for name, ledger in sections.ledgers.items():
        faults += _period_faults(join("ledgers", name), ledger)
    views = sections.raw.get("views")
    for name, raw in views.items() if isinstance(views, dict) else ():
        if isinstance(raw, dict):
            faults += _references(sections, join("views", name), raw)
            faults += _clearances(sections, join("views", name), raw)
            faults += _item(join("views", name), raw)
    for name, view in sections.views.items():
        if view.ledger in sections.ledgers:
            faults += _window_faults(join("views", name), view, sections.ledgers[view.ledger])
        faults += unlock_faults(sections, join("views", name), view, readers(sections, view))
    return faults


def readers(sections: Sections, view: ViewConfig) -> list[str]:
    """The audiences of a view: those it names, or all."""
    return list(sections.audiences) if view.audiences is None else view.audiences


def dead_letter_topic(sections: Sections, name: str, source: SourceConfig) -> str:
    """The topic for what ingest refuses: as configured, or one of the application and the source's name."""
    return source.dead_letter_topic or f"{sections.id or ''}.{DEAD_LETTERS}.{name}"


def list_faults(sections: Sections, path: str, view: str, kind: KindPlan) -> Iterator[Fault]:
    """Faults of lists that are made of releases or kept in topics. Such a topic is for the list alone: no events.

    Args:
        sections: the configuration.
        path: of the view that needs them.
        view: its name.
        kind: its plan.
    """
    if kind.made_of is not None:
        yield from _made_of_faults(sections, path, view, kind.made_of)
        return
    for topic in kind.topics:
        yield from _reserved(sections, path, topic)
        for name, source in sections.sources.items():
            if topic in {source.topic, dead_letter_topic(sections, name, source)}:
                yield Fault(path, f"{topic!r} is a topic of source {name!r}: its records are no public list")


def _made_of_faults(sections: Sections, path: str, view: str, made_of: ReleaseSettings) -> Iterator[Fault]:
    other, where = sections.views.get(made_of.view), f"{path}.catalogue"
    names = sections.names("views") or ()
    if other is not None and made_of.view == view and getattr(other, "remember", None) is not None:
        if made_of.audience not in (known := readers(sections, other)):
            words = f"audience {made_of.audience!r} does not read this view; {', '.join(known)} do"
            yield Fault(f"{path}.remember", words)
    elif made_of.view not in names:
        yield Fault(where, f"no view is named {made_of.view!r}; {unknown(made_of.view, names)}")
    elif made_of.view == view:
        yield Fault(where, "a view has no list of its own keys; take a histogram, and name that")
    elif other is not None:
        if isinstance(getattr(other, "catalogue", None), ReleaseSettings):
            yield Fault(
                where, f"the list of view {made_of.view!r} is made of releases itself; name one that finds keys"
            )
        if not KINDS[other.kind].names_keys:
            yield Fault(where, f"a {other.kind} shows no keys; name a view that does")
        if made_of.audience not in (known := readers(sections, other)):
            yield Fault(
                where, f"audience {made_of.audience!r} does not read view {made_of.view!r}; {', '.join(known)} do"
            )


def _sources(sections: Sections) -> Iterator[Fault]:
    sources = sections.raw.get("sources")
    entries = sources.items() if isinstance(sources, dict) else ()
    counts = {name: entry.get("partitions") for name, entry in entries if isinstance(entry, dict)}
    counts = {name: count for name, count in counts.items() if isinstance(count, int)}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield Fault("sources", f"all sources of an application need the same number of partitions, not {given}")
    topics = {name: source.topic for name, source in sections.sources.items()}
    for name, first in _repeated(topics):
        yield Fault(f"{join('sources', name)}.topic", f"{topics[name]!r} is the topic of source {first!r} already")
    owners = {topic: name for name, topic in reversed(topics.items())}
    prefix = "" if sections.topics is None else sections.topics.prefix
    for name, source in sections.sources.items():
        path, letters = join("sources", name), source.dead_letter_topic
        yield from _reserved(sections, f"{path}.topic", source.topic)
        if source.key is not None and source.user is not None:
            yield Fault(f"{path}.user", "cannot be combined with key, which replaces the record key; leave it out")
        if letters is None:
            continue
        path = f"{path}.dead_letter_topic"
        if letters in owners:
            yield Fault(path, f"{letters!r} is the topic of source {owners[letters]!r}; choose another topic")
        if not letters.startswith(prefix):
            yield Fault(path, f"{letters!r} does not begin with topics.prefix, {prefix!r}; add the prefix")
        yield from _reserved(sections, path, letters)


def _repeated(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names whose value an earlier name has, and that name."""
    first: dict[str, str] = {}
    for name, value in values.items():
        if first.setdefault(value, name) != name:
            yield name, first[value]


def _fields(sections: Sections) -> Iterator[Fault]:
    """Fields of one source of which no event can have all."""
    for name, source in sections.sources.items():
        views = [view for view in sections.views.values() if view.source == name]
        own = [source.key, source.user, source.time.field if source.time else None]
        fields = [*((view.field, view.items is not None) for view in views), *((one, False) for one in own if one)]
        if both := clash(fields):
            yield Fault(
                join("sources", name),
                f"no event can have both of the fields {both[0]!r} and {both[1]!r} that the source and its views read: "
                "a text has no fields, and is no list",
            )


def _formats(sections: Sections) -> Iterator[Fault]:
    """Yield the fault of the first source in Avro; the others have the same."""
    avro = next((name for name, source in sections.sources.items() if source.format == "avro"), None)
    if avro is None:
        return
    if sections.registry is None and "registry" not in sections.raw:
        yield Fault("registry", f"is required by format: avro of source {avro!r}, for the schemas of its values")
    if find_spec("fastavro") is None:
        path = f"{join('sources', avro)}.format"
        yield Fault(path, "Avro is read by fastavro: pip install 'stream-dp[avro]', or write JSON")


def _populations(sections: Sections) -> Iterator[Fault]:
    """Ledgers of the same people: what is spent on a population is kept in one, by the words for it."""
    populations = {name: ledger.population for name, ledger in sections.ledgers.items()}
    for name, first in _repeated(populations):
        yield Fault(
            f"{join('ledgers', name)}.population",
            f"{populations[name]!r} is the population of ledger {first!r} already. Use that ledger for the views of "
            "both; or, if these are other people, describe them in other words",
        )


def _many(sections: Sections) -> Iterator[Fault]:
    """More audiences or views than one application can have."""
    audiences = len(sections.audiences)
    if audiences > MOST_AUDIENCES:
        yield Fault("audiences", f"an application has at most {MOST_AUDIENCES}, not {audiences}; split it in two")
    topics = sum(len(readers(sections, view)) for view in sections.views.values())
    if topics > MOST_RELEASE_TOPICS:
        most = f"at most {MOST_RELEASE_TOPICS}, not {topics}; split the application in two"
        yield Fault("views", f"one release topic for each audience of each view: {most}")


def _copies(sections: Sections) -> Iterator[Fault]:
    topics = sections.topics
    least, copies = (None, None) if topics is None else (topics.min_insync_replicas, topics.replication)
    if least is not None and copies is not None and least > copies:
        path = "topics.min_insync_replicas"
        yield Fault(path, f"must be at most topics.replication, {copies}, not {least}: nothing could be written")


def _shares(sections: Sections) -> Iterator[Fault]:
    """Shares of more than the whole of a ledger."""
    for name in sections.ledgers:
        given = given_shares(sections, name)
        if (whole := sum(given.values())) > 1:
            each = ", ".join(f"{view} {share}" for view, share in given.items())
            words = f"the shares of its views add up to {whole}, more than 1: {each}; lower some, or leave them out"
            yield Fault(join("ledgers", name), words)


def given_shares(sections: Sections, ledger: str) -> dict[str, Fraction]:
    """By view, the shares of a ledger that are given."""
    views = sections.views.items()
    return {name: view.share for name, view in views if view.ledger == ledger and view.share is not None}


def _reserved(sections: Sections, path: str, topic: str) -> Iterator[Fault]:
    try:
        check_topic(topic)
    except ValueError as error:
        yield Fault(path, str(error))
    own = sections.id
    internal = [] if own is None else [f"{own}-", f"{own}.{PUBLIC}.", f"{own}.{DEAD_LETTERS}."]
    for prefix in [KAFKA_PREFIX, *internal]:
        if topic.startswith(prefix):
            yield Fault(path, f"{topic!r} could be an internal topic: names that begin with {prefix!r} are reserved")
    if sections.topics is not None and topic == sections.topics.prefix + OWNERS_TOPIC:
        yield Fault(path, f"{topic!r} is the topic in which applications claim theirs")


def ladder_faults(path: str, ladder: Sequence[LevelConfig]) -> Iterator[Fault]:
    """Faults of a ladder."""
    for name, times in Counter(level.level for level in ladder).items():
        if times > 1:
            yield Fault(path, f"duplicate level {name!r}")
    key = "share" if ladder[0].epsilon is None else "epsilon"
    for index, level in enumerate(ladder):
        if (level.epsilon is None) == (level.share is None):
            words = "write epsilon, or share: the part of the epsilon that the ledger affords for every window"
            yield Fault(join(path, index), words)
        elif getattr(level, key) is None:
            yield Fault(join(path, index), f"write {key}, as the levels before it: a ladder has one or the other")
    for index, (coarse, fine) in enumerate(pairwise(ladder), start=1):
        if getattr(coarse, key) and getattr(fine, key) and fine.size <= coarse.size:
            words = f"{fine.size} is not above the {coarse.size} before it: a ladder rises from coarse to fine"
            yield Fault(f"{join(path, index)}.{key}", words)


def _references(sections: Sections, path: str, view: Mapping[str, Data]) -> Iterator[Fault]:
    for key, section in _REFERENCES.items():
        value, names = view.get(key), sections.names(section)
        if isinstance(value, str) and names is not None and value not in names:
            yield Fault(f"{path}.{key}", f"no {key} is named {value!r}; {unknown(value, names)}")
    audiences, names = view.get("audiences"), sections.names("audiences")
    if not isinstance(audiences, list) or names is None:
        return
    for index, audience in enumerate(audiences):
        where = join(f"{path}.audiences", index)
        if isinstance(audience, str) and audience not in names:
            yield Fault(where, f"no audience is named {audience!r}; {unknown(audience, names)}")
        elif audience in audiences[:index]:
            yield Fault(where, f"duplicate audience {audience!r}")


def _item(path: str, view: Mapping[str, Data]) -> Iterator[Fault]:
    words = "a field with one item of an event; or items, a field that is a list of them"
    item, items = (view.get(key) is not None for key in ("item", "items"))
    if item and items:
        yield Fault(f"{path}.items", f"cannot be combined with item; write one of the two: item, {words}")
    elif not item and not items:
        yield Fault(f"{path}.item", f"is required: {words}")


def _clearances(sections: Sections, path: str, view: Mapping[str, Data]) -> Iterator[Fault]:
    ladder, named = view.get("ladder"), view.get("audiences")
    if not isinstance(ladder, str) or ladder not in sections.ladders:
        return
    levels = [level.level for level in sections.ladders[ladder]]
    reader = path.partition(".")[2]
    for audience, clearance in ((name, config.level) for name, config in sections.audiences.items()):
        reads = named is None or (isinstance(named, list) and audience in named)
        if not reads or clearance in levels:
            continue
        words = f"ladder {ladder!r} has no level {clearance!r}"
        if _is_level(sections, clearance):
            where = f"{path}.{'ladder' if named is None else 'audiences'}"
            words += f", at which audience {audience!r} starts; choose another ladder, or other audiences"
        else:
            given = sections.raw["audiences"][audience]
            where = join("audiences", audience) + (".level" if isinstance(given, dict) else "")
            words += f", and view {reader!r} has that ladder; {unknown(clearance, levels)}"
        yield Fault(where, words)


def _is_level(sections: Sections, name: str) -> bool:
    """Return True if any ladder has a level of that name; also one that is wrong elsewhere may."""
    levels = [level.level for ladder in sections.ladders.values() for level in ladder]
    return name in levels or len(sections.ladders) < len(sections.names("ladders") or ())


def unlocks_of(sections: Sections, view: ViewConfig, audience: str) -> Sequence[UnlockConfig]:
    """The schedule of an audience of a view: the view's own, else that of the audience."""
    own = view.unlock.get(audience)
    return sections.audiences[audience].unlock if own is None else own


def unlock_faults(sections: Sections, path: str, view: ViewConfig, names: Sequence[str]) -> Iterator[Fault]:
    """Faults of the schedules of a view, and of its use of leftover budget.

    Args:
        sections: the configuration.
        path: of the view.
        view: its configuration.
        names: the audiences that read it.
    """
    for audience in view.unlock:
        if audience not in names:
            yield Fault(f"{path}.unlock.{audience}", f"does not read the view; {unknown(audience, names)}")
    if view.ladder not in sections.ladders:
        return
    index = {level.level: at for at, level in enumerate(sections.ladders[view.ladder])}
    for audience in filter(sections.audiences.__contains__, names):
        place, about = f"{path}.unlock.{audience}", ""
        if audience not in view.unlock:
            place, about = f"audiences.{audience}.unlock", f"view {path.partition('.')[2]}: "
        yield from _schedule(sections, place, about, view, audience, index)
    yield from _sharpen(sections, f"{path}.sharpen", view, names, index)


def _schedule(
    sections: Sections, path: str, about: str, view: ViewConfig, audience: str, index: Mapping[str, int]
) -> Iterator[Fault]:
    coarse, early = sections.audiences[audience].level, 0
    retention = format_duration(view.retention)
    for at, step in enumerate(unlocks_of(sections, view, audience)):
        where, fine, late = join(path, at), step.level, format_duration(step.after)
        if fine not in index:
            words = f"ladder {view.ladder!r} has no level {fine!r}; {unknown(fine, index)}"
            yield Fault(f"{where}.level", about + words)
        elif index[fine] <= index.get(coarse, -1):
            yield Fault(f"{where}.level", f"{about}{fine!r} is not finer than {coarse!r} before it")
        if step.after > view.retention:
            words = f"{late} is longer than its retention, {retention}; lower `after`, or raise the retention"
            yield Fault(f"{where}.after", about + words)
        if step.after <= early:
            yield Fault(f"{where}.after", f"{about}{late} is not later than the {format_duration(early)} before it")
        coarse, early = fine, step.after


def _sharpen(
    sections: Sections, path: str, view: ViewConfig, names: Sequence[str], index: Mapping[str, int]
) -> Iterator[Fault]:
    wanted = view.sharpen
    if wanted is None:
        return
    level, reader = wanted.level, wanted.audience
    start = sections.audiences[reader].level if reader in sections.audiences else ""
    if view.window.pane is not None:
        yield Fault(path, "cannot be combined with `window.pane`; use `unlock`, or grants")
    if reader not in names:
        yield Fault(f"{path}.audience", f"{reader!r} does not read the view; {unknown(reader, names)}")
    if level not in index:
        yield Fault(f"{path}.level", f"ladder {view.ladder!r} has no such level; {unknown(level, index)}")
    elif start and index[level] <= index.get(start, -1):
        yield Fault(f"{path}.level", f"{level!r} is not finer than {start!r}, which {reader} has")
    if wanted.every > view.retention:
        every, retention = format_duration(wanted.every), format_duration(view.retention)
        yield Fault(f"{path}.every", f"{every} is longer than the view's retention, {retention}; write less")


def shape_of(lengths: Settings) -> Shape:
    """Return the shape of a view's windows, or of a ledger's periods; the lengths go together."""
    return asked_shape(lengths).planned(lengths)


def _period_faults(path: str, ledger: LedgerConfig) -> Iterator[Fault]:
    for fault in asked_shape(ledger.lengths).faults(ledger.lengths):
        yield Fault(join(path, "period" if fault.path == "size" else fault.path), fault.message)


def _window_faults(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Faults of the lengths of a view's windows, alone and beside its ledger's periods."""
    faults = list(asked_shape(view.lengths).faults(view.lengths))
    if faults or any(_period_faults("", ledger)):
        yield from (Fault(f"{path}.window.{one.path}", one.message) for one in faults)
    else:
        yield from _straddling(path, view, ledger)
        yield from _participation_faults(path, view)


def _participation_faults(path: str, view: ViewConfig) -> Iterator[Fault]:
    """Faults of the number of windows that a user is counted in."""
    most, at_once = view.windows_per_user, shape_of(view.lengths).paid.at_once
    if most is None and view.pacing != "none":
        yield Fault(f"{path}.pacing", "paces what windows_per_user allows; give that too, or leave pacing out")
    if most is not None and most % at_once:
        yield Fault(
            f"{path}.windows_per_user",
            f"an event counts in {at_once} windows that overlap; give a multiple of {at_once}, as "
            f"{-(-most // at_once) * at_once}",
        )


def _straddling(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Windows of which one could be in two periods: charged to one, they would be free in the other.

    Of windows that hop such are left out; but the others have to begin with every period and end with it. Of windows
    that are made of panes it is the panes that are charged, but where these are charged together.
    """
    windows, periods = shape_of(view.lengths).paid, shape_of(ledger.lengths)
    grid, hops = windows.grid, windows.at_once > 1
    if windows.tiles(periods):
        return
    if hops and windows.shortest_ms > periods.shortest_ms:
        yield Fault(
            f"{path}.window.size",
            f"windows of {windows.words} do not fit into a period of ledger {view.ledger!r}, {periods.words}; give the "
            f"window a size of at most that, or the ledger a period of {windows.words} or more",
        )
        return
    paned = view.window.pane is not None and not KINDS[view.kind].running
    key, what = ("step", "steps") if hops else ("pane", "panes") if paned else ("size", "windows")
    if isinstance(grid, Tiling) and isinstance(periods, Tiling):
        wrong, offers = _lengths(view, grid, periods, key)
    else:
        wrong, offers = key, _calendars(view, ledger, key)
    why = "the first window of a period begins with it, and the last ends with it"
    why = why if hops else "one that is in two periods would be charged to the first alone"
    yield Fault(
        f"{path}.window.{wrong}",
        f"{what} of {grid.since} do not tile the periods of ledger {view.ledger!r}, {periods.since}: {why}; give "
        f"{offers}",
    )


def _lengths(view: ViewConfig, grid: Tiling, periods: Tiling, key: str) -> tuple[str, str]:
    """The key that is wrong, and what would fit, where all lengths are fixed.

    A view without `window.start` has windows since 1970 as far as that goes; it is offered the ledger's start, since an
    earlier one would release every window from then on.
    """
    divides = view.window.pane is not None or key == "step"
    fitting, tiled = grid.to_tile_with(periods) if divides else grid.to_tile(periods), periods.to_be_tiled(grid)
    if view.window.start is None and fitting.origin_ms != grid.origin_ms:
        fitting = replace(fitting, origin_ms=periods.origin_ms)
    remedies = [("the window", key, grid, [fitting])] if fitting.length_ms >= SHORTEST_MS else []
    remedies.append((f"ledger {view.ledger!r}", "period", periods, tiled))
    offers = ", or ".join(f"{of} {_offer(key, former, others)}" for of, key, former, others in remedies)
    return "start" if fitting.length_ms == grid.length_ms else key, offers


_LENGTHS: Mapping[str, int | CalendarUnit] = MappingProxyType(
    {"15m": 900_000, "30m": 1_800_000, "1h": 3_600_000, "1d": 86_400_000}
    | {one: one for one in CalendarUnit if one is not CalendarUnit.DAY}
)
"""Calendar lengths that are offered, the shortest first."""


def _calendars(view: ViewConfig, ledger: LedgerConfig, key: str) -> str:
    """Lengths that fit if windows or periods follow a calendar: the longest windows, the shortest periods."""
    windows, periods = shape_of(view.lengths).paid, shape_of(ledger.lengths)
    zones = dict.fromkeys([view.window.zone, ledger.zone])
    known = [Settings(size, zone=zone) for size in _LENGTHS.values() for zone in zones]
    planned = [(one, asked_shape(one).planned(one)) for one in known if not any(asked_shape(one).faults(one))]
    sized = [(one, shape) for one, shape in planned if key == "size" or isinstance(shape, Tiling)]
    fitting = [one for one, shape in sized if shape.tiles(periods)]
    tiled = [one for one, shape in planned if windows.tiles(shape)]
    longest = [one for one in fitting if one.size == view.window.size] or fitting[-1:]
    shortest = [one for one in tiled if one.size == ledger.period] or tiled[:1]
    offers = [f"the window {_written(key, one)}" for one in longest]
    return ", or ".join([*offers, *(f"ledger {view.ledger!r} {_written('period', one)}" for one in shortest)])


def _written(key: str, settings: Settings) -> str:
    size = next(text for text, size in _LENGTHS.items() if size == settings.size)
    return f"{key}: {size}" + (f" and zone: {settings.zone}" if settings.zone else "")


def _offer(key: str, former: Tiling, others: Sequence[Tiling]) -> str:
    """Settings to write instead of the former length and start, where they differ: "size: 6d" or "period: 1d or 2d"."""
    lengths = [other.length_ms for other in others]
    words = [] if former.length_ms in lengths else [f"{key}: {' or '.join(map(format_duration, lengths))}"]
    start = others[0].origin_ms
    return " and ".join([*words, *([f"start: {format_time(start)}"] if start != former.origin_ms else [])])
