"""Checks across the parts of a configuration, on whatever could be read of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise

from stream_dp.config.access import access_faults, registry_faults
from stream_dp.config.loading import Sections, unknown
from stream_dp.config.models import LevelConfig, SourceConfig, ViewConfig
from stream_dp.config.shapes import period_faults, window_faults
from stream_dp.config.unlocks import unlock_faults
from stream_dp.config.yaml_data import Data, join
from stream_dp.errors import Fault
from stream_dp.kinds.fields import check_topic
from stream_dp.windows.events import clash

PUBLIC, DEAD_LETTERS = "releases", "dead-letters"
"""Part behind the application's id in the names of the topics that others read."""
KAFKA_PREFIX = "__"
OWNERS_TOPIC = "stream-dp-owners"
"""The topic in which applications claim theirs, behind the prefix that they share."""
MOST_AUDIENCES = 100
MOST_RELEASE_TOPICS = 2000
"""Of an application. Where its audiences, its views or its topics stand in one row or record, that is no large one."""
_REFERENCES = {"source": "sources", "ledger": "ledgers", "ladder": "ladders"}


def cross_check(sections: Sections) -> list[Fault]:
    """Every fault between parts that are right by themselves.

    References are checked even of entries that are wrong elsewhere; a reference to an entry that is there but
    wrong is no fault of its own.
    """
    faults = [
        *_sources(sections),
        *_fields(sections),
        *_populations(sections),
        *_many(sections),
        *_copies(sections),
        *_shares(sections),
    ]
    if sections.broker is not None:
        faults += access_faults(sections.broker)
    if sections.registry is not None:
        faults += registry_faults(sections.registry)
    faults += _formats(sections)
    for name, ladder in sections.ladders.items():
        faults += _ladder(join("ladders", name), ladder)
    for name, ledger in sections.ledgers.items():
        faults += period_faults(join("ledgers", name), ledger)
    views = sections.raw.get("views")
    for name, raw in views.items() if isinstance(views, dict) else ():
        if isinstance(raw, dict):
            faults += _references(sections, join("views", name), raw)
            faults += _clearances(sections, join("views", name), raw)
            faults += _item(join("views", name), raw)
    for name, view in sections.views.items():
        if view.ledger in sections.ledgers:
            faults += window_faults(join("views", name), view, sections.ledgers[view.ledger])
        faults += unlock_faults(sections, join("views", name), view, readers(sections, view))
    return faults


def readers(sections: Sections, view: ViewConfig) -> list[str]:
    """The audiences of a view: those it names, or all."""
    return list(sections.audiences) if view.audiences is None else view.audiences


def dead_letter_topic(sections: Sections, name: str, source: SourceConfig) -> str:
    """The topic for what ingest refuses: as configured, or one of the application and the source's name."""
    return source.dead_letter_topic or f"{sections.id or ''}.{DEAD_LETTERS}.{name}"


def list_topic_faults(sections: Sections, path: str, topics: Iterable[str]) -> Iterator[Fault]:
    """Faults of topics that hold public lists: they are nobody else's, and not full of events.

    Args:
        sections: the configuration.
        path: of the view that needs them.
        topics: the topics.
    """
    for topic in topics:
        yield from _reserved(sections, path, topic)
        for name, source in sections.sources.items():
            if topic in {source.topic, dead_letter_topic(sections, name, source)}:
                yield Fault(path, f"{topic!r} is a topic of source {name!r}: its records are no public list")


def _sources(sections: Sections) -> Iterator[Fault]:
    sources = sections.raw.get("sources")
    entries = sources.items() if isinstance(sources, dict) else ()
    counts = {name: entry.get("partitions") for name, entry in entries if isinstance(entry, dict)}
    counts = {name: count for name, count in counts.items() if isinstance(count, int)}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield Fault("sources", f"all sources of an application need the same number of partitions, not {given}")
    topics: dict[str, str] = {}
    for name, source in sections.sources.items():
        path = join("sources", name)
        if source.topic in topics:
            yield Fault(f"{path}.topic", f"{source.topic!r} is the topic of source {topics[source.topic]!r} already")
        topics.setdefault(source.topic, name)
    for name, source in sections.sources.items():
        path = join("sources", name)
        yield from _reserved(sections, f"{path}.topic", source.topic)
        if source.key is not None and source.user is not None:
            yield Fault(
                f"{path}.user",
                "stands beside key, with which the keys of the records are not looked at: there is nothing for it to "
                "repeat; leave it out",
            )
        letters, path = source.dead_letter_topic, f"{path}.dead_letter_topic"
        if letters is None:
            continue
        if letters in topics:
            yield Fault(
                path, f"{letters!r} is the topic of source {topics[letters]!r}: refused records would be read as events"
            )
        if sections.topics is not None and not letters.startswith(sections.topics.prefix):
            yield Fault(
                path,
                f"{letters!r} does not begin with {sections.topics.prefix!r}, as every topic that the application "
                "makes does: whose it is would be looked for in vain",
            )
        yield from _reserved(sections, path, letters)


