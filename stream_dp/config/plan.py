"""The plan of an application: every number a view needs, computed and checked once, at start.

Frozen data. The engine, the runtime and the commands read a plan; `stream_dp.config.planner` makes it. What is
peculiar to the kind of a view is in its `KindPlan`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.config.access import Broker, Registry
from stream_dp.config.file_schema import PartitionerName, ServeConfig, TopicsConfig
from stream_dp.errors import ParameterError
from stream_dp.kinds.kind import KindPlan
from stream_dp.kinds.noise_levels import NoiseLevel
from stream_dp.kinds.sealing import SealedTable
from stream_dp.windows.durations import Slots
from stream_dp.windows.encoding import moment
from stream_dp.windows.events import TimeUnit, ValueFormat
from stream_dp.windows.local_times import DEFAULT_ZONE
from stream_dp.windows.shapes.shape import Interval, Schedule, Shape
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import Clock, Pacing, view_of


@dataclass(frozen=True)
class WindowPlan:
    """When windows open, close and are forgotten. All times in milliseconds.

    Attributes:
        shape: how the windows cut time, and what is counted, noised, charged and released of them.
        first_ms: start of the first window since epoch, None when it is recorded once, at run time.
        grace_ms: how long after its end a window still takes late events.
        clock: "wall" closes windows by the clock of the machine, "event" by the watermark records of the source. No
            event moves a clock: it would make other users' events late.
        max_ahead_ms: an event further ahead of the tick behind it than this is refused.
        idle_ms: after this long without a watermark, a partition's event clock advances as fast as the wall clock.
        retention_ms: how long after its end a sealed window can still be sharpened.
        catch_up_ms: how long clocks stand still after a silence of the ticks (`windows.catch_up`); 0: not at all.
    """

    shape: Shape
    first_ms: int | None
    grace_ms: int
    clock: Clock
    max_ahead_ms: int
    idle_ms: int
    retention_ms: int
    catch_up_ms: int

    @property
    def kept_ms(self) -> int:
        """Time after its end that a sealed table is kept, for all that is released of it."""
        return self.shape.kept(self.retention_ms)

    def closes_after(self, time_ms: int) -> int:
        """When the first window closes that is not closed at a time."""
        return self.shape.end(self.shape.first_open(time_ms - self.grace_ms)) + self.grace_ms

    def pays(self, start_ms: int) -> bool:
        """Return True if something is charged with a window: with each, but of the panes of one only with the first."""
        return self.shape.paid.start_of(start_ms) == start_ms

    def charged(self, start_ms: int) -> Interval:
        """Return what is charged as a whole: the window, or all panes of the one that a pane is in."""
        return self.shape.paid.interval(start_ms)

    def at_age(self, start_ms: int, age_ms: int) -> int:
        """When a window is so old, which is told from its end; a pane is with all that is paid for together with it."""
        return self.charged(start_ms).end_ms + age_ms

    def first_younger(self, age_ms: int, now_ms: int) -> int:
        """Start of the first window, or of what is paid for together, for which `at_age` is still to come."""
        return self.shape.paid.first_open(now_ms - age_ms)


FINGERPRINT_BYTES = 8


@dataclass(frozen=True)
class SourcePlan:
    """A source topic and how one of its records is read.

    Attributes:
        name: the source's name in the configuration.
        topic: the Kafka topic; the record key is the user, unless `key_field` says who it is.
        partitions: number of partitions, the same for every source of an application.
        format: how values are written.
        user_field: field that must repeat the record key, None when the value does not carry the user. Fields are
            names, or paths (`windows.events.names_of`).
        time_field: field of the event time, None for the record's own timestamp.
        time_unit: unit of `time_field`: integer milliseconds, integer seconds, or RFC 3339 text. Where an Avro schema
            says what a time is, that holds.
        time_zone: zone of times without an offset from UTC.
        dead_letter_topic: where the metadata of refused records goes.
        key_field: field of the user in a source that is not keyed by user, None where the record key is the user.
        partitioner: the hash the producers place keys with, checked by ingest ("unchecked": trusted).
    """

    name: str
    topic: str
    partitions: int
    user_field: str | None
    time_field: str | None
    time_unit: TimeUnit
    dead_letter_topic: str
    partitioner: PartitionerName
    key_field: str | None = None
    format: ValueFormat = "json"
    time_zone: str = DEFAULT_ZONE

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are read of every event, by their place in the configuration."""
        own = {"key": self.key_field, "user": self.user_field, "time.field": self.time_field}
        return {f"sources.{self.name}.{key}": field for key, field in own.items() if field is not None}


