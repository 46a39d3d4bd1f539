"""Settings are applied, tuned and taken back while a worker runs: every window is under what its commands said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.planner import load_plan
from stream_dp.records.models import Release, decode_status
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.durations import format_time
from tests.support.published import Said
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE, GRACE = 60_000, 10_000


class Operator:
    """Somebody with the file of an application, and commands that reach its log."""

    def __init__(self, app: Application, call: Callable[..., Said]) -> None:
        self.file = app.plan.key_file.parent / "application.yaml"
        self._call = call

    def writes(self, name: str, text: str) -> Path:
        """A file beside that of the application."""
        file = self.file.with_name(name)
        file.write_text(text)
        return file

    async def says(self, *words: str | Path) -> str:
        """What a command prints that is done."""
        said = await asyncio.to_thread(self._call, *words)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    async def reads(self, *words: str | Path) -> Any:
        """What a command tells machines, whatever its exit code."""
        return json.loads((await asyncio.to_thread(self._call, *words, "--json")).out)


@pytest.fixture
async def operated(
    launch: Launch,
    call: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Application, Operator]:
    """An application, and its operator; its workers say every tenth of a second how they are."""
    app = await launch()
    monkeypatch.setattr("stream_dp.runtime.worker.reporting.REPORT_SECONDS", 0.1)
    monkeypatch.setattr("stream_dp.operations.settings_changes.LOOK_SECONDS", 0.1)
    monkeypatch.setenv("STREAM_DP_BROKER", app.plan.broker.url)
    monkeypatch.setattr("stream_dp.cli.command_line.connect", partial(connect, embedded=app.client))
    return app, Operator(app, call)


@pytest.mark.parametrize(
    "broker", ["memory", pytest.param("kafka", marks=[pytest.mark.broker, pytest.mark.slow])], indirect=True
)
async def test_worker_says_that_it_goes_by_new_settings_before_its_next_report_is_due(
    operated: tuple[Application, Operator], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, operator = operated
    monkeypatch.setattr("stream_dp.runtime.worker.reporting.REPORT_SECONDS", 3600.0)
    monkeypatch.setattr("stream_dp.runtime.worker.reporting.LOOK_SECONDS", 0.1)
    await app.start()
    view = only_view(app)
    boundary = format_time(start_of(view) + 4 * MINUTE)
    said = await operator.says("tune", operator.file, view.name, "retention=2d", "--yes", "--from", boundary)
    assert "The worker uses settings 2." in said


@pytest.mark.parametrize(
    "broker", ["memory", pytest.param("kafka", marks=[pytest.mark.broker, pytest.mark.slow])], indirect=True
)
async def test_settings_change_and_go_back_from_the_windows_that_were_said(
    operated: tuple[Application, Operator],
) -> None:
    app, operator = operated
    view = only_view(app)
    start = start_of(view)
    await app.start()

    async def go_on(minutes: range) -> None:
        """Feed some minutes to their ends, and wait until they are released and the status says so."""
        for minute in minutes:
            at = start + minute * MINUTE
            visits = [Event(f"u{number}", f"/{number % 3}", at + number) for number in range(90)]
            await app.publish([*visits, Watermark(at + MINUTE + GRACE)])
        await app.wait_for_releases(view.name, minutes.stop)

        async def said() -> bool:
            *_, newest = [value for _, value in await app.read(Topics.of(app.plan).status) if value is not None]
            parts = decode_status(newest).partitions.values()
            clocks = [part.views[view.name].clock_ms for part in parts if view.name in part.views]
            return len(clocks) == 3 and min(clocks) == start + minutes.stop * MINUTE + GRACE

        await app.eventually(said)

    await go_on(range(1))
    fewer = operator.writes("fewer.yaml", operator.file.read_text().replace("items_per_user: 2", "items_per_user: 1"))
    said = await operator.says("apply", fewer, "--yes", "--note", "fewer")
    assert f"view {view.name}, from the window of {format_time(start + 2 * MINUTE)} on" in said
    assert said.endswith("The worker uses settings 2.\n")
    status = await operator.reads("status", operator.file)
    assert [one["settings"] for one in status["workers"]] == [2]
    assert status["views"][view.name]["edition"] == 1
    assert status["views"][view.name]["released_to_ms"] == start + MINUTE, "of the windows that come first"
    assert status["to_come"] == [
        {
            "view": view.name,
            "what": "edition 2 begins: the view uses settings 2",
            "at_ms": start + 2 * MINUTE,
            "clock": "event",
        },
    ]

    await go_on(range(1, 3))
    assert (await operator.reads("status", operator.file))["views"][view.name]["edition"] == 2
    said = await operator.says(
        "tune", fewer, view.name, "retention=2d", "--yes", "--from", format_time(start + 4 * MINUTE)
    )
    assert "open windows continue: nothing that is counted or noised changes" in said
    await go_on(range(3, 5))
    former = operator.writes("former.yaml", await operator.says("settings", operator.file, "--show", "1"))
    assert load_plan(former).views == app.plan.views
    await operator.says("apply", former, "--yes", "--take-back")
    await go_on(range(5, 8))

    for audience, records in (await app.releases(view.name)).items():
        assert [one.window.start_ms for one in records] == [start + minute * MINUTE for minute in range(8)]
        assert [one.edition for one in records] == [1, 1, 2, 2, 3, 3, 4, 4], audience
        level = view.audiences[audience]
        two, few = (plan.views[view.name].levels[level].noise_interval for plan in (app.plan, load_plan(fewer)))
        assert [one.noise_interval_95 for one in records if isinstance(one, Release)] == [
            two,
            two,
            few,
            few,
            few,
            few,
            two,
            two,
        ]
    found = await operator.reads("settings", operator.file)
    assert [one["note"] for one in found["settings"]][1:] == ["fewer", "", ""]
    assert found["settings"][3]["sections"] == found["settings"][0]["sections"]
    assert [(one["edition"], one["from_ms"] - start) for one in found["editions"]] == [
        (1, 0),
        (2, 2 * MINUTE),
        (3, 4 * MINUTE),
        (4, 6 * MINUTE),
    ]
