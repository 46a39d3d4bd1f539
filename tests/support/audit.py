"""What a run left on the broker, checked for what must hold however often workers died, stood still or were cut off.

Noise is fresh, so no record can be foretold. What can be checked: every revision was only ever published with the same
bytes; every record is a reading of the one table that is stored of its window; nothing is missing; exact views show
the exact counts; and the ledgers have paid for all that was shown. Topics are read as they are, repetitions and all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import count, takewhile
from operator import add

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import StateError
from stream_dp.kinds.sealing import SealedTable
from stream_dp.lossless.sealed import KEY_BYTES, WindowNoise
from stream_dp.records.by_kind import TopKRelease
from stream_dp.records.codec import AnyRecord, decode, encode, topic_key
from stream_dp.records.history import Joiner
from stream_dp.records.models import Release
from stream_dp.releases.accounts import ledger_key, read_ledgers
from stream_dp.releases.pieces import stored_table, table_key
from stream_dp.releases.rows import WINDOW, WindowRow
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.testing import Application
from stream_dp.windows.encoding import decode as decode_row
from stream_dp.windows.encoding import window_key
from tests.support.machine import Machine
from tests.support.releasing import shown_cost
from tests.support.sealing import as_published

FIRST = ("different", "redrawn", "lost", "wrong", "undercharged")
"""The kinds of fault that a report always has a number of."""
MOST_TOLD = 10
"""How many faults of a kind a report names."""


@dataclass(frozen=True)
class Shown:
    """A record as it stands in a public topic."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

    @cached_property
    def record(self) -> AnyRecord:
        return decode(self.value)

    @property
    def is_of_view(self) -> bool:
        """Whether it describes a view, or takes such a description back; it is about no window."""
        return self.key.split(b"/")[2] == b"view"


@dataclass(frozen=True)
class Evidence:
    """What a run left."""

    shown: Mapping[str, Sequence[Shown]]
    """By public topic: every record, in the order of the log, those that describe views too."""
    rows: Mapping[bytes, bytes]
    """The rows of the releases table, as somebody who takes it over would find them."""
    prf_key: bytes

    def table(self, view: str, start: int) -> SealedTable | None:
        """What is stored of a window, None if that is not whole."""
        keys = (table_key(view, start, part) for part in count())
        found = {key: self.rows[key] for key in takewhile(self.rows.__contains__, keys)}
        try:
            return stored_table(view, start, Machine(found))
        except StateError:
            return None

    def secret(self, view: str, start: int) -> bytes:
        """The window's own secret, zeros if none is stored."""
        row = self.rows.get(window_key(WINDOW, view, start))
        return (decode_row(WindowRow, row).secret if row is not None else b"") or bytes(KEY_BYTES)


@dataclass(frozen=True)
class Expected:
    """What every view is to have released in the end."""

    windows: Sequence[int]
    """The starts of the intervals in which the windows end: the windows' own, where these do not overlap."""
    exact: Mapping[str, Mapping[int, Mapping[str, int]]]
    """By view whose noise is nothing, by start: the exact count of every key that is not 0."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """By audience: the level that it was granted of all windows; of views whose ladder has it."""
    refused: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By view: the starts of the windows that its ledger cannot pay for."""
    forgone: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By reason: the intervals whose windows may have been refused for it, by any view, in place of a release."""
    editions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By view, by start: the number of the settings that hold; of views whose settings changed."""
    late: Collection[str] = frozenset()
    lowers: bool = False
    """Whether grants lowered what somebody has: a revision that had not left by then never does."""
    """Views that came and went meanwhile: windows that they may lack events of are refused as lost, and those of a view
    that was taken out are withdrawn."""


