"""A worker whose state was lost does not start; one that is told to accept that releases no window a second time."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.testing import Application
from tests.support.losing import MINUTE, empty, publish_minutes
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)
"""A worker that has crashed cannot be stopped within its process where it has a consumer of Kafka."""


async def refusal_of(app: Application, folder: str) -> ConfigError:
    """The error that a worker with a folder of its own ends with."""
    worker = await app.start(plan=replace(app.plan, data_dir=app.plan.data_dir.with_name(folder)))
    await worker.crashed()
    reason = worker.crash_reason()
    assert isinstance(reason, ConfigError)
    await app.stop()
    return reason


@in_memory
async def test_lost_state_is_refused_and_once_accepted_only_new_windows_are_released(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    await app.start()
    await publish_minutes(app, 0, 1)
    await app.wait_for_releases(view.name, 2)
    before = await app.published(view.name)
    await app.stop()
    await empty(app, Topics.of(app.plan).changelog(RELEASES))
    shutil.rmtree(app.plan.data_dir)

    for folder in ("refused", "refused again"):
        reason = await refusal_of(app, folder)
        (fault,) = reason.faults
        assert fault.path == f"views.{view.name}"
        assert fault.message.startswith(
            "stored state was lost: of 2 windows or more, the newest that of 2024-01-01T00:01"
        )
        assert "--accept-loss" in fault.message
    assert await app.published(view.name) == before

    accepting = replace(app.plan, data_dir=app.plan.data_dir.with_name("accepted"))
    worker = await app.start(plan=accepting, accept_loss=True)
    await publish_minutes(app, 2)
    await app.wait_for_releases(view.name, 3)
    assert worker.counters.total("windows_lost") == 2
    after = await app.published(view.name)
    assert {audience: records[:2] for audience, records in after.items()} == before
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(2) * 2 + view.cost(1)
    await app.stop()

    await app.start(plan=accepting)
    await publish_minutes(app, 3)
    await app.wait_for_releases(view.name, 4)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(2) * 2 + view.cost(1) * 2


async def test_a_grant_after_an_accepted_loss_sharpens_only_what_is_stored(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    await app.start()
    await publish_minutes(app, 0)
    await app.wait_for_releases(view.name, 1)
    await app.stop()
    await empty(app, Topics.of(app.plan).changelog(RELEASES))
    shutil.rmtree(app.plan.data_dir)

    await app.start(accept_loss=True)
    await publish_minutes(app, 1)
    await app.wait_for_releases(view.name, 2)
    await app.grant("public", "detailed")

    async def sharper() -> bool:
        return len((await app.published(view.name))["public"]) == 3

    await app.eventually(sharper)
    revisions = [(record.window.start_ms, record.revision) for record in (await app.releases(view.name))["public"]]
    first = start_of(view)
    assert revisions == [(first, 1), (first + MINUTE, 1), (first + MINUTE, 2)]
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == Cost(view.cost(2).epsilon * 2, view.cost(2).delta * 2)
