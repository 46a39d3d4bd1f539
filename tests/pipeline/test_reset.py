"""An application that was reset begins anew: with full budgets, at the beginning of its sources, in the same folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from stream_dp.errors import StateError
from stream_dp.operations.reset import holdings, reset
from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.key_file import read_keys
from stream_dp.testing import Application
from tests.support.losing import publish_minutes
from tests.support.views import only_view

Launch = Callable[..., Awaitable[Application]]


async def test_after_a_reset_the_same_windows_are_released_once_more_and_charged_to_a_full_budget(
    launch: Launch,
) -> None:
    app = await launch()
    view = only_view(app)
    await app.start()
    keys = read_keys(app.plan.key_file)
    await publish_minutes(app, 0, 1)
    await app.wait_for_releases(view.name, 2)
    before = await app.published(view.name)
    if app.log is None:
        with pytest.raises(StateError, match="workers of"):
            await holdings(app.plan, app.client, keys)
    await app.stop()

    await app.client.dismiss(app.plan.name, instance_id(app.plan))  # a group counts it for another minute
    found = await holdings(app.plan, app.client, keys)
    assert {*found.own} == {spec.name for spec in Topics.of(app.plan).all(app.plan)}
    await reset(app.plan, app.client, keys, found)
    assert await app.client.describe(found.own) == {}
    assert await app.published(view.name) == {audience: [] for audience in view.audiences}

    await app.start()
    await app.wait_for_releases(view.name, 2)
    assert await app.published(view.name) == before  # the entropy of a test repeats
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(1) * 2
