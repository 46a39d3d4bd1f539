"""Releases from Kafka: a release topic, read from its beginning; no consumer group, nothing is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from stream_dp.client.sources import Item, Mark, Patience, Tombstone, record_of
from stream_dp.errors import AccessError, BrokerError, OutageError
from stream_dp.records.codec import window_of

POLL_MS = 200


@dataclass
class KafkaSource:
    """The records of a release topic.

    Attributes:
        hosts: bootstrap address.
        topic: the topic.
        view: its view.
        audience: its audience.
        options: further arguments of the consumer.
        patience: for a cluster that does not answer.
    """

    hosts: str
    topic: str
    view: str
    audience: str
    options: Mapping[str, Any]
    patience: Patience

    async def items(self) -> AsyncGenerator[Item, None]:
        """Read the topic to its end, then follow it. One that is made anew is read anew."""
        consumer = await self._connected()
        try:
            async for item in self._read(consumer):
                yield item
        except TopicAuthorizationFailedError:
            raise AccessError(f"the cluster at {self.hosts} lets this account not read topic {self.topic}") from None
        except KafkaError as error:
            raise BrokerError(f"topic {self.topic} of {self.hosts} cannot be read: {error}") from None
        finally:
            await consumer.stop()

    async def _connected(self) -> AIOKafkaConsumer:
        fixed = {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
        }
        while True:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.hosts, **{**self.options, **fixed})
            try:
                await consumer.start()
            except (KafkaError, OSError) as error:
                await consumer.stop()
                words = f"no Kafka answers at {self.hosts}, or it refuses the login: {error}"
                await self.patience.wait(OutageError(words))
            else:
                return consumer

    async def _read(self, consumer: AIOKafkaConsumer) -> AsyncGenerator[Item, None]:
        if self.topic not in await consumer.topics():  # to ask for one that is not there could make it
            raise BrokerError(
                f"the cluster at {self.hosts} has no topic {self.topic}, or does not show it to this account: check "
                "application, view, audience and rights. A worker makes it when it first starts"
            )
        place, last = TopicPartition(self.topic, 0), -1
        consumer.assign([place])
        yield Mark.BEGIN
        end: int | None = (await consumer.end_offsets([place]))[place]
        while True:
            if end is not None and await consumer.position(place) >= end:
                end = None
                yield Mark.END
            messages = await self._fetched(consumer, place)
            if messages:
                self.patience.succeeded()
            elif end is not None:
                self.patience.check(OutageError(f"the cluster at {self.hosts} sends nothing of topic {self.topic}"))
            for message in messages:
                if message.offset <= last:
                    yield Mark.BEGIN
                    end = (await consumer.end_offsets([place]))[place]
                last = message.offset
                if message.value is not None:
                    at = f"topic {self.topic}, offset {last}"
                    if (record := record_of(message.value, self.view, self.audience, at)) is not None:
                        yield record
                elif (window := window_of(message.key)) is not None:
                    yield Tombstone(*window)

    async def _fetched(self, consumer: AIOKafkaConsumer, place: TopicPartition) -> Sequence[Any]:
        try:
            fetched = await consumer.getmany(place, timeout_ms=POLL_MS)
        except (KafkaError, OSError):
            raise
        except Exception as error:  # aiokafka 0.14.0 lets through whatever its parsers and codecs raise
            words = f"topic {self.topic} of {self.hosts} holds a record that cannot be read: {error!r}"
            raise BrokerError(words) from error
        records: Sequence[Any] = fetched.get(place, ())
        return records
