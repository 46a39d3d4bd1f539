"""Write a deleted release topic again, from the records that the workers keep."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.republications import Republication, encode_republication, republish_key
from stream_dp.operations import named
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.effects import Message


class Republished(NamedTuple):
    """A release topic that the workers were asked to write again."""

    topic: str
    topic_id: str


async def republish(plan: Plan, client: Client, keys: KeyRing, view: str, audience: str) -> Republished:
    """Create a release topic if it is missing, claim it, and ask the workers to write its records again.

    Safe to run again: a complete topic stays as it is.

    Args:
        plan: the plan in effect.
        client: a client of its broker.
        keys: the secrets of the application.
        view: the view's name.
        audience: an audience that reads it.

    Raises:
        ConfigError: there is no such view or audience, the topic belongs to another application, or a topic with state
            was deleted.
        StateError: a transaction is open in the control topic, so no worker could read the order.
        BrokerError: the cluster refused something.
    """
    asked = named("view", view, plan.newest, "VIEW")
    named("audience", audience, asked.audiences, "AUDIENCE")
    topics = Topics.of(plan)
    topic = topics.release(view, audience)
    claim = await create_owned(plan, client, keys.application, republished={topic})
    wanted = Republication(topic, claim.topics[topic].id)
    await client.check_decided([TopicPartition(topics.control, 0)])
    await client.publish([Message(topics.control, republish_key(topic), encode_republication(wanted))])
    return Republished(topic, wanted.topic_id)
