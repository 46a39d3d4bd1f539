"""A disk that takes no more in mid-count: the worker ends, and the next one counts on where the changelog ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stream_dp.errors import StorageError
from stream_dp.records.codec import encode
from stream_dp.testing import Event, Watermark, application
from tests.support.disks import no_more_room
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, start_of

MINUTE = 60_000


async def test_worker_whose_disk_is_full_ends_and_the_next_one_counts_every_event_once(
    tmp_path: Path, visits: Callable[..., str]
) -> None:
    async with application(visits(), tmp_path) as app:
        view = only_view(app)
        start = start_of(view)
        events = [Event(f"u{at % 500}", f"/page/{at % 7}", start + at * MINUTE // 1000) for at in range(3000)]
        script: list[Event | Watermark] = [
            *events[:1500],
            Watermark(start + MINUTE + 10_000),
            *events[1500:],
            Watermark(start + 4 * MINUTE),
        ]
        worker = await app.start()
        await app.publish(script[:1501])
        await app.wait_for_releases(view.name, 1)

        async def crashed() -> bool:
            return worker.crash_reason() is not None

        with no_more_room(app.plan.data_dir):
            app.worker = None  # it is to crash
            await app.publish(script[1501:2500])
            await app.eventually(crashed)
        assert isinstance(worker.crash_reason(), StorageError)
        await app.stop()

        await app.start()
        await app.publish(script[2500:])
        await app.wait_for_releases(view.name, 3)

        windows = count_script(view, start, script).between(view, start, start + 3 * MINUTE)
        expected = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
        assert await app.published(view.name) == {
            audience: [encode(record) for record in records] for audience, records in expected.items()
        }
