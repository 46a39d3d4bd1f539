"""Moving the committed offsets of an application's group, as operators do with `kafka-consumer-groups.sh`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.testing import Application


def topics_of(app: Application) -> list[str]:
    """The topics whose offsets the group commits."""
    return [*sources_of(app.plan), *Topics.of(app.plan).internal]


async def ends_of(app: Application, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Where the partitions of topics end."""
    states = await app.client.describe(topics)
    places = [TopicPartition(topic, at) for topic in topics for at in range(states[topic].partitions)]
    return dict(await app.client.ends(places))


async def move(app: Application, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit offsets for the group; its workers are stopped."""
    if app.log is not None:
        app.log.committed.update(offsets)
        return
    await app.client.dismiss(app.plan.id, instance_id(app.plan))
    consumer = AIOKafkaConsumer(
        bootstrap_servers=app.plan.broker.address, group_id=app.plan.id, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(*place) for place in offsets])
        await consumer.commit({TopicPartition(*place): offset for place, offset in offsets.items()})
    finally:
        await consumer.stop()


async def forget(app: Application) -> None:
    """Delete the group, and with it all its offsets; its workers are stopped."""
    await app.client.dismiss(app.plan.id, instance_id(app.plan))
    await app.client.delete_group(app.plan.id)
