"""Writing events into their source topic, with watermarks where the views go by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition

from stream_dp.cli.feed.events import Events, Written
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.source_records import SourceRecords


@dataclass
class Progress:
    """How far the writing has come: events that the broker has acknowledged, and the row that the last of them is.

    Attributes:
        topic: where they stand.
        events: how many.
        row: number of a row; all events up to it stand there.
    """

    topic: str
    events: int = 0
    row: int = 0

    def words(self) -> str:
        """What stands in the topic after a failure, and how to go on."""
        return (
            f"{self.events:,} events, all up to row {self.row:,}, stand in topic {self.topic}; go on with --append "
            f"--from-row {self.row + 1}. Some behind that row may stand there already, and count once all the same: a "
            "user has an item once in a window"
        )


class Watermarks:
    """The watermarks of events in order of time: one for each window that begins, before its first event."""

    def __init__(self, source: SourcePlan, views: Sequence[ViewPlan]) -> None:
        self._records = SourceRecords(source)
        self._shapes = [view.window.shape for view in views]
        self._next: int | None = None

    def among(self, events: Sequence[Written]) -> list[Outgoing]:
        """The records of events, with the watermarks that are due between them."""
        out: list[Outgoing] = []
        for event in events:
            if self._next is None or event.time_ms >= self._next:
                begins = [shape.start_of(event.time_ms) for shape in self._shapes]
                out += self._records.watermark(max(begins))
                self._next = min(shape.next(start) for shape, start in zip(self._shapes, begins, strict=True))
            out.append(event.record)
        return out

    def last(self, time_ms: int) -> list[Outgoing]:
        """The watermark behind everything."""
        return list(self._records.watermark(time_ms))


async def make_room(plan: Plan, source: SourcePlan, client: Client, *, append: bool) -> bool:
    """Create the source topic if it is not there; whether that was so.

    Args:
        plan: the application.
        source: one of its sources.
        client: a client of its broker.
        append: write behind records that stand there.

    Raises:
        ConfigError: the topic has another number of partitions than the file says, or holds records.
        BrokerError: the cluster does not answer.
    """
    count = await client.partitions(source.topic)
    if count is None:
        await client.create([Topics.of(plan).source(source)])
        return True
    if count != source.partitions:
        raise ConfigError(
            f"sources.{source.name}.partitions: topic {source.topic} has {count}, not {source.partitions}"
        )
    ends = await client.ends([TopicPartition(source.topic, partition) for partition in range(count)])
    if any(ends.values()) and not append:
        raise ConfigError(
            f"topic {source.topic} holds records already, {sum(ends.values()):,} or fewer; --append writes behind "
            "them. Events of windows that were released come too late"
        )
    return False


async def write(
    events: Events,
    client: Client,
    progress: Progress,
    *,
    watermarks: Watermarks | None,
    ordered: bool,
    until_ms: int,
    from_row: int = 1,
    told: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Write events and wait until all of them stand in the topic.

    Args:
        events: what is written.
        client: a client of the broker.
        progress: is kept up to date.
        watermarks: of the source, None for none.
        ordered: whether the events are in order of time; if not, there is the last watermark alone.
        until_ms: what the last watermark says.
        from_row: the first row that is written.
        told: is called after each step.

    Raises:
        BrokerError: the cluster did not take all of it.
    """
    for chunk in events.chunks(from_row):
        among = watermarks is not None and ordered
        await client.publish(watermarks.among(chunk) if watermarks and among else [event.record for event in chunk])
        if chunk:
            progress.events += len(chunk)
            progress.row = chunk[-1].row
        told(progress)
    if watermarks is not None:
        await client.publish(watermarks.last(until_ms))
