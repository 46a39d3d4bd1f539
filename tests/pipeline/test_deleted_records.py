"""Records of a source that were deleted before they were counted: windows that may lack them are refused as lost."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.records.models import Refusal
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.worker import reporting
from stream_dp.runtime.worker.health import Health, Start
from stream_dp.testing import Application, Event, ManualClock, Watermark
from stream_dp.testing.scripts import SourceWriter
from stream_dp.windows.count_rows import Missing
from stream_dp.windows.effects import Message
from stream_dp.windows.events import WATERMARK_HEADER
from tests.support.chosen import ordinarily
from tests.support.deleting import AHEAD, GRACE, assert_lost, ends_of, minutes
from tests.support.oracle import count_script, expected_records
from tests.support.ticks import told
from tests.support.totals import stored_totals_of
from tests.support.views import only_view, start_of
from tests.support.visits import MINUTE, PAGES, visits_of

Launch = Callable[..., Awaitable[Application]]
REKEYED = ("user: user, time", "key: user, time")
RUNNING = (
    ("    kind: histogram\n", f"    kind: running\n    catalogue: [{', '.join(PAGES)}]\n"),
    ('    delta: "1e-4"\n', ""),
    ("window: {size: 1m,", "window: {size: 4m, pane: 1m,"),
)
ENOUGH = ("items_per_user: 2", "items_per_user: 7")
"""As many pages as there are: then it is no matter in which order the events of a user come."""


async def counted(app: Application) -> bool:
    """Whether all that stands in the source was counted, or passed on."""
    ends = await ends_of(app, range(app.plan.partitions))
    return (await stored_totals_of(app)).total("events_consumed") == sum(ends.values())


@pytest.mark.parametrize(
    "changes", [(), pytest.param((REKEYED, ENOUGH), marks=pytest.mark.slow)], ids=["keyed", "rekeyed"]
)
async def test_what_retention_deleted_while_no_worker_ran_is_refused_as_lost_and_the_rest_is_exact(
    launch: Launch, caplog: pytest.LogCaptureFixture, changes: tuple[tuple[str, str], ...]
) -> None:
    app = await launch(AHEAD, *changes)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))
    await app.stop()

    place = TP(view.source.topic, 1)
    counted_to = (await ends_of(app, [1]))[place]
    down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(down)
    gone_to = (await ends_of(app, [1]))[place]
    await app.client.delete_before({place: gone_to})
    caplog.clear()
    with caplog.at_level(logging.WARNING, "stream_dp.worker"):
        await app.start()
        rest = minutes(start, 5, 10)
        await app.publish(rest)
        # The clock shows 2:10 in front of the gap, and 6:10 with the first watermark behind it.
        await assert_lost(app, view, [*script, *down, *rest], 10, range(2, 8))

    said = [one.getMessage() for one in caplog.records if "deleted before" in one.getMessage()]
    assert len(said) == 1
    assert f"source visits, partition 1: records {counted_to} to {gone_to - 1} were deleted" in said[0]
    assert view.name in said[0]
    totals = await stored_totals_of(app)
    assert totals.total("records_missing") == gone_to - counted_to
    assert totals.total("windows_lost") == 6
    health = Health(Start())
    health.worker = app.worker
    status = await reporting.current(app.plan, app.client, health, 0)
    (gap,) = status.partitions[1].deleted_records["visits"]
    assert (gap.first, gap.last) == (counted_to, gone_to - 1)
    assert not status.partitions[0].deleted_records


async def test_what_retention_deletes_in_front_of_a_worker_that_runs_is_refused_as_lost(launch: Launch) -> None:
    app = await launch(AHEAD)
    if app.log is None:
        pytest.skip("a worker cannot be outrun there on purpose: see tests/broker/test_deleted_records.py")
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))

    down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(down)  # nobody else runs until it is deleted: the embedded log does not wait
    (place,) = ends = await ends_of(app, [2])
    await app.client.delete_before(ends)
    rest = minutes(start, 5, 10)
    await app.publish(rest)

    await assert_lost(app, view, [*script, *down, *rest], 10, range(2, 8))
    assert place.partition == 2


async def test_by_a_wall_clock_the_ticks_around_a_gap_say_what_is_lost(launch: Launch) -> None:
    app = await launch(AHEAD, ("clock: event", "clock: wall, catch_up: 0s"), (", idle: 1d", ""))
    view = only_view(app)
    start = start_of(view)
    clock = ManualClock(start)
    await app.start(clock_ms=clock)

    async def pass_minute(minute: int, *, gone: bool = False) -> list[Event]:
        """Publish the visits of a minute, when it is half over, and end it."""
        clock.now_ms = start + minute * MINUTE + MINUTE // 2
        await app.eventually(lambda: told(app, clock.now_ms))
        events = [Event(f"u{n}", f"/{n % 5}", clock.now_ms + n) for n in range(150)]
        await app.publish(events)
        if gone:
            await app.client.delete_before(await ends_of(app, [0]))
        clock.now_ms += MINUTE // 2
        await app.eventually(lambda: told(app, clock.now_ms))
        return events

    script = [event for minute in range(3) for event in await pass_minute(minute)]
    await app.eventually(lambda: counted(app))
    await app.stop()
    # The last tick in front of the gap showed 3:00, so window 2 is open; the first one behind it shows 4:00.
    clock.now_ms = start + 3 * MINUTE + MINUTE // 2
    down = [Event(f"u{n}", f"/{n % 5}", clock.now_ms + n) for n in range(150)]
    await app.publish(down)
    await app.client.delete_before(await ends_of(app, [0]))
    clock.now_ms += MINUTE // 2
    await app.start(clock_ms=clock)
    await app.eventually(lambda: told(app, clock.now_ms))
    rest = [event for minute in range(4, 9) for event in await pass_minute(minute)]
    clock.now_ms += GRACE
    await app.eventually(lambda: told(app, clock.now_ms))

    await assert_lost(app, view, [*script, *down, *rest], 9, range(2, 6))


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
async def test_a_total_is_refused_from_a_pane_that_may_lack_records_to_the_end_of_its_window(launch: Launch) -> None:
    """Windows of four minutes, told of every minute. Panes 2 to 7 may lack records: the third window is whole."""
    app = await launch(AHEAD, *RUNNING)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))
    await app.stop()
    down = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(down)
    await app.client.delete_before(await ends_of(app, [1]))
    await app.start()
    rest = minutes(start, 5, 12)
    await app.publish(rest)

    found = await app.wait_for_releases(view.name, 12)
    counts = count_script(view, start, [*script, *down, *rest]).between(view, start, start + 12 * MINUTE)
    whole = {at: table for at, table in counts.items() if (at - start) // MINUTE not in range(2, 8)}
    expected = expected_records(view, whole, prf_key=app.prf_key, entropy=app.entropy)
    for audience, records in found.items():
        refused = [one for one in records if isinstance(one, Refusal)]
        assert [one.reason for one in refused] == ["lost"] * 6
        assert [one for one in records if one not in refused] == expected[audience]
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(view.start_level) * 2


class Killer:
    """Ends a worker before or behind the commit of a number to come, as if it was killed there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self.behind = False
        commit, killer = DurableTable.commit, self

        async def failing(self: DurableTable, partition: int, rows: Any, writer: Any) -> None:
            if killer.left is not None:
                killer.left -= 1
            if killer.left == 0 and killer.behind:
                await commit(self, partition, rows, writer)
            if killer.left is not None and killer.left <= 0:
                raise OSError("killed")
            await commit(self, partition, rows, writer)

        monkeypatch.setattr(DurableTable, "commit", failing)

    async def end(self, app: Application, folder: Path) -> None:
        """End the worker, at the place that was named if it comes to it soon; what it leaves is in another folder."""
        assert app.worker is not None
        if self.left is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(app.worker.crashed(), 0.5)
        await app.stop()
        self.left = None
        if app.plan.data_dir.exists():
            shutil.copytree(app.plan.data_dir, folder)
        app.plan = replace(app.plan, data_dir=folder)


