"""A second application of the same name is not started; a second worker of the same one is."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.operations.keys import replace_lost
from stream_dp.runtime.faust import app as application
from stream_dp.runtime.kafka.topics import TopicSpec, sources_of
from stream_dp.runtime.key_file import load_keys
from stream_dp.testing import Application, Event, Watermark
from tests.support.processes import SESSION_SECONDS
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


def with_another_key(plan: Plan) -> Plan:
    return replace(plan, key_file=plan.key_file.with_name("other.key"))


async def test_a_second_application_of_the_name_is_told_whose_the_topics_are(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    await app.start()
    first = app.worker
    other = replace(with_another_key(app.plan), data_dir=app.plan.data_dir.with_name("second"))
    load_keys(other.key_file)

    with pytest.raises(ConfigError) as caught:
        await app.start(plan=other)

    (fault,) = caught.value.faults
    assert fault.path == "name"
    assert f"belong to application {app.plan.name!r}, started with another key file" in fault.message
    assert not other.data_dir.exists()
    assert app.worker is first
    await app.publish(
        [*(Event(f"u{number}", "/", start + number) for number in range(50)), Watermark(start + 2 * MINUTE)]
    )
    await app.wait_for_releases(view.name, 1)


async def test_a_start_that_is_refused_makes_no_key(launch: Launch) -> None:
    app = await launch()
    (topic,) = sources_of(app.plan)
    other = with_another_key(app.plan)
    partitions = await app.client.partitions(topic)
    await app.client.delete([topic])
    with pytest.raises(ConfigError, match=f"the broker has no topic {topic}; create it"):
        await app.start(plan=other)
    assert not other.key_file.exists()

    assert partitions is not None
    await app.client.create([TopicSpec(topic, partitions)])
    await app.start()
    second = replace(other, data_dir=app.plan.data_dir.with_name("second"))
    with pytest.raises(ConfigError, match=r"key_file: the topics of application .* a key file, and it is not") as told:
        await app.start(plan=second)
    assert not other.key_file.exists(), "it was forgotten: a new key would be of no use"

    (first,) = re.findall(r"keys retire FILE ([0-9a-f]{16})`", str(told.value))
    await app.stop()
    replace_lost(other.key_file, first)
    assert other.key_file.stat().st_mode & 0o777 == 0o600
    await app.start(plan=second)


async def test_a_second_worker_of_the_same_application_is_welcome(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SESSION_SECONDS", SESSION_SECONDS)  # the group waits so long for the first one
    app = await launch()
    await app.start()
    await app.stop()
    await app.start(plan=replace(app.plan, data_dir=app.plan.data_dir.with_name("second")))
