"""An application under test: the same test body on the embedded log or on a real Kafka, by the broker's address."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import filterfalse
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from stream_dp.accounting import Ledger
from stream_dp.agents import AGENTS
from stream_dp.config.access import MEMORY
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.control.editions import next_record
from stream_dp.control.grant_records import Grant
from stream_dp.errors import OutageError, StateError
from stream_dp.exact.bits import Entropy, KeyedBits
from stream_dp.records.codec import AnyRecord, decode, outline
from stream_dp.records.history import Joiner
from stream_dp.releases.accounts import read_ledgers
from stream_dp.runtime.clock import CLOCK_BOUND_MS, wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Client, connect
from stream_dp.runtime.kafka.control_topic import post, read_history, write_grant
from stream_dp.runtime.kafka.topics import RELEASES, Topics, TopicSpec, sources_of
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.worker.assembly import Options, Worker
from stream_dp.runtime.worker.process import running
from stream_dp.testing.scripts import Script, SourceWriter

T = TypeVar("T")
NONE: Mapping[str, int] = MappingProxyType({})

WITHIN_SECONDS = 300.0
"""Time limit of what a test waits for; a machine under load is slow, a lost message never comes."""


def keyed_entropy(key: bytes) -> Entropy:
    """Noise that a second run draws again: bits fixed by the key and the draw's context. Not private."""
    return partial(KeyedBits, key)


@dataclass
class ManualClock:
    """A wall clock that stands still until it is set; give `clock_ms=clock` to a worker.

    To a view, a clock that jumps far ahead is an outage: windows close only when it has caught up. So a test either
    moves the clock in small steps, or says `catch_up: 0s` in the view's `window`.
    """

    now_ms: int

    def __call__(self) -> int:
        """The time it shows, ms since the epoch."""
        return self.now_ms


