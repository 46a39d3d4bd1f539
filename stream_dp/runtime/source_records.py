"""The records of a source topic as its producers write them: events in the partition of their user, and watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stream_dp.config.plan import SourcePlan
from stream_dp.runtime.factory import partitioner
from stream_dp.runtime.kafka.client import Outgoing
from stream_dp.windows.events import WATERMARK_HEADER


class SourceRecords:
    """Makes the records of one source."""

    def __init__(self, source: SourcePlan) -> None:
        self._topic = source.topic
        self._partitions = source.partitions
        hashed = partitioner(source) or partitioner(replace(source, partitioner="murmur2"))
        assert hashed is not None  # noqa: S101  murmur2 is one
        self._hash = hashed

    def place(self, user: bytes) -> int:
        """The partition of a user, by the source's partitioner; murmur2 where producers are trusted with it."""
        return self._hash(user)

    def event(self, user: bytes, value: bytes) -> Outgoing:
        """The record of an event."""
        return Outgoing(self._topic, self.place(user), user, value)

    def watermark(self, time_ms: int) -> Iterator[Outgoing]:
        """The records which say, partition by partition, that no event before a time follows."""
        header = [(WATERMARK_HEADER, str(time_ms).encode())]
        for partition in range(self._partitions):
            yield Outgoing(self._topic, partition, None, b"", header)
