"""A gateway on an embedded log that can be started again, and a consumer of that log as the Kafka client has it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import TopicPartition

from stream_dp.config.file_schema import ServeConfig
from stream_dp.config.plan import Plan
from stream_dp.errors import OutageError
from stream_dp.gateway import server, tokens
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.streams import Stream
from stream_dp.gateway.tokens import Tokens
from stream_dp.records.codec import encode_parts
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing.application import WITHIN_SECONDS


@dataclass
class World:
    """An application's release topics, and a gateway on them that can be started again."""

    plan: Plan
    tokens: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    is_up: bool = True
    port: int = 0
    streams: Collection[Stream] = ()
    """Those that the newest gateway has open."""
    connections: Collection[object] = ()
    """Those that its server has open."""

    def topic(self, audience: str = "public") -> str:
        return Topics.of(self.plan).release("pages", audience)

    def publish(self, *records: Any, audience: str = "public", most: int = 3200) -> None:
        """Publish records, and tombstones for keys."""
        self.log.create(self.topic(audience), 1)
        for record in records:
            pairs = [(record, None)] if isinstance(record, bytes) else encode_parts(record, most)
            for key, value in pairs:
                self.log.append(self.topic(audience), 0, key, value)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        if not self.is_up:
            raise OutageError("no Kafka answers")
        yield MemoryClient(self.log)

    @asynccontextmanager
    async def serving(
        self, list_seconds: float = 0.05, trusted: ssl.SSLContext | None = None, **tls: Path
    ) -> AsyncIterator[aiohttp.ClientSession]:
        """A gateway, and a client of it; the next one listens on the same port. With TLS if it is given."""
        boards = Boards()
        gateway = Gateway(ServeConfig(public=["public"]), boards, Tokens(self.tokens, wall_clock_ms))
        self.streams = gateway.hub.streams
        gateway.requests = tokens.RequestRate(1e6, 10**6)
        reader = BoardReader(self.plan, boards, self.client, list_seconds=list_seconds, ask_seconds=0.02)
        listening = asyncio.Event()
        with socket.create_server(("127.0.0.1", self.port)) as place:
            self.port = place.getsockname()[1]
            http = server.Server(gateway.app(reader.run), gateway.hub.shut_down, listening.set, **tls)
            self.connections = http.server_state.connections
            running = asyncio.create_task(http.serve([place]))
            await asyncio.wait_for(listening.wait(), WITHIN_SECONDS)
            url = f"{'https' if trusted else 'http'}://127.0.0.1:{self.port}"
            connector = aiohttp.TCPConnector(ssl=trusted or True)
            async with aiohttp.ClientSession(url, connector=connector) as session:
                try:
                    yield session
                finally:
                    http.should_exit = True
                    await running


async def ready(session: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while await status(session, "/readyz") != 200:
            await asyncio.sleep(0.02)


async def status(session: aiohttp.ClientSession, path: str) -> int:
    async with session.get(path) as answer:
        return answer.status


@dataclass
class MemoryConsumer:
    """The part of `AIOKafkaConsumer` that a reader of one topic needs, on an embedded log.

    Attributes:
        log: the log.
        failures: errors of the next starts; a consumer that fails has to be stopped like any other.
        options: that it was made with.
        running: how many are started and not stopped.
    """

    log: MemoryLog
    failures: list[Exception] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    running: int = 0
    _next: int = 0

    def __call__(self, **options: Any) -> MemoryConsumer:
        """Make a consumer: this one."""
        self.options, self._next = options, 0
        return self

    async def start(self) -> None:
        self.running += 1
        if self.failures:
            raise self.failures.pop(0)

    async def stop(self) -> None:
        self.running -= 1

    async def topics(self) -> set[str]:
        return set(self.log.partitions)

    def assign(self, places: list[TopicPartition]) -> None:
        assert [place.topic in self.log.partitions for place in places] == [True]

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.log.end(place) for place in places}

    async def position(self, place: TopicPartition) -> int:
        del place
        return self._next

    async def getmany(self, place: TopicPartition, timeout_ms: int) -> dict[TopicPartition, list[LogRecord]]:
        del timeout_ms
        await asyncio.sleep(0.005)
        if self._next > self.log.end(place):  # out of range: from the beginning
            self._next = 0
        found = self.log.read(place, self._next)
        self._next = found[-1].offset + 1 if found else self._next
        return {place: found} if found else {}