def plan_from(text: str, folder: Path, broker: str = MEMORY) -> Plan:
    """The plan of a configuration given as YAML text.

    Args:
        text: the configuration.
        folder: where the file is written, and what its relative folders are relative to.
        broker: replaces the broker that the text names.

    Raises:
        ConfigError: anything in it is wrong.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "application.yaml"
    file.write_text(text, encoding="utf-8")
    return load_plan(file, {"STREAM_DP_BROKER": broker})


@dataclass
class Application:
    """An application whose source topics exist and whose workers a test starts, stops and replaces.

    Attributes:
        plan: its plan.
        client: a client of its broker.
        log: the embedded log, None on Kafka.
        entropy: where its workers draw noise from.
        worker: the worker started last.
    """

    plan: Plan
    client: Client
    log: MemoryLog | None
    entropy: Entropy
    worker: Worker | None = None
    _life: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def prf_key(self) -> bytes:
        """The secret that the windows of workers started now are sealed with."""
        return load_keys(self.plan.key_file).newest[1]

    async def start(
        self,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        tick_seconds: float = 0.05,
        plan: Plan | None = None,
        accept_loss: bool = False,
        backfill: bool = True,
        unchecked_data: bool = False,
        compares_clocks: bool | None = None,
    ) -> Worker:
        """Start a worker in this process.

        Args:
            clock_ms: the worker's wall clock.
            tick_seconds: time between two of its ticks.
            plan: of the file that it is started with, if not the application's own: another data folder; settings that
                differ from those that hold change nothing.
            accept_loss: go on where state was lost.
            backfill: begin views whose first windows are over already.
            unchecked_data: begin views though most of what their sources hold would be refused.
            compares_clocks: make no ticks while the clock is not that of the log; None: if `clock_ms` is the machine's.
        """
        compared = clock_ms is wall_clock_ms if compares_clocks is None else compares_clocks
        context = running(
            plan or self.plan,
            self.client,
            AGENTS,
            Options(
                log=self.log,
                entropy=self.entropy,
                clock_ms=clock_ms,
                tick_seconds=tick_seconds,
                accept_loss=accept_loss,
                backfill=backfill,
                unchecked_data=unchecked_data,
                clock_bound_ms=CLOCK_BOUND_MS if compared else None,
            ),
        )
        self.worker = await self._life.enter_async_context(context)
        return self.worker

    async def stop(self) -> None:
        """Stop the workers that were started here; the application's topics stay."""
        await self._life.aclose()
        self.worker = None

    async def publish(self, script: Script, source: str | None = None) -> None:
        """Write a script to a source topic.

        Args:
            script: what to write.
            source: the source's name, None if there is only one.
        """
        await self.client.publish(SourceWriter(self.plan, source).records(script))

    async def grant(self, audience: str, level: str, **scope: object) -> None:
        """Write a grant to the control topic.

        Args:
            audience: the audience.
            level: the level.
            scope: more fields of `Grant`: which views and windows, and when.
        """
        await write_grant(self.plan, self.client, Grant.model_validate({"audience": audience, "level": level, **scope}))

    async def apply(self, plan: Plan, begins: Mapping[str, int], ends: Mapping[str, int] = NONE) -> None:
        """Post the settings of a plan to the control topic; once a worker accepts them, all workers use them.

        Args:
            plan: of a changed file.
            begins: by view that is new or changed, the start of the first window for which that holds, in ms.
            ends: by view that is removed, the start of the first window that is not made any more.

        Raises:
            StateError: others were posted at the same time.
        """
        number = (await read_history(self.plan, self.client)).next_number
        posted = next_record((), plan, begins, ends, wall_clock_ms(), number=number)
        if not await post(self.plan, self.client, posted):
            raise StateError("other settings were posted at the same time")

    async def read(self, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every record of a topic, from its beginning to its present end; none if it is not there."""
        return (await self.read_all([topic]))[topic]

    async def read_all(self, topics: Iterable[str]) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
        """The same of several topics, read at once."""
        found: dict[str, list[tuple[bytes | None, bytes | None]]] = {topic: [] for topic in topics}
        there = [*await self.client.describe(found)]
        if there:
            async for record in self.client.follow(there, until_end=True):
                found[record.topic].append((record.key, record.value))
        return found

    async def published(self, view: str) -> dict[str, list[bytes]]:
        """The releases and refusals of a view as they were published, by audience, repetitions left out.

        A record that a worker published again after a crash counts once; one with other bytes counts anew.
        """
        found = await self._public(view)
        return {name: list(dict.fromkeys(filter(outline, values))) for name, values in found.items()}

    async def described(self, view: str) -> dict[str, list[bytes]]:
        """The records of a view itself as they were published, by audience, repetitions included."""
        return {name: [*filterfalse(outline, values)] for name, values in (await self._public(view)).items()}

    async def _public(self, view: str) -> dict[str, list[bytes]]:
        topics = Topics.of(self.plan)
        by_audience = {audience: topics.release(view, audience) for audience in self.plan.views[view].audiences}
        rows = await self.read_all(by_audience.values())
        return {name: [value for _, value in rows[topic] if value is not None] for name, topic in by_audience.items()}

    async def releases(self, view: str) -> dict[str, list[AnyRecord]]:
        """Return the decoded records of `published`, releases in parts put together."""
        joiner = Joiner()
        return {
            audience: [whole for value in values if (whole := joiner.take(decode(value))) is not None]
            for audience, values in (await self.published(view)).items()
        }

    async def wait_for_releases(self, view: str, count: int) -> dict[str, list[AnyRecord]]:
        """Return the result of `releases` as soon as every audience of the view has `count` records.

        Raises:
            TimeoutError: that did not come to pass.
            StateError: the worker crashed.
        """

        async def enough() -> dict[str, list[AnyRecord]] | None:
            found = await self.releases(view)
            return found if all(len(records) >= count for records in found.values()) else None

        return await self.eventually(enough)

    async def ledgers(self) -> Mapping[bytes, Ledger]:
        """The stored ledgers by row key, as the changelog of the release table has them."""
        rows = await self.read(Topics.of(self.plan).changelog(RELEASES))
        last = {key: value for key, value in rows if key is not None}
        return read_ledgers((key, value) for key, value in last.items() if value is not None)

    async def dead_letters(self, source: str | None = None) -> list[bytes]:
        """The records of a source's dead-letter topic, in the order of each partition."""
        topic = SourceWriter(self.plan, source).source.dead_letter_topic
        return [value for _, value in await self.read(topic) if value is not None]

    async def eventually(self, check: Callable[[], Awaitable[T | None]], within_s: float = WITHIN_SECONDS) -> T:
        """The first answer of a check that is not None and not False.

        Args:
            check: asked again and again, also where the broker did not answer it.
            within_s: for so long.

        Raises:
            TimeoutError: no such answer came.
            StateError: the worker crashed; its reason is the cause.
        """
        deadline = time.monotonic() + within_s
        while True:
            answer = None
            with suppress(OutageError):
                answer = await check()
            if answer is not None and answer is not False:
                return answer
            if self.worker is not None and (reason := self.worker.crash_reason()) is not None:
                raise StateError(f"the worker crashed: {reason!r}") from reason
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {within_s:g} s")
            await asyncio.sleep(0.05)


@asynccontextmanager
async def application(
    text: str, folder: Path, *, broker: str = MEMORY, noise_key: bytes = b"test"
) -> AsyncIterator[Application]:
    """An application under test, its source topics created; leaving the context stops its workers.

    Args:
        text: its configuration, YAML. On a broker that other tests use, its name, its sources' topics and its views'
            names have to be its own.
        folder: an empty folder for the configuration, the key file and the state.
        broker: "memory://", or the address of a Kafka; whatever the text says.
        noise_key: what the noise is drawn from (`keyed_entropy`).
    """
    plan = plan_from(text, folder, broker)
    log = MemoryLog() if plan.broker.is_embedded else None
    async with connect(plan.broker, None if log is None else MemoryClient(log), patient=True) as client:
        await client.create([TopicSpec(topic, source.partitions) for topic, source in sources_of(plan).items()])
        app = Application(plan, client, log, keyed_entropy(noise_key))
        try:
            yield app
        finally:
            await app.stop()
