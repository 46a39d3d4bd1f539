"""A small plan, release engines on a machine, and an auditor of everything they publish and charge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TypeVar

from stream_dp.accounting import Cost, Ledger, Overdraft, reserve
from stream_dp.accounting import encode as encode_ledger
from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.control.grant_records import Order, Scope, grant_id
from stream_dp.exact.bits import BitSource, Entropy, KeyedBits
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable
from stream_dp.kinds.topk import TopKPlan
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import TopKRelease
from stream_dp.records.codec import AnyRecord, decode_entry, entry_key, outline, topic_key
from stream_dp.records.codec import decode as decode_record
from stream_dp.records.history import Joiner
from stream_dp.records.models import LedgerEntry, Refusal, Release
from stream_dp.releases.accounts import PeriodRow, Promise, ledger_key, promise_key, read_ledgers
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.losses import UNPUBLISHED, LostCounts, Published, Shown
from stream_dp.releases.outboxes import Outboxes
from stream_dp.releases.pieces import stored_table
from stream_dp.releases.publication import Destinations
from stream_dp.releases.rows import LEDGER, PROMISE, WINDOW, Call, WindowRow, merged_key, stored_totals
from stream_dp.windows.effects import Leave, Message, Rows, Step
from stream_dp.windows.encoding import MESSAGE_BYTES, bucket_of, decode, encode, window_key
from stream_dp.windows.merging import MergedBucket, MergedHead
from stream_dp.windows.views import view_of
from tests.support.machine import Machine, newest
from tests.support.topics import TopicReader

MERGED, ACCOUNTS, DECLARED_LOST = "merged", "shop-accounts", "recalls"
KEY = bytes(range(32))
KEYS = KeyRing.of(KEY)
SECOND = 1000

EVERYTHING = Scope()

E = TypeVar("E", bound=ReleaseEngine)

SHOP = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "40", delta: "1/5", period: 4s}
ladders:
  three: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]
audiences: {partner: coarse, public: coarse, staff: middle}
views:
  pages:
    source: visits
    item: page
    kind: histogram
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    delta: "1/100"
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 2
  tops:
    source: visits
    item: page
    kind: topk
    k: 2
    kbar: 3
    selection: {epsilon: "1", delta: "1/100"}
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 1
"""
COARSE, MIDDLE, FINE = range(3)
DELTA = Fraction(1, 100)


def plan(*changes: tuple[str, str]) -> Plan:
    """The plan of the shop, with some of its text replaced; every text must be there."""
    text = SHOP
    for old, new in changes:
        assert old in text, f"{old!r} is not in the configuration"
        text = text.replace(old, new)
    return plan_of(text)


@lru_cache(maxsize=256)  # a plan never changes
def plan_of(text: str) -> Plan:
    """The plan of a configuration that is right."""
    sections, faults = read_config(text, {})
    assert sections.config is not None, faults
    return build_plan(sections.raw)


POOL = (
    'epsilon: "40", delta: "1/5", period: 4s}',
    'epsilon: "41", delta: "1/5", period: 4s, zcdp: {epsilon: "39", slack: "1/100"}}',
)
"""A change that gives the ledger a pool: rho up to 21.2, and 2 of epsilon for what is left over."""

ONLY_PAGES = ("  tops:\n" + SHOP.partition("  tops:\n")[2], "")
"""A change that leaves one view."""


def keyed(context: bytes) -> BitSource:
    """Entropy that repeats: a window that is drawn again is drawn alike."""
    return KeyedBits(b"entropy", context)


def release_topic(view: str, audience: str) -> str:
    return f"shop.releases.{view}.{audience}"


def buckets_of(view: ViewPlan, start: int, counts: Mapping[str, int], closed_ms: int = 0) -> list[Message]:
    """The merged buckets of a window as they stand in their topic."""
    parts: list[dict[str, int]] = [{} for _ in range(view.buckets)]
    for item, count in counts.items():
        parts[bucket_of(item, view.buckets)][item] = count
    return [merged_message(MergedBucket(view.name, start, at, closed_ms, 0, 1, part)) for at, part in enumerate(parts)]


def merged_message(bucket: MergedBucket) -> Message:
    """A part of a merged bucket as it stands in its topic."""
    return _message(bucket, erase=False)


