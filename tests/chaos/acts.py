"""Everything that can happen: one function of each kind, and the table of them.

An act takes the world, itself, and, if it is done to a worker, that worker. When it returns, it is over: what it
stopped goes on, who it ended is started again by the driver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from aiokafka import AIOKafkaProducer

from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.control_topic import known_grants, withdraw_grant
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.testing import Event, SourceWriter
from stream_dp.windows.durations import format_time
from stream_dp.windows.effects import Message
from tests.chaos.schedule import Act, Kind
from tests.chaos.world import FINEST, World
from tests.support.crew import Member
from tests.support.disks import fill, make_room
from tests.support.losing import delete
from tests.support.poison import Visit, poison
from tests.support.processes import SESSION_SECONDS
from tests.support.visits import MINUTE, PAGES

READ_WITHIN_S = 40.0
MOST_AHEAD_S = 4
"""How long a grant waits for its time."""
NOTICED_WITHIN_S = 60.0
"""Workers look every few seconds, and believe it the second time; the machine may be slow."""
ITEMS_OF_A_BOMB = 12_000
TRAPS = ["counts-changelog", "merges-changelog", "releases-changelog", "releases-changelog/r"]
TRAPS += ["releases-changelog/t", "-partials", "-merged", "-pages.public", "-top.partner", "-orders"]
LONGER = (SESSION_SECONDS + 1, SESSION_SECONDS + 5)
"""So long that the group gives a worker up."""


# -- workers --------------------------------------------------------------------------------------------------


async def kill(_: World, act: Act, member: Member) -> None:
    await member.kill()
    await asyncio.sleep(act.seconds)


async def kill_and_delete(_: World, act: Act, member: Member) -> None:
    await member.kill(fresh=True)
    await asyncio.sleep(act.seconds)


async def leave(world: World, act: Act, member: Member) -> None:
    await world.leave(member)
    await member.kill(fresh=act.chance().random() < 0.3)
    await asyncio.sleep(act.seconds)


async def stop(_: World, act: Act, member: Member) -> None:
    await member.stand_still(act.seconds)


async def trap(world: World, act: Act, member: Member) -> None:
    chance = act.chance()
    world.told["trap that sprang"] += await member.trapped(chance.choice(TRAPS), chance.randrange(1, 4), act.seconds)


async def freeze(_: World, act: Act, member: Member) -> None:
    member.proxy.freeze()
    await asyncio.sleep(act.seconds)
    member.proxy.thaw()


async def freeze_and_kill(_: World, act: Act, member: Member) -> None:
    member.proxy.freeze()
    await asyncio.sleep(0.3)
    await member.kill(fresh=act.chance().random() < 0.3)
    await asyncio.sleep(act.seconds)
    member.proxy.thaw()


async def cut(_: World, act: Act, member: Member) -> None:
    member.proxy.cut()
    await asyncio.sleep(act.seconds)
    member.proxy.mend()


async def fill_disk(world: World, act: Act, member: Member) -> None:
    if not world.disks:
        world.told["no disk of its own to fill"] += 1
        return
    await asyncio.to_thread(fill, member.worker.data_dir)
    await asyncio.sleep(act.seconds)
    make_room(member.worker.data_dir)


# -- the broker -----------------------------------------------------------------------------------------------


async def kill_broker(world: World, act: Act) -> None:
    await _disturb(world, act, world.cluster.kill)


async def pause_broker(world: World, act: Act) -> None:
    await _disturb(world, act, world.cluster.freeze)


async def _disturb(world: World, act: Act, disturb: Callable[..., None]) -> None:
    """Of three brokers mostly one; where one of three is gone, feeding goes on."""
    chance, numbers = act.chance(), world.cluster.numbers
    some = chance.sample(numbers, min(len(numbers), chance.choice([1, 1, 1, 2, 3])))
    world.told[f"{len(some)} of {len(numbers)} brokers at once"] += 1
    async with world.up if 2 * len(some) > len(numbers) else nullcontext():
        disturb(*some)
        await asyncio.sleep(act.seconds)
        await asyncio.to_thread(world.cluster.come_back)


# -- people ---------------------------------------------------------------------------------------------------


async def grant(world: World, act: Act) -> None:
    """Of all windows or of some, at once or in a moment."""
    chance = act.chance()
    audience = chance.choice(list(FINEST))
    # Less than it starts with would hold back what unlocks for the partner.
    level = chance.choice(["overview", "standard", "detailed"][audience == "partner" :])
    scope: dict[str, object] = {"windows": chance.choice(["all", "all", "retained", "future"])}
    if chance.random() < 0.3:
        scope["views"] = [view.name for view in world.stream.views if view.name.endswith("-pages")]
    if chance.random() < 0.3:
        scope["at"] = format_time(wall_clock_ms() // 1000 * 1000 + chance.randrange(1, MOST_AHEAD_S) * 1000)
    async with world.up:
        await world.app.grant(audience, level, **scope)


async def withdraw(world: World, act: Act) -> None:
    """Take back a grant that waits for its time."""
    plan, client = world.app.plan, world.app.client
    async with world.up:
        orders = await known_grants(plan, client)
        waiting = [order for order in orders if order.time_ms > wall_clock_ms()]
        if waiting:
            await withdraw_grant(plan, client, act.chance().choice(waiting))
            world.told["grant that waited and was withdrawn"] += 1


async def tune_definition(world: World, act: Act) -> None:
    async with world.up:
        await world.apply(act.chance().randrange(2, 6), single=not world.settings.single)


async def tune_clearances(world: World, act: Act) -> None:
    async with world.up:
        await world.apply(act.chance().randrange(2, 6), coarse=not world.settings.coarse)


async def add_or_take_out_a_view(world: World, _: Act) -> None:
    async with world.up:
        await world.add_or_take_out_a_view()


async def change_sources(world: World, _: Act) -> None:
    """Add a source with a view, or take that away again; a bad record in each partition tells whether it is read."""
    topic, partitions = f"{world.app.plan.name}.more", 3
    letters = f"{world.app.plan.id}.dead-letters.more"
    async with world.everybody() as members:
        await world.app.client.create([TopicSpec(topic, partitions)])
        await asyncio.gather(*map(world.leave, members))
        await world.apply(2, more=not world.settings.more)
        for member in members:
            member.start()
        for member in members:
            await world.runs(member)  # its tables may have to be read back first
        before = len(await world.app.read(letters))
        await world.app.client.publish([Message(topic, b"k", b"{", partition) for partition in range(partitions)])
        deadline = time.monotonic() + READ_WITHIN_S
        while len(await world.app.read(letters)) < before + partitions:
            if time.monotonic() > deadline:
                world.faults.append(("unread", f"{topic}, {READ_WITHIN_S:.0f} s after the workers ran with it"))
                return
            await asyncio.sleep(1)


async def delete_topic(world: World, act: Act) -> None:
    """Delete a topic in which counts are on their way; the workers notice and end, and one then accepts the loss."""
    topics = Topics.of(world.app.plan)
    topic = act.chance().choice([topics.partials, topics.merged])
    async with world.everybody() as members:
        for member in members:
            await world.runs(member)
        world.stream.forgone.setdefault("lost", set()).update(world.unreleased())
        for member in members:
            member.wanted = False
        await delete(world.app, topic)
        deadline = time.monotonic() + NOTICED_WITHIN_S
        for member in members:
            while (code := member.worker.ended()) is None and time.monotonic() < deadline:
                await asyncio.sleep(0.2)
            if code is None:
                world.faults.append(("unnoticed", f"{member.worker.name} goes on without {topic}"))
                await member.kill()
        first, *others = members
        first.start("--accept-loss")
        await world.runs(first)
        for member in others:
            member.start()
        await asyncio.sleep(act.seconds)


async def bomb(world: World, act: Act) -> None:
    """Many long items in a few small requests: what is short on its way is long in memory."""
    chance = act.chance()
    producer = AIOKafkaProducer(
        bootstrap_servers=world.app.plan.broker.address, compression_type="gzip", max_request_size=1 << 25
    )
    async with world.up:
        await producer.start()
        try:
            at = world.stream.start + world.stream.windows * MINUTE
            writer = SourceWriter(world.app.plan, "visits")
            for number in range(ITEMS_OF_A_BOMB):
                user = f"bomb{chance.randrange(10**9)}"
                event = Event(user, f"{number:06}".ljust(1000, "x"), at + chance.randrange(MINUTE))
                (row,) = writer.records([event])
                await producer.send(row.topic, row.value, row.key, row.partition)
            await producer.flush()
        finally:
            await producer.stop()


async def poison_records(world: World, act: Act) -> None:
    chance = act.chance()
    source = world.stream.views[0].source
    async with world.up:
        at = world.stream.start + world.stream.windows * MINUTE
        rows = []
        for _number in range(chance.randrange(1, 400)):
            visit = Visit(f"u{chance.randrange(240)}", chance.choice(PAGES), at + chance.randrange(MINUTE))
            bad = poison(visit, chance)
            partition = chance.randrange(source.partitions)
            rows.append(Message(source.topic, bad.key, bad.value, partition, bad.headers))
        await world.app.client.publish(rows)
    world.told["records that are no events"] += len(rows)


Deed = Callable[..., Awaitable[None]]

_TABLE: list[tuple[str, Deed, Kind]] = [
    ("kill", kill, Kind("worker", "kill", 24, long=LONGER)),
    ("kill and delete its folder", kill_and_delete, Kind("worker", "folder", 10, long=LONGER)),
    ("leave and join", leave, Kind("worker", "leave", 16, long=(8, 25))),
    ("stop", stop, Kind("worker", "stop", 10)),
    ("stop long", stop, Kind("worker", "stop", 8, LONGER)),
    ("trap", trap, Kind("worker", "stop", 14, LONGER)),
    ("freeze the network", freeze, Kind("worker", "network", 8, LONGER)),
    ("freeze the network and kill", freeze_and_kill, Kind("worker", "network", 5, LONGER)),
    ("cut the network", cut, Kind("worker", "network", 5, long=LONGER)),
    ("fill the disk", fill_disk, Kind("worker", "disk", 6, (2, 8))),
    ("kill the broker", kill_broker, Kind("broker", "broker", 1, (0, 4), (10, 20))),
    ("pause the broker", pause_broker, Kind("broker", "broker", 1, (1, 5), (8, 20))),
    ("grant", grant, Kind("operator", "grant", 8, (0, 0))),
    ("withdraw a grant", withdraw, Kind("operator", "grant", 2, (0, 0))),
    ("tune the definition", tune_definition, Kind("operator", "tune", 3, (0, 0))),
    ("tune the clearances", tune_clearances, Kind("operator", "tune", 2, (0, 0))),
    ("add or take out a view", add_or_take_out_a_view, Kind("operator", "views", 4, (0, 0))),
    ("change the sources", change_sources, Kind("operator", "topics", 1, (0, 0))),
    ("delete a topic", delete_topic, Kind("operator", "topics", 1, (2, 6))),
    ("poison", poison_records, Kind("producer", "poison", 12, (0, 0))),
    ("bomb", bomb, Kind("producer", "bomb", 1, (0, 0))),
]
DEEDS: dict[str, Deed] = {name: deed for name, deed, _ in _TABLE}
KINDS: dict[str, Kind] = {name: kind for name, _, kind in _TABLE}
