"""A deleted release topic stops only its own audience, which gets the same records again on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition

from stream_dp.control.republications import Republication, encode_republication, republish_key
from stream_dp.errors import AccessError, ConfigError
from stream_dp.operations.republish import republish
from stream_dp.operations.reset import delete_former, former_topics
from stream_dp.runtime.embedded import MemoryClient
from stream_dp.runtime.faust import letters
from stream_dp.runtime.kafka.control_topic import holding
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import read_keys
from stream_dp.runtime.worker import assembly
from stream_dp.testing import Application, Event, Watermark, plan_from
from stream_dp.windows.effects import Message
from tests.support.changing import Make
from tests.support.deleting import assert_lost, minutes
from tests.support.losing import delete
from tests.support.views import only_view, start_of
from tests.support.visits import MINUTE, TOP

Launch = Callable[..., Awaitable[Application]]
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "LOOK_SECONDS", 0.2)


async def ask(app: Application, audience: str = "public") -> None:
    """Run `stream-dp republish`."""
    plan = await holding(app.plan, app.client)
    await republish(plan, app.client, read_keys(app.plan.key_file), only_view(app).name, audience)


async def stamped(app: Application, topic: str) -> dict[bytes, tuple[bytes, int]]:
    """The newest record of every key of a topic, and its time."""
    if await app.client.partitions(topic) is None:
        return {}
    found: dict[bytes, tuple[bytes, int]] = {}
    async for record in app.client.follow([topic], until_end=True):
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value, record.timestamp
    return found


def problems(app: Application) -> list[str]:
    assert app.worker is not None
    return app.worker.host.release_topics.problems


async def is_whole(app: Application) -> bool:
    return not problems(app)


async def is_stopped(app: Application) -> bool:
    return bool(problems(app))


async def has(app: Application, audience: str, count: int) -> bool:
    return len((await app.releases(only_view(app).name))[audience]) >= count


class Running:
    """An application whose worker has released some windows of its only view."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.view = only_view(app)
        self.start = start_of(self.view)
        self.topic = Topics.of(app.plan).release(self.view.name, "public")
        self.script: list[Event | Watermark] = []

    @classmethod
    async def launched(cls, launch: Launch, windows: int) -> Running:
        made = cls(await launch())
        await made.publish(0, windows)
        await made.app.start()
        await made.app.wait_for_releases(made.view.name, windows)
        return made

    async def publish(self, first: int, until: int) -> None:
        """Publish the visits of some minutes."""
        more = minutes(self.start, first, until)
        await self.app.publish(more)
        self.script += more

    async def delete_topic(self) -> None:
        """Delete the release topic from outside, and wait until the worker has noticed."""
        await delete(self.app, self.topic)
        await self.app.eventually(lambda: is_stopped(self.app))

    async def assert_released(self, windows: int) -> None:
        await assert_lost(self.app, self.view, self.script, windows, ())


@pytest.mark.parametrize("how", ["gone", pytest.param("made again", marks=pytest.mark.slow)])
async def test_deleted_release_topic_stops_its_audience_alone(launch: Launch, how: str) -> None:
    made = await Running.launched(launch, 2)
    app = made.app
    view = made.view
    topic = made.topic
    await app.grant("public", "standard")
    await app.eventually(lambda: has(app, "public", 4))
    before = await stamped(app, topic)

    await delete(app, topic)
    if how == "made again":
        await app.client.create([TopicSpec(topic, 1)])
    await app.eventually(lambda: is_stopped(app))
    assert f"stream-dp republish FILE {view.name} public" in problems(app)[0]
    await made.publish(2, 4)
    await app.eventually(lambda: has(app, "internal", 4))
    assert not await stamped(app, topic)

    await ask(app)
    await app.eventually(lambda: is_whole(app))
    after = await stamped(app, topic)
    assert {key: after[key] for key in before} == before
    await ask(app)
    await made.publish(4, 5)
    await app.eventually(lambda: has(app, "public", 5))
    found = await app.releases(view.name)
    assert [one.window.start for one in found["public"]] == sorted(one.window.start for one in found["internal"])
    assert [one.revision for one in found["public"]] == [2, 2, 1, 1, 1]


