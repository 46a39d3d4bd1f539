"""`stream-dp republish`, and `reset --view`, on topics that workers have claimed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.republications import Republication, read_republication
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.key_file import load_keys

Make = Callable[..., Any]


@pytest.fixture
def topic(log: MemoryLog, visits: Plan) -> str:
    """A release topic of an application whose topics are claimed."""
    keys = load_keys(visits.key_file)
    log.create("visits", 2)
    asyncio.run(create_owned(visits, MemoryClient(log), keys.application))
    return Topics.of(visits).release("pages", "public")


def orders(log: MemoryLog, visits: Plan) -> list[Republication | None]:
    records = log.records[TopicPartition(Topics.of(visits).control, 0)]
    return [read_republication(record.key, record.value) for record in records]


@pytest.mark.parametrize("was_deleted", [True, False])
def test_workers_are_asked_for_the_topic_that_is_there(
    call: Make, visits_file: Path, log: MemoryLog, visits: Plan, topic: str, was_deleted: bool
) -> None:
    former = log.ids[topic]
    if was_deleted:
        log.delete(topic)
    said = call("republish", visits_file, "pages", "public")
    assert (said.code, said.err) == (0, "")
    assert topic in said.out
    assert orders(log, visits) == [Republication(topic, log.ids[topic])]
    assert (log.ids[topic] != former) is was_deleted


@pytest.mark.parametrize(("view", "audience"), [("page", "public"), ("pages", "nobody")])
def test_unknown_view_or_audience_is_refused(
    call: Make, visits_file: Path, log: MemoryLog, visits: Plan, topic: str, view: str, audience: str
) -> None:
    assert topic
    assert call("republish", visits_file, view, audience).code == 2
    assert orders(log, visits) == []


def test_topics_that_are_read_are_not_deleted_with_their_view(
    call: Make, visits_file: Path, log: MemoryLog, topic: str
) -> None:
    said = call("reset", visits_file, "--view", "pages", "--yes", "pages")
    assert said.code == 0
    assert "Nothing to delete" in said.out
    assert topic in log.partitions
