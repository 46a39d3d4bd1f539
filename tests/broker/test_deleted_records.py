"""Records of a source that a real broker deleted before they were counted: while no worker ran, and before one that
was suspended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from faust.types import TP

from stream_dp.testing import Application, Watermark, application
from stream_dp.testing.scripts import Script, SourceWriter
from tests.support.deleting import AHEAD, GRACE, assert_lost, assert_lost_exact, ends_of, minutes
from tests.support.processes import SESSION_SECONDS
from tests.support.totals import stored_totals_of
from tests.support.views import only_view, start_of
from tests.support.visits import MINUTE, WITNESSED, visits_of

pytestmark = pytest.mark.broker


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0, SESSION_SECONDS + 4], ids=["shortly", "for longer than its session"])
async def test_worker_that_was_suspended_while_records_were_deleted_goes_on_and_refuses_what_may_lack_them(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, seconds: float
) -> None:
    async with application(visits(*WITNESSED, AHEAD), tmp_path, broker=kafka) as app:
        (view,) = (one for one in app.plan.views.values() if one.name.endswith("-exact"))
        start = start_of(view)
        worker = spawn(app, "state")
        worker.start()
        script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
        await app.publish(script)
        await app.wait_for_releases(view.name, 2)

        async def counted() -> bool:
            ends = await ends_of(app, range(3))
            return (await stored_totals_of(app)).total("events_consumed") == sum(ends.values())

        await app.eventually(counted)
        worker.signal(signal.SIGSTOP)
        await asyncio.sleep(1)
        down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
        await app.publish(down)
        await app.client.delete_before(await ends_of(app, range(3)))
        await asyncio.sleep(seconds)
        worker.signal(signal.SIGCONT)
        await asyncio.sleep(3)
        rest = minutes(start, 5, 10)
        await app.publish(rest)

        await assert_lost_exact(app, view, [*script, *down, *rest], 10, range(2, 8))
        worker.check()
        assert worker.said().count("deleted before they were counted") <= 6
        assert worker.terminate() == 0


async def test_marks_of_transactions_are_no_records_that_are_missing_whether_they_are_deleted_or_not(
    kafka: str, tmp_path: Path, visits: Callable[..., str]
) -> None:
    """Every transaction leaves an offset without a record; the last one stands at the end of a quiet topic."""
    async with application(visits(AHEAD), tmp_path, broker=kafka) as app:
        view = only_view(app)
        start = start_of(view)
        writer = SourceWriter(app.plan)
        producer = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=f"{app.plan.id}-producer")
        await producer.start()

        async def publish(script: Script) -> None:
            async with producer.transaction():
                for one in writer.records(script):
                    headers = list(one.headers.items())
                    await producer.send(one.topic, one.value, one.key, one.partition, headers=headers)

        try:
            script = minutes(start, 0, 2)
            await publish(script)
            await app.start()
            await app.wait_for_releases(view.name, 2)
            ends = await ends_of(app, range(3))
            await app.eventually(lambda: passed(app, ends))
            await app.stop()
            await app.client.delete_before(ends)
            await app.start()
            for minute in (2, 3):
                more = minutes(start, minute, minute + 1)
                script += more
                await publish(more)
            await assert_lost(app, view, script, 4, [])
        finally:
            await producer.stop()
        assert (await stored_totals_of(app)).total("records_missing") == 0


async def passed(app: Application, ends: Mapping[TP, int]) -> bool:
    """Whether the partitions were counted up to their ends, marks among them."""
    assert app.worker is not None
    return dict(app.worker.host.counted_to()) == ends
