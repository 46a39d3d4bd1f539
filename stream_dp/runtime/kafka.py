"""The Kafka transport: Faust's own, with coalesced chunks."""

from __future__ import annotations

from typing import Any, ClassVar

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from stream_dp.runtime.coalescing import CoalescingConsumer


class Consumer(CoalescingConsumer, driver.Consumer):
    """A Kafka consumer that delivers chunks."""

    def fetched_to(self, tp: TP) -> int | None:
        """The offset the next fetch starts at: behind every record and transaction marker read so far."""
        consumer = self._thread._consumer
        subscription = consumer._subscription.subscription if consumer is not None else None
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or tp not in assignment.tps:
            return None
        position: int | None = assignment.state_value(tp)._position
        return position


class Transport(driver.Transport):
    """Registered under the scheme of `SCHEME`."""

    Consumer: ClassVar[type[Any]] = Consumer


SCHEME = "stream-dp-kafka"