@dataclass(frozen=True)
class PoolPlan:
    """The pool of a ledger: a cap on rho, for the noise of counts and the draws of selections.

    Attributes:
        epsilon: what the cap adds to the ledger's epsilon.
        slack: what it adds to the ledger's delta.
        cap: the largest rho that converts to them, rounded down.
    """

    epsilon: Fraction
    slack: Fraction
    cap: Fraction


@dataclass(frozen=True)
class LedgerPlan:
    """The budget of a population in each of its periods.

    Attributes:
        name: the ledger's name; it may change.
        population: who a user is, in words. These words are what the ledger is: what was spent is kept under them.
        total: the guarantee, (epsilon, delta).
        budget: the caps that keep it (`accounting.ledger`): without a pool the same, with one epsilon and delta less
            what the pool adds, and its cap.
        periods: how they cut time.
        pool: None: all costs add up as epsilon.
    """

    name: str
    population: str
    total: Cost
    budget: Cost
    periods: Shape
    pool: PoolPlan | None = None

    @property
    def fingerprint(self) -> bytes:
        """Identity of the ledger: `FINGERPRINT_BYTES` bytes of BLAKE2b over the words for its population.

        Spending belongs to a population and a time. So nothing that may change for the same people is in it: neither
        the name, nor the budget, nor the periods.
        """
        return blake2b(self.population.encode(), digest_size=FINGERPRINT_BYTES, person=b"stream-dp ledger").digest()


@dataclass(frozen=True)
class Unlock:
    """A level that an audience sees of a window from some age on.

    Attributes:
        level: its index.
        after_ms: how long after the end of the window.
    """

    level: int
    after_ms: int


@dataclass(frozen=True)
class SharpenPlan:
    """That what a ledger has left over is spent on sharper releases of a view (`releases.unlocks`).

    Attributes:
        audience: who sees them.
        level: index of the level.
        reserve: the part of the ledger's budget that is left alone.
        every_ms: it is done at multiples of this.
    """

    audience: str
    level: int
    reserve: Fraction
    every_ms: int

    @property
    def times(self) -> Tiling:
        """The times at which it is done, as starts."""
        return Tiling(self.every_ms)

    def next_ms(self, now_ms: int) -> int:
        """The first of them behind a time."""
        return self.times.end(self.times.start_of(now_ms))


@dataclass(frozen=True)
class Edition:
    """Settings of a view, by their number, and from which window on they hold.

    Attributes:
        number: 1 for the settings that the view began with.
        first_ms: start of the first window.
        audiences: who may read these windows, and the index of the level each starts with.
        shape: that of the windows; editions of one view edition may differ in what is made of the same panes.
    """

    number: int
    first_ms: int
    audiences: Mapping[str, int]
    shape: Shape


@dataclass(frozen=True, slots=True)
class ViewWords:
    """Words for readers about a view.

    Attributes:
        title: of the view.
        unit: what is counted, in the plural.
        item: the meaning of an item; empty where nothing is said.
    """

    title: str = ""
    unit: str = ""
    item: str = ""


