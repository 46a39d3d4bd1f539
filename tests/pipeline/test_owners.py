"""A second application that names a topic as the first one does is not started, and the first one does not notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.runtime import application
from stream_dp.testing import Application, Event, Watermark
from tests.support.processes import SESSION_SECONDS
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


def with_another_key(plan: Plan) -> Plan:
    return replace(plan, key_file=plan.key_file.with_name("other.key"))


def with_another_name(plan: Plan) -> Plan:
    return replace(plan, name=f"{plan.name}-2")


@pytest.mark.parametrize(
    ("second", "paths"),
    [
        (with_another_key, ["name", "views.VIEW", "sources.visits.dead_letter_topic"]),
        (with_another_name, ["views.VIEW", "sources.visits.dead_letter_topic"]),
    ],
    ids=["same name", "same views"],
)
async def test_a_second_application_is_told_whose_the_topics_are(
    launch: Launch, second: Callable[[Plan], Plan], paths: list[str]
) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    await app.start()
    first = app.worker
    other = replace(second(app.plan), data_dir=app.plan.data_dir.with_name("second"))

    with pytest.raises(ConfigError) as caught:
        await app.start(plan=other)

    assert [fault.path for fault in caught.value.faults] == [path.replace("VIEW", view.name) for path in paths]
    assert all(f"to application {app.plan.name!r}" in fault.message for fault in caught.value.faults)
    assert not other.data_dir.exists()
    assert app.worker is first
    await app.publish(
        [*(Event(f"u{number}", "/", start + number) for number in range(50)), Watermark(start + 2 * MINUTE)]
    )
    await app.wait_for_releases(view.name, 1)


async def test_a_second_worker_of_the_same_application_is_welcome(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SESSION_SECONDS", SESSION_SECONDS)  # the group waits so long for the first one
    app = await launch()
    await app.start()
    await app.stop()
    await app.start(plan=replace(app.plan, data_dir=app.plan.data_dir.with_name("second")))
