"""From the plan to the pure parts of a worker: counters, the merger, release engines, and what they are made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import rocksdict

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.losses import LostCounts
from stream_dp.releases.publication import Destinations
from stream_dp.releases.rows import merged_key
from stream_dp.runtime.clock import Tick
from stream_dp.runtime.kafka.list_topics import Lists
from stream_dp.runtime.kafka.ownership import Life, Owner
from stream_dp.runtime.kafka.partitioners import by_crc32, by_murmur2
from stream_dp.runtime.kafka.topics import MERGES, RELEASES, Topics, counted_in, sources_of
from stream_dp.runtime.storage import SPILL_FOLDER, DiskSpillStores
from stream_dp.windows.avro import AvroEventDecoder, AvroValues
from stream_dp.windows.counting import CountedPartition, PartitionCounter
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode
from stream_dp.windows.events import WATERMARK_HEADER, EventDecoder, EventFormat, JsonValues, KeyReader, Partitioner
from stream_dp.windows.merging import BucketMerger, MergedBucket, MergedHead, Partial, PartialHead
from stream_dp.windows.open_windows import SpillStore, WindowMemory
from stream_dp.windows.rekeying import RekeyedBatch, RekeyedCounter, Rekeyer, UserPartitions
from stream_dp.windows.views import CountedView, ParticipationBound


@dataclass(frozen=True, slots=True)
class Settled:
    """Results of the preparation that a worker starts with.

    Attributes:
        plan: the plan in effect.
        lists: the public lists in topics, which the worker follows while it runs.
        topics: the topics that the application created, each with its life (`owners.Claim`).
        uncounted: when the loss of exact counts was accepted, in ms, by view; only views that lost some.
    """

    plan: Plan
    lists: Lists = field(default_factory=Lists, compare=False)
    topics: Mapping[str, Life] = field(default_factory=dict)
    uncounted: Mapping[str, int] = field(default_factory=dict)

    @property
    def unclaimed(self) -> frozenset[str]:
        """The release topics that the application does not have: they could not be created, or were given up."""
        topics = Topics.of(self.plan).releases(self.plan)
        return topics - {topic for topic, life in self.topics.items() if not life.is_given_up}

    @property
    def uncreated(self) -> frozenset[str]:
        """Those of them that have an audience."""
        return self.unclaimed & Topics.of(self.plan).served(self.plan)


class Routes:
    """Where counts on their way go, and how they are withdrawn; a record of the same key replaces the one before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._topics = Topics.of(plan)

    def partial(self, partial: Partial) -> Message:
        """A partition's counts of a bucket, to the merge agent."""
        return self._partial(partial, encode(partial))

    def batch(self, source: str, to: int, batch: RekeyedBatch) -> Message:
        """Events of a source that is not keyed by user, and what their partition says of the time, to their users."""
        return Message(self._topics.rekeyed(source), None, encode(batch), to)

    def withdraw_partial(self, partial: PartialHead) -> Message:
        """The tombstone of a partial."""
        return self._partial(partial, None)

    def merged(self, bucket: MergedBucket) -> Message:
        """A bucket's counts, to the release agent that keeps the view's ledger."""
        ledger = self._plan.views[bucket.view].ledger
        return self._merged(bucket, self._topics.ledger_partition(ledger), encode(bucket))

    def withdraw_merged(self, bucket: MergedHead, partition: int) -> Message:
        """The tombstone of a merged bucket that was read from `partition`."""
        return self._merged(bucket, partition, None)

    def declare_lost(self, view: str, from_ms: int) -> list[Message]:
        """Ask every counter of a view to stand in for what it handed on, from a window on."""
        value = encode(Tick(0, {}, (view, from_ms)))
        return [Message(self._topics.ticks, None, value, partition) for partition in range(self._plan.partitions)]

    def _partial(self, partial: PartialHead, value: bytes | None) -> Message:
        at = self._topics.partial_partition(partial.view, partial.start_ms, partial.bucket)
        return Message(self._topics.partials, partial.key, value, at)

    def _merged(self, bucket: MergedHead, partition: int, value: bytes | None) -> Message:
        return Message(self._topics.merged, merged_key(bucket), value, partition)


def dead_letter(source: SourcePlan, partition: int, offset: int, reason: str, views: Sequence[str]) -> Message:
    """Where a refused record stands, why it was refused and by which views; nothing of what it says."""
    letter = {"topic": source.topic, "partition": partition, "offset": offset, "reason": reason, "views": views}
    return Message(source.dead_letter_topic, None, json.dumps(letter, separators=(",", ":")).encode(), partition)