def lost_by(marks: Sequence[tuple[int, int]], gaps: Sequence[Missing], start: int) -> set[int]:
    """The numbers of the windows that may lack a missing record of a partition, by its watermarks (offset, time)."""
    found: set[int] = set()
    for gap in gaps:
        known = [mark for mark in marks if not any(one.first <= mark[0] < one.behind for one in gaps)]
        before = max([start, *(time for at, time in known if at < gap.first)])
        until = next(time for at, time in known if at >= gap.behind and time > before) + MINUTE
        found |= {
            window for window in range((until - start) // MINUTE + 1) if start + (window + 1) * MINUTE + GRACE > before
        }
    return found


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
@pytest.mark.parametrize("seed", ordinarily(1, range(20)))
async def test_records_deleted_at_any_time_of_workers_that_are_killed_lose_the_windows_that_may_lack_them_and_no_other(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    app, chance = await launch(AHEAD), random.Random(seed)
    view, killer = only_view(app), Killer(monkeypatch)
    start, writer = start_of(view), SourceWriter(app.plan)
    script: list[Event | Watermark] = []
    written: dict[int, list[Message]] = {partition: [] for partition in range(3)}

    async def feed(minute: int, *, deletes: bool) -> None:
        """Publish a minute; have some records of a partition deleted, which were counted or not."""
        more = minutes(start, minute, minute + 1, 60)
        await app.publish(more)
        script.extend(more)
        for one in writer.records(more):
            written[one.partition].append(one)
        if deletes:
            ends = await ends_of(app, [chance.randrange(3)])
            await app.client.delete_before({at: chance.randrange(end // 2, end + 1) for at, end in ends.items()})
        await asyncio.sleep(chance.choice([0, 0.1, 0.3]))

    await app.start()
    await feed(0, deletes=False)
    await app.wait_for_releases(view.name, 1)
    minute = 1
    for turn in range(6):
        act = chance.choice(["run", "stop", "kill", "kill"])
        if act == "kill":
            killer.left, killer.behind = chance.randrange(1, 12), chance.random() < 0.5
        await feed(minute, deletes=chance.random() < 0.4)
        if act != "run":
            await killer.end(app, tmp_path / f"left-{turn}")
            minute += 1
            await feed(minute, deletes=chance.random() < 0.5)
            await app.start()
        minute += 1
    for last in range(minute, minute + 4):
        await feed(last, deletes=False)
    windows = minute + 4
    await app.wait_for_releases(view.name, windows)

    assert app.worker is not None
    lost: set[int] = set()
    for partition, standing in app.worker.standings().items():
        marks = [
            (at, int(dict(one.headers)[WATERMARK_HEADER])) for at, one in enumerate(written[partition]) if one.headers
        ]
        lost |= lost_by(marks, standing.missing[view.source.name], start)
    await assert_lost(app, view, script, windows, sorted(lost))


async def test_a_first_start_behind_records_that_are_long_gone_misses_nothing(launch: Launch) -> None:
    app = await launch(AHEAD)
    view = only_view(app)
    start = start_of(view)
    await app.publish(minutes(start - 5 * MINUTE, 0, 4))
    await app.client.delete_before(await ends_of(app, range(3)))
    await app.start()
    script = minutes(start, 0, 3)
    await app.publish(script)

    await assert_lost(app, view, script, 3, [])
    assert (await stored_totals_of(app)).total("records_missing") == 0


async def test_the_log_may_begin_behind_what_was_counted(launch: Launch) -> None:
    """As always: what is counted is deleted one day. A quiet source may have nothing left."""
    app = await launch(AHEAD)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.eventually(lambda: counted(app))
    await app.client.delete_before(await ends_of(app, range(3)))
    await app.stop()
    await app.start()
    rest = [Watermark(start + 3 * MINUTE + GRACE), *minutes(start, 3, 5)]
    await app.publish(rest)

    await assert_lost(app, view, [*script, *rest], 5, [])
