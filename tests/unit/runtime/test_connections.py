"""Connections to brokers that are frozen, slow, or take their time with one answer."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.metadata import MetadataRequest

from stream_dp.runtime.kafka import connections
from stream_dp.runtime.kafka.connections import Connection, Metadata
from stream_dp.testing.application import WITHIN_SECONDS

VERSIONS = 18
_HEAD = struct.Struct(">hhi")


@dataclass
class FakeBroker:
    """Says which requests it knows: to who connects, and to who asks again, after so many seconds each."""

    hello_s: float = 0.0
    answer_s: float = 0.0
    port: int = 0
    serving: list[asyncio.Task[None]] = field(default_factory=list)
    """One for each connection that there ever was."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.serving.append(asyncio.ensure_future(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said_hello = False
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                _, _, number = _HEAD.unpack_from(await reader.readexactly(size))
                await asyncio.sleep(self.answer_s if said_hello else self.hello_s)
                answer = struct.pack(">ihi", number, 0, 1) + struct.pack(">hhh", VERSIONS, 0, 0)
                writer.write(struct.pack(">i", len(answer)) + answer)
                said_hello = True
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeBroker]:
    """A broker, and connections that lose patience twenty times as fast."""
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(connections, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(connections, "RETRY_SECONDS", (0.05, 0.1, 0.2, 0.4))
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.1)
    made = FakeBroker()
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
        for one in made.serving:
            one.cancel()
        await asyncio.gather(*made.serving, return_exceptions=True)


async def ask(connection: Connection) -> None:
    await connection.send(ApiVersionRequest())


async def test_a_broker_that_is_slow_is_let_in_the_end(broker: FakeBroker) -> None:
    broker.hello_s = 0.3
    connection = Connection("127.0.0.1", broker.port)
    failures = 0
    async with asyncio.timeout(WITHIN_SECONDS):
        while True:
            try:
                await connection.connect()
                break
            except TimeoutError:
                failures += 1
                await asyncio.sleep(0.06)
    assert failures >= 3
    assert connections._BROKERS[asyncio.get_running_loop()]["127.0.0.1", broker.port].failures == 0
    await connection.close()


async def test_a_broker_that_lets_nobody_in_is_left_alone_for_a_while(broker: FakeBroker) -> None:
    broker.hello_s = 60
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await Connection("127.0.0.1", broker.port).connect()
    assert len(broker.serving) <= 2


async def test_an_answer_that_takes_long_is_waited_for_while_the_broker_lets_others_in(broker: FakeBroker) -> None:
    broker.answer_s = 1.0
    connection = Connection("127.0.0.1", broker.port)
    await connection.connect()
    await asyncio.wait_for(ask(connection), WITHIN_SECONDS)
    assert len(broker.serving) > 3, "it was looked whether the broker lets others in, again and again"
    await connection.close()


async def test_who_waits_for_a_broker_that_freezes_hears_that_it_timed_out(broker: FakeBroker) -> None:
    connection = Connection("127.0.0.1", broker.port)
    await connection.connect()
    broker.hello_s = broker.answer_s = 60
    with pytest.raises(RequestTimedOutError):
        await asyncio.wait_for(ask(connection), WITHIN_SECONDS)
    assert not connection.connected()


def test_no_question_about_topics_creates_one() -> None:
    struct_class = MetadataRequest._CLASSES[-1]
    assert Metadata(["topic"]).build(struct_class).allow_auto_topic_creation is False
    assert Metadata(["topic"], allow_auto_topic_creation=True).build(struct_class).allow_auto_topic_creation is False
    assert MetadataRequest(["topic"]).build(struct_class).allow_auto_topic_creation is True