@dataclass
class Report:
    """What an audit found."""

    figures: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)
    """What kind of fault it is, and where."""

    def fault(self, kind: str, where: str) -> None:
        self.faults.append((kind, where))

    @property
    def kinds(self) -> Counter[str]:
        """How many faults of each kind."""
        return Counter(kind for kind, _ in self.faults)

    def _of(self, kind: str) -> list[tuple[str, str]]:
        return [fault for fault in self.faults if fault[0] == kind]

    def __str__(self) -> str:
        figures = ", ".join(f"{count} {name}" for name, count in self.figures.items())
        counted = [f"{self.kinds[kind]} {kind}" for kind in dict.fromkeys([*FIRST, *sorted(self.kinds)])]
        told = [f"  {kind}: {where}" for one in self.kinds for kind, where in self._of(one)[:MOST_TOLD]]
        return "\n".join([figures, f"faults: {', '.join(counted)}", *told])

    def assert_clean(self, *, but: Collection[str] = ()) -> None:
        """Fail on any fault that is not of a kind that the test allows."""
        assert self.kinds.keys() <= set(but), str(self)


def audit(plan: Plan, evidence: Evidence, expected: Expected) -> Report:
    """Check everything that a run left.

    The kinds of fault:

    * different: a revision, or a part of it, was published with more than one content, byte for byte;
    * torn: parts of a revision are missing;
    * redrawn: a record is not what the stored table of its window says at its level;
    * lost, refused, unasked: a window has no release, was refused, or has a release that it should not have;
    * hole, blunt, coarse: a revision is missing, is not sharper than the one before, or the last is not at the level;
    * outdated: the last record under a key, which compaction keeps, is not the newest revision;
    * wrong: an exact view shows another count than the exact one, or a record is of another edition;
    * undercharged, overcharged, open: a ledger has paid less or more than what was shown costs, every draw by itself,
      or still has something reserved;
    * compacted: a public topic was not read whole.
    """
    report, topics = Report(Counter({"windows": len(expected.windows)})), Topics.of(plan)
    shown: defaultdict[bytes, Cost] = defaultdict(lambda: Cost.ZERO)
    whole = {topic: [one for one in log if one.value and not one.is_of_view] for topic, log in evidence.shown.items()}
    for view in plan.views.values():
        by_window: defaultdict[int, list[Shown]] = defaultdict(list)
        for audience in _told(view):
            found = whole[topics.release(view.view, audience)]
            records = [one for one in found if _is_of(view, one)]
            others = {one.record.window.start_ms for one in found if not _is_of(view, one)}
            _check_audience(view, audience, records, expected, report, others)
            for record in records:
                by_window[record.record.window.start_ms].append(record)
        for start, records in sorted(by_window.items()):
            shown[ledger_key(view, start)] += _check_window(view, start, records, evidence, expected, report)
    for topic, log in evidence.shown.items():
        if all(one.value for one in log) and any(record.offset != at for at, record in enumerate(log)):
            report.fault("compacted", topic)
        for one in whole[topic]:
            if not any(_is_of(view, one) for view in plan.views.values()):
                report.fault("unasked", f"{topic}/{one.record.window.start_ms}")
    _check_ledgers(evidence, shown, report)
    return report


def _told(view: ViewPlan) -> Collection[str]:
    """Whose topics have its records: of a view that was taken out, those that there were."""
    return view.readers if view.is_removed else view.audiences


def _is_of(view: ViewPlan, one: Shown) -> bool:
    """Whether a record is about a window of a view: where its definition changed, by its edition.

    Workers may have released a window of a view that was taken out before they heard that it ends earlier.
    """
    numbers = {edition.number for edition in view.editions}
    return one.record.view == view.view and (not numbers or one.record.edition in numbers)


