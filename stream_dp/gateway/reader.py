"""Fills boards from an application's release topics: reads them from the beginning, then follows; read only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.config.plan import Plan
from stream_dp.errors import StreamDPError
from stream_dp.gateway.boards import Board, Boards
from stream_dp.kinds.public_lists import PUBLIC
from stream_dp.runtime.kafka.client import Client

LIST_SECONDS = 30.0
"""Time between two looks for topics that are new, gone, or made anew."""
ASK_SECONDS = 5.0
"""Time between two questions to the broker, which show whether it answers."""
WAIT_SECONDS = 2.0
CHECKED_AT_ONCE = 20
"""Windows that are read in full between two turns of the event loop."""
LOG = logging.getLogger("stream_dp.gateway")

Connect = Callable[[], AbstractAsyncContextManager[Client]]


@dataclass
class BoardReader:
    """Reads release topics into boards, for as long as it runs; waits where there is no broker.

    Attributes:
        plan: of the file: the name, and the audiences.
        boards: to fill.
        connect: opens a client.
        records: how many it has read since its start.
        list_seconds: see `LIST_SECONDS`.
        ask_seconds: see `ASK_SECONDS`.
    """

    plan: Plan
    boards: Boards
    connect: Connect
    records: int = 0
    list_seconds: float = LIST_SECONDS
    ask_seconds: float = ASK_SECONDS
    _by_topic: dict[str, Board] = field(default_factory=dict)

    async def run(self) -> None:
        """Read until this is cancelled."""
        while True:
            try:
                async with self.connect() as client:
                    await self._serve(client)
            except (StreamDPError, KafkaError, OSError, TimeoutError) as error:
                if not self.boards.silent:
                    LOG.warning("releases cannot be read now: %s", error)
                self.boards.silent = True
            await asyncio.sleep(min(WAIT_SECONDS, self.list_seconds))

    async def _serve(self, client: Client) -> None:
        """Read with one client: all topics to their ends, then what comes, until topics or the broker change."""
        while True:
            await self._list(client)
            topics = list(self._by_topic)
            if not all(board.ready for board in self._by_topic.values()):
                await self._take(client.follow(topics, until_end=True, since=self._places()))
                for board in self._by_topic.values():
                    if not board.ready:
                        board.loaded()
            self.boards.started, self.boards.silent = True, False
            following = asyncio.create_task(self._take(client.follow(topics, since=self._places())))
            checking = asyncio.create_task(self._check())
            try:
                await self._watch(client, following)
            finally:
                for task in (following, checking):
                    task.cancel()
                    with suppress(asyncio.CancelledError, StreamDPError, KafkaError):
                        await task

    async def _check(self) -> None:
        """Read what was loaded in full, while requests are answered."""
        for board in list(self.boards):
            for checked, _ in enumerate(board.check()):
                if checked % CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _watch(self, client: Client, following: asyncio.Task[None]) -> None:
        """Ask the broker now and then; return when other topics are there than those that are followed."""
        rounds = max(1, round(self.list_seconds / self.ask_seconds))
        while True:
            for _ in range(rounds):
                await asyncio.wait([following], timeout=self.ask_seconds)
                if following.done():
                    following.result()
                    return
                await client.ends(self._places())
                self.boards.silent = False
            if await self._found(client) != {topic: board.topic for topic, board in self._by_topic.items()}:
                return

    async def _found(self, client: Client) -> Mapping[str, str]:
        """The release topics of the application's audiences, each with the first digits of its id."""
        head = f"{self.plan.id}.{PUBLIC}."
        names = [topic for topic in await client.topics() if topic.startswith(head) and self._named(topic) is not None]
        return {topic: state.id[:8] for topic, state in sorted((await client.describe(names)).items())} if names else {}

    def _named(self, topic: str) -> tuple[str, str] | None:
        """View and audience of a topic; None if no audience of the file reads it."""
        view, dot, audience = topic.removeprefix(f"{self.plan.id}.{PUBLIC}.").partition(".")
        return (view, audience) if dot and audience in self.plan.audiences else None

    async def _list(self, client: Client) -> None:
        found = await self._found(client)
        self._by_topic = {topic: board for topic, board in self._by_topic.items() if topic in found}
        for gone in self.boards.by_name.keys() - {self._named(topic) for topic in found}:
            self.boards.drop(gone)
        for topic, identifier in found.items():
            known, named = self._by_topic.get(topic), self._named(topic)
            if named is not None and (known is None or known.topic != identifier):
                board = self._by_topic[topic] = Board(*named, identifier)
                self.boards.put(board)

    def _places(self) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, 0): board.offset + 1 for topic, board in self._by_topic.items()}

    async def _take(self, records: AsyncIterator[Any]) -> None:
        if not self._by_topic:
            if self.boards.started:
                await asyncio.Event().wait()
            return
        boards = dict(self._by_topic)
        async for record in records:
            if record.offset <= boards[record.topic].offset:
                self._by_topic.pop(record.topic)  # the topic was made anew under its name: begin again
                return
            self.records += 1
            boards[record.topic].take(record.key, record.value, record.offset, record.timestamp)
            self.boards.bound(boards[record.topic].audience)
