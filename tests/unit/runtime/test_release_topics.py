"""Release topics of a worker: which are stopped, who misses them, and which orders to write one again count."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.republication import KeptRecord, WrittenAgain
from stream_dp.runtime.faust.delivery import Carrier
from stream_dp.runtime.faust.release_topics import ReleaseTopics, TopicRow
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.effects import Message, NoRows
from tests.support.releasing import plan

SHOP = plan()
TOPICS = Topics.of(SHOP)
VIEW = next(iter(SHOP.views.values()))
NAMES = [TOPICS.release(VIEW.view, audience) for audience in VIEW.readers]
TOPIC = NAMES[0]
PRESENT = {name: TopicState(f"id of {name}", 1) for name in NAMES}


def loaded(views: Collection[ViewPlan] = (VIEW,), topics: ReleaseTopics | None = None) -> ReleaseTopics:
    topics = topics or ReleaseTopics(TOPICS.release)
    topics.load(0, views, {name: state.id for name, state in PRESENT.items()}, PRESENT, NoRows())
    return topics


def test_audience_that_was_taken_out_misses_nothing() -> None:
    """Settings take it out while the worker runs; then an operator deletes its topic with `reset --view`."""
    topics = loaded()
    audience, *left = VIEW.audiences
    assert TOPICS.release(VIEW.view, audience) == TOPIC
    shrunk = replace(VIEW, audiences={name: VIEW.audiences[name] for name in left}, former=(audience,))
    loaded([shrunk], topics)
    topics.look({}, [TOPIC])
    assert topics.stopped == {TOPIC}
    assert topics.problems == []


def test_row_that_is_stored_while_all_is_forgotten_is_left_to_the_table() -> None:
    topics = loaded()
    topics.forget()
    topics.take(0, TOPIC, TopicRow("another"))
    assert topics.row(0, TOPIC) is None


def test_orders_of_former_topics_are_out_of_date() -> None:
    """The control topic is read from its start after every rebalance, and may still have all orders of a topic."""
    row: TopicRow | None = TopicRow("first")
    for topic_id in ("second", "third"):
        assert row is not None
        row = row.ordered(topic_id)
        assert row is not None
        row = row.written(topic_id)
    assert row == TopicRow("third", "", ("first", "second"))
    assert [row.ordered(topic_id) for topic_id in ("first", "second", "third")] == [None] * 3


async def test_topic_that_is_stopped_before_the_wait_begins_ends_it() -> None:
    topics = loaded()
    waiting = asyncio.ensure_future(topics.until_stopped())
    topics.look({}, [TOPIC])
    async with asyncio.timeout(5):
        await waiting


class Owner:
    """A writer whose records are acknowledged when it is told to, unless one is for a topic that is gone."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.acknowledged = asyncio.Event()

    async def publish(self, messages: Sequence[Message], _: int) -> None:
        self.calls.append([message.topic for message in messages])
        await self.acknowledged.wait()

    def give_up(self, topics: Collection[str]) -> None:
        pass


def carrier(topics: ReleaseTopics) -> Any:
    made: Any = Carrier.__new__(Carrier)
    made.release_topics = topics
    return made


async def test_topic_that_is_stopped_while_another_is_left_out_gets_nothing() -> None:
    topics, owner = loaded(), Owner()
    topics.look({}, [NAMES[1]])
    made = carrier(topics)

    async def leave_out(left_out: Collection[str]) -> None:
        if left_out:
            topics.look({}, [TOPIC])

    made.leave_out = leave_out
    messages = [Message(name, b"key", b"value") for name in NAMES[:2]]
    async with asyncio.timeout(5):
        assert not await made._publish_or_stop(messages, owner, 0)
        assert await made._publish_or_stop(messages, owner, 0)
    assert owner.calls == []


async def test_topic_of_others_that_is_stopped_repeats_no_record() -> None:
    topics, owner = loaded(), Owner()
    publishing = asyncio.ensure_future(carrier(topics)._publish_or_stop([Message(TOPIC, b"key", b"value")], owner, 0))
    while not owner.calls:
        await asyncio.sleep(0)
    topics.look({}, [NAMES[1]])
    await asyncio.sleep(0.01)
    owner.acknowledged.set()
    async with asyncio.timeout(5):
        assert await publishing
    assert owner.calls == [[TOPIC]]


def test_second_pass_tells_what_happened_during_the_first() -> None:
    """Records that left, were replaced or expired, and records about views that were changed or taken back."""
    written = WrittenAgain()
    same, changed, gone = (Message(TOPIC, key, b"1") for key in (b"same", b"changed", b"gone"))
    first = [KeptRecord(1, 1, b"a", b"row a"), KeptRecord(2, 2, b"b", b"row b"), KeptRecord(3, 3, b"c", b"row c")]
    assert written.begin_pass([(0, same), (0, changed), (0, gone)], [b"same", b"changed", b"gone"]) == [
        (0, same),
        (0, changed),
        (0, gone),
    ]
    assert written.left(first) == first

    other = replace(changed, value=b"2")
    new = Message(TOPIC, b"new", b"1")
    second = [KeptRecord(9, 2, b"b", b"row b"), first[2], KeptRecord(10, 4, b"d", b"row d")]
    announced = [(0, same), (8, other), (8, new)]
    assert written.begin_pass(announced, [b"same", b"changed", b"new", b"to come"]) == [(8, other), (8, new)]
    assert written.left(second) == [second[0], second[2]]
    assert written.over == [b"a", b"gone"]
