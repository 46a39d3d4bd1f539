"""Where messages of the pure parts go: counts on their way, their withdrawal, and notes of refused records."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.releases.rows import merged_key
from stream_dp.runtime.ordering import Tick
from stream_dp.runtime.topics import Topics
from stream_dp.windows.effects import Message
from stream_dp.windows.keys import encode
from stream_dp.windows.merge_rows import MergedBucket, Partial, PartialHead
from stream_dp.windows.rekeying import Parcel


class Routes:
    """Where counts on their way go, and how they are withdrawn; a record of the same key replaces the one before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._topics = Topics.of(plan)

    def partial(self, partial: Partial) -> Message:
        """A partition's counts of a bucket, to the merge agent."""
        return self._partial(partial, encode(partial))

    def parcel(self, source: str, to: int, parcel: Parcel) -> Message:
        """Events of a source that is not keyed by user, and what their partition says of the time, to their users."""
        return Message(self._topics.rekeyed(source), None, encode(parcel), to)

    def withdraw_partial(self, partial: PartialHead) -> Message:
        """The tombstone of a partial."""
        return self._partial(partial, None)

    def merged(self, bucket: MergedBucket) -> Message:
        """A bucket's counts, to the release agent that keeps the view's ledger."""
        ledger = self._plan.views[bucket.view].ledger
        return self._merged(bucket, self._topics.ledger_partition(ledger), encode(bucket))

    def withdraw_merged(self, bucket: MergedBucket, partition: int) -> Message:
        """The tombstone of a merged bucket that was read from `partition`."""
        return self._merged(bucket, partition, None)

    def recall(self, view: str, from_ms: int) -> list[Message]:
        """Ask every counter of a view to stand in for what it handed on, from a window on."""
        value = encode(Tick(0, {}, (view, from_ms)))
        return [Message(self._topics.ticks, None, value, partition) for partition in range(self._plan.partitions)]

    def _partial(self, partial: PartialHead, value: bytes | None) -> Message:
        at = self._topics.partial_partition(partial.view, partial.start_ms, partial.bucket)
        return Message(self._topics.partials, partial.key, value, at)

    def _merged(self, bucket: MergedBucket, partition: int, value: bytes | None) -> Message:
        return Message(self._topics.merged, merged_key(bucket), value, partition)


def dead_letter(source: SourcePlan, partition: int, offset: int, reason: str, views: Sequence[str]) -> Message:
    """Where a refused record stands, why it was refused and by which views; nothing of what it says."""
    letter = {"topic": source.topic, "partition": partition, "offset": offset, "reason": reason, "views": views}
    return Message(source.dead_letter_topic, None, json.dumps(letter, separators=(",", ":")).encode(), partition)
