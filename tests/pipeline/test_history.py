"""History first: it is fed from a file, the first worker asks, and then releases what the file says."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.operations.event_tables import open_table
from stream_dp.operations.events_file import Columns, Events
from stream_dp.operations.feed import FeedProgress, Watermarks, make_room, write
from stream_dp.records.codec import encode
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.sources.survey import survey
from stream_dp.testing import Application, Event
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WINDOWS = 4


def table(file: Path, script: list[Event]) -> Path:
    """A script as a CSV file."""
    rows = "".join(f"{event.user},{event.item},{event.time_ms}\n" for event in script)
    file.write_text("user,page,at\n" + rows, encoding="utf-8")
    return file


async def fed(app: Application, file: Path) -> None:
    """Write a CSV file to the source topic, up to the end of its last window."""
    view = only_view(app)
    made = Events(open_table(file), view.source, [view], Columns("user", "at", "ms", ["page"], everything=False))
    survey = made.survey(wall_clock_ms())
    assert (survey.events, survey.ordered) == (survey.rows, True)
    await make_room(app.plan, view.source, app.client, append=False)
    until = start_of(view) + WINDOWS * MINUTE + view.window.grace_ms
    watermarks = Watermarks(view.source, [view], until, ordered=True)
    async for _ in write(made, app.client, FeedProgress(view.source.topic), watermarks):
        pass


async def test_history_is_fed_then_asked_about_then_released_as_the_file_has_it(
    launch: Launch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = await launch()
    view = only_view(app)
    start, chance = start_of(view), random.Random(7)
    script = [
        Event(f"u{at % 240}", f"/{chance.randrange(4)}", start + at * WINDOWS * MINUTE // 2000) for at in range(2000)
    ]
    await fed(app, table(tmp_path / "events.csv", script))

    with pytest.raises(ConfigError, match=r"window\.start: the first window began .* start once with --backfill"):
        await app.start(backfill=False)
    made = [spec.name for spec in Topics.of(app.plan).all(app.plan)]
    assert not await app.client.describe(made)

    await app.start(backfill=True)
    assert f"views.{view.name}.retention: " in caplog.text, "history that is withdrawn at once"
    found = await app.wait_for_releases(view.name, WINDOWS)

    windows = count_script(view, start, script).between(view, start, start + WINDOWS * MINUTE)
    expected = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    assert {audience: list(map(encode, records)) for audience, records in found.items()} == {
        audience: list(map(encode, records)) for audience, records in expected.items()
    }


async def test_history_that_watermarks_alone_close_is_judged_by_the_last_of_them(
    launch: Launch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The wall clock says nothing of such windows; the first 2 of 4 begin more than a minute before the last."""
    app = await launch(("idle: 1d", "idle: 36500d"), ("retention: 1d", "retention: 1m"))
    view = only_view(app)
    script = [Event(f"u{at % 240}", "/", start_of(view) + at * WINDOWS * MINUTE // 2000) for at in range(2000)]
    await fed(app, table(tmp_path / "events.csv", script))

    (told,) = await survey(app.plan, app.client, wall_clock_ms())
    path = f"views.{view.name}.retention"
    assert [one.message.partition(" would be")[0] for one in told.findings if one.path == path] == [
        f"2 of {WINDOWS} windows that are over"
    ]
    await app.start(backfill=True)
    assert f"{path}: 2 of {WINDOWS} windows that are over would be withdrawn" in caplog.text
    await app.wait_for_releases(view.name, WINDOWS)
