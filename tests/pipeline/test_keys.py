"""Workers whose key file was rotated, put back or lost a key: what is sharpened, and with which key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from stream_dp.errors import ConfigError
from stream_dp.operations.keys import retire, rotate
from stream_dp.runtime.kafka.ownership import claimed
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.worker import process
from stream_dp.testing import Application
from tests.support.losing import MINUTE, publish_minutes
from tests.support.sealing import read_window, seal_window, window_key_of
from tests.support.views import only_view, released, start_of

Launch = Callable[..., Awaitable[Application]]
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)
COUNTS = {f"/{number}": 60 for number in range(5)}
"""Of every minute (`publish_minutes`)."""


async def assert_readings(app: Application, secrets: Mapping[int, bytes]) -> None:
    """Every record of every window shows what the key of its window gives, at its level.

    Args:
        app: the application.
        secrets: by number of the window.
    """
    view = only_view(app)
    levels = [level.name for level in view.levels]
    for records in (await app.releases(view.name)).values():
        for record in released(records):
            at = record.window.start_ms
            key = window_key_of(view, at, secrets[(at - start_of(view)) // MINUTE], app.entropy)
            table = seal_window(view, at, COUNTS, prf_key=key, entropy=app.entropy)
            (reading,) = read_window(view, at, table, [levels.index(record.level.name)], key)
            assert {name: getattr(record, name) for name in reading.fields} == reading.fields


async def released_minutes(app: Application, *minutes: int) -> None:
    """A worker releases minutes and stops."""
    await app.start()
    await publish_minutes(app, *minutes)
    await app.wait_for_releases(only_view(app).name, minutes[-1] + 1)
    await app.stop()


async def wait_for_public(app: Application, *windows: int) -> None:
    """Wait until the windows of all records for the public are these, in the order in which they came."""
    view = only_view(app)

    async def there() -> bool:
        found = (await app.releases(view.name))["public"]
        return [(record.window.start_ms - start_of(view)) // MINUTE for record in found] == [*windows]

    await app.eventually(there)


@in_memory
@pytest.mark.parametrize("partner", [True, False], ids=["of a partner", "lost"])
async def test_a_key_file_that_a_partner_makes_during_the_start_is_used_and_one_that_is_lost_ends_it(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, partner: bool
) -> None:
    """Of two workers that start at once the second looks for the file, and then finds the claims of the first."""
    app = await launch()
    path = app.plan.key_file
    await released_minutes(app, 0)
    content = path.read_bytes()
    path.unlink()

    async def claimed_meanwhile(*args: Any) -> Any:
        if partner:
            path.write_bytes(content)
            path.chmod(0o600)
        return await claimed(*args)

    monkeypatch.setattr(process, "claimed", claimed_meanwhile)
    if not partner:
        with pytest.raises(ConfigError, match="it is not there"):
            await app.start()
        return
    await app.start()
    await publish_minutes(app, 1)
    await app.wait_for_releases(only_view(app).name, 2)


@in_memory
async def test_former_windows_are_sharpened_with_their_own_key_and_without_the_new_one_nothing_goes_on(
    launch: Launch,
) -> None:
    app = await launch()
    view, path = only_view(app), app.plan.key_file
    await released_minutes(app, 0)
    former, content = app.prf_key, path.read_text()
    added = rotate(path)
    assert app.prf_key != former

    await app.start()
    await publish_minutes(app, 1)
    await app.wait_for_releases(view.name, 2)
    await app.grant("public", "detailed")
    await wait_for_public(app, 0, 1, 0, 1)
    await assert_readings(app, {0: former, 1: app.prf_key})
    await app.stop()

    before = await app.published(view.name)
    path.write_text(content)
    worker = await app.start()
    await worker.crashed()
    reason = worker.crash_reason()
    assert isinstance(reason, ConfigError)
    assert str(reason).startswith(f"key_file: it lacks key {added}, which retained windows of view {view.name} were")
    assert await app.published(view.name) == before


@pytest.mark.slow
@in_memory
async def test_where_a_key_is_lost_and_retired_its_windows_stay_and_others_are_sharpened(launch: Launch) -> None:
    app = await launch()
    view, path = only_view(app), app.plan.key_file
    await released_minutes(app, 0)
    former, content = app.prf_key, path.read_text()
    added = rotate(path)
    await released_minutes(app, 1)
    lost = app.prf_key

    path.write_text(content)
    retire(path, added)
    assert load_keys(path).newest[1] == former
    await app.start()
    await publish_minutes(app, 2)
    await app.wait_for_releases(view.name, 3)
    await app.grant("public", "detailed")
    await wait_for_public(app, 0, 1, 2, 0, 2)
    await assert_readings(app, {0: former, 1: lost, 2: former})