def _check_audience(
    view: ViewPlan,
    audience: str,
    records: Sequence[Shown],
    expected: Expected,
    report: Report,
    others: Collection[int],
) -> None:
    """Each revision has one content, none is missing, the last one is the sharpest and stands last.

    Of a view that came and went, `others` are the windows that other editions told of before they were replaced.
    """
    contents: defaultdict[tuple[int, str, int, int], dict[bytes, list[Shown]]] = defaultdict(dict)
    last: dict[bytes, int] = {}
    names, refused = [level.name for level in view.levels], set(expected.refused.get(view.view, ()))
    forgone, late = set[int](), set[int]()
    shape = view.window.shape
    ahead_ms = shape.shortest_ms - shape.grid.shortest_ms
    """How long before the interval in which it ends a window begins."""
    for one in records:
        record = one.record
        part, _ = _part(record)
        contents[record.window.start_ms, record.type, record.revision, part].setdefault(one.value, []).append(one)
        last[one.key] = record.revision
        if one.key != topic_key(record):
            report.fault("unasked", f"{view.name}/{audience}: a record of {record.window.start_ms} has another key")
    report.figures["records"] += len(records)
    report.figures["revisions"] += len({place[:3] for place in contents})
    revisions: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (start, kind, revision, part), found in contents.items():
        where = f"{view.name}/{audience}/{start} {kind} {revision}" + (f" part {part}" if part > 1 else "")
        report.figures["repeats"] += sum(len(places) - 1 for places in found.values())
        if len(found) > 1:
            places = [f"offset {one.offset} at {one.timestamp_ms}" for places in found.values() for one in places]
            report.fault("different", f"{where}: {len(found)} contents, {', '.join(places)}")
        record = next(iter(found.values()))[0].record
        _, parts = _part(record)
        if part == 1 and any((start, kind, revision, other) not in contents for other in range(1, parts + 1)):
            report.fault("torn", where)
        if part == 1 and parts == 1 and (start, kind, revision, 2) in contents:
            report.fault("different", f"{where}: it is whole, and in parts")
        if (start, kind, revision, 1) not in contents:
            report.fault("torn", where)
        elif isinstance(record, Release):
            revisions[start][revision] = names.index(record.level.name)
        elif start + ahead_ms in expected.forgone.get(record.reason, ()) and revision == 1:
            forgone.add(start)
        elif view.view in expected.late and record.reason == "lost":
            forgone.add(start)
            late.add(start)
        elif start not in refused:
            report.fault("refused", where)
        if last[topic_key(record)] < revision:
            report.fault("outdated", f"{where}, but revision {last[topic_key(record)]} stands last")
    report.figures["forgone"] += len(forgone)
    if view.view in expected.late:
        report.figures["windows of late views that are exact"] += len(revisions)
        report.figures["windows of late views that are refused as lost"] += len(late)
    first_ms = min(expected.windows, default=0)
    asked = {at - ahead_ms for at in expected.windows if at - ahead_ms >= first_ms}
    due = {start for start in asked if not view.editions or view.asks_for(start)} - refused - forgone
    due = due.difference(others).union(revisions) if view.view in expected.late else due
    for start in sorted(due | revisions.keys()):
        where, levels = f"{view.name}/{audience}/{start}", revisions.get(start, {})
        if not levels:
            report.fault("lost", where)
            continue
        if start not in due:
            report.fault("unasked", where)
        if sorted(levels) != list(range(1, len(levels) + 1)) and not expected.lowers:
            report.fault("hole", f"{where}: revisions {sorted(levels)}")
        risen = [levels[revision] for revision in sorted(levels)]
        if risen != sorted(set(risen)) and not expected.lowers:
            report.fault("blunt", f"{where}: levels {risen}")
        granted = expected.levels.get(audience)
        if granted in names and risen[-1] < names.index(granted):
            report.fault("coarse", f"{where}: {names[risen[-1]]}, not {granted}")


