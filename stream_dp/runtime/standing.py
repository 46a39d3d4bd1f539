"""How far the partitions of a worker are, by what stands in their tables: totals, clocks, windows.

Whoever takes a partition over goes on with the same numbers, and a crash takes nothing of them with it. None is about
a window that is open: the counts of a window are added when it closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from stream_dp.config.plan import Plan
from stream_dp.errors import StorageError
from stream_dp.releases.rows import stored_view
from stream_dp.releases.totals import LATE, stored_totals
from stream_dp.runtime.fence import PartitionLostError
from stream_dp.runtime.metrics import Counters
from stream_dp.runtime.tables import DurableTable
from stream_dp.runtime.topics import COUNTS, RELEASES, Topics
from stream_dp.windows.count_rows import MARKER, Marker, Missing, RekeyMarker, rekey_key
from stream_dp.windows.effects import Increment, Rows
from stream_dp.windows.keys import decode, text
from stream_dp.windows.rekeyed import place_behind

COUNTED = ("events_counted", "events_unknown", "windows_closed")
SETTLED = (
    *("windows_released", "windows_refused", "windows_lost", "windows_sharpened", "sharpenings_refused"),
    *(LATE, "events_unknown"),
)
"""Totals of every view: where its source is counted, and where its ledger lives."""


@dataclass(slots=True)
class Standing:
    """How far one partition is.

    Attributes:
        totals: what was counted in it since its first record.
        counted: how far it is counted, by topic of a source; None where it never was.
        read: the offset behind what is read, by topic of a source, or of its re-keyed events.
        released: start of the first window that is not released or refused, of the views whose ledger lives in it.
        missing: which records were deleted before they were counted, by topic of a source.
    """

    totals: Counters = field(default_factory=Counters)
    counted: dict[str, Marker | None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)
    missing: dict[str, list[Missing]] = field(default_factory=dict)


def standings(plan: Plan, tables: Mapping[str, DurableTable]) -> dict[int, Standing]:
    """How far the partitions are that a worker owns, in every table, by number.

    Args:
        plan: the application.
        tables: of the worker.
    """
    found: dict[int, Standing] = {}
    for partition in sorted(frozenset.intersection(*(table.owned for table in tables.values()))):
        standing = Standing()
        with suppress(PartitionLostError, StorageError):  # a disk that refuses ends the worker at its next write
            _read_counts(plan, tables[COUNTS].rows(partition), standing)
            _read_releases(plan, partition, tables[RELEASES].rows(partition), standing)
            found[partition] = standing
    return found


def _read_counts(plan: Plan, rows: Rows, into: Standing) -> None:
    topics = Topics.of(plan)
    totals = [Increment(name, 0) for name in ("events_consumed", "watermarks_read", "records_missing")]
    for view in plan.views.values():
        totals += _zeros(view.view, COUNTED)
        source = view.source
        if source.topic not in into.counted:
            stored = rows.get(MARKER + text(source.name))
            into.counted[source.topic] = marker = None if stored is None else decode(Marker, stored)
            into.read[source.topic] = 0 if marker is None else marker.offset + 1
            totals += marker.totals() if marker is not None else ()
            into.missing[source.topic] = marker.missing if marker is not None else []
            if source.key_field is not None:
                into.read[topics.rekeyed(source.name)] = 0 if marker is None else place_behind(marker.offset)[1]
                stored = rows.get(rekey_key(source.name))
                rekeyed = RekeyMarker() if stored is None else decode(RekeyMarker, stored)
                into.read[source.topic] = rekeyed.offset + 1
                into.missing[source.topic] = rekeyed.missing
                totals += rekeyed.totals()
    into.totals.take(totals)


def _read_releases(plan: Plan, partition: int, rows: Rows, into: Standing) -> None:
    topics = Topics.of(plan)
    here = [view for view in plan.views.values() if topics.ledger_partition(view.ledger) == partition]
    goes_on: set[str] = set()
    for view in here:
        if view.view not in goes_on and (stored := stored_view(view.name, rows)) is not None:
            into.released[view.view] = stored.next_ms
            if view.until_ms is None or stored.next_ms < view.until_ms:
                goes_on.add(view.view)  # later questions of it wait for this one
        into.totals.take(_zeros(view.view, SETTLED))
    names = {view.view for view in here}
    into.totals.take(one for one in stored_totals(rows) if dict(one.labels)["view"] in names)


def _zeros(view: str, names: Iterable[str]) -> Iterator[Increment]:
    """So that a total is there before it first grows."""
    return (Increment(name, 0, (("view", view),)) for name in names)