@in_memory
async def test_republished_records_are_those_that_the_audience_was_about_to_get(launch: Launch) -> None:
    """This includes a topic deleted while no worker ran, and windows released before the topic existed again."""
    made = await Running.launched(launch, 2)
    app = made.app
    await app.stop()
    await delete(app, made.topic)
    await app.start()
    await made.publish(2, 4)
    await app.eventually(lambda: has(app, "internal", 4))
    await app.stop()
    await ask(app)
    await app.start()
    await made.publish(4, 5)
    await made.assert_released(5)


@in_memory
@pytest.mark.parametrize("kind", ["ticks", pytest.param("status", marks=pytest.mark.slow), "letters"])
@pytest.mark.parametrize("how", ["running", pytest.param("stopped", marks=pytest.mark.slow)])
async def test_topic_without_state_is_made_again(launch: Launch, kind: str, how: str) -> None:
    made = await Running.launched(launch, 2)
    app = made.app
    topic = made.view.source.dead_letter_topic if kind == "letters" else getattr(Topics.of(app.plan), kind)
    if how == "stopped":
        await app.stop()
    await delete(app, topic)
    if how == "stopped":
        await app.start()

    async def is_back() -> bool:
        return await app.client.partitions(topic) is not None

    await app.eventually(is_back)
    await made.publish(2, 4)
    await made.assert_released(4)


