"""A cluster, an application with its workers, and what they are fed: all that things can happen to."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.errors import ConfigError, OutageError, StateError
from stream_dp.operations.settings_changes import Wish, draft, post_change
from stream_dp.records.codec import decode
from stream_dp.records.models import Release
from stream_dp.runtime.kafka.control_topic import read_accepted
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, application, plan_from
from tests.chaos.settings import UNLOCKS_AFTER_MINUTES, Settings
from tests.support.brokers import Broker
from tests.support.cluster import COPIES, Cluster
from tests.support.crew import LEAVES_WITHIN_S, Crew, Member
from tests.support.disks import mount, unmount
from tests.support.processes import WorkerProcess
from tests.support.proxy import Proxy
from tests.support.views import start_of
from tests.support.visits import MINUTE, Stream, new_name

AT_MOST_BEHIND = 40
"""Windows that are fed and not yet released; more of them would only make the end of a run late."""
FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}
RUNS_WITHIN_S = 40.0
POSTED_WITHIN_S = 40.0
"""How long a record whose answer was lost may be on its way."""
NOBODY_KNOWS = "watermarks move its clock, and no worker"
"""What `apply` says where workers have not said how far they are for a while."""
DISK_MEGABYTES = 192
"""Of a worker's disk, where one can be made for it."""


class Watch:
    """Sees when the first record of every window comes to every public topic."""

    def __init__(self, app: Application) -> None:
        views, topics = app.plan.views.values(), Topics.of(app.plan)
        self._topics = [topics.release(view.name, audience) for view in views for audience in view.audiences]
        self._address = app.plan.broker.address
        self.seen: dict[str, dict[int, float]] = {}
        """By topic, by the start of the minute with which a window ends."""
        for view in views:
            no_window_ends = range(start_of(view), start_of(view) + view.window.shape.shortest_ms - MINUTE, MINUTE)
            for audience in view.audiences:
                self.seen[topics.release(view.name, audience)] = dict.fromkeys(no_window_ends, -inf)

    def shown(self) -> int:
        """How many windows every topic has."""
        return min(map(len, self.seen.values()))

    async def run(self) -> None:
        """Read without end, whatever the cluster does."""
        positions: dict[TopicPartition, int] = {}
        while True:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._address, enable_auto_commit=False, auto_offset_reset="earliest"
            )
            try:
                await consumer.start()
                while True:
                    await self._read(consumer, positions)
            except (KafkaError, OSError):
                await asyncio.sleep(0.5)
            finally:
                await consumer.stop()

    async def _read(self, consumer: AIOKafkaConsumer, positions: dict[TopicPartition, int]) -> None:
        if len(consumer.assignment()) < len(self._topics):
            there = await consumer.topics()
            places = [TopicPartition(topic, 0) for topic in self._topics if topic in there]
            consumer.assign(places)
            for place in positions.keys() & set(places):
                consumer.seek(place, positions[place])
        for place, records in (await consumer.getmany(timeout_ms=200)).items():
            now = time.monotonic()
            positions[place] = records[-1].offset + 1
            for record in records:
                if record.key.split(b"/")[2] != b"view":
                    self.seen[place.topic].setdefault(decode(record.value).window.end_ms - MINUTE, now)


