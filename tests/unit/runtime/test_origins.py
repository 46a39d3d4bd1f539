"""When views began: once, for every worker, and for one question under one name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import Fault
from stream_dp.runtime.memory import MemoryLog
from stream_dp.runtime.memory_client import MemoryClient
from stream_dp.runtime.origins import begin as begin_from
from stream_dp.runtime.origins import read_origins
from stream_dp.runtime.topics import Topics
from stream_dp.testing import plan_from

START = ", start: 2024-01-01T00:00:00Z"
START_MS = 1_704_067_200_000
NOW_MS = 1_800_000_000_123


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


def with_control(log: MemoryLog, plan: Plan) -> MemoryClient:
    log.create(Topics.of(plan).control, 1)
    return MemoryClient(log)


async def begun(plan: Plan, client: MemoryClient) -> Mapping[str, int]:
    return (await read_origins(plan, client)).begun


async def faults_of(plan: Plan, client: MemoryClient) -> Mapping[str, Fault]:
    return (await read_origins(plan, client)).changed


async def begin(plan: Plan, client: MemoryClient, now_ms: int) -> Mapping[str, int]:
    return await begin_from(plan, client, now_ms, await begun(plan, client))


async def test_no_view_has_begun_where_the_control_topic_is_not_there_yet(
    visits: Callable[..., str], tmp_path: Path, log: MemoryLog
) -> None:
    assert await begun(plan_from(visits(), tmp_path), MemoryClient(log)) == {}
    assert log.partitions == {}


async def test_a_view_has_begun_from_its_first_start_on_whether_its_start_is_configured_or_not(
    visits: Callable[..., str], tmp_path: Path, log: MemoryLog
) -> None:
    for content, start in ((visits(), START_MS), (visits((START, "")), NOW_MS // 60_000 * 60_000)):
        plan = plan_from(content, tmp_path)
        client = with_control(log, plan)
        assert await begun(plan, client) == {}

        assert await begin(plan, client, NOW_MS) == dict.fromkeys(plan.views, start)

        assert await begun(plan, client) == dict.fromkeys(plan.views, start)
        assert await begin(plan, client, NOW_MS + 10**9) == dict.fromkeys(plan.views, start)


async def test_a_view_that_asks_something_else_under_its_name_has_not_begun_and_the_former_one_has(
    visits: Callable[..., str], tmp_path: Path, log: MemoryLog
) -> None:
    """A minute of the former one need not be the start of an hour."""
    text = visits((START, ""))
    former = plan_from(text, tmp_path)
    changed = plan_from(text.replace("size: 1m", "size: 1h"), tmp_path)
    client = with_control(log, former)
    first = await begin(former, client, NOW_MS)

    assert await begun(changed, client) == {}
    (fault,) = (await faults_of(changed, client)).values()
    assert fault.message.endswith("give the changed view a new name, or set it back")
    assert await faults_of(former, client) == {}
    assert await begin(changed, client, NOW_MS) == dict.fromkeys(changed.views, NOW_MS // 3_600_000 * 3_600_000)
    assert await begun(former, client) == first


async def test_what_may_change_between_two_starts_does_not_begin_a_view_again(
    visits: Callable[..., str], tmp_path: Path, log: MemoryLog
) -> None:
    text = visits((START, ""))
    former, later = plan_from(text, tmp_path), plan_from(text.replace("grace: 10s", "grace: 20s"), tmp_path)
    client = with_control(log, former)

    assert await begin(former, client, NOW_MS) == await begun(later, client)
