"""On a real cluster settings are applied, tuned, told and taken back, whether or not a worker runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stream_dp.control.acceptance import Verdict
from stream_dp.control.editions import first_record
from stream_dp.errors import BrokerError
from stream_dp.runtime.faust.membership import EMPTY
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted, read_history
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import application
from stream_dp.windows.durations import format_time
from tests.support.published import Said

pytestmark = pytest.mark.broker

DAY = 86_400_000
WALL = ("clock: event", "clock: wall, catch_up: 0s")


async def test_settings_are_applied_tuned_told_and_taken_back_on_a_cluster(
    kafka: str,
    tmp_path: Path,
    visits: Callable[..., str],
    call: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", kafka)
    async with application(visits(WALL), tmp_path, broker=kafka) as app:
        plan, file = app.plan, tmp_path / "application.yaml"
        (view,) = plan.views
        await app.client.create(Topics.of(plan).all(plan))
        assert await post_accepted(plan, app.client, first_record(plan, time.time_ns() // 1_000_000))

        async def described() -> bool:
            """A cluster without groups makes a topic for them, once."""
            with suppress(BrokerError):
                return (await app.client.group(plan.id)).state in EMPTY
            return False

        await app.eventually(described)

        async def says(*words: str | Path) -> str:
            said = await asyncio.to_thread(call, *words)
            assert (said.code, said.err) == (0, "")
            return said.out

        later = time.time_ns() // 1_000_000 // DAY * DAY + 2 * DAY
        fewer = tmp_path / "fewer.yaml"
        fewer.write_text(visits(WALL, ("items_per_user: 2", "items_per_user: 1")))
        said = await says("apply", fewer, "--yes", "--from", format_time(later), "--note", "fewer")
        assert said.endswith("No worker runs. Settings 2 wait until a worker starts and accepts them.\n")
        await says("tune", file, view, "retention=2d", "--yes", "--from", format_time(later + DAY))
        former = tmp_path / "former.yaml"
        former.write_text(await says("settings", file, "--show", "1"))
        await says("apply", former, "--yes", "--take-back", "--from", format_time(later + 2 * DAY))
        assert "No changes: settings 4" in await says("apply", file)

        for number in (2, 3, 4):
            await SettingsLog(plan, app.client).judge(Verdict(number, later))
        known = (await read_history(plan, app.client)).accepted
        assert [one.begins.get(view) for one in known][1:] == [later, later + DAY, later + 2 * DAY]
        bounds = [one.sections["views"][view] for one in known]
        assert [(one["items_per_user"], one["retention"]) for one in bounds] == [
            (2, "1d"),
            (1, "1d"),
            (1, "2d"),
            (2, "1d"),
        ]
        found = json.loads(await says("settings", file, "--json"))
        assert [one["note"] for one in found["settings"]][1:] == ["fewer", "", ""]
        assert [(one["edition"], one["until_ms"]) for one in found["editions"]] == [
            (1, later),
            (2, later + DAY),
            (3, later + 2 * DAY),
            (4, None),
        ]