class Factory:
    """Makes the pure parts of one worker; none is loaded yet.

    Attributes:
        plan: the plan that holds.
        owner: the application, as it claims topics.
    """

    def __init__(
        self,
        settled: Settled,
        *,
        keys: KeyRing,
        entropy: Entropy,
        cache: rocksdict.Cache,
        spill_stores: Callable[[], SpillStore] | None = None,
    ) -> None:
        """Set up the factory.

        Args:
            settled: the plan that holds, and public lists, from `prepare`.
            keys: the application's secrets, from `load_keys`.
            entropy: where fresh noise comes from.
            cache: of the tables of the process.
            spill_stores: makes the stores of large windows; None: they are in the data folder, for this process only.
        """
        self.plan = plan = settled.plan
        self.owner = Owner(plan.id, keys.application)
        self._settled = settled
        self._keys = keys
        self._entropy = entropy
        self._cache = cache
        self._given_spill_stores = spill_stores
        self._topics = Topics.of(plan)
        self._routes = Routes(plan)
        self._sources = counted_in(plan)
        self._unknown = {view.name: unknown_before(view, settled) for view in plan.views.values()}
        self._counted = {
            view.name: counted_view(view, max(view.begins_ms, self._unknown[view.name]), self._origin(view))
            for view in plan.views.values()
        }

    def _origin(self, view: ViewPlan) -> int:
        """Where the first definition of a view begins."""
        first = next(one for one in self.plan.views.values() if one.view == view.view)
        return max(first.begins_ms, self._unknown[first.name])

    def part(self, topic: str, partition: int) -> Rekeyer | PartitionCounter | BucketMerger:
        """The part that reads a partition of a topic: of a source, of re-keyed events, or of partials."""
        if topic == self._topics.partials:
            return self.merger()
        return self.counter(topic, partition) if topic in self._sources else self.rekeyer(topic, partition)

    def counter(self, topic: str, partition: int) -> PartitionCounter:
        """The counter of a partition of the topic in which a source is counted, for every view on that source."""
        source = self._sources[topic]
        views = self._views(source)
        make: Callable[..., PartitionCounter] = PartitionCounter
        if source.key_field is not None:
            make = partial(RekeyedCounter, source_partitions=source.partitions, life=self.life(topic))
        return make(
            CountedPartition(source.name, partition, user_partitioner(source)),
            [self._counted[view.name] for view in views],
            lambda names: event_decoder(source, [self.plan.views[name] for name in names]),
            outlet=self._routes.partial,
            dead_letters=partial(dead_letter, source),
            configured=self.plan.views.keys(),
            memory=WindowMemory(self.plan.window_memory_bytes, self._spill_stores),
        )

    def life(self, topic: str) -> int:
        """Return how often a topic of the application was made."""
        return self._settled.topics[topic].number

    @property
    def claims(self) -> Mapping[str, Life]:
        """The application's topics, by name, as claimed."""
        return self._settled.topics

    @property
    def lives(self) -> dict[str, int]:
        """Number of times that each of the application's topics was created, by name."""
        return {topic: life.number for topic, life in self._settled.topics.items()}

    def rekeyer(self, topic: str, partition: int) -> Rekeyer:
        """The rekeyer of a partition of a source topic that is not keyed by user."""
        source = sources_of(self.plan)[topic]
        return Rekeyer(
            source.name,
            partition,
            [self._counted[view.name] for view in self._views(source)],
            key_reader(source),
            users=UserPartitions(self.plan.partitions, partial(by_murmur2, partitions=self.plan.partitions)),
            outlet=partial(self._routes.batch, source.name),
            dead_letters=partial(dead_letter, source),
        )

    def _views(self, source: SourcePlan) -> list[ViewPlan]:
        return [view for view in self.plan.views.values() if view.source.name == source.name]

    @cached_property
    def _spill_stores(self) -> Callable[[], SpillStore]:
        """Made with the first counter: tables are open by then, so no other process uses the data folder."""
        if self._given_spill_stores is not None:
            return self._given_spill_stores
        return DiskSpillStores(self.plan.data_dir / SPILL_FOLDER, self._cache)

    def merger(self) -> BucketMerger:
        """The merger of a partition; partials of a bucket come from each partition of a source."""
        return BucketMerger(
            self._counted,
            dict.fromkeys(self._counted, self.plan.partitions),
            outlet=self._routes.merged,
            withdrawal=self._routes.withdraw_partial,
        )

    def engine(self, partition: int) -> ReleaseEngine:
        """The release engine of a partition, for every view whose ledger lives there."""
        topics = self._topics
        views = [v for v in self.plan.views.values() if topics.ledger_partition(v.ledger) == partition]
        # counts that were handed on stand there until their window is released
        on_the_way = {topics.partials, topics.changelog(MERGES), topics.merged, topics.changelog(RELEASES)}
        return ReleaseEngine(
            views,
            slots=self.plan.slots,
            keys=self._keys,
            entropy=self._entropy,
            lists=self._settled.lists.at,
            destinations=Destinations(
                release=topics.release,
                accounts=topics.accounts,
                withdrawal=partial(self._routes.withdraw_merged, partition=partition),
                declare_lost=self._routes.declare_lost,
            ),
            lost=LostCounts(
                any(life.number > 1 for name, life in self._settled.topics.items() if name in on_the_way), self._unknown
            ),
        )