@in_memory
async def test_crash_while_a_topic_is_written_again_writes_it_from_the_start(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await Running.launched(launch, 3)
    app = made.app
    topic = made.topic
    before = await stamped(app, topic)
    await made.delete_topic()

    assert app.worker is not None
    republisher: Any = app.worker.host.republisher
    write = republisher._write_records
    calls = 0

    async def failing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the network is gone")
        await write(*given)

    with monkeypatch.context() as patched:
        patched.setattr("stream_dp.runtime.faust.republishing.RECORDS_AT_ONCE", 1)
        patched.setattr(republisher, "_write_records", failing)
        await ask(app)
        while calls < 3:
            await asyncio.sleep(0.05)
        await app.stop()
    assert 0 < len(await stamped(app, topic)) < len(before)

    await app.start()
    await made.publish(3, 4)
    await app.eventually(lambda: has(app, "public", 4))
    after = await stamped(app, topic)
    assert {key: after[key] for key in before} == before


class Removal:
    """An application with two views, one of which is removed."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.both = app.plan
        self.pages = next(view for view in app.plan.views.values() if view.name.endswith("-pages"))
        self.start = start_of(self.pages)
        self.topics = sorted(Topics.of(app.plan).release(self.pages.name, one) for one in self.pages.audiences)
        (self.top,) = (view for view in app.plan.views.values() if view.name != self.pages.name)

    async def publish(self, first: int, until: int) -> None:
        """Publish the visits of some minutes, and wait for the windows of the other view."""
        await self.app.publish(minutes(self.start, first, until))
        await self.app.wait_for_releases(self.top.name, until)

    async def are_gone(self) -> bool:
        return not await self.app.client.describe(self.topics)

    @classmethod
    async def begun(cls, launch: Launch) -> Removal:
        """Remove the view after its second window."""
        app = await launch(("retention: 1d", "retention: 2m"), ("views:\n", "views:" + TOP))
        made = cls(app)
        await app.start()
        await made.publish(0, 2)
        await app.wait_for_releases(made.pages.name, 2)
        folder = app.plan.key_file.parent
        text, _, _ = (folder / "application.yaml").read_text().partition(f"  {made.pages.name}:\n")
        app.plan = plan_from(text, folder)
        await app.apply(app.plan, {}, {made.pages.name: made.start + 2 * MINUTE})
        await made.publish(2, 4)
        return made

    @classmethod
    async def carried_out(cls, launch: Launch) -> Removal:
        """Remove the view, and wait until its topics are deleted."""
        made = await cls.begun(launch)
        await made.publish(4, 9)
        await made.app.eventually(made.are_gone)
        return made


@in_memory
@pytest.mark.parametrize("how", ["kept for its retention", pytest.param("deleted by hand", marks=pytest.mark.slow)])
async def test_topics_of_a_removed_view_are_deleted_in_time(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(assembly, "beat_seconds", lambda _: 0.3)
    made = await Removal.begun(launch)
    app = made.app
    pages = made.pages
    keys, plan = read_keys(app.plan.key_file), await holding(app.plan, app.client)
    if how == "deleted by hand":
        assert await former_topics(plan, app.client, keys, pages.name) == made.topics
        await app.client.delete(made.topics)
    assert await former_topics(plan, app.client, keys, made.top.name) == []

    await made.publish(4, 9)
    await app.eventually(made.are_gone)
    await app.stop()
    await app.start()
    await made.publish(9, 10)
    assert await made.are_gone()
    assert not problems(app)


@in_memory
async def test_topic_of_a_removed_audience_is_no_problem(changing: Make) -> None:
    """It can be written again once the audience is back."""
    made = await changing()
    app = made.app
    topic = Topics.of(app.plan).release(made.view.name, "public")
    await app.start()
    await app.publish(minutes(made.start, 0, 2))
    await app.wait_for_releases(made.view.name, 2)
    before = await stamped(app, topic)
    await delete(app, topic)
    await app.eventually(lambda: is_stopped(app))

    await app.apply(made.plan(("audiences: {public: overview, ", "audiences: {")), {})
    await app.eventually(lambda: is_whole(app))
    with pytest.raises(ConfigError, match="no audience is named 'public'"):
        await ask(app)
    await app.apply(made.plan(), {})
    await app.eventually(lambda: is_stopped(app))
    await ask(app)
    await app.eventually(lambda: is_whole(app))
    after = await stamped(app, topic)
    assert {key: after[key] for key in before} == before


@in_memory
async def test_topic_that_only_seemed_deleted_misses_no_record(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started does not know any topic."""
    monkeypatch.setattr(assembly, "LOOK_SECONDS", 1000)
    made = await Running.launched(launch, 2)
    app = made.app
    topic = made.topic
    worker = made.app.worker
    assert worker is not None
    topics = worker.host.release_topics
    topics.look({}, [topic])
    await made.publish(2, 4)
    await app.eventually(lambda: has(app, "internal", 4))
    assert not await has(app, "public", 3)

    topics.look(await app.client.describe([topic]), [topic])
    await made.assert_released(4)
    await app.eventually(lambda: is_whole(app))


@in_memory
async def test_orders_of_former_topics_write_nothing_again(launch: Launch) -> None:
    """A worker reads the control topic from its start, and finds every order that was not compacted away."""
    made = await Running.launched(launch, 2)
    app = made.app
    topic = made.topic
    for _ in range(2):
        await made.delete_topic()
        await ask(app)
        await app.eventually(lambda: is_whole(app))
    place = TopicPartition(topic, 0)
    written = (await app.client.ends([place]))[place]

    await app.stop()
    await app.start()
    await made.publish(2, 3)
    await app.eventually(lambda: has(app, "public", 3))
    assert (await app.client.ends([place]))[place] == written + 1


@in_memory
async def test_settings_that_come_while_a_topic_is_written_again_lose_nothing(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release engine is made anew then; the topic is written again from its first record."""
    made = await Running.launched(launch, 2)
    app = made.app
    await made.delete_topic()
    assert app.worker is not None
    host: Any = app.worker.host
    write = host.republisher._write
    calls = 0

    async def after_settings(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            host._forget_parts()
        await write(*given)

    monkeypatch.setattr(host.republisher, "_write", after_settings)
    await ask(app)
    await made.publish(2, 4)
    await app.eventually(lambda: is_whole(app))
    assert calls > 1
    await made.assert_released(4)


@in_memory
@pytest.mark.parametrize("topic_id", ["", "0123", "the former one"])
async def test_order_that_does_not_fit_is_ignored(
    launch: Launch, caplog: pytest.LogCaptureFixture, topic_id: str
) -> None:
    made = await Running.launched(launch, 2)
    app = made.app
    topic = made.topic
    former = (await app.client.describe([topic]))[topic].id
    await made.delete_topic()
    await ask(app)
    await app.eventually(lambda: is_whole(app))
    order = Republication(topic, former if topic_id == "the former one" else topic_id)
    control = Topics.of(app.plan).control
    await app.client.publish([Message(control, republish_key(topic), encode_republication(order))])

    async def is_said() -> bool:
        return f"an order to write topic {topic} again is ignored" in caplog.text

    await app.eventually(is_said)
    await made.publish(2, 4)
    await made.assert_released(4)
    assert not problems(app)


@pytest.mark.parametrize("cut", ["", "before deletion", pytest.param("stopped", marks=pytest.mark.slow)])
async def test_audience_that_returns_after_a_reset_needs_no_order(
    changing: Make, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    """It gets what is released from then on; others are not affected."""
    made = await changing()
    app = made.app
    name = made.view.name
    topic = Topics.of(app.plan).release(name, "public")
    await app.start()
    await app.publish(minutes(made.start, 0, 2))
    await app.wait_for_releases(name, 2)
    keys = read_keys(app.plan.key_file)
    former = (await app.client.describe([topic]))[topic].id

    fewer = made.plan(("audiences: {public: overview, ", "audiences: {"))
    await app.apply(fewer, {})
    await made.learned(2)
    plan = await holding(app.plan, app.client)
    assert await former_topics(plan, app.client, keys, name) == [topic]
    if cut == "before deletion":
        with monkeypatch.context() as patched:
            patched.setattr(app.client, "delete", fail_to_delete)
            with pytest.raises(OSError, match="killed"):
                await delete_former(plan, app.client, keys, [topic])
        assert topic in await app.client.describe([topic])
    else:
        await delete_former(plan, app.client, keys, [topic])
        assert topic not in await app.client.describe([topic])
    if cut == "stopped":
        await app.stop()
        await app.start()
    await app.apply(made.plan(), {})
    await made.learned(3)
    await app.publish(minutes(made.start, 2, 4))
    await app.eventually(lambda: has(app, "public", 2))
    await app.eventually(lambda: is_whole(app))
    found = await app.releases(name)
    assert [made.minute(one.window.start_ms) for one in found["public"]] == [2, 3]
    assert (await app.client.describe([topic]))[topic].id != former
    assert (await app.described(name))["public"], "readers need the record of the view"


async def fail_to_delete(topics: Collection[str]) -> None:
    raise OSError(f"killed before {topics} were deleted")


@in_memory
async def test_view_that_returns_after_its_retention_needs_no_order(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "beat_seconds", lambda _: 0.3)
    removal = await Removal.carried_out(launch)
    app = removal.app
    pages = removal.pages
    removed = removal.topics
    await app.apply(removal.both, {pages.name: removal.start + 11 * MINUTE})
    await removal.publish(9, 14)

    async def is_back() -> bool:
        return len((await app.releases(pages.name))["public"]) >= 3

    app.plan = removal.both
    await app.eventually(is_back)
    assert not problems(app)
    assert {*await app.client.describe(removed)} == {*removed}
    starts = [one.window.start_ms for one in (await app.releases(pages.name))["public"]]
    assert starts[:3] == [removal.start + at * MINUTE for at in (11, 12, 13)]


class RightsMissing(NamedTuple):
    """Topics that the workers' account may not create."""

    topics: set[str]


@pytest.fixture
def rights_missing(monkeypatch: pytest.MonkeyPatch) -> RightsMissing:
    missing = RightsMissing(set())
    create = MemoryClient.create

    async def guarded(client: MemoryClient, topics: Iterable[TopicSpec]) -> None:
        wanted = [*topics]
        present = await client.describe([spec.name for spec in wanted])
        for spec in wanted:
            if spec.name in missing.topics and spec.name not in present:
                raise AccessError(f"does not let this account create topic {spec.name}")
        await create(client, wanted)

    monkeypatch.setattr(MemoryClient, "create", guarded)
    return missing


@in_memory
@pytest.mark.parametrize("how", ["running", pytest.param("restarted", marks=pytest.mark.slow)])
async def test_dead_letters_without_a_topic_are_only_counted(
    launch: Launch, rights_missing: RightsMissing, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The account may not create the topic again. Counting continues, and the topic is written to when it is back."""
    monkeypatch.setattr(letters, "LETTERS_SECONDS", 0.2)
    made = await Running.launched(launch, 2)
    app = made.app
    topic = made.view.source.dead_letter_topic
    refused = Message(made.view.source.topic, b"u", b"no event", 0)
    rights_missing.topics.add(topic)
    await delete(app, topic)
    await app.client.publish([refused])

    async def is_named() -> bool:
        return app.worker is not None and topic in app.worker.watch.uncreated

    await app.eventually(is_named)
    if how == "restarted":
        await app.stop()
        await app.start()
        await app.eventually(is_named)
    assert app.worker is not None
    (words,) = app.worker.watch.uncreated.values()
    assert "cannot be created again" in words
    await app.client.publish([refused])
    await made.publish(2, 4)
    await app.wait_for_releases(made.view.name, 4)
    assert app.worker.totals().total("events_refused", reason="malformed_json") == 2
    assert not await app.client.describe([topic])

    rights_missing.topics.clear()

    async def is_unnamed() -> bool:
        return app.worker is not None and not app.worker.watch.uncreated

    await app.eventually(is_unnamed)
    await app.client.publish([refused])

    async def is_written() -> bool:
        return len(await app.dead_letters()) >= 1

    await app.eventually(is_written)


@in_memory
@pytest.mark.parametrize("budget", ["100", "11"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_window_that_expires_while_its_topic_seems_deleted_is_deleted_there(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, restarts: bool, budget: str
) -> None:
    """The topic has the same records as that of an audience whose topic was there all the time."""
    monkeypatch.setattr(assembly, "LOOK_SECONDS", 1000)
    app = await launch(("retention: 1d", "retention: 2m"), ('epsilon: "100"', f'epsilon: "{budget}"'))
    made = Running(app)
    await made.publish(0, 2)
    await app.start()
    await app.wait_for_releases(made.view.name, 2)
    other = Topics.of(app.plan).release(made.view.name, "internal")

    async def ids(topic: str) -> list[bytes]:
        return sorted(key.rpartition(b"/")[2] for key in await stamped(app, topic))

    async def is_window_gone() -> bool:
        return str(made.start).encode() not in await ids(other)

    assert app.worker is not None
    app.worker.host.release_topics.look({}, [made.topic])
    await made.publish(2, 7)
    await app.eventually(is_window_gone)
    await asyncio.sleep(1)  # until nothing of the window is left in the table
    if restarts:
        await app.stop()
        await app.start()
    else:
        app.worker.host.release_topics.look(await app.client.describe([made.topic]), [made.topic])
    await app.eventually(lambda: is_whole(app))
    await made.publish(7, 8)

    async def are_alike() -> bool:
        return await ids(made.topic) == await ids(other)

    await app.eventually(are_alike, 20)
