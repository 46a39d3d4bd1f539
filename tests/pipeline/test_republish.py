"""A deleted release topic stops only its own audience, which gets the same records again on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream_dp.errors import ConfigError
from stream_dp.operations.republish import republish
from stream_dp.operations.reset import former_topics
from stream_dp.runtime.kafka.control_topic import holding
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import read_keys
from stream_dp.runtime.worker import assembly
from stream_dp.testing import Application, plan_from
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


@pytest.mark.parametrize("how", ["gone", pytest.param("made again", marks=pytest.mark.slow)])
async def test_deleted_release_topic_stops_its_audience_alone(launch: Launch, how: str) -> None:
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    script = minutes(start, 0, 2)
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.grant("public", "standard")
    await app.eventually(lambda: has(app, "public", 4))
    before = await stamped(app, topic)

    await delete(app, topic)
    if how == "made again":
        await app.client.create([TopicSpec(topic, 1)])
    await app.eventually(lambda: is_stopped(app))
    assert f"stream-dp republish FILE {view.name} public" in problems(app)[0]
    more = minutes(start, 2, 4)
    await app.publish(more)
    await app.eventually(lambda: has(app, "internal", 4))
    assert not await stamped(app, topic)

    await ask(app)
    await app.eventually(lambda: is_whole(app))
    after = await stamped(app, topic)
    assert {key: after[key] for key in before} == before
    await ask(app)
    last = minutes(start, 4, 5)
    await app.publish(last)
    await app.eventually(lambda: has(app, "public", 5))
    found = await app.releases(view.name)
    assert [one.window.start for one in found["public"]] == sorted(one.window.start for one in found["internal"])
    assert [one.revision for one in found["public"]] == [2, 2, 1, 1, 1]


@in_memory
async def test_republished_records_are_those_that_the_audience_was_about_to_get(launch: Launch) -> None:
    """This includes a topic deleted while no worker ran, and windows released before the topic existed again."""
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    script = minutes(start, 0, 2)
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.stop()
    await delete(app, topic)
    await app.start()
    more = minutes(start, 2, 4)
    await app.publish(more)
    await app.eventually(lambda: has(app, "internal", 4))
    await app.stop()
    await ask(app)
    await app.start()
    last = minutes(start, 4, 5)
    await app.publish(last)
    await assert_lost(app, view, [*script, *more, *last], 5, ())


@in_memory
@pytest.mark.parametrize("kind", ["ticks", pytest.param("status", marks=pytest.mark.slow), "letters"])
@pytest.mark.parametrize("how", ["running", pytest.param("stopped", marks=pytest.mark.slow)])
async def test_topic_without_state_is_made_again(launch: Launch, kind: str, how: str) -> None:
    app = await launch()
    view, topics = only_view(app), Topics.of(app.plan)
    start = start_of(view)
    topic = view.source.dead_letter_topic if kind == "letters" else getattr(topics, kind)
    script = minutes(start, 0, 2)
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    if how == "stopped":
        await app.stop()
    await delete(app, topic)
    if how == "stopped":
        await app.start()

    async def is_back() -> bool:
        return await app.client.partitions(topic) is not None

    await app.eventually(is_back)
    more = minutes(start, 2, 4)
    await app.publish(more)
    await assert_lost(app, view, [*script, *more], 4, ())


@in_memory
async def test_crash_while_a_topic_is_written_again_writes_it_from_the_start(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    script = minutes(start, 0, 3)
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 3)
    before = await stamped(app, topic)
    await delete(app, topic)
    await app.eventually(lambda: is_stopped(app))

    assert app.worker is not None
    host: Any = app.worker.host
    write, calls = host._write_again, 0

    async def failing(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the network is gone")
        await write(*given)

    with monkeypatch.context() as patched:
        patched.setattr("stream_dp.runtime.faust.host.REPUBLISHED_AT_ONCE", 1)
        patched.setattr(host, "_write_again", failing)
        await ask(app)
        while calls < 3:
            await asyncio.sleep(0.05)
        await app.stop()
    assert 0 < len(await stamped(app, topic)) < len(before)

    await app.start()
    more = minutes(start, 3, 4)
    await app.publish(more)
    await app.eventually(lambda: has(app, "public", 4))
    after = await stamped(app, topic)
    assert {key: after[key] for key in before} == before


@in_memory
@pytest.mark.parametrize("how", ["kept for its retention", pytest.param("deleted by hand", marks=pytest.mark.slow)])
async def test_topics_of_a_removed_view_are_deleted_in_time(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(assembly, "beat_seconds", lambda _: 0.3)
    app = await launch(("retention: 1d", "retention: 2m"), ("views:\n", "views:" + TOP))
    pages = next(view for view in app.plan.views.values() if view.name.endswith("-pages"))
    start, topics = start_of(pages), Topics.of(app.plan)
    removed = sorted(topics.release(pages.name, audience) for audience in pages.audiences)
    await app.start()
    await app.publish(minutes(start, 0, 2))
    await app.wait_for_releases(pages.name, 2)

    folder = app.plan.key_file.parent
    text, _, _ = (folder / "application.yaml").read_text().partition(f"  {pages.name}:\n")
    await app.apply(plan_from(text, folder), {}, {pages.name: start + 2 * MINUTE})
    await app.publish(minutes(start, 2, 4))
    (top,) = (view for view in app.plan.views.values() if view.name != pages.name)
    await app.wait_for_releases(top.name, 4)
    keys, plan = read_keys(app.plan.key_file), await holding(app.plan, app.client)
    if how == "deleted by hand":
        assert await former_topics(plan, app.client, keys, pages.name) == removed
        await app.client.delete(removed)
    assert await former_topics(plan, app.client, keys, top.name) == []

    await app.publish(minutes(start, 4, 9))
    await app.wait_for_releases(top.name, 9)

    async def are_gone() -> bool:
        return not await app.client.describe(removed)

    await app.eventually(are_gone)
    await app.stop()
    await app.start()
    await app.publish(minutes(start, 9, 10))
    await app.wait_for_releases(top.name, 10)
    assert await are_gone()
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
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    worker = await app.start()
    script = minutes(start, 0, 2)
    await app.publish(script)
    await app.wait_for_releases(view.name, 2)
    topics = worker.host.release_topics
    topics.look({}, [topic])
    more = minutes(start, 2, 4)
    await app.publish(more)
    await app.eventually(lambda: has(app, "internal", 4))
    assert not await has(app, "public", 3)

    topics.look(await app.client.describe([topic]), [topic])
    await assert_lost(app, view, [*script, *more], 4, ())
    await app.eventually(lambda: is_whole(app))


@in_memory
async def test_orders_of_former_topics_write_nothing_again(launch: Launch) -> None:
    """A worker reads the control topic from its start, and finds every order that was not compacted away."""
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    await app.publish(minutes(start, 0, 2))
    await app.start()
    await app.wait_for_releases(view.name, 2)
    for _ in range(2):
        await delete(app, topic)
        await app.eventually(lambda: is_stopped(app))
        await ask(app)
        await app.eventually(lambda: is_whole(app))
    place = TopicPartition(topic, 0)
    written = (await app.client.ends([place]))[place]

    await app.stop()
    await app.start()
    await app.publish(minutes(start, 2, 3))
    await app.eventually(lambda: has(app, "public", 3))
    assert (await app.client.ends([place]))[place] == written + 1


@in_memory
async def test_settings_that_come_while_a_topic_is_written_again_lose_nothing(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release engine is made anew then; the topic is written again from its first record."""
    app = await launch()
    view = only_view(app)
    start, topic = start_of(view), Topics.of(app.plan).release(view.name, "public")
    script = minutes(start, 0, 2)
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await delete(app, topic)
    await app.eventually(lambda: is_stopped(app))
    assert app.worker is not None
    host: Any = app.worker.host
    republish_topic, calls = host._republish, 0

    async def after_settings(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            host._forget_parts()
        await republish_topic(*given)

    monkeypatch.setattr(host, "_republish", after_settings)
    await ask(app)
    more = minutes(start, 2, 4)
    await app.publish(more)
    await app.eventually(lambda: is_whole(app))
    assert calls > 1
    await assert_lost(app, view, [*script, *more], 4, ())
