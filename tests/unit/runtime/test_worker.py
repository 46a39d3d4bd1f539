"""A worker's settings: what it never serves, how it is known to the group, what ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mode
import pytest

from stream_dp.agents import AGENTS
from stream_dp.config.plan import Plan
from stream_dp.runtime.memory import MemoryLog
from stream_dp.runtime.worker import Worker
from stream_dp.testing import plan_from


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    return plan_from(visits(), tmp_path)


def conf(plan: Plan) -> Any:
    starts = {view.name: view.window.first_ms or 0 for view in plan.views.values()}
    return Worker(plan, starts, AGENTS, prf_key=bytes(32), log=MemoryLog()).app.conf


def test_worker_serves_nothing_and_redirects_nothing(plan: Plan) -> None:
    found = conf(plan)

    assert not found.web_enabled
    assert not found.web_tables_enabled
    assert not found.web_router_enabled
    assert not found.worker_redirect_stdouts


def test_worker_reads_from_the_beginning_creates_nothing_and_ends_with_its_first_failure(plan: Plan) -> None:
    found = conf(plan)

    assert found.agent_supervisor is mode.CrashingSupervisor
    assert found.consumer_auto_offset_reset == "earliest"
    assert found.processing_guarantee.value == "at_least_once"
    assert not found.topic_allow_declare
    assert found.topic_disable_leader


def test_worker_that_starts_again_in_its_folder_is_the_same_member_of_the_group(plan: Plan, tmp_path: Path) -> None:
    same = conf(plan).consumer_group_instance_id
    other = conf(replace(plan, data_dir=tmp_path / "other")).consumer_group_instance_id

    assert conf(plan).consumer_group_instance_id == same
    assert other != same
    assert same.startswith(f"{plan.name}-")


def test_every_agent_is_installed() -> None:
    assert set(AGENTS) == {"ingest", "merge", "release", "sharpen", "control"}
