"""A producer that holds records back while the broker is away does not make them late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection

from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.testing import Application, Event, SourceWriter, application
from tests.support.clocks import SECOND, Crowd, append_times, by_the_wall
from tests.support.proxy import Proxy
from tests.support.totals import stored_totals_of

pytestmark = pytest.mark.broker

PRODUCER = "holds-records-back"
DELIVERY_S = 150
"""Longer than the broker is away, as `delivery.timeout.ms` is."""


def lead_through(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Route the producer of this process, and no other client in it, through a proxy."""
    begin = AIOKafkaConnection.__init__
    host, _, port = proxy.address.rpartition(":")

    def connect(self: Any, to: str, at: int, **options: Any) -> None:
        is_producer = options.get("client_id") == PRODUCER
        begin(self, *((host, int(port)) if is_producer else (to, at)), **options)

    monkeypatch.setattr(AIOKafkaConnection, "__init__", connect)


@dataclass
class Backlog:
    """Events that a real producer sends one after another, each at its own time."""

    app: Application
    producer: AIOKafkaProducer
    events: list[Event] = field(default_factory=list)
    sent: list[asyncio.Future[Any]] = field(default_factory=list)

    async def come(self, seconds: float) -> None:
        """Send events of some users every tenth of a second, whether or not the broker answers."""
        until_ms = wall_clock_ms() + round(seconds * SECOND)
        writer = SourceWriter(self.app.plan)
        while (now_ms := wall_clock_ms()) < until_ms:
            at = len(self.events)
            some = [Event(f"u{number}", f"/{number % 3}", now_ms) for number in range(at, at + 6)]
            self.events += some
            for record in writer.records(some):
                place = {"key": record.key, "partition": record.partition}
                self.sent.append(await self.producer.send(record.topic, record.value, **place))
            await asyncio.sleep(0.1)


async def ticked(app: Application, since_ms: int) -> None:
    """Wait for a tick that was made since a time."""

    async def found() -> bool:
        times = await append_times(app)
        return any(at_ms > since_ms for some in times.values() for at_ms in some)

    await app.eventually(found)


@pytest.mark.parametrize(
    "away_s", [12, pytest.param(60, marks=pytest.mark.slow), pytest.param(120, marks=pytest.mark.slow)]
)
async def test_no_acknowledged_event_is_late_after_an_outage(
    kafka: str,
    tmp_path: Path,
    visits: Callable[..., str],
    spawn: Any,
    proxied: Any,
    monkeypatch: pytest.MonkeyPatch,
    away_s: int,
) -> None:
    """The worker returns before the producer, and its first ticks come before the records that were held back."""
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(application(visits(*by_the_wall("30s")), tmp_path, broker=kafka))
        of_worker = proxied()
        of_producer = proxied()
        lead_through(of_producer, monkeypatch)
        worker = spawn(app, "one", proxy=of_worker)
        worker.start()
        await worker.wait_until_said(" is running: ")
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka,
            client_id=PRODUCER,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=DELIVERY_S * SECOND,
            max_batch_size=1 << 20,
        )
        await producer.start()
        stack.push_async_callback(producer.stop)
        backlog = Backlog(app, producer)
        await backlog.come(3)
        await asyncio.gather(*backlog.sent)

        for network in (of_worker, of_producer):
            network.cut()
        await backlog.come(away_s)
        assert not all(future.done() for future in backlog.sent)
        back_ms = wall_clock_ms()
        of_worker.mend()
        await ticked(app, back_ms)
        await ticked(app, back_ms + SECOND)
        of_producer.mend()
        await backlog.come(1)
        await asyncio.gather(*backlog.sent)

        await Crowd(app, backlog.events).wait_for_windows()
        worker.check()
        totals = await stored_totals_of(app)
        assert totals.total("events_refused") == 0
        assert totals.total("events_counted") == len(backlog.events)
        assert worker.terminate() == 0
