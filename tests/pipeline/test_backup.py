"""What is brought back from a copy: a data folder that is older, and a whole cluster that is older than its readers."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.errors import ConfigError
from stream_dp.records.codec import encode
from stream_dp.testing import Application
from tests.support.losing import MINUTE, publish_minutes
from tests.support.oracle import expected_records
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)
COUNTS = {f"/{number}": 60 for number in range(5)}
"""Of every minute (`publish_minutes`)."""


async def assert_released(app: Application, windows: int) -> None:
    """Every audience has the oracle's record of every window, byte for byte, nothing else, charged once."""
    view = only_view(app)
    counts = {start_of(view) + minute * MINUTE: COUNTS for minute in range(windows)}
    expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
    assert await app.published(view.name) == {name: [encode(one) for one in row] for name, row in expected.items()}
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(1) * windows


@in_memory
@pytest.mark.slow
async def test_a_worker_goes_on_exactly_with_a_copy_of_its_folder_that_is_older(launch: Launch) -> None:
    app = await launch()
    view, folder = only_view(app), app.plan.data_dir
    copy = folder.with_name("copy")
    for minute in (0, 1):
        await app.start()
        await publish_minutes(app, minute)
        await app.wait_for_releases(view.name, minute + 1)
        await app.stop()
        if minute == 0:
            shutil.copytree(folder, copy)
    shutil.rmtree(folder)
    copy.rename(folder)

    await app.start()
    await publish_minutes(app, 2)
    await app.wait_for_releases(view.name, 3)
    await assert_released(app, 3)


@in_memory
@pytest.mark.slow
async def test_records_that_readers_kept_tell_a_cluster_that_was_brought_back_what_it_has_forgotten(
    launch: Launch,
) -> None:
    app = await launch()
    view, log = only_view(app), app.log
    assert log is not None
    await app.start()
    await publish_minutes(app, 0)
    await app.wait_for_releases(view.name, 1)
    await app.stop()
    older = {tp: list(records) for tp, records in log.records.items()}, dict(log.committed)
    shutil.copytree(app.plan.data_dir, app.plan.data_dir.with_name("older"))
    await app.start()
    await publish_minutes(app, 1)
    await app.wait_for_releases(view.name, 2)
    await app.stop()
    kept = {tp: records[-1] for tp, records in log.records.items() if ".releases." in tp.topic}

    log.records.clear()
    log.records.update(older[0])
    log.committed.clear()
    log.committed.update(older[1])
    shutil.rmtree(app.plan.data_dir)
    places = {tp: len(log.records[tp]) for tp in kept}
    for tp, record in kept.items():
        log.append(tp.topic, tp.partition, record.key, record.value)
    worker = await app.start()
    await worker.crashed()
    reason = worker.crash_reason()
    assert isinstance(reason, ConfigError)
    assert "stored state was lost: of 1 window" in str(reason)
    await app.stop()

    app.plan.data_dir.rename(app.plan.data_dir.with_name("crashed"))  # its locks last as long as this process
    await app.start(accept_loss=True)
    await publish_minutes(app, 1, 2)
    await app.wait_for_releases(view.name, 3)
    assert {tp: log.records[tp][place].value for tp, place in places.items()} == {
        tp: record.value for tp, record in kept.items()
    }
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(1) * 2 + view.cost(2)
