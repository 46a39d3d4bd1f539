"""Connection of a command or a worker to the broker of a plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_dp.config.access import Broker
from stream_dp.errors import BrokerError, OutageError
from stream_dp.runtime.faust.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import PUBLISH_SECONDS, Client, KafkaClient
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import diagnose, not_allowed
from stream_dp.runtime.kafka.transactions import PatientProducer
from stream_dp.windows.encoding import BATCH_BYTES

CONNECT_SECONDS = 10.0
"""Time that an impatient client waits for a broker that takes its connection and says nothing."""


@asynccontextmanager
async def connect(broker: Broker, log: MemoryLog | None = None, *, patient: bool = False) -> AsyncIterator[Client]:
    """A client of the broker that a plan names.

    Args:
        broker: the cluster.
        log: the embedded log of this process, for `memory://`.
        patient: what is published waits for a broker that is gone, as long as it takes, and stands once in the log.

    Raises:
        ConfigError: a certificate or a secret cannot be read, or the cluster does not let us in with it.
        OutageError: the cluster cannot be reached.
        BrokerError: the embedded log is asked for where there is none.
    """
    if broker.is_embedded:
        if log is None:
            raise BrokerError("the embedded log lives inside the worker's process; no other process can reach it")
        yield MemoryClient(log)
        return
    cluster = Cluster.of(broker)
    kind = PatientProducer if patient else AIOKafkaProducer
    producer = kind(
        **cluster.options,
        acks="all",  # what is acknowledged is read back at once: claims and origins depend on it
        linger_ms=5,
        max_request_size=BATCH_BYTES,
        max_batch_size=1 << 18,
    )
    admin = AIOKafkaAdminClient(**cluster.options)
    idle = AIOKafkaConsumer(**cluster.options, group_id=None, enable_auto_commit=False)
    try:
        try:
            async with asyncio.timeout(None if patient else CONNECT_SECONDS):
                await producer.start()
                await admin.start()
                await idle.start()
        except (KafkaError, OSError) as error:
            refused = not_allowed(cluster.address, error) or await diagnose(cluster)
            if refused is not None:
                raise refused from None
            why = f"{error}" if f"{error}" else f"nothing came for {CONNECT_SECONDS:g} s"
            words = f"no Kafka answers at {cluster.address}: {why}; is it up? `stream-dp kafka status`"
            raise OutageError(words) from None
        yield KafkaClient(cluster, producer, admin, idle, None if patient else PUBLISH_SECONDS)
    finally:
        await asyncio.sleep(0)  # a task of the consumer that is cancelled before it ran hides the error that ends us
        await idle.stop()
        await admin.close()
        await producer.stop()