def unknown_before(view: ViewPlan, settled: Settled) -> int:
    """The start of the first window that had not begun when it was accepted that counts of a view were lost.

    With the counts it was lost who has counted, so of windows that are told of at every pane none goes on, and of a
    period in which users are counted in some windows only, none is left.
    """
    lost_ms = settled.uncounted.get(view.view)
    shape = view.window.shape.paid if view.windows_per_user is None else view.ledger.periods
    return view.begins_ms if lost_ms is None else max(view.begins_ms, shape.next(shape.start_of(lost_ms)))


def event_format(source: SourcePlan, views: Sequence[ViewPlan]) -> EventFormat:
    """Return the format of a source's events for the views on it, in their order."""
    items = tuple(view.item_field for view in views)
    lists = frozenset(view.item_field for view in views if view.has_lists)
    return EventFormat(
        items,
        source.user_field,
        source.time_field,
        source.time_unit,
        lists,
        source.key_field,
        source.time_zone,
    )


def key_reader(source: SourcePlan) -> KeyReader:
    """Return the reader of the users of a source that is not keyed by user."""
    assert source.key_field is not None  # noqa: S101
    return KeyReader(source.key_field, AvroValues if source.format == "avro" else JsonValues)


def event_decoder(source: SourcePlan, views: Sequence[ViewPlan]) -> EventDecoder:
    """Return the decoder of a source's events for the views on it."""
    kind = AvroEventDecoder if source.format == "avro" else EventDecoder
    return kind(event_format(source, views))


def counted_view(view: ViewPlan, start_ms: int, origin_ms: int | None = None) -> CountedView:
    """The counting side of a view's plan, from a window on; its first definition began at `origin_ms`."""
    window = view.window
    return CountedView(
        name=view.name,
        fingerprint=view.fingerprint,
        windows=window.shape.counted,
        first_ms=start_ms,
        grace_ms=window.grace_ms,
        clock=window.clock,
        max_ahead_ms=window.max_ahead_ms,
        idle_ms=window.idle_ms,
        items_per_user=view.items_per_user,
        buckets=view.buckets,
        needed=view.kind.needed,
        retention_ms=window.retention_ms,
        domain=None if view.kind.topics or view.kind.degrees else view.kind.domain({}),
        bounds=window.shape.bounds,
        item=view.item_field,
        has_lists=view.has_lists,
        until_ms=view.until_ms,
        origin_ms=origin_ms,
        weights=view.kind.weights,
        degrees=view.kind.degrees,
        catch_up_ms=window.catch_up_ms,
        participation=(
            None
            if view.windows_per_user is None
            else ParticipationBound(view.windows_per_user, view.ledger.periods, view.pacing)
        ),
    )


def partitioner(source: SourcePlan) -> Partitioner | None:
    """The hash by which producers place users, None where they are trusted."""
    place = {"murmur2": by_murmur2, "crc32": by_crc32}.get(source.partitioner)
    return place and partial(place, partitions=source.partitions)


def user_partitioner(source: SourcePlan) -> Partitioner | None:
    """The same for a source that is counted where its records stand: None where its events are re-keyed."""
    return partitioner(source) if source.key_field is None else None


class SourceRecords:
    """The records of one source as producers write them: events in the partition of their user, and watermarks."""

    def __init__(self, source: SourcePlan) -> None:
        self._topic = source.topic
        self._partitions = source.partitions
        hashed = partitioner(source) or partitioner(replace(source, partitioner="murmur2"))
        assert hashed is not None  # noqa: S101  murmur2 is one
        self._hash = hashed

    def place(self, user: bytes) -> int:
        """The partition of a user, by the source's partitioner; murmur2 where producers are trusted with it."""
        (at,) = self._hash([user])
        return at

    def event(self, user: bytes, value: bytes) -> Message:
        """The record of an event."""
        return Message(self._topic, user, value, self.place(user))

    def watermark(self, time_ms: int) -> Iterator[Message]:
        """The records which say, partition by partition, that no event before a time follows."""
        header = {WATERMARK_HEADER: str(time_ms).encode()}
        for partition in range(self._partitions):
            yield Message(self._topic, None, b"", partition, header)
