"""A worker whose windows have outgrown its memory: on disk, exact across restarts, and gone when they are handed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from stream_dp.testing import Application, Event, Watermark
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

SLOW_ON_KAFKA = True

MINUTE = 60_000


async def test_windows_on_disk_are_released_exactly_after_a_restart_and_leave_no_file(
    launch: Callable[..., Awaitable[Application]],
) -> None:
    app = await launch()
    app.plan = replace(app.plan, window_memory_bytes=3000)
    view, spill_stores = only_view(app), app.plan.data_dir / "spill"
    start = start_of(view)
    (spill_stores / "of-a-killed-worker").mkdir(parents=True)
    (spill_stores / "of-a-killed-worker" / "000012.sst").write_text("counts")

    script: list[Event | Watermark] = []
    for run in range(2):
        worker = await app.start()
        part = [Event(f"u{n % 300}", f"/{(n + run) % 9}", start + n * 150) for n in range(800)]
        await app.publish(part)
        script += part

        async def counted(worker: object = worker) -> bool:
            return worker.counters.total("events_consumed") >= 800  # type: ignore[attr-defined,no-any-return]

        await app.eventually(counted)
        assert len(list(spill_stores.iterdir())) == 2 * 3, "two windows of three partitions"
        assert not (spill_stores / "of-a-killed-worker").exists()
        if run == 0:
            await app.stop()
            assert list(spill_stores.iterdir()) == []

    script.append(Watermark(start + 3 * MINUTE))
    await app.publish(script[-1:])
    await app.wait_for_releases(view.name, 2)
    counts = count_script(view, start, script).between(view, start, start + 2 * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, counts)
    assert list(spill_stores.iterdir()) == []
