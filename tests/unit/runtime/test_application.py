"""The application's settings: what it never serves, how the group knows it, what ends it, what its agents read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import mode
import pytest

from stream_dp.agents import AGENTS
from stream_dp.config.access import Broker
from stream_dp.config.plan import Plan
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.faust.app import new_app, new_tables, register_agents
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, sources_of


def conf(plan: Plan) -> Any:
    return new_app(plan, MemoryLog()).conf


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


@pytest.mark.parametrize(
    ("broker", "urls"),
    [
        ("memory://", ["stream-dp-memory:"]),
        ("kafka://one:9092", ["stream-dp-kafka://one:9092"]),
        ("kafka://one:9092,two:9093", ["stream-dp-kafka://one:9092", "stream-dp-kafka://two:9093"]),
    ],
)
def test_broker_is_reached_through_the_transports_that_hand_out_chunks(
    plan: Plan, broker: str, urls: list[str]
) -> None:
    assert [str(url) for url in conf(replace(plan, broker=Broker(broker))).broker] == urls


def test_everything_but_changelogs_comes_in_chunks(plan: Plan) -> None:
    app, topics = new_app(plan), Topics.of(plan)

    assert app.sources == sources_of(plan).keys()
    internal = {topics.ticks, topics.partials, topics.merged, topics.control, topics.orders}
    assert app.coalesced == app.sources | internal


def test_changelogs_have_the_names_and_partitions_that_are_created(plan: Plan) -> None:
    tables = new_tables(new_app(plan), plan.partitions)
    created = {spec.name: spec.partitions for spec in Topics.of(plan).all(plan)}

    assert list(tables) == [COUNTS, MERGES, RELEASES]
    for name, table in tables.items():
        changelog = table.changelog_topic.get_topic_name()
        assert changelog == Topics.of(plan).changelog(name)
        assert table.changelog_topic.partitions == created[changelog]


def test_every_agent_is_installed() -> None:
    assert set(AGENTS) == {"ingest", "merge", "release", "sharpen", "control"}


def test_every_agent_reads_its_own_topics_and_is_given_the_host(plan: Plan) -> None:
    app, topics = new_app(plan, MemoryLog()), Topics.of(plan)
    given: list[tuple[str, str, object]] = []

    def noting(name: str) -> Callable[[Any, str], Any]:
        return lambda stream, host: given.append((name, stream, host))

    register_agents(app, plan, {name: noting(name) for name in AGENTS}, "the host")

    assert _topics_read(app.agents) == {
        "stream_dp.ingest": {*sources_of(plan), topics.ticks},
        "stream_dp.merge": {topics.partials},
        "stream_dp.release": {topics.merged},
        "stream_dp.sharpen": {topics.orders},
        "stream_dp.control": {topics.control},
    }
    for name in AGENTS:
        app.agents[f"stream_dp.{name}"].fun(f"stream of {name}")
    assert given == [(name, f"stream of {name}", "the host") for name in AGENTS]


def _topics_read(agents: Mapping[str, Any]) -> dict[str, set[str]]:
    return {name: set(agent.channel.topics) for name, agent in agents.items()}