@dataclass
class World:
    """All that things can happen to."""

    app: Application
    cluster: Broker | Cluster
    crew: Crew
    stream: Stream
    watch: Watch
    disks: bool
    """Whether every worker has a disk of its own, which can be full."""
    fed: dict[int, float] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    """What happened how often."""
    told: Counter[str] = field(default_factory=Counter)
    """What more there is to tell of it."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """What acts found to be wrong, as an audit tells it."""
    busy: dict[str, asyncio.Lock] = field(default_factory=dict)
    """By worker: held while something is done to it."""
    up: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by who needs the cluster up, or takes it down."""
    settings: Settings = field(default_factory=Settings)
    """What was posted last."""
    feeding: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether windows are to be fed."""

    def lock(self, member: Member) -> asyncio.Lock:
        """Held while something is done to a worker."""
        return self.busy.setdefault(member.worker.name, asyncio.Lock())

    @asynccontextmanager
    async def everybody(self) -> AsyncIterator[list[Member]]:
        """The workers there are, while nothing else is done to them, and with the cluster up."""
        async with AsyncExitStack() as stack:
            for member in self.crew.members:
                await stack.enter_async_context(self.lock(member))
            await stack.enter_async_context(self.up)
            yield [member for member in self.crew.members if member.wanted]

    async def leave(self, member: Member) -> None:
        """Send a worker away; one that does not go in time is a fault."""
        if await member.leave() == -signal.SIGKILL:
            self.faults.append(("deaf", f"{member.worker.name} did not end {LEAVES_WITHIN_S:g} s after SIGTERM"))

    async def runs(self, member: Member) -> None:
        """Wait until a worker runs, but not for ever: the supervisor may have to start it again."""
        until = time.monotonic() + RUNS_WITHIN_S
        while not member.worker.runs() and time.monotonic() < until:
            await asyncio.sleep(0.2)

    def unreleased(self) -> set[int]:
        """The starts of the minutes that were fed, if only in part, and whose windows are not in every topic."""
        begun = (self.stream.start + at * MINUTE for at in range(self.stream.windows + 1))
        return {start for start in begun if any(start not in seen for seen in self.watch.seen.values())}

    async def feed(self, windows: int) -> None:
        """Publish so many windows."""
        async with self.up:
            before = self.stream.windows
            await self.stream.go_on(windows)
            now = time.monotonic()
            self.fed |= {self.stream.start + at * MINUTE: now for at in range(before, self.stream.windows)}

    async def feed_without_end(self, chance: random.Random) -> None:
        """A few windows at a time, while it is wanted."""
        while True:
            await self.feeding.wait()
            if self.stream.windows - self.watch.shown() < AT_MOST_BEHIND:
                await self.feed(chance.randrange(1, 5))
            await asyncio.sleep(chance.uniform(0.5, 2))

    async def begin(self) -> None:
        """Let a first worker post the settings, before it can meet records that are no events: it would not start."""
        self.crew.members[0].start()
        while not await read_accepted(self.app.plan, self.app.client):
            await asyncio.sleep(0.2)

    async def apply(self, ahead: int, **changed: bool) -> None:
        """Let other settings hold, for windows that begin so many minutes behind what was fed."""
        while not await read_accepted(self.app.plan, self.app.client):  # the first worker posts those of its file
            await asyncio.sleep(0.2)
        app, wanted = self.app, replace(self.settings, **changed)  # type: ignore[arg-type]
        folder = app.plan.key_file.parent / "settings"
        former, plan = (
            plan_from(one.text(app.plan.name), folder, app.plan.broker.address) for one in (self.settings, wanted)
        )
        at = self.stream.start + (self.stream.windows + ahead) * MINUTE
        begins = {name: at for name, view in plan.views.items() if former.views.get(name) != view}
        known = len(await read_accepted(app.plan, app.client))
        try:
            await app.apply(plan, begins, dict.fromkeys(former.views.keys() - plan.views.keys(), at))
        except OutageError:
            if not await self.is_posted(known):
                raise
        self.stream.changes.append((plan, begins))
        self.settings = wanted

    async def is_posted(self, known: int) -> bool:
        """Whether settings came after those that were known, though the answer was lost: they may be on their way."""
        deadline = time.monotonic() + POSTED_WITHIN_S
        while time.monotonic() < deadline:
            with suppress(OutageError):
                if len(await read_accepted(self.app.plan, self.app.client)) > known:
                    return True
            await asyncio.sleep(1)
        return False

    async def add_or_take_out_a_view(self) -> None:
        """Do what `apply` does with a file that has a view more, or has it no more."""
        app, wanted = self.app, replace(self.settings, late=not self.settings.late)
        folder = app.plan.key_file.parent / "settings"
        if not await read_accepted(app.plan, app.client):
            return  # no worker has posted those of its file yet
        after = plan_from(wanted.text(app.plan.name), folder, app.plan.broker.address)
        try:
            change = await draft(app.plan, lambda _: after, app.client, Wish())
        except ConfigError as error:
            message = error.faults[0].message
            if not message.startswith(NOBODY_KNOWS):
                self.faults.append(("unable", message))
            self.told["view not added or taken out: no worker said where it is"] += 1
            return
        known = len(await read_accepted(app.plan, app.client))
        try:
            await post_change(change)
        except OutageError:
            if not await self.is_posted(known):
                raise
        except StateError:
            self.told["view not added or taken out: other settings were posted first"] += 1
            return
        self.told["view taken out" if change.proposal.ends else "view added"] += 1
        self.settings = wanted

    async def locked(self) -> list[str]:
        """Where the partner does not see a window at its finest, though it is old enough to be unlocked."""
        old = self.stream.start + (self.stream.windows - UNLOCKS_AFTER_MINUTES) * MINUTE
        found = []
        for view in self.stream.views:
            if "partner" in view.audiences:
                at_last = {record.window.start_ms: record for record in (await self.app.releases(view.name))["partner"]}
                found += [
                    f"{view.name}/{start}: {record.level.name}"
                    for start, record in at_last.items()
                    if start < old and isinstance(record, Release) and record.level.name != FINEST["partner"]
                ]
        return found

    async def all_shown(self, bound_s: float) -> bool:
        """Whether everything is shown so long after the last of it was fed, or earlier."""
        while self.watch.shown() < self.stream.windows:
            if time.monotonic() > max(self.fed.values()) + bound_s:
                return False
            await asyncio.sleep(0.1)
        return True


@asynccontextmanager
async def world(folder: Path, workers: int, brokers: int = 1) -> AsyncIterator[World]:
    """A cluster of one broker or three, and an application on it, with so many workers that do not run yet."""
    cluster: Broker | Cluster
    if brokers == 1:
        cluster = await asyncio.to_thread(Broker, folder / "kafka", "512m")
    else:
        cluster = await asyncio.to_thread(Cluster, folder / "kafka")
    copies = COPIES if brokers > 1 else ()
    mounted: list[Path] = []
    proxies: list[Proxy] = []
    processes: list[WorkerProcess] = []
    try:
        text = Settings(changes=copies).text(new_name())
        async with application(text, folder / "application", broker=cluster.address) as app:
            for at in range(workers):
                proxies.append(Proxy(cluster.address))
                processes.append(WorkerProcess(app, f"w{at}", proxy=proxies[-1]))
                if not mount(processes[-1].data_dir, DISK_MEGABYTES):
                    mounted.append(processes[-1].data_dir)
            members = [Member(process, proxy) for process, proxy in zip(processes, proxies, strict=True)]
            async with Crew(members) as crew:
                stream = Stream(app, visits=40)
                stream.late, stream.lowers = {f"{app.plan.name}-late"}, True
                settings = Settings(changes=copies)
                yield World(app, cluster, crew, stream, Watch(app), len(mounted) == workers, settings=settings)
    finally:
        for process in processes:
            process.end()
        for proxy in proxies:
            proxy.close()
        for disk in mounted:
            await asyncio.to_thread(unmount, disk)
        await asyncio.to_thread(cluster.close)


def ends(crew: Crew) -> Mapping[str, int]:
    """How often members ended by themselves, the most frequent first."""
    return dict(crew.ends.most_common())
