"""On a real Kafka, unreadable records and batches become dead letters, and everything else is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from click.testing import CliRunner

from stream_dp.cli.check_command import check
from stream_dp.errors import StateError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.testing import Application, Event, Raw, SourceWriter, Watermark, application
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.batches import with_bad_header_name
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

pytestmark = pytest.mark.broker

MINUTE = 60_000
LZ4 = 3
BAD = 10
"""Number of the record with the bad header name."""


async def _send_with_bad_name(kafka: str, app: Application, events: list[Event]) -> TopicPartition:
    """Send events of one partition in one batch; a header name of one more event is not UTF-8."""
    messages = list(SourceWriter(app.plan).records(events))
    (place,) = {TopicPartition(message.topic, message.partition) for message in messages}
    rows: list[Any] = [(message.key, message.value, ()) for message in messages]
    rows.insert(BAD, rows[0])
    async with AIOKafkaProducer(bootstrap_servers=kafka, acks="all") as producer:
        builder = producer.create_batch()
        for key, value, _ in rows:
            builder.append(key=key, value=value, timestamp=wall_clock_ms())
        builder.close()
        builder._buffer = bytearray(with_bad_header_name(LZ4, 0, rows, BAD, time_ms=wall_clock_ms()))
        await (await producer.send_batch(builder, place.topic, partition=place.partition))
    return place


def _events_of(app: Application, users: range, partition: int, time_ms: int) -> list[Event]:
    writer = SourceWriter(app.plan)
    return [Event(f"u{n}", f"/{n % 3}", time_ms) for n in users if writer.place(f"u{n}") == partition]


async def test_bad_header_name_stops_no_worker(kafka: str, visits: Callable[..., str], tmp_path: Path) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        view = only_view(app)
        start = start_of(view)
        first = _events_of(app, range(300), 1, start)
        place = await _send_with_bad_name(kafka, app, first)
        marks = [Watermark(start + 2 * MINUTE)]
        await app.publish(marks)
        await app.start()
        await app.wait_for_releases(view.name, 1)

        (letter,) = [json.loads(one) for one in await app.dead_letters()]
        assert (letter["topic"], letter["partition"], letter["offset"]) == (*place, BAD)
        assert letter["reason"] == "bad_header"

        def sampled() -> str:
            env = {"STREAM_DP_BROKER": kafka, "COLUMNS": "200"}
            result = CliRunner().invoke(check, [str(tmp_path / "application.yaml"), "--sample"], env=env)
            assert result.exit_code == 0, result.output
            return result.output

        assert "the name of one of their headers is not UTF-8" in await asyncio.to_thread(sampled)

        await app.stop()
        worker = await app.start()
        second = _events_of(app, range(300), 0, start + 2 * MINUTE)
        marks.append(Watermark(start + 4 * MINUTE))
        await app.publish([*second, marks[-1]])
        await app.wait_for_releases(view.name, 3)
        assert worker.counters.total("events_refused") == 0, "it is not met again"
        assert len(await app.dead_letters()) == 1
        script: list[Event | Watermark | Raw] = [*first, marks[0], *second, marks[1]]
        counts = count_script(view, start, script).between(view, start, start + 3 * MINUTE)
        published = {name: found[:3] for name, found in (await app.published(view.name)).items()}
        assert published == oracle_bytes(app, view, counts)


@pytest.mark.slow
async def test_damage_on_the_brokers_disk_stops_no_worker(visits: Callable[..., str], tmp_path: Path) -> None:
    """A broker does not check what it sends. Damage in the application's own topics ends the worker with an error."""
    folder = tmp_path / "kafka"
    kafka = localkafka.start(folder, ready_within_s=WITHIN_SECONDS).address
    assert kafka is not None
    try:
        async with application(visits(), tmp_path, broker=kafka) as app:
            view = only_view(app)
            start = start_of(view)
            good = _events_of(app, range(300), 1, start)
            bad = [Event("planted", "/planted", start)]
            home = SourceWriter(app.plan).place("planted")
            await app.publish(good)
            await app.publish(bad)
            more = _events_of(app, range(300), home, start)
            await app.publish(more)
            mark = Watermark(start + 2 * MINUTE)
            await app.publish([mark])
        localkafka.stop(folder)
        (segment,) = (folder / "data" / f"{view.source.topic}-{home}").glob("*.log")
        content = segment.read_bytes()
        assert content.count(b"/planted") == 1
        segment.write_bytes(content.replace(b"/planted", b"/damaged"))
        kafka = localkafka.start(folder, ready_within_s=WITHIN_SECONDS).address
        assert kafka is not None
        async with application(visits(), tmp_path, broker=kafka) as app:
            await app.start()
            await app.wait_for_releases(view.name, 1)
            (letter,) = [json.loads(one) for one in await app.dead_letters()]
            assert letter["reason"] == "damaged_batch"
            assert letter["partition"] == home
            counts = count_script(view, start, [*good, *more, mark]).between(view, start, start + MINUTE)
            published = {name: found[:1] for name, found in (await app.published(view.name)).items()}
            assert published == oracle_bytes(app, view, counts)
            control = Topics.of(app.plan).control
        localkafka.stop(folder)
        (segment,) = (folder / "data" / f"{control}-0").glob("*.log")
        content = segment.read_bytes()
        segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        kafka = localkafka.start(folder, ready_within_s=WITHIN_SECONDS).address
        assert kafka is not None
        async with application(visits(), tmp_path, broker=kafka) as app:
            with pytest.raises(StateError, match=f"topic {control}, partition 0, offset .* cannot be read"):
                await app.start()
    finally:
        localkafka.stop(folder)
