"""The names and settings of every topic, and who holds what: the trust boundary in one place.

Public: the release topics. Inside the trust boundary: source, re-keyed events, dead letters, partials, merged and the
changelogs (exact counts or user data), ticks (how many records the sources have), the accounts (what selections have
cost, whoever may read them), and the status (how many events were counted). Without data: control, orders.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from zlib import crc32

from stream_dp.config.crosschecks import OWNERS_TOPIC
from stream_dp.config.file_schema import TopicsConfig
from stream_dp.config.plan import LedgerPlan, Plan, SourcePlan
from stream_dp.kinds.public_lists import release_topic
from stream_dp.windows.encoding import BROKER_BYTES, moment, text

COUNTS, MERGES, RELEASES = "counts", "merges", "releases"
"""The tables of the ingest, merge and release agents."""
SIZE = {"max.message.bytes": str(BROKER_BYTES)}
"""Of every topic that the application writes to; a cluster may have less where nothing is said."""
AS_WRITTEN = {"compression.type": "producer"}
"""Of the topics that others read: not compressed, whatever the cluster does where nothing is said."""
APPENDED = {"message.timestamp.type": "LogAppendTime"}
"""Setting of the topics that only workers write to, and of the control topic. The broker stamps ticks (`Clock`) and
verdicts (`Verdict`) with its own time, and accepts records from machines whose clocks are wrong."""
EXPIRING = {"cleanup.policy": "compact", "max.compaction.lag.ms": "86400000"}
"""Of release topics: what was taken back is gone from them a day or two later, not at some later compaction."""


AS_THE_CLUSTER_DOES = -1
"""The number of copies that a cluster makes where nothing is said; Kafka's own word for it."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create: its name, number of partitions, settings and number of copies."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)
    replication: int = AS_THE_CLUSTER_DOES