def _always(lists: Mapping[str, KeyList], _view: str, _closed_ms: int) -> Mapping[str, KeyList]:
    return lists


def _message(bucket: MergedHead, *, erase: bool = True) -> Message:
    return Message(MERGED, merged_key(bucket), None if erase else encode(bucket))


class WholeEngine(ReleaseEngine):
    """Reads what was published before it loads, does all that waits behind every step, as the host; then publishes."""

    outboxes: Outboxes
    until_ms: int | None
    """The slot that has come: what waits for a later one is left. None: the clock goes on until nothing waits."""
    found: Callable[[], Published] = dict
    accepts_loss = False
    begun_ms = 0
    """The time at which it is loaded."""
    disclosed_ms: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    """When the settings of its plan were accepted that changed what audiences may see."""

    def load(
        self,
        rows: Rows,
        published: Published = UNPUBLISHED,
        *,
        accept_loss: bool = False,
        now_ms: int = 0,
        disclosed_ms: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> Step:
        found = {**self.found(), **published}
        begun_ms = max(now_ms, self.begun_ms)
        loaded = super().load(
            rows,
            found,
            accept_loss=accept_loss or self.accepts_loss,
            now_ms=begun_ms,
            disclosed_ms=disclosed_ms or self.disclosed_ms,
        )
        yield from self._whole(loaded)

    def buckets(self, values: Sequence[bytes | None]) -> Step:
        yield from self._whole(super().buckets(values))

    def order(self, order: Order, *, now_ms: int) -> Step:
        yield from self._whole(super().order(order, now_ms=now_ms))

    def tell(self, now_ms: int) -> Step:
        yield from self._whole(super().tell(now_ms))

    def publish(self) -> Step:
        """Let leave what waits for the slots that have come."""
        rows = self._state.rows
        while (slot := self.outboxes.next_ms) is not None and (self.until_ms is None or slot <= self.until_ms):
            yield from self.outboxes.publish(slot if self.until_ms is None else self.until_ms, rows)
            while self.outboxes.published:
                yield from self.outboxes.settle(rows)
            yield from self.outboxes.erase(rows)

    def _whole(self, step: Step) -> Step:
        yield from self._heeded(step)
        while self.waits:
            yield from self._heeded(self.due())
        yield from self.publish()

    def _heeded(self, step: Step) -> Step:
        for effect in step:
            if isinstance(effect, Leave):
                self.outboxes.add(effect)
            else:
                yield effect


def add_reservations(desk: Desk, key: bytes, reserved: Mapping[str, Cost]) -> None:
    """Add open reservations to a stored ledger."""
    ledger = read_ledgers(desk.machine.rows.items())[key]
    for call, cost in reserved.items():
        added = reserve(ledger, call, cost)
        assert not isinstance(added, Overdraft)
        ledger = added
    desk.machine.rows[key] = encode_ledger(ledger)


def totals(machine: Machine) -> dict[tuple[str, str], int]:
    """The stored totals that are not zero, by counter and view."""
    return {(one.name, dict(one.labels)["view"]): one.amount for one in stored_totals(machine) if one.amount}


@dataclass
class Desk:
    """The release engine of one partition, the topic it reads, and an auditor at every point it passes."""

    plan: Plan
    entropy: Entropy = keyed
    lists: Mapping[str, KeyList] | Callable[[str, int], Mapping[str, KeyList]] = field(default_factory=dict)
    """The public lists that stand in topics; the same for all windows, or as the engine asks for them."""
    cuts: Sequence[int] = ()
    back: int = 0
    at_once: int = 3
    compacts: bool = False
    keys: KeyRing = KEYS
    audit: bool = True
    until_ms: int | None = None
    """The slot that has come; None: everything leaves as soon as it is stored."""
    accepts_loss: bool = False
    gaps: bool = False
    """Whether counts may have been lost on their way to the engine."""
    unknown_before: Mapping[str, int] = field(default_factory=dict)
    published_ms: int = 0
    """The time that was told last."""
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        self.auditor = Auditor(self)
        if self.audit:
            self.machine.watch = self.auditor
        self.reader: TopicReader[WholeEngine] = TopicReader(
            MERGED,
            self.engine,
            lambda engine, values, _: engine.buckets(values),
            machine=self.machine,
            cuts=self.cuts,
            back=self.back,
            at_once=self.at_once,
            compacts=self.compacts,
        )

    def engine(self) -> WholeEngine:
        return self.made(WholeEngine)

    def made(self, kind: type[E]) -> E:
        """A release engine of a kind, not loaded."""
        views = self.plan.views.values()
        engine = kind(
            [view if view.editions else view.begun(view.window.first_ms or 0) for view in views],
            slots=self.plan.slots,
            keys=self.keys,
            entropy=self.entropy,
            lists=self.lists if callable(self.lists) else partial(_always, self.lists),
            destinations=Destinations(release_topic, ACCOUNTS, _message, self.declare_lost),
            lost=LostCounts(self.gaps, self.unknown_before),
        )
        if isinstance(engine, WholeEngine):
            engine.outboxes, engine.until_ms = Outboxes(), self.until_ms
            engine.found, engine.accepts_loss = self.found, self.accepts_loss
            engine.begun_ms = self.published_ms
            engine.disclosed_ms = self.plan.disclosed_ms
        return engine

    @staticmethod
    def declare_lost(view: str, from_ms: int) -> list[Message]:
        """What asks for the counts of a view again."""
        return [Message(DECLARED_LOST, view.encode(), str(from_ms).encode())]

    def found(self) -> dict[str, list[Shown]]:
        """What stands in the public topics, once they are compacted."""
        found: dict[str, list[Shown]] = {}
        for (topic, _, _), value in newest(self.published()).items():
            if value is None:
                continue
            (*_, view, audience), what = topic.split("."), outline(value)
            if what is not None and (definition := self.definition(view, what.edition)) is not None:
                found.setdefault(definition.name, []).append(Shown.of(definition, audience, what))
        return found

    def definition(self, view: str, edition: int) -> ViewPlan | None:
        """The definition that an edition of a view has; None if there is no such view."""
        asked = [one for one in self.plan.views.values() if one.view == view]
        of = (one for one in asked if edition in [held.number for held in one.editions])
        return next(of, asked[-1] if asked else None)

    def give(self, view: str, start: int, counts: Mapping[str, int], closed_ms: int = 0) -> None:
        """Put the exact counts of a window into the topic, and let the engine read them."""
        self.reader.write(buckets_of(self.plan.views[view], start, counts, closed_ms))

    def grant(
        self,
        number: int,
        audience: str,
        level: str | None,
        now_ms: int = 0,
        scope: Scope = EVERYTHING,
        at_ms: int | None = None,
    ) -> None:
        """Give an order; without a level, withdraw the grant of this scope and time."""
        order = Order(number, audience, level, scope, at_ms, now_ms, grant_id(audience, scope, at_ms))
        self.reader.run(lambda engine: engine.order(order, now_ms=now_ms))

    def tell(self, now_ms: int) -> None:
        """Tell the time."""
        self.reader.run(lambda engine: engine.tell(now_ms))
        self.published_ms = now_ms

    def slot(self, slot_ms: int) -> None:
        """Let a slot come."""

        def publish(engine: WholeEngine) -> Step:
            engine.until_ms = slot_ms
            return engine.publish()

        self.until_ms = slot_ms
        self.reader.run(publish)

    def change(self, changed: Plan) -> None:
        """Restart with another plan."""
        self.plan = changed
        self.reader.restart()

    # -- what came out ----------------------------------------------------------------------------------------

    def records(self, view: str, audience: str) -> list[AnyRecord]:
        """Everything published, in order; releases in parts put together."""
        topic, joiner = release_topic(view, audience), Joiner()
        sent = [decode_record(one.value) for one in self.published() if one.topic == topic and one.value is not None]
        return [whole for record in sent if (whole := joiner.take(record)) is not None]

    def record(self, view: str, audience: str, start: int) -> Release:
        """The newest release of a window."""
        return [
            record
            for record in self.records(view, audience)
            if record.window.start_ms == start and not isinstance(record, Refusal)
        ][-1]

    def entries(self) -> list[LedgerEntry]:
        """Every entry of the accounts, in order."""
        return [decode_entry(message.value or b"") for message in self.machine.sent if message.topic == ACCOUNTS]

    def charged(self, view: str, audience: str, start: int) -> Cost:
        """What the ledger paid for the newest release of a window to an audience."""
        return [
            reader.charged.cost
            for entry in self.entries()
            for reader in entry.audiences
            if (entry.type, entry.view, entry.window.start_ms, reader.audience) == ("charge", view, start, audience)
        ][-1]

    def published(self) -> list[Message]:
        """What was published about windows, tombstones too."""
        return [one for one in self.machine.sent if one.topic.startswith("shop.releases.") and not is_about_view(one)]

    def described(self) -> list[Message]:
        """The records of views that were published, tombstones too."""
        return [message for message in self.machine.sent if is_about_view(message)]

    def ledger(self, start: int = 0, view: str = "pages") -> Ledger:
        """The ledger of the period of a window."""
        stored = read_ledgers(self.machine.rows.items()).get(ledger_key(self.plan.views[view], start))
        return Ledger(self.plan.views[view].ledger.budget) if stored is None else stored

    def table(self, view: str, start: int) -> SealedTable:
        """What is stored of a released window."""
        return stored_table(view, start, self.machine)

    def key(self, view: str, start: int) -> bytes:
        """What the noise of a released window's coarser levels is locked with."""
        row, name = self.row(view, start), self.plan.views[view].noise_name(start)
        return WindowNoise.of(name, self.keys.secrets[row.key_id], row.secret).prf_key

    def row(self, view: str, start: int) -> WindowRow:
        return decode(WindowRow, self.machine.rows[window_key(WINDOW, view, start)])


def is_about_view(message: Message) -> bool:
    """Whether a message is the record of a view, or takes one back."""
    return b"/view/" in (message.key or b"")


def promise_of(record: AnyRecord) -> Promise:
    """What a record says of its ledger's budget."""
    total, pool = record.ledger.budget, record.ledger.zcdp
    said = None if pool is None else (pool.epsilon.exact, pool.slack.exact, pool.budget.exact)
    return Promise(total.epsilon.exact, total.delta.exact, said)


def risen(steps: list[int], level: int) -> None:
    """Note a level that is finer than those before."""
    if level > max(steps, default=-1):
        steps.append(level)


def shown_cost(view: ViewPlan, steps: Sequence[int], draws: int) -> Cost:
    """What a window costs of which records were shown, worked out anew.

    Args:
        view: its view.
        steps: the levels that it was charged at, each finer than the one before.
        draws: how many draws of a top-k its items and its completeness tell of.
    """
    first, *others = (view.levels[level] for level in steps)
    pooled, nothing = view.ledger.pool is not None, Fraction(0)
    rho = first.rho + sum((level.step_rho for level in others), nothing)
    cost = Cost(nothing, nothing, rho=rho) if pooled else Cost(view.levels[steps[-1]].epsilon, nothing)
    if not isinstance(view.kind, TopKPlan):
        return cost + view.keys_at_worst
    chosen = view.kind.selection
    cost += Cost(nothing, chosen.delta)
    epsilon, delta = chosen.epsilon, chosen.delta
    if pooled:
        return cost + Cost(draws * delta, nothing, rho=draws * epsilon**2 / 8)
    return cost + Cost(draws * (epsilon + delta), Fraction(0))


Paid = Mapping[tuple[str, int], Cost]
"""By view and start of what is charged, what it costs."""


def dearest(views: Mapping[tuple[str, int], ViewPlan], costs: Paid) -> Cost:
    """What windows cost a user, worked out anew: all of them or, of a view and period, as many as users are in.

    Args:
        views: by view and start, the definition of a window.
        costs: the windows.
    """
    total, bounded = Cost.ZERO, dict[tuple[str, int, int], list[Cost]]()
    for (name, start), cost in costs.items():
        view = views[name, start]
        if view.windows_per_user is None:
            total += cost
        else:
            period = view.ledger.periods.start_of(start)
            bounded.setdefault((view.name, period, view.windows_per_user), []).append(cost)
    for (*_, most), some in bounded.items():
        total += Cost(*(sum(sorted(amounts)[-most:], Fraction(0)) for amounts in zip(*some, strict=True)))
    return total


class Standing:
    """Checks at every point that what readers have can be taken back, and that what was taken back is over."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._standing: dict[tuple[str, bytes], tuple[str, int]] = {}
        """By topic and key of what was published and not taken back: view, and window or the pane that it ends with."""
        self._taken: dict[tuple[str, bytes], int] = {}
        """By topic and key of what was taken back: the same."""
        self._views = dict(desk.plan.views)
        self._newest: dict[str, int] = {}
        """By view: the newest of which something was published."""
        self._seen = 0
        """Rows of the changelog."""

    def take(self, message: Message) -> None:
        """A record: its window has a secret, or is refused. Or a tombstone: of a window that a later one of the view
        stands before; no record of it comes behind."""
        assert message.key is not None
        place = message.topic, message.key
        if message.value is not None:
            *_, view, audience = message.topic.split(".")
            what = outline(message.value)
            assert what is not None
            asked = self._desk.definition(view, what.edition) or self._views[view]
            self._views[view] = asked
            shown = Shown.of(asked, audience, what)
            assert place not in self._taken, "a record was published behind its tombstone"
            self._standing[place] = asked.name, shown.start_ms
            self._newest[view] = max(shown.start_ms, self._newest.get(view, shown.start_ms))
            row = self._desk.row(asked.name, shown.start_ms)
            assert row.secret or shown.refused, "a record was published when its window had no secret"
            return
        view = message.topic.split(".")[-2]
        start = self._standing.pop(place)[1] if place in self._standing else self._taken.get(place)
        assert start is not None, "what was never published is taken back"
        assert start < self._newest[view], "the newest window is taken back"
        self._taken[place] = start

    def windows(self) -> set[tuple[str, int]]:
        """Definition and start of all of which something stands."""
        return {*self._standing.values()}

    def check(self) -> None:
        """Every record that stands has a row that will take it back, but for who is no longer configured."""
        rows, views, changelog = self._desk.machine.rows, self._desk.plan.views, self._desk.machine.changelog
        news, self._seen = changelog[self._seen :], len(changelog)
        if not any(value is None and key.startswith(WINDOW) for key, value in news):  # `take` saw the others
            return
        for (topic, _), (view, start) in self._standing.items():
            audience = topic.rpartition(".")[2]
            if view in views and audience in views[view].readers:
                assert window_key(WINDOW, view, start) in rows, "a record stands without a row that takes it back"


@dataclass
class Auditor:
    """Checks at every point that what readers have is paid for, and that a record never changes.

    What a window has cost is worked out from the published records alone: the epsilon of the finest level, and
    for a top-k the draws that its items and its completeness tell of. Where windows are made of panes each of them is
    paid for by itself, in whatever windows it was shown; totals are paid for with their window.
    """

    desk: Desk
    seen: int = 0
    asked: dict[tuple[str, int], ViewPlan] = field(default_factory=dict)
    """By view and start of what is charged: the definition that its records were made with."""
    finest: dict[tuple[str, int], int] = field(default_factory=dict)
    """By view and start of what is charged: the finest level that any audience has."""
    draws: dict[tuple[str, int], int] = field(default_factory=dict)
    held: dict[tuple[str, int, str], list[int]] = field(default_factory=dict)
    """By view, start of what is charged and audience: its levels, each finer than the one before."""
    windows: dict[tuple[str, int, int, str], int] = field(default_factory=dict)
    """By view, start and end of the window and audience: the level of its newest release."""
    bytes_of: dict[tuple[object, ...], bytes] = field(default_factory=dict)
    """By topic, key and revision: the record. Of a refusal, by its level and by what had been told as well."""
    revisions: dict[tuple[str, str, int, int], int] = field(default_factory=dict)
    """By topic, type of record and window: the newest."""
    final: set[tuple[str, int, int]] = field(default_factory=set)
    """Topics and windows that were refused for good."""
    joiner: Joiner = field(default_factory=Joiner)
    steps: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """By view and start of what is charged: the levels that it was charged at, one finer than the other, by entries."""
    shown: dict[bytes, dict[tuple[str, int], Cost]] = field(default_factory=dict)
    """By ledger: what each window costs at least that is published at its finest level."""
    promised: dict[bytes, Promise] = field(default_factory=dict)
    """By ledger: what every release of the period says of its budget."""
    charges: dict[bytes, dict[bytes, Cost]] = field(default_factory=dict)
    """By ledger and key of the entry: what it charged."""
    told: dict[tuple[bytes, str], Cost] = field(default_factory=dict)
    """By ledger and audience: the most that a record says the audience was told in the period."""
    left: dict[bytes, Cost] = field(default_factory=dict)
    """By ledger: what the newest entry says is left."""
    standing: Standing = field(init=False)
    described: set[tuple[str, int]] = field(default_factory=set)
    """By topic and edition: the records of views that readers have."""
    checked: dict[bytes, bytes] = field(default_factory=dict)
    """The rows of the ledgers at the last point; nothing is to be checked anew until they or the records change."""

    def __post_init__(self) -> None:
        self.standing = Standing(self.desk)

    def __call__(self) -> None:
        machine = self.desk.machine
        sent = machine.sent[self.seen :]
        for message in filter(is_about_view, sent):
            place = message.topic, int((message.key or b"").rpartition(b"/")[2])
            self.described.discard(place)
            self.described |= {place} if message.value is not None else set()
        public = [one for one in sent if one.topic.startswith("shop.releases.") and not is_about_view(one)]
        news = [message for message in public if message.value is not None]
        self.seen = len(machine.sent)
        for message in public:
            self.standing.take(message)
            if message.value is not None:
                self._take(message)
        for message in sent:
            if message.topic == ACCOUNTS:
                self._take_entry(message)
        rows = {key: value for key, value in machine.rows.items() if key.startswith((PROMISE, LEDGER))}
        self.standing.check()
        if rows == self.checked and not news:
            return
        self.checked = rows
        ledgers = read_ledgers(rows.items())
        stored = {key: decode(PeriodRow, rows[promise_key(key)]).promise for key in ledgers}
        assert self.promised.items() <= stored.items(), "a record promises what its period did not begin with"
        for key, windows in self.shown.items():
            assert key in ledgers, "a window was published and no ledger is stored"
            ledger = ledgers[key]
            shown = dearest(self.asked, windows)
            reserved = {(view_of(call.view), call.start_ms) for call in map(Call.parse, ledger.reserved)}
            settled = {window: cost for window, cost in windows.items() if window not in reserved}
            assert shown <= sum(ledger.reserved.values(), ledger.spent), "more was published than is charged"
            assert dearest(self.asked, settled) <= ledger.spent, (
                "what is charged for one window was published for another"
            )

    def _take(self, message: Message) -> None:
        assert message.key is not None
        assert message.value is not None
        record = decode_record(message.value)
        same: tuple[object, ...] = (message.topic, message.key, record.revision)
        if isinstance(record, Refusal):  # a later grant may be refused as well; it says so anew
            same += (record.level.name, record.privacy.period)
        assert message.key == topic_key(record)
        assert len(message.key) + len(message.value) <= MESSAGE_BYTES
        assert self.bytes_of.setdefault(same, message.value) == message.value, "a record was published with other bytes"
        assert (message.topic, record.edition) in self.described, "a record was published before that of its edition"
        place = message.topic, record.type, record.window.start_ms, record.window.end_ms
        assert record.revision >= self.revisions.get(place, 0), "an older revision was published behind a newer one"
        self.revisions[place] = record.revision
        self._take_promise(record, message.topic)
        asked = self.desk.definition(record.view, record.edition)
        assert asked is not None
        charged = _charged(asked, record)
        for start in charged:
            assert self.asked.setdefault((record.view, start), asked).name == asked.name, "a window has two definitions"
        reader = ledger_key(asked, charged[-1]), record.audience
        self.told[reader] = self.told.get(reader, Cost.ZERO).most(record.privacy.period.cost)
        if isinstance(record, Refusal):
            return
        level = [level.name for level in asked.levels].index(record.level.name)
        self.windows[record.view, record.window.start_ms, record.window.end_ms, record.audience] = level
        if isinstance(record, TopKRelease):
            whole = self.joiner.take(record)
            if isinstance(whole, TopKRelease):
                self.draws[record.view, record.window.start_ms] = len(whole.items) + (not whole.complete)
        key, said = ledger_key(asked, charged[-1]), promise_of(record)
        for start in charged:
            window = record.view, start
            self.finest[window] = max(level, self.finest.get(window, -1))
            risen(self.held.setdefault((*window, record.audience), []), level)
            self.shown.setdefault(ledger_key(asked, start), {})[window] = self.cost(*window, [self.finest[window]])
        assert self.promised.setdefault(key, said) == said, "two records of one period promise different things"

    def _take_promise(self, record: AnyRecord, topic: str) -> None:
        """What a refusal says of the release is so: whether there was one, and that there never will be."""
        window = topic, record.window.start_ms, record.window.end_ms
        if isinstance(record, Refusal):
            has_release = (topic, "release", *window[1:]) in self.revisions
            assert record.refuses == ("sharpening" if has_release else "window")
            self.final |= {window} if record.final else set()
        else:
            assert window not in self.final, "what was refused for good was released"

    def _take_entry(self, message: Message) -> None:
        assert message.key is not None
        assert message.value is not None
        entry = decode_entry(message.value)
        assert message.key == entry_key(entry)
        if entry.type == "charge":
            same = (message.topic, message.key, 0)
            assert self.bytes_of.setdefault(same, message.value) == message.value, "an entry came with other bytes"
        asked = self.desk.definition(entry.view, entry.edition)
        assert asked is not None
        key = ledger_key(asked, entry.window.start_ms)
        charged = sum((reader.charged.cost for reader in entry.audiences), Cost.ZERO)
        assert charged <= entry.requested.cost
        self.charges.setdefault(key, {})[message.key] = charged
        if entry.type == "charge":
            names = [level.name for level in asked.levels]
            level = max(names.index(reader.level) for reader in entry.audiences)
            risen(self.steps.setdefault((entry.view, entry.window.start_ms), []), level)
        if entry.type == "charge":  # those of one slot come by window; a refusal may stand before the period begins
            self.left[key] = entry.remaining.cost.least(self.left.get(key, entry.remaining.cost))

    def cost(self, view: str, start: int, steps: Sequence[int]) -> Cost:
        """What a window costs at levels that were charged one after another, by what was published of it."""
        return shown_cost(self.asked[view, start], steps, self.draws.get((view, start), 0))

    def settled(self) -> None:
        """Every window is charged exactly once for its steps up to its finest level, and each reader's share likewise.

        Records and entries say the same. Of panes some may be paid for of which no window was shown.
        """
        self()
        ledgers = read_ledgers(self.desk.machine.rows.items())
        views = self.desk.plan.views.values()
        paned = any(view.at(one.first_ms).window.shape.is_sum for view in views for one in view.editions)
        paned = paned or any(view.window.shape.is_sum for view in views)
        assert self.shown.keys() <= ledgers.keys()
        for key, ledger in ledgers.items():
            assert not ledger.reserved
            assert ledger.spent <= ledger.budget
            alone: dict[str, dict[tuple[str, int], Cost]] = {}
            for (view, start, audience), steps in self.held.items():
                if ledger_key(self.asked[view, start], start) == key:
                    alone.setdefault(audience, {})[view, start] = self.cost(view, start, steps)
            shares = {audience: dearest(self.asked, costs) for audience, costs in alone.items()}
            costs: dict[tuple[str, int], Cost] = {}
            for window in self.shown.get(key, {}):
                assert paned or self.steps[window][-1] == self.finest[window]
                costs[window] = self.cost(*window, [self.finest[window]] if paned else self.steps[window])
            shown = dearest(self.asked, costs)
            told = {name: told for (of, name), told in self.told.items() if of == key and told != Cost.ZERO}
            if paned:
                assert shown <= ledger.spent
                for found in (shares, told):
                    assert all(cost <= ledger.readers[audience] for audience, cost in found.items())
            else:
                assert (shown, shares, told) == (ledger.spent, ledger.readers, shares)
            assert ledger.spent == sum(self.charges.get(key, {}).values(), Cost.ZERO)
            assert ledger.left == self.left.get(key, ledger.left)


def _charged(view: ViewPlan, record: AnyRecord) -> Sequence[int]:
    """The starts of what was charged for a record: its window, or each of its panes."""
    start, end = record.window.start_ms, record.window.end_ms
    return [start] if record.panes is None else view.window.shape.starts(start, end)