@dataclass(frozen=True)
class ViewPlan:
    """Everything about one view; or, of a view whose definition changed, about one of its definitions.

    Attributes:
        name: what its state is kept under: rows, counts on their way, noise. The view's name, and the number of an
            edition behind it where that began another definition.
        source: where its events come from.
        item_field: the field that is counted, a name or a path.
        window: its windows.
        items_per_user: number of distinct items of one user that are counted in one window.
        buckets: number of rows its counts are spread over.
        audiences: who may read it, and the index in `levels` each starts with.
        ledger: the account it is charged to.
        kind: what is peculiar to its release kind, the levels of its ladder among it.
        fingerprint: 8 bytes over everything that may not change while state of this view exists.
        windows_per_user: number of charged windows of a period that a user is counted in, at most; None: in all.
        pacing: whether these are spread over the period (`windows.participation`).
        share: the part of its ledger's budget that it may take, and that is kept for it; None: it has what it needs of
            the rest (`stream_dp.config.shares`).
        has_lists: whether the field is a list of items, each a contribution of its own.
        editions: those with this definition, in the order in which they were decided; none in the plan of a file.
        until_ms: start of the first window that is not made any more; None: there is no such window.
        former: of a plan that holds, who read the view by former settings: what they were told is taken back when it
            expires.
        named: of a plan that holds, the index in `levels` that other names of levels come to, -1 for nothing: those of
            the newest ladder of the view, which may be another one (`control.editions`).
        is_removed: whether the view was taken out.
        unlocks: by audience, the levels that it sees later, in the order of their times; both rise.
        sharpen: what is done with what the ledger has left over; None: nothing.
        falls_back: whether a window is released at a coarser level where the ledger does not pay for the finest.
        affords: epsilon of the counts of one window that the ledger pays for in every window of a period, where levels
            are shares of it; None where they are written down.
        words: for readers. Plans that differ in them alone are equal, so other words begin no edition.
        later: of a plan that holds, the editions of later definitions of the view, as number and start of the first
            window.
    """

    name: str
    source: SourcePlan
    item_field: str
    window: WindowPlan
    items_per_user: int
    buckets: int
    audiences: Mapping[str, int]
    ledger: LedgerPlan
    kind: KindPlan
    fingerprint: bytes
    windows_per_user: int | None = None
    pacing: Pacing = "none"
    share: Fraction | None = None
    falls_back: bool = False
    has_lists: bool = False
    editions: tuple[Edition, ...] = ()
    until_ms: int | None = None
    unlocks: Mapping[str, tuple[Unlock, ...]] = field(default_factory=dict)
    sharpen: SharpenPlan | None = None
    former: tuple[str, ...] = ()
    named: Mapping[str, int] = field(default_factory=dict)
    is_removed: bool = False
    affords: Fraction | None = None
    words: ViewWords = field(default=ViewWords(), compare=False)
    later: tuple[tuple[int, int], ...] = ()

    @property
    def item_path(self) -> str:
        """Where the configuration names the field."""
        return f"views.{self.view}.{'items' if self.has_lists else 'item'}"

    @property
    def windows(self) -> Schedule:
        """Schedule of released windows: those that one period of its ledger pays for."""
        return Schedule(self.window.shape.counted, self.ledger.periods)

    @property
    def charged(self) -> Schedule:
        """Schedule of charged windows: the released ones, or the whole windows of running totals."""
        return Schedule(self.window.shape.paid, self.ledger.periods)

    @property
    def view(self) -> str:
        """The view's name, which readers and operators know."""
        return view_of(self.name)

    @property
    def begins_ms(self) -> int:
        """Start of the first window, of a plan that holds."""
        return self.editions[0].first_ms

    @property
    def never_holds(self) -> bool:
        """True if no window is its own: it was taken back before it began."""
        return bool(self.editions) and self.until_ms is not None and self.until_ms <= self.begins_ms

    def asks_for(self, start_ms: int) -> bool:
        """Return True if a window that starts at a time is its own, of a plan that holds."""
        return self.begins_ms <= start_ms and (self.until_ms is None or start_ms < self.until_ms)

    @property
    def readers(self) -> Collection[str]:
        """Everybody who may read some of its windows."""
        of_editions = (name for one in self.editions for name in one.audiences)
        return dict.fromkeys([*self.audiences, *of_editions, *self.former])

    @property
    def most_panes(self) -> int:
        """Of how many panes a window is at most, in whichever edition; 1 where there are no panes."""
        return max([self.window.shape.panes, *(one.shape.panes for one in self.editions)])

    def begun(self, first_ms: int, number: int = 1) -> ViewPlan:
        """The same with its first edition, from a window on."""
        return replace(self, editions=(self.as_edition(number, first_ms),))

    def as_edition(self, number: int, first_ms: int) -> Edition:
        """Return an edition with this plan's values of what may differ between editions of one definition."""
        return Edition(number, first_ms, self.audiences, self.window.shape)

    def edition(self, start_ms: int) -> Edition:
        """The edition that holds for a window: of those that begin no later the one that was decided last."""
        found = (one for one in reversed(self.editions) if one.first_ms <= start_ms)
        return next(found, self.as_edition(1, start_ms))

    def until(self, edition: Edition) -> int | None:
        """The start of the first window that an edition does not hold for; None: there is none."""
        later = [one.first_ms for one in self.editions if one.number > edition.number]
        return min([*later, *([] if self.until_ms is None else [self.until_ms])], default=None)

    def follows(self, edition: Edition) -> tuple[int, int] | None:
        """The edition behind one, of whatever definition: number and start of its first window; None: none is known."""
        own = [(one.number, one.first_ms) for one in self.editions if one.number > edition.number]
        return min([*own, *self.later], key=lambda one: (one[1], -one[0]), default=None)

    def at(self, start_ms: int) -> ViewPlan:
        """The same with the audiences that it has in the edition of a window or pane, and what its panes make up."""
        edition = self.edition(start_ms)
        if edition.audiences == self.audiences and edition.shape == self.window.shape:
            return self
        window = replace(self.window, shape=edition.shape)
        return replace(self, audiences=edition.audiences, window=window)

    @property
    def start_level(self) -> int:
        """The finest level that an audience starts with; of a view that was taken out, that one started with."""
        starts = (self.audiences, *(one.audiences for one in self.editions if not self.audiences))
        return max((level for one in starts for level in one.values()), default=0)

    @property
    def planned_level(self) -> int:
        """The finest level that an audience starts with or is unlocked."""
        return max([self.start_level, *self._unlocked])

    @property
    def _unlocked(self) -> list[int]:
        """The levels that audiences are unlocked, each once, coarse to fine."""
        return sorted({step.level for steps in self.unlocks.values() for step in steps})

    def scheduled(self, first_ms: int, end_ms: int) -> Cost:
        """Return the worst-case cost, on schedule, of windows that begin at or after `first_ms` and before a time."""
        until_ms = end_ms if self.until_ms is None else min(end_ms, self.until_ms)
        return self.planned * self.most_paid(self.charged.begun(first_ms, until_ms))

    def most_paid(self, windows: int) -> int:
        """Return for how many of so many windows of a period a user pays at most."""
        return windows if self.windows_per_user is None else min(windows, self.windows_per_user)

    def covered(self, windows: int, affords: int) -> int:
        """Return how many of so many windows of a period are paid for, if a user can pay for `affords` of them."""
        return windows if affords >= self.most_paid(windows) else affords

    @property
    def levels(self) -> tuple[NoiseLevel, ...]:
        """The ladder, coarse to fine."""
        return self.kind.levels

    def level_index(self, name: str) -> int | None:
        """The index of the level that a name comes to, -1 for nothing; None where no ladder of the view has it."""
        if name in self.named:
            return self.named[name]
        return next((at for at, one in enumerate(self.levels) if one.name == name), None)

    @property
    def query_id(self) -> bytes:
        """Name and fingerprint: they keep the noise of two definitions apart (specs/lossless 6.3, the window field)."""
        return self.name.encode() + b"\x00" + self.fingerprint

    def noise_name(self, start_ms: int) -> bytes:
        """The window field of the noise: no two definitions and no two windows share one (specs/lossless 6.3)."""
        return self.query_id + moment(start_ms)

    @property
    def keys_at_worst(self) -> Cost:
        """Worst-case cost of showing the keys of a window, whatever the level."""
        return self.kind.keys_at_worst(pooled=self.ledger.pool is not None)

    def counts(self, level: int, before: int = -1) -> Cost:
        """Return the cost per user of one window's counts at `levels[level]`.

        Args:
            level: the level. If it is not finer than `before`, it is free (specs/lossless 3.2).
            before: the finest level that was charged before; -1: none was. In epsilon the difference is to be paid; in
                a pool a step, of whatever length (`accounting.composition.ladder_rho`).
        """
        if level <= before:
            return Cost.ZERO
        at = self.levels[level]
        if self.ledger.pool is not None:
            return Cost(Fraction(0), Fraction(0), rho=at.rho if before < 0 else at.step_rho)
        return Cost(at.epsilon if before < 0 else at.epsilon - self.levels[before].epsilon, Fraction(0))

    def steps(self, levels: Iterable[int], before: int = -1) -> Cost:
        """Return the cost of one window's counts at several levels, one after another; arguments as for `counts`."""
        cost = Cost.ZERO
        for level in levels:
            cost += self.counts(level, before)
            before = max(before, level)
        return cost

    def request(self, level: int, had: int) -> Cost:
        """Return the worst-case cost of an audience's request for a level, by the level that it alone has, -1 for none.

        Others may have a coarser one of the window.
        """
        cost = self.counts(level, had)
        return cost.most(self.counts(level, 0)) if had < 0 else cost

    def unlocks_beyond(self, finest: int) -> Cost:
        """Return the worst-case cost of a window's scheduled unlocks beyond a level that was charged before."""
        return self.steps((level for level in self._unlocked if level > finest), finest)

    def cost(self, level: int) -> Cost:
        """Return the worst-case cost per user of a window that is first released at `levels[level]`.

        The counts, and the keys once, whatever the level. Coarser releases of the same window come free
        (specs/lossless 3.2), so this is also what a coalition learns whose finest level it is.

        Raises:
            ParameterError: there is no such level.
        """
        if not 0 <= level < len(self.levels):
            raise ParameterError(f"a window is released at one of {len(self.levels)} levels, not at index {level}")
        return self.counts(level) + self.keys_at_worst

    @property
    def planned(self) -> Cost:
        """Worst-case cost per user of a window on schedule: its first release, and every unlock by itself."""
        return self.cost(self.start_level) + self.unlocks_beyond(self.start_level)

    @property
    def at_worst(self) -> Cost:
        """Worst-case cost per user of a window, whatever of it was released and in how many steps."""
        return self.steps(range(len(self.levels))) + self.keys_at_worst

    def keys_spent(self, table: SealedTable) -> Cost:
        """Return the cost per user of showing the keys of a sealed window."""
        return self.kind.keys_spent(table.payload, pooled=self.ledger.pool is not None)

    def spent(self, table: SealedTable, level: int) -> Cost:
        """Return the cost per user of a sealed window's first release if `levels[level]` is the finest of it."""
        return self.counts(level) + self.keys_spent(table)

    def paid(self, table: SealedTable, levels: Sequence[int]) -> Cost:
        """Return the cost per user of a sealed window, by the levels that it was charged at, in their order."""
        return self.steps(levels) + self.keys_spent(table) if levels else Cost.ZERO