def _fields(sections: Sections) -> Iterator[Fault]:
    """Fields of one source of which no event can have all."""
    for name, source in sections.sources.items():
        views = {view: config for view, config in sections.views.items() if config.source == name}
        found = [(config.field, config.items is not None) for config in views.values()]
        found += [
            (field, False) for field in (source.key, source.user, source.time.field if source.time else None) if field
        ]
        if both := clash(found):
            yield Fault(
                join("sources", name),
                f"no event can have both of the fields {both[0]!r} and {both[1]!r} that the source and its views read: "
                "what is a text has no fields in it, and is no list",
            )


def _formats(sections: Sections) -> Iterator[Fault]:
    """Yield the fault of the first source in Avro; the others have the same."""
    avro = next((name for name, source in sections.sources.items() if source.format == "avro"), None)
    if avro is None:
        return
    if sections.registry is None and "registry" not in sections.raw:
        yield Fault(
            "registry", f"is required: values of source {avro!r} bear the number of their schema (format: avro)"
        )
    if find_spec("fastavro") is None:
        yield Fault(
            f"{join('sources', avro)}.format", "Avro is read by fastavro: pip install 'stream-dp[avro]', or write JSON"
        )


def _populations(sections: Sections) -> Iterator[Fault]:
    """Ledgers of the same people: what is spent on a population is kept in one, by the words for it."""
    ledgers: dict[str, str] = {}
    for name, ledger in sections.ledgers.items():
        if ledger.population in ledgers:
            yield Fault(
                f"{join('ledgers', name)}.population",
                f"{ledger.population!r} is the population of ledger {ledgers[ledger.population]!r} already, and one "
                "population has one ledger: let the views of both share it, and remove this one; or, if these are "
                "other people, say who they are in other words",
            )
        ledgers.setdefault(ledger.population, name)


def _many(sections: Sections) -> Iterator[Fault]:
    """More audiences or views than one application can have."""
    if len(sections.audiences) > MOST_AUDIENCES:
        yield Fault(
            "audiences", f"an application has at most {MOST_AUDIENCES}, not {len(sections.audiences)}; split it in two"
        )
    topics = sum(len(readers(sections, view)) for view in sections.views.values())
    if topics > MOST_RELEASE_TOPICS:
        yield Fault(
            "views",
            f"an application has at most {MOST_RELEASE_TOPICS} release topics, one for each audience of each view, "
            f"not {topics}; split it in two",
        )


def _copies(sections: Sections) -> Iterator[Fault]:
    topics = sections.topics
    least, copies = (None, None) if topics is None else (topics.min_insync_replicas, topics.replication)
    if least is not None and copies is not None and least > copies:
        yield Fault(
            "topics.min_insync_replicas",
            f"{least} copies would have to have a record that topics.replication makes {copies} of: nothing could be "
            "written",
        )


def _shares(sections: Sections) -> Iterator[Fault]:
    """Shares of more than the whole of a ledger."""
    for name in sections.ledgers:
        given = given_shares(sections, name)
        if (whole := sum(given.values())) > 1:
            each = ", ".join(f"{view} {share}" for view, share in given.items())
            yield Fault(
                join("ledgers", name),
                f"the shares of its views add up to {whole}, which is more than the whole: {each}; lower some, or "
                "leave them out: a view without one has what it needs of the rest",
            )


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


def _ladder(path: str, ladder: list[LevelConfig]) -> Iterator[Fault]:
    for name, times in Counter(level.level for level in ladder).items():
        if times > 1:
            yield Fault(path, f"level {name!r} stands {times} times")
    for index, (coarse, fine) in enumerate(pairwise(ladder), start=1):
        if fine.epsilon <= coarse.epsilon:
            yield Fault(
                f"{join(path, index)}.epsilon",
                f"{fine.epsilon} is not above the {coarse.epsilon} before it: a ladder rises from coarse to fine",
            )


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
            yield Fault(where, f"audience {audience!r} stands twice")


def _item(path: str, view: Mapping[str, Data]) -> Iterator[Fault]:
    words = "a field with one item of an event; or items, a field that is a list of them"
    item, items = (view.get(key) is not None for key in ("item", "items"))
    if item and items:
        yield Fault(f"{path}.items", f"stands beside item, and a view has one of the two: item, {words}")
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
    ladders = sections.ladders
    return len(ladders) < len(sections.names("ladders") or ()) or any(
        name == level.level for ladder in ladders.values() for level in ladder
    )
