"""From the plan to what the pure parts are made of: counted views, event formats, addresses of messages."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from aiokafka.partitioner import murmur2

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.releases.rows import BUCKET
from stream_dp.runtime.topics import Topics
from stream_dp.windows.effects import Message
from stream_dp.windows.events import EventFormat, Partitioner
from stream_dp.windows.keys import bucket_key, encode
from stream_dp.windows.merge_rows import MergedBucket, Partial, partial_key
from stream_dp.windows.views import CountedView


class Routes:
    """Where counts on their way go, and how they are withdrawn; a record of the same key replaces the one before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._topics = Topics.of(plan)

    def partial(self, partial: Partial) -> Message:
        """A partition's counts of a bucket, to the merge agent."""
        return self._partial(partial, encode(partial))

    def withdraw_partial(self, partial: Partial) -> Message:
        """The tombstone of a partial."""
        return self._partial(partial, None)

    def merged(self, bucket: MergedBucket) -> Message:
        """A bucket's counts, to the release agent that keeps the view's ledger."""
        ledger = self._plan.views[bucket.view].ledger.name
        return self._merged(bucket, self._topics.ledger_partition(ledger), encode(bucket))

    def withdraw_merged(self, bucket: MergedBucket, partition: int) -> Message:
        """The tombstone of a merged bucket that was read from `partition`."""
        return self._merged(bucket, partition, None)

    def _partial(self, partial: Partial, value: bytes | None) -> Message:
        key = partial_key(partial.view, partial.start_ms, partial.bucket, partial.partition)
        at = self._topics.partial_partition(partial.view, partial.start_ms, partial.bucket)
        return Message(self._topics.partials, key, value, at)

    def _merged(self, bucket: MergedBucket, partition: int, value: bytes | None) -> Message:
        key = bucket_key(BUCKET, bucket.view, bucket.start_ms, bucket.bucket)
        return Message(self._topics.merged, key, value, partition)


def event_format(source: SourcePlan, views: Sequence[ViewPlan]) -> EventFormat:
    """How a source's events are read for the views on it, in their order."""
    items = tuple(view.item_field for view in views)
    return EventFormat(items, source.user_field, source.time_field, source.time_unit)


def counted_view(view: ViewPlan, start_ms: int) -> CountedView:
    """The counting side of a view's plan."""
    window = view.window
    return CountedView(
        name=view.name,
        fingerprint=view.fingerprint,
        windows=window.shape,
        first_ms=start_ms,
        grace_ms=window.grace_ms,
        clock=window.clock,
        max_ahead_ms=window.max_ahead_ms,
        idle_ms=window.idle_ms,
        items_per_user=view.items_per_user,
        buckets=view.buckets,
        needed=view.kind.needed,
        retention_ms=window.retention_ms,
    )


def dead_letter(source: SourcePlan, partition: int, offset: int, reason: str) -> Message:
    """Where a refused record stands and why it was refused; nothing of what it says."""
    value = f'{{"topic":"{source.topic}","partition":{partition},"offset":{offset},"reason":"{reason}"}}'
    return Message(source.dead_letter_topic, None, value.encode(), partition)


def partitioner(source: SourcePlan) -> Partitioner | None:
    """The hash by which producers place users, None where they are trusted."""
    count = source.partitions
    if source.partitioner == "murmur2":
        return lambda key: int(murmur2(key) & 0x7FFFFFFF) % count
    if source.partitioner == "crc32":
        return lambda key: crc32(key) % count
    return None