def _check_window(
    view: ViewPlan, start: int, records: Sequence[Shown], evidence: Evidence, expected: Expected, report: Report
) -> Cost:
    """Everybody reads the one stored table; what that costs, each draw that was shown by itself."""
    joiner = Joiner()
    whole = [(one, joiner.take(one.record)) for one in records]
    releases = [(one, record) for one, record in whole if isinstance(record, Release)]
    if not releases:
        return Cost.ZERO
    names = [level.name for level in view.levels]
    table = evidence.table(view.name, start)
    noise = WindowNoise.of(view.noise_name(start), evidence.prf_key, evidence.secret(view.name, start))
    contents: defaultdict[tuple[str, int], set[bytes]] = defaultdict(set)
    costs = []
    exact = expected.exact.get(view.name, expected.exact.get(view.view))
    editions = expected.editions.get(view.view)
    for one, record in releases:
        where = f"{view.name}/{record.audience}/{start} release {record.revision} at offset {one.offset}"
        level = names.index(record.level.name)
        said = {"items": None} if table is None else as_published(view, view.kind.read(table, [level], noise)[0])
        if table is None and view.view in expected.late:
            said = {}
        if any(getattr(record, name) != value for name, value in said.items()):
            report.fault("redrawn", where)
        counts = {entry.item: entry.count for entry in record.items if entry.count}
        if exact is not None and counts != exact.get(start, {}):
            report.fault("wrong", where)
        if editions is not None and record.edition != editions.get(start):
            report.fault("wrong", f"{where}: edition {record.edition}, not {editions.get(start)}")
        contents[record.audience, record.revision].add(encode(record))
        draws = len(record.items) + (not record.complete) if isinstance(record, TopKRelease) else 0
        costs.append((level, shown_cost(view, [level], draws)))
    finest = max(costs, key=lambda cost: cost[0])[1]
    return reduce(add, [finest] * max(map(len, contents.values())))


def _part(record: AnyRecord) -> tuple[int, int]:
    """Which part of how many."""
    part = record.part if isinstance(record, Release) else None
    return (1, 1) if part is None else (part.number, part.of)


def _check_ledgers(evidence: Evidence, shown: Mapping[bytes, Cost], report: Report) -> None:
    ledgers = read_ledgers(evidence.rows.items())
    for key in sorted(ledgers.keys() | shown.keys()):
        due, ledger = shown.get(key, Cost.ZERO), ledgers.get(key)
        spent = ledger.spent if ledger is not None else Cost.ZERO
        if not due <= spent:
            report.fault("undercharged", f"ledger {key!r} has paid {spent} for {due}")
        elif due != spent:
            report.fault("overcharged", f"ledger {key!r} has paid {spent} for {due}")
        if ledger is not None and ledger.reserved:
            report.fault("open", f"ledger {key!r} has {len(ledger.reserved)} reservations")


# -- reading --------------------------------------------------------------------------------------------------


async def gather(app: Application, plan: Plan) -> Evidence:
    """Read what a run left on a cluster of some views; nobody may be writing any more."""
    views, names = plan.views.values(), Topics.of(plan)
    topics = {names.release(view.view, audience) for view in views for audience in _told(view)}
    published = await _read(app, sorted(topics), "read_uncommitted")
    shown = {topic: [Shown(*row) for row in found] for topic, found in published.items()}
    rows: dict[bytes, bytes] = {}
    changelog = names.changelog(RELEASES)
    for _, _, key, value in (await _read(app, [changelog], "read_committed"))[changelog]:
        rows.pop(key, None)
        if value is not None:
            rows[key] = value
    return Evidence(shown, rows, app.prf_key)


async def _read(
    app: Application, topics: Sequence[str], isolation: str
) -> dict[str, list[tuple[int, int, bytes, bytes]]]:
    """Offset, time, key and value of every record of some topics, one partition after another."""
    places = [TopicPartition(topic, at) for topic in topics for at in range(await app.client.partitions(topic) or 0)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=app.plan.broker.address,
        group_id=None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    await consumer.start()
    try:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: dict[TopicPartition, list[tuple[int, int, bytes, bytes]]] = {place: [] for place in places}
        while [place for place, end in ends.items() if await consumer.position(place) < end]:
            for place, records in (await consumer.getmany(timeout_ms=200)).items():
                found[place] += [(r.offset, r.timestamp, r.key, r.value) for r in records if r.offset < ends[place]]
        return {topic: [row for place in places if place.topic == topic for row in found[place]] for topic in topics}
    finally:
        await consumer.stop()