@dataclass(frozen=True)
class Plan:
    """A checked application.

    Attributes:
        name: application name.
        broker: the cluster, and how to get in.
        data_dir: folder of the workers' state.
        key_file: file of the secret that the noise of coarser levels is locked with.
        partitions: number of partitions of every source and internal topic.
        views: by name of their state, each definition of a view by itself.
        ledgers: by name.
        audiences: names, in the order of the file.
        erase_within_ms: how long after a window is sealed its raw counts may still stand in a changelog.
        window_memory_bytes: what the users and items of one open window of one partition may take in a worker's memory,
            by estimate.
        block_cache_bytes: of a worker's tables, all partitions together.
        standbys: how many workers keep a copy of a partition that another one has.
        slots: when releases leave.
        topics: how its topics are named and made.
        raw: the data that it was planned from.
        folder: what files that these name are relative to.
        settings: number of the posted settings that it goes by (`stream_dp.control.editions`); 0 for those of a file.
        disclosed_ms: by view and audience, when the settings were accepted that last changed what it may see, by the
            broker's clock.
        joined_ms: by view and audience, when the settings were accepted that last added it, by the broker's clock.
        registry: where the schemas of sources in Avro are; None where nothing is said.
        serve: who may read at the gateway.
        readers: file of the tokens of readers, for the gateway; None: there are none.
        operators: file of the tokens of operators, for the console; None: there are none.
    """

    name: str
    broker: Broker
    data_dir: Path
    key_file: Path
    partitions: int
    views: Mapping[str, ViewPlan]
    ledgers: Mapping[str, LedgerPlan]
    audiences: tuple[str, ...]
    erase_within_ms: int
    window_memory_bytes: int
    block_cache_bytes: int
    slots: Slots
    standbys: int = 0
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    registry: Registry | None = None
    serve: ServeConfig = field(default_factory=ServeConfig)
    readers: Path | None = None
    operators: Path | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    folder: Path = field(default=Path(), compare=False)
    settings: int = 0
    disclosed_ms: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)
    joined_ms: Mapping[str, Mapping[str, int]] = field(default_factory=dict, compare=False)

    @property
    def newest(self) -> Mapping[str, ViewPlan]:
        """The newest definition of every view that was not removed, by the view's name."""
        return {view.view: view for view in self.views.values() if view.until_ms is None}

    def begun(self, starts: Mapping[str, int]) -> Plan:
        """The same with the first edition of every view, each from a window on."""
        return replace(self, views={name: view.begun(starts[name]) for name, view in self.views.items()})

    @property
    def id(self) -> str:
        """Id of the application on its cluster: its group, and the prefix of its topics."""
        return application_id(self.topics.prefix, self.name)


def application_id(prefix: str, name: str) -> str:
    """The id of an application. It tells both: a prefix ends with a character that no name has."""
    return prefix + name
