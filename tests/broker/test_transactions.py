"""Events of transactional producers: they count when their transaction is committed, and never if it is aborted."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced

from stream_dp.config.plan import ViewPlan
from stream_dp.control.editions import encode_posted, first_record
from stream_dp.errors import StateError
from stream_dp.operations.status import read_status
from stream_dp.runtime.kafka import open_transactions
from stream_dp.runtime.kafka.control_topic import SettingsLog
from stream_dp.runtime.kafka.list_topics import ListTopic
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, TopicSpec
from stream_dp.runtime.sources.sampling import read_sample
from stream_dp.runtime.worker import assembly, reporting
from stream_dp.testing import Application, Event, ManualClock, SourceWriter, Watermark, application
from stream_dp.windows.effects import Message
from tests.support.ticks import told
from tests.support.transactional import crowd, decided, producing, shown
from tests.support.views import start_of
from tests.support.visits import MINUTE, WITNESSED

pytestmark = pytest.mark.broker

A, B, C, D = "/0", "/1", "/2", "/3"
GRACE = 10_000
Visits = Callable[..., str]


def exact_view(app: Application) -> ViewPlan:
    """Return the view whose releases have no noise."""
    (view,) = (one for one in app.plan.views.values() if one.name.endswith("-exact"))
    return view


@pytest.mark.parametrize("keyed", ["user", pytest.param("key", marks=pytest.mark.slow)])
async def test_aborted_transaction_is_not_counted(kafka: str, tmp_path: Path, visits: Visits, keyed: str) -> None:
    """Neither its events nor its watermarks count; two producers alternate in every partition, one compresses."""
    rekeyed = ("user: user, time", f"{keyed}: user, time")
    async with (
        application(visits(*WITNESSED, rekeyed), tmp_path, broker=kafka) as app,
        producing(app, kafka, "first") as first,
        producing(app, kafka, "second", compression_type="gzip") as second,
    ):
        view = exact_view(app)
        start = start_of(view)
        await app.start()
        await first.begin()
        await second.begin()
        await first.send(crowd(A, range(40), start))
        await second.send([*crowd(B, range(100, 300), start), Watermark(start + 3 * MINUTE)])
        await first.send(crowd(C, range(40, 80), start))
        await second.send(crowd(B, range(300, 500), start))
        await first.commit()
        await second.abort()
        await first.write([Watermark(start + MINUTE + GRACE)], commits=True)
        found = await app.wait_for_releases(view.name, 1)

        assert shown(found["public"]) == {start: {A: 40, C: 40}}


@pytest.mark.parametrize("commits", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_open_transaction_holds_windows(
    kafka: str,
    tmp_path: Path,
    visits: Visits,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    commits: bool,
) -> None:
    """The tick waits only in that partition; status and log name the transaction until it ends."""
    monkeypatch.setattr(open_transactions, "LONG_MS", 0)
    monkeypatch.setattr(assembly, "TRANSACTIONS_SECONDS", 0.2)
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.5)
    caplog.set_level(logging.WARNING, "stream_dp.worker")
    wall = ("clock: event", "clock: wall, catch_up: 0s")
    async with (
        application(visits(*WITNESSED, wall), tmp_path, broker=kafka) as app,
        producing(app, kafka) as producer,
    ):
        view = exact_view(app)
        topic, start = view.source.topic, start_of(view)
        clock = ManualClock(start)
        worker = await app.start(clock_ms=clock)
        users = [number for number in range(120) if SourceWriter(app.plan).place(f"u{number}") == 0]
        await producer.begin()
        offset = await producer.send(crowd(A, users[:1], start))
        await producer.send(crowd(A, users[1:20], start))
        await app.publish(crowd(C, range(200, 260), start))
        clock.now_ms = start + MINUTE + GRACE
        await app.eventually(lambda: told(app, clock.now_ms))

        async def closed(partitions: int) -> bool:
            return worker.counters.total("windows_closed", view=view.name) == partitions

        await app.eventually(lambda: closed(2))

        async def reported() -> str | None:
            problems = (await read_status(app.plan, app.client)).problems
            return next((one.message for one in problems if one.code == "open_transaction"), None)

        assert f"in topic {topic}, partition 0, since offset {offset}." in await app.eventually(reported)
        assert await closed(2)
        await (producer.commit() if commits else producer.abort())
        found = await app.wait_for_releases(view.name, 1)

        async def ended() -> bool:
            return await reported() is None

        await app.eventually(ended)
        assert shown(found["public"]) == {start: {C: 60, **({A: 20} if commits else {})}}
        own = [record.getMessage() for record in caplog.records if record.name.startswith("stream_dp.")]
        said = [words for words in own if "transaction" in words]
        assert [words.startswith("a transaction has been open for more than") for words in said] == [True, False]
        assert all(f"topic {topic}, partition 0" in words and f"offset {offset}" in words for words in said)


@pytest.mark.slow
async def test_transactions_across_fetches(kafka: str, tmp_path: Path, visits: Visits) -> None:
    """Transactions alternate batch by batch in one partition; the worker restarts, and a producer is fenced."""
    async with (
        application(visits(*WITNESSED), tmp_path, broker=kafka) as app,
        producing(app, kafka, "committed") as committed,
        producing(app, kafka, "aborted") as aborted,
    ):
        view = exact_view(app)
        topic, start = view.source.topic, start_of(view)
        writer = SourceWriter(app.plan)
        users = [user for user in (f"u{number}" for number in range(60_000)) if writer.place(user) == 0]

        def large(some: Sequence[str], page: str) -> list[Message]:
            value = {"page": page, "at": start, "more": "x" * 400}
            return [Message(topic, user.encode(), json.dumps({"user": user, **value}).encode(), 0) for user in some]

        await app.start()
        await committed.begin()
        await aborted.begin()
        for first in range(0, 18_000, 1000):
            await committed.send_messages(large(users[first : first + 500], A))
            await aborted.send_messages(large(users[first + 500 : first + 1000], B))
        await committed.commit()
        await app.stop()
        await app.start()
        await aborted.abort()
        async with producing(app, kafka, "fenced") as former, AsyncExitStack() as stack:
            await former.begin()
            await former.send(crowd(B, range(100_000, 100_100), start))
            successor = await stack.enter_async_context(producing(app, kafka, "fenced"))
            with pytest.raises(ProducerFenced):
                await former.commit()
            await successor.write(crowd(C, range(100_100, 100_200), start), commits=True)
        await app.publish([Watermark(start + MINUTE + GRACE)])
        found = await app.wait_for_releases(view.name, 1)

        assert shown(found["public"]) == {start: {A: 9000, C: 100}}


@pytest.mark.slow
async def test_recovery_waits_for_changelog_transaction(kafka: str, tmp_path: Path, visits: Visits) -> None:
    """Only workers should write there. Rows after the transaction are not missed, so no window is counted again."""
    async with (
        application(visits(*WITNESSED), tmp_path, broker=kafka) as app,
        producing(app, kafka) as producer,
    ):
        view = exact_view(app)
        start, topics = start_of(view), Topics.of(app.plan)
        changelogs = [topics.changelog(table) for table in (COUNTS, MERGES, RELEASES)]
        await app.publish([*crowd(A, range(40), start), Watermark(start + MINUTE + GRACE)])
        await app.start()
        await app.wait_for_releases(view.name, 1)
        await app.stop()
        shutil.rmtree(app.plan.data_dir)
        places = [TopicPartition(topic, partition) for topic in changelogs for partition in range(app.plan.partitions)]
        await producer.begin()
        await producer.send_messages([Message(topic, b"foreign", b"row", partition) for topic, partition in places])
        before = await app.client.ends(places)
        starting = asyncio.create_task(app.start())

        async def claimed() -> bool:
            ends = await app.client.ends(places)
            return all(ends[place] > before[place] for place in places)

        await app.eventually(claimed)
        await asyncio.sleep(2)
        assert not starting.done()
        await producer.abort()
        await starting
        await app.publish([*crowd(B, range(40), start + MINUTE), Watermark(start + 2 * MINUTE + GRACE)])
        found = await app.wait_for_releases(view.name, 2)

        assert shown(found["public"]) == {start: {A: 40}, start + MINUTE: {B: 40}}


# -- what reads without a worker ----------------------------------------------------------------------------------


async def test_readers_get_committed_records_only(kafka: str, tmp_path: Path, visits: Visits) -> None:
    """`follow`, `check --sample` and a public list do not wait for the end of a log while a transaction is open."""
    async with (
        application(visits(), tmp_path, broker=kafka) as app,
        producing(app, kafka, "former") as former,
        producing(app, kafka, "open") as producer,
    ):
        (view,) = app.plan.views.values()
        topic, start = view.source.topic, start_of(view)
        first, second, third, *_ = (user for user in map(str, range(99)) if SourceWriter(app.plan).place(user) == 0)
        place = TopicPartition(topic, 0)
        await former.write([Event(first, A, start)], commits=True)
        await former.write([Event(second, B, start)], commits=False)
        await decided(app.client, place)
        listed = ListTopic(topic)
        state = (await app.client.describe([topic]))[topic]

        async def pages() -> list[str]:
            return [json.loads(value)["page"] for _, value in await app.read(topic) if value is not None]

        async def sampled() -> list[str]:
            return [json.loads(record.value)["page"] for record in await read_sample(app.client, view.source)]

        assert await pages() == await sampled() == [A]
        assert await app.client.stable_ends([place]) == await app.client.ends([place]) == {place: 4}
        await producer.begin()
        offset = await producer.send([Event(second, C, start)])
        await app.publish([Event(third, D, start)])
        await listed.read_on(app.client, state)
        assert await pages() == await sampled() == [A]
        assert listed.listed().keys == (first,)
        assert await app.client.stable_ends([place]) == {place: offset}
        assert await app.client.ends([place]) == {place: offset + 2}
        with pytest.raises(StateError, match=f"open in topic {topic}, partition 0, at offset {offset}"):
            await app.client.check_decided([place])
        await producer.commit()
        await decided(app.client, place)
        assert await pages() == await sampled() == [A, C, D]
        assert await listed.read_on(app.client, state)
        assert set(listed.listed().keys) == {first, second, third}
        await app.client.check_decided([place])


async def test_settings_are_read_when_committed(kafka: str, tmp_path: Path, visits: Visits) -> None:
    """Until then nothing can be posted, because no one could tell whether it is in effect."""
    async with (
        application(visits(), tmp_path, broker=kafka) as app,
        producing(app, kafka) as producer,
    ):
        control = Topics.of(app.plan).control
        await app.client.create([TopicSpec(control, 1)])
        posted = first_record(app.plan, 0)
        settings = SettingsLog(app.plan, app.client)
        await producer.begin()
        await producer.send_messages([Message(control, b"settings/1/x", encode_posted(posted), 0)])
        assert not await settings.read()
        with pytest.raises(StateError, match="Stop the other producer"):
            await settings.post(posted)
        with pytest.raises(StateError, match="Stop the other producer"):
            await app.grant("public", "standard")
        await producer.commit()
        await decided(app.client, settings.place)
        assert await settings.read()
        assert settings.history.posted == [posted]
