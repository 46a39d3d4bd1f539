"""A key is rotated under two workers: the one with the new file waits for the one with the former."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.operations.keys import rotate
from stream_dp.releases.rows import WINDOW, WindowRow
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.runtime.key_file import load_keys
from stream_dp.testing import Application, application
from stream_dp.windows.encoding import decode
from tests.support.losing import publish_minutes
from tests.support.views import only_view

pytestmark = [pytest.mark.broker, pytest.mark.slow]


async def keys_of_windows(app: Application) -> list[str]:
    """The keys that the windows were sealed with, oldest window first."""
    rows = dict(await app.read(Topics.of(app.plan).changelog(RELEASES)))
    return [
        decode(WindowRow, value).key_id
        for key, value in sorted(rows.items(), key=lambda row: row[0] or b"")
        if key is not None and key.startswith(WINDOW) and value is not None
    ]


async def test_a_worker_with_a_rotated_file_waits_for_the_others_and_then_seals_with_the_new_key(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        view = only_view(app)
        first, second = (spawn(app, name, "--session-seconds", "60") for name in ("first", "second"))
        first.start()
        second.start()
        await publish_minutes(app, 0)
        await app.wait_for_releases(view.name, 1)

        assert first.terminate() == 0
        added = rotate(app.plan.key_file)
        former = load_keys(app.plan.key_file).application
        first.start()
        await first.wait_until_said("another key file, share its partitions: this one waits")
        await publish_minutes(app, 1)
        await app.wait_for_releases(view.name, 2)
        assert await keys_of_windows(app) == [former, former]

        assert second.terminate() == 0
        second.start()
        await publish_minutes(app, 2)
        await app.wait_for_releases(view.name, 3)
        assert await keys_of_windows(app) == [former, former, added]
        await app.grant("public", "detailed")

        async def sharper() -> bool:
            return len((await app.releases(view.name))["public"]) == 6

        await app.eventually(sharper)
        assert first.terminate() == second.terminate() == 0