class Topics:
    """The topics of an application."""

    def __init__(
        self, app: str, partitions: int, erase_within_ms: int, made: TopicsConfig, rekeyed_sources: tuple[str, ...] = ()
    ) -> None:
        """Name the topics.

        Args:
            app: the application's id.
            partitions: of the topics between its agents.
            erase_within_ms: the time within which exact counts are gone from them.
            made: what all topics have in common.
            rekeyed_sources: names of the sources that are not keyed by user.
        """
        self.app, self.partitions, self.erase_within_ms, self.made = app, partitions, erase_within_ms, made
        self.rekeyed_sources = rekeyed_sources
        self.ticks = f"{app}-ticks"
        """Ticks: the wall clock and the ends of the sources, one per partition and second."""
        self.partials = f"{app}-partials"
        """Exact counts of one partition, bucket and window, on their way to the merge agent."""
        self.merged = f"{app}-merged"
        """Exact counts of one bucket and window, on their way to the release agent."""
        self.control = f"{app}-control"
        """Topic of grants and settings from operators; one partition."""
        self.orders = f"{app}-orders"
        """Checked control messages, a copy for every partition."""
        self.accounts = f"{app}-accounts"
        """Topic of the entries of all ledgers, for operators; one partition."""
        self.status = f"{app}-status"
        """Topic of the status of workers and their partitions, for operators; one partition."""
        self.changelogs = [self.changelog(table) for table in (COUNTS, MERGES, RELEASES)]

    @classmethod
    def of(cls, plan: Plan) -> Topics:
        """The topics of a plan's application."""
        rekeyed = tuple(source.name for source in sources_of(plan).values() if source.key_field is not None)
        return cls(plan.id, plan.partitions, plan.erase_within_ms, plan.topics, rekeyed)

    @property
    def owners(self) -> TopicSpec:
        """The topic in which all applications of a prefix claim theirs."""
        return self._made(TopicSpec(self.made.prefix + OWNERS_TOPIC, 1, {"cleanup.policy": "compact"}))

    def release(self, view: str, audience: str) -> str:
        """The public topic of one view and audience."""
        return release_topic(self.app, view, audience)

    def source(self, source: SourcePlan) -> TopicSpec:
        """The topic of a source, where it has to be created."""
        return self._made(TopicSpec(source.topic, source.partitions))

    def rekeyed(self, source: str) -> str:
        """Events of a source that is not keyed by user, in the partitions of their users, until they are counted."""
        return f"{self.app}-rekeyed-{source}"

    def counted(self, source: SourcePlan) -> str:
        """The topic in which the events of a source are counted."""
        return source.topic if source.key_field is None else self.rekeyed(source.name)

    @property
    def internal(self) -> list[str]:
        """The topics that agents read, but for the sources."""
        rekeyed = map(self.rekeyed, self.rekeyed_sources)
        return [self.ticks, self.partials, self.merged, self.control, self.orders, *rekeyed]

    def stateless(self, plan: Plan) -> frozenset[str]:
        """Return the topics without state, which are created again after they were deleted."""
        return frozenset([self.ticks, self.status]) | self.letters(plan)

    def letters(self, plan: Plan) -> frozenset[str]:
        """Return the dead-letter topics."""
        return frozenset(source.dead_letter_topic for source in sources_of(plan).values())

    def releases(self, plan: Plan) -> frozenset[str]:
        """Return the release topics of all views and audiences, including removed ones."""
        asked = [view for view in plan.views.values() if not view.never_holds]
        return frozenset(self.release(view.view, audience) for view in asked for audience in view.readers)

    def served(self, plan: Plan) -> frozenset[str]:
        """Return the release topics that have an audience."""
        asked = [view for view in plan.views.values() if not (view.never_holds or view.is_removed)]
        return frozenset(self.release(view.view, audience) for view in asked for audience in view.audiences)

    def changelog(self, table: str) -> str:
        """The changelog of a table, named as Faust names it."""
        return f"{self.app}-{table}-changelog"

    def partial_partition(self, view: str, start_ms: int, bucket: int) -> int:
        """Where the partials of a bucket meet."""
        return crc32(text(view) + moment(start_ms) + bucket.to_bytes(2)) % self.partitions

    def ledger_partition(self, ledger: LedgerPlan) -> int:
        """Where a ledger lives, under whatever name, and with it the releases of every view that it pays for."""
        return crc32(ledger.fingerprint) % self.partitions

    @property
    def erasing(self) -> dict[str, str]:
        """Settings of a compacted topic from which a deleted row is gone within `erase_within_ms`.

        A segment is closed after a quarter of that time (the heartbeat of the tables and topics sees to it that a
        record arrives to close it), must be cleaned after another quarter, and its old file is deleted a minute later.
        """
        quarter = str(max(1000, self.erase_within_ms // 4))
        return {
            "cleanup.policy": "compact",
            "segment.ms": quarter,
            "max.compaction.lag.ms": quarter,
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "86400000",
            "file.delete.delay.ms": "1000",
            **APPENDED,
        }

    @property
    def deleting(self) -> dict[str, str]:
        """Settings of a topic whose records are deleted when they are counted, and never before.

        Workers do that (`Timers.beat`); a segment is closed after a quarter of `erase_within_ms`, and its file goes
        when the broker next looks for what was deleted.
        """
        quarter = str(max(1000, self.erase_within_ms // 4))
        kept = {"retention.ms": "-1", "retention.bytes": "-1"}
        return {"cleanup.policy": "delete", "segment.ms": quarter, "file.delete.delay.ms": "1000", **kept, **APPENDED}

    def all(self, plan: Plan) -> list[TopicSpec]:
        """Every topic of the application except its sources, in the order in which they are created."""
        everywhere = self.partitions
        an_hour = {"retention.ms": "3600000", "segment.ms": "600000", **APPENDED}
        a_day = {"retention.ms": "86400000", "segment.ms": "3600000", **APPENDED}
        specs = [
            TopicSpec(self.ticks, everywhere, a_day),
            TopicSpec(self.partials, everywhere, self.erasing),
            TopicSpec(self.merged, everywhere, self.erasing),
            *(TopicSpec(self.rekeyed(source), everywhere, self.deleting) for source in self.rekeyed_sources),
            TopicSpec(self.control, 1, {"cleanup.policy": "compact", **APPENDED}),
            TopicSpec(self.orders, everywhere, {"cleanup.policy": "compact", **APPENDED}),
            TopicSpec(self.accounts, 1, {"cleanup.policy": "compact"}),
            TopicSpec(self.status, 1, {"cleanup.policy": "compact,delete", **an_hour}),
        ]
        specs += [TopicSpec(name, everywhere, self.erasing) for name in self.changelogs]
        letters = dict.fromkeys(view.source.dead_letter_topic for view in plan.views.values())
        specs += [TopicSpec(name, everywhere, {**AS_WRITTEN, **APPENDED}) for name in letters]
        specs += [TopicSpec(name, 1, {**EXPIRING, **AS_WRITTEN}) for name in sorted(self.releases(plan))]
        return [self._made(spec) for spec in specs]

    def _made(self, spec: TopicSpec) -> TopicSpec:
        """A topic with what all have in common."""
        least, copies = self.made.min_insync_replicas, self.made.replication
        safe = {} if least is None else {"min.insync.replicas": str(least)}
        return replace(
            spec, config={**spec.config, **SIZE, **safe}, replication=AS_THE_CLUSTER_DOES if copies is None else copies
        )


def read_by_workers(plan: Plan) -> frozenset[str]:
    """The topics whose partitions the workers of an application share: what agents read, and the changelogs."""
    topics = Topics.of(plan)
    return frozenset([*sources_of(plan), *topics.internal, *topics.changelogs])


def sources_of(plan: Plan) -> dict[str, SourcePlan]:
    """The sources that a plan's views count, by topic; each as the newest definition reads it."""
    views = sorted(plan.views.values(), key=lambda view: view.until_ms is None)
    return {view.source.topic: view.source for view in views}


def counted_in(plan: Plan) -> dict[str, SourcePlan]:
    """The same, by the topics in which they are counted."""
    topics = Topics.of(plan)
    return {topics.counted(source): source for source in sources_of(plan).values()}
