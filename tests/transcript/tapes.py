"""Makes small applications and transcripts for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from tests.transcript.predictions import Prediction, Record
from tests.transcript.simulator import simulate
from tests.transcript.transcript import (
    Control,
    Gap,
    LossAccepted,
    PartitionEvent,
    Settings,
    StoredList,
    Tick,
    Transcript,
    Verdict,
    Watermark,
)

SECOND = 1000
SOURCE = "visits"
PEOPLE = "people"
Placed = tuple[int, Watermark | Gap | LossAccepted]
"""An event of a partition and the second of the tick after it."""


def shop(
    *,
    views: Mapping[str, Mapping[str, Any]] | None = None,
    view: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    audiences: Mapping[str, Any] | None = None,
    release: Mapping[str, str] | None = None,
    **sections: Any,
) -> Plan:
    """Return the plan of an application.

    Args:
        views: by name, what differs from the default view: windows of 10 s that start at 0, grace 2 s.
        view: what differs in the view `pages`, where there is only that.
        ledger: what differs in the ledger: epsilon 100 a minute.
        audiences: the audiences, `public` at coarse and `staff` at fine by default.
        release: slot and offset, 1 s and 2 s by default.
        sections: whole sections of the configuration.
    """
    names = views or {"pages": view or {}}
    readers = audiences or {"public": "coarse", "staff": "fine"}
    raw: dict[str, Any] = {
        "name": "shop",
        "broker": "memory://",
        "data_dir": "./state",
        "key_file": "./shop.key",
        "release": dict(release or {}),
        "sources": {SOURCE: {"topic": SOURCE, "partitions": 2}},
        "ledgers": {PEOPLE: _ledger(PEOPLE, ledger or {})},
        "ladders": {"standard": [{"level": "coarse", "epsilon": "1"}, {"level": "fine", "epsilon": "3"}]},
        "audiences": dict(readers),
        "views": {name: _view(changes) for name, changes in names.items()},
    }
    raw.update(sections)
    return build_plan(raw)


def _ledger(population: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    start = "1970-01-01T00:00:00Z"
    return {"population": population, "epsilon": "100", "delta": "0", "period": "1m", "start": start, **changes}


def _view(changes: Mapping[str, Any]) -> dict[str, Any]:
    """A catalogue over two keys; `window` is merged key by key, None removes, all else replaces."""
    view: dict[str, Any] = {
        "kind": "catalogue",
        "source": SOURCE,
        "item": "page",
        "items_per_user": 1,
        "catalogue": ["a", "b"],
        "ledger": PEOPLE,
        "ladder": "standard",
    }
    view.update(changes)
    window = {"size": "10s", "start": "1970-01-01T00:00:00Z", "grace": "2s"}
    window.update(changes.get("window", {}))
    view["window"] = window
    return {key: value for key, value in view.items() if value is not None}


def accepted(number: int, plan: Plan, starts: Mapping[str, int], at: int = 0, **ends: int) -> list[tuple[int, Control]]:
    """Return settings and their acceptance, both known from a second on.

    Args:
        number: of the settings.
        plan: the plan.
        starts: by view, the second from which it has a new edition.
        at: the second.
        ends: by view that is taken out, the second of the first window that is not made.
    """
    first = {view: second * SECOND for view, second in starts.items()}
    last = {view: second * SECOND for view, second in ends.items()}
    verdict = Verdict(number, accepted=True, append_ms=at * SECOND)
    return [(at, Settings(number, plan, first, last)), (at, verdict)]


def first_settings(plan: Plan) -> list[tuple[int, Control]]:
    """Return the settings that an application begins with: every view from time 0 on."""
    return accepted(1, plan, dict.fromkeys(plan.views, 0))


def tape(
    control: Sequence[tuple[int, Control]],
    *,
    ticks: Mapping[int, Collection[int]] | Collection[int] = range(60),
    silent: Mapping[tuple[int, int], Collection[str]] | None = None,
    placed: Mapping[int, Sequence[Placed]] | None = None,
    lists: Mapping[str, Sequence[tuple[int, str]]] | None = None,
    sources: Collection[str] = (SOURCE,),
    ledgers: Mapping[str, int] | None = None,
) -> Transcript:
    """Return a transcript.

    Args:
        control: records of the control topic, each with the second of the first tick that knows of it.
        ticks: the seconds of the ticks, of each partition or of both.
        silent: by partition and second, the sources that the tick is not about.
        placed: by partition, what stands directly before the tick of a second.
        lists: by topic, the second and name of each version.
        sources: all sources.
        ledgers: by population, the ledger's own partition.
    """
    control = sorted(control, key=lambda one: one[0])
    by_partition = ticks if isinstance(ticks, Mapping) else {0: ticks, 1: ticks}
    partitions: dict[int, tuple[PartitionEvent, ...]] = {}
    for number, seconds in by_partition.items():
        events: list[PartitionEvent] = []
        waiting = list((placed or {}).get(number, ()))
        for second in seconds:
            events += [event for at, event in waiting if at <= second]
            waiting = [(at, event) for at, event in waiting if at > second]
            named = frozenset(sources) - frozenset((silent or {}).get((number, second), ()))
            end = sum(1 for at, _ in control if at <= second)
            events.append(Tick(second * SECOND, end, named))
        partitions[number] = tuple(events)
    populations = ledgers or {PEOPLE: 0}
    stored: dict[tuple[str, str], tuple[StoredList, ...]] = {}
    for topic, versions in (lists or {}).items():
        kept = tuple(StoredList(second * SECOND, name) for second, name in versions)
        stored.update({(population, topic): kept for population in populations})
    return Transcript(tuple(record for _, record in control), partitions, populations, stored)


def predict(transcript: Transcript, population: str = PEOPLE) -> Prediction:
    """Return what a ledger decides."""
    return simulate(transcript)[population]


def lines(prediction: Prediction, *, kind: str | None = None, view: str | None = None) -> list[str]:
    """Return records in short: second and stage, what it is, topic, window, and what is particular.

    Records about views are left out unless they are asked for.

    Args:
        prediction: of a ledger.
        kind: only these.
        view: only those of this view.
    """
    found = [one for one in prediction.records if one.kind == kind or (kind is None and one.start_ms is not None)]
    return [_line(record) for record in found if view in (None, record.view)]


def _line(record: Record) -> str:
    words = [f"{record.place.tick_ms // SECOND}.{record.place.stage}", record.kind, "/".join(record.topic)]
    if record.start_ms is not None:
        words.append(str(record.start_ms // SECOND))
    if record.level is not None:
        words.append(f"{record.level} r{record.revision}")
    if record.reason is not None:
        words.append(record.reason)
    if record.voided_ms is not None:
        words.append("void")
    return " ".join(words)
