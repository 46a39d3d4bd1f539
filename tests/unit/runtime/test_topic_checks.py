"""Topics that somebody else made, or changed: put right where that loses nothing, else named with what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from faust.types import TP

from stream_dp.config.file_schema import TopicsConfig
from stream_dp.config.plan import Plan
from stream_dp.errors import AccessError, ConfigError
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.topic_checks import command, differences, look_at_topics
from stream_dp.runtime.kafka.topics import COUNTS, Topics, TopicSpec, sources_of
from stream_dp.runtime.settled import prepare
from stream_dp.testing import plan_from
from stream_dp.windows.encoding import BROKER_BYTES

KEY_ID = "0123456789abcdef"


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    """A plan with one source."""
    return plan_from(visits(), tmp_path)


@pytest.fixture
def log(plan: Plan) -> MemoryLog:
    """An embedded log with the source."""
    made = MemoryLog()
    for source in sources_of(plan).values():
        made.create(source.topic, source.partitions)
    return made


class Guarded(MemoryClient):
    """A client of an account that may not change topics."""

    async def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        raise AccessError(f"not {topic}")


async def start(plan: Plan, client: MemoryClient) -> None:
    await prepare(plan, client, lambda: KEY_ID, backfill=True)


@pytest.mark.parametrize(
    ("setting", "value", "must", "is_right"),
    [
        ("max.message.bytes", "9000000", "1048588", True),
        ("max.message.bytes", "1000", "1048588", False),
        ("segment.ms", "1000", "5000", True),
        ("segment.ms", "604800000", "5000", False),
        ("min.cleanable.dirty.ratio", "0.5", "0.01", False),
        ("min.cleanable.dirty.ratio", "0.001", "0.01", True),
        ("cleanup.policy", "delete", "compact", False),
        ("cleanup.policy", "delete,compact", "compact,delete", True),
        ("retention.ms", "604800000", "-1", False),
        ("retention.ms", "-1", "-1", True),
    ],
)
def test_a_setting_is_right_if_it_is_the_same_or_on_the_side_that_does_no_harm(
    setting: str, value: str, must: str, *, is_right: bool
) -> None:
    spec = TopicSpec("topic", 1, {setting: must})
    assert differences(spec, {setting: value}) == ({} if is_right else {setting: must})


async def test_topics_that_somebody_else_made_are_put_right_at_a_start_and_that_is_said_once(
    plan: Plan, log: MemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics.of(plan)
    made = {"cleanup.policy": "delete", "retention.ms": "604800000", "max.message.bytes": str(BROKER_BYTES)}
    log.create(topics.control, 1, made)
    with caplog.at_level(logging.WARNING, "stream_dp.worker"):
        await start(plan, MemoryClient(log))
        await start(plan, MemoryClient(log))
    assert log.settings[topics.control]["cleanup.policy"] == "compact"
    assert caplog.messages == [
        f"topic {topics.control}: cleanup.policy is delete, not compact; it was put right",
    ]


async def test_what_the_account_may_not_change_is_refused_with_the_command_that_does_it(
    plan: Plan, log: MemoryLog
) -> None:
    topics = Topics.of(plan)
    log.create(topics.merged, plan.partitions, {"max.message.bytes": "1000", "cleanup.policy": "delete"})
    with pytest.raises(ConfigError) as caught:
        await start(plan, Guarded(log))
    (fault,) = caught.value.faults
    assert (fault.path, fault.message) == (
        f"topic {topics.merged}",
        "cleanup.policy is delete, not compact, max.message.bytes is 1000, not 1048588, and this account may not "
        f"change it: `kafka-configs.sh --alter --entity-type topics --entity-name {topics.merged} --add-config "
        "cleanup.policy=compact,max.message.bytes=1048588`",
    )


def test_a_value_with_a_comma_is_in_brackets_as_the_tool_wants_it() -> None:
    assert command("t", {"cleanup.policy": "compact,delete"}).endswith("--add-config cleanup.policy=[compact,delete]")


@pytest.mark.parametrize("which", ["ticks", "control", "changelog"])
async def test_a_topic_with_other_partitions_is_refused(plan: Plan, log: MemoryLog, which: str) -> None:
    topics = Topics.of(plan)
    name = topics.changelog(COUNTS) if which == "changelog" else str(getattr(topics, which))
    log.create(name, 7)
    with pytest.raises(ConfigError, match=f"topic {name}: has 7 partitions, not [13]\\. "):
        await start(plan, MemoryClient(log))


async def test_a_public_topic_may_have_more_partitions(plan: Plan, log: MemoryLog) -> None:
    """A reader that came first let the cluster make it; records go to the first partition."""
    (view,) = plan.views
    log.create(Topics.of(plan).release(view, "public"), 3)
    await start(plan, MemoryClient(log))


@pytest.mark.parametrize("which", ["control", "merged", "partials", "orders", "changelog"])
async def test_records_that_were_deleted_of_what_must_be_kept_are_lost_state(
    plan: Plan, log: MemoryLog, which: str
) -> None:
    """Settings and grants among them: no first start."""
    topics, client = Topics.of(plan), MemoryClient(log)
    await start(plan, client)
    name = topics.changelog(COUNTS) if which == "changelog" else str(getattr(topics, which))
    log.append(name, 0, b"key", b"value")
    log.delete_before(TP(name, 0), log.end(TP(name, 0)))
    before = {place: log.end(place) for place in log.records if place.topic == topics.control}
    with pytest.raises(ConfigError, match=f"topic {name}: records of it were deleted, and with them .*--accept-loss"):
        await start(plan, client)
    assert {place: log.end(place) for place in before} == before, "no first settings were posted"


async def test_too_few_copies_are_named(visits: Callable[..., str], tmp_path: Path) -> None:
    plan, log = plan_from(visits(("ledgers:\n", "topics: {replication: 3}\nledgers:\n")), tmp_path), MemoryLog()
    assert plan.topics == TopicsConfig(replication=3)
    for source in sources_of(plan).values():
        log.create(source.topic, source.partitions)

    class Lone(MemoryClient):
        async def describe(self, topics: object) -> Mapping[str, TopicState]:
            return {name: one._replace(copies=1) for name, one in (await super().describe(topics)).items()}  # type: ignore[arg-type]

    with pytest.raises(ConfigError) as caught:
        await start(plan, Lone(log))
    assert len(caught.value.faults) == len(Topics.of(plan).all(plan)) + 1
    assert caught.value.faults[0].message.startswith("has 1 copies, not 3 (topics.replication): `kafka-reassign")


async def test_what_is_right_is_left_alone(plan: Plan, log: MemoryLog) -> None:
    await start(plan, MemoryClient(log))
    found = await look_at_topics(plan, Guarded(log))
    assert (found.righted, found.wrong, found.lost) == ([], [], [])
