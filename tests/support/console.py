"""A console on the embedded log: an application that runs, its reports and its accounts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import Verdict
from stream_dp.control.editions import Posted, first_record
from stream_dp.errors import OutageError
from stream_dp.gateway.console import Console
from stream_dp.gateway.tokens import OPERATOR, OPERATORS_PREFIX, RequestRate, Tokens, new_token
from stream_dp.records.models import PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted, read_history
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.gateway import Answer, ask

OWN = {"origin": "http://localhost", "content_type": "application/json"}
DAY_MS = 86_400_000


class Recording(MemoryClient):
    """A client that notes the topics it is asked about, as long as the broker answers."""

    def __init__(self, log: MemoryLog, desk: Desk) -> None:
        super().__init__(log)
        self.asked, self.desk = desk.asked, desk

    async def describe(self, topics: Any) -> Any:
        if not self.desk.is_up:
            raise OutageError("no Kafka answers")
        self.asked |= {*topics}
        return await super().describe(topics)

    async def ends(self, places: Any) -> Any:
        self.asked |= {place.topic for place in places}
        return await super().ends(places)

    async def group(self, name: str) -> Any:
        self.desk.groups.add(name)
        return await super().group(name)

    async def publish(self, records: Any) -> Any:
        listed = list(records)
        self.desk.written |= {record.topic for record in listed}
        return await super().publish(listed)

    def follow(self, topics: Sequence[str], **how: Any) -> Any:
        self.asked |= {*topics}
        return super().follow(topics, **how)


@dataclass
class Desk:
    """An operator's desk: the console of an application, and what it asks of the log."""

    plan: Plan
    file: Path
    log: MemoryLog = field(default_factory=MemoryLog)
    asked: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    is_up: bool = True

    def __post_init__(self) -> None:
        _, self.token = new_token(self.file, OPERATOR, wall_clock_ms(), prefix=OPERATORS_PREFIX)
        self.console = self.made()

    def made(self) -> Console:
        """Another console of the same application."""
        tokens = Tokens(self.file, wall_clock_ms, OPERATORS_PREFIX)
        tokens.look()
        console = Console(self.plan, self.client, tokens)
        console.requests = console.failures = console.plans = RequestRate(1e6, 10**6)
        return console

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        if not self.is_up:
            raise OutageError("no Kafka answers")
        yield Recording(self.log, self)

    async def start(self) -> None:
        """Post the first settings, as a worker does, and let the console read."""
        for topic, source in sources_of(self.plan).items():
            self.log.create(topic, source.partitions)
        self.log.create(f"{self.plan.id}-control", 1)
        assert await post_accepted(self.plan, MemoryClient(self.log), first_record(self.plan, wall_clock_ms() - DAY_MS))
        await self.look()

    async def accept(self, number: int) -> None:
        """Accept settings, as a worker does."""
        await SettingsLog(self.plan, MemoryClient(self.log)).judge(Verdict(number, wall_clock_ms()))

    async def look(self, console: Console | None = None) -> None:
        """Let a console read what is there now."""
        async with self.client() as client:
            await (console or self.console).watch.look(client)

    def report(self, settings: int = 1, name: str = "worker-1") -> None:
        """A worker reports that it runs."""
        topic, now_ms = f"{self.plan.id}-status", wall_clock_ms()
        self.log.create(topic, 1)
        open_ms = now_ms - now_ms % DAY_MS
        views = {view: ViewStatus(clock_ms=now_ms, open_from_ms=open_ms) for view in self.plan.views}
        parts = {
            number: PartitionStatus(
                lag={"visits": 0}, views=views, next_windows_ms=dict.fromkeys(views, open_ms), counters={}
            )
            for number in range(self.plan.partitions)
        }
        one = WorkerStatus(
            schema_version=1,
            code_version="0.1.0",
            instance=name,
            started_ms=now_ms - 60_000,
            reported_ms=now_ms,
            settings=settings,
            waiting_for="",
            partitions=parts,
        )
        self.log.append(topic, 0, name.encode(), encode_status(one))

    async def known(self) -> list[Posted]:
        return [*(await read_history(self.plan, MemoryClient(self.log))).posted]

    async def get(self, path: str, **headers: str) -> Answer:
        return await ask(self.console.app(), path, authorization=f"Bearer {self.token}", **headers)

    async def send(
        self, path: str, body: Any = None, method: str = "POST", console: Console | None = None, **headers: str
    ) -> Answer:
        text = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {"authorization": f"Bearer {self.token}", **OWN, **headers}
        return await ask((console or self.console).app(), path, method, text, **named)

    async def plan_of(self, *assignments: str, view: str = "pages", **more: Any) -> Any:
        """What a change would mean."""
        answer = await self.send("/v1/plan", {"view": view, "assignments": list(assignments), **more})
        assert answer.status == 200, answer.body
        return answer.json

    async def settled(self, condition: Any) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)
