"""Release topics of a worker: which are stopped, who misses them, and which orders to write one again count."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.republication import KeptRecord, WrittenAgain
from stream_dp.runtime.faust.delivery import Carrier
from stream_dp.runtime.faust.release_topics import Reason, ReleaseTopics, TopicRow
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.ownership import Life
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.kafka.transactions import PartitionLostError, Row
from stream_dp.windows.effects import Message, NoRows, Rows
from tests.support.machine import Machine
from tests.support.releasing import plan

SHOP = plan()
TOPICS = Topics.of(SHOP)
VIEW = next(iter(SHOP.views.values()))
NAMES = [TOPICS.release(VIEW.view, audience) for audience in VIEW.readers]
TOPIC = NAMES[0]
PRESENT = {name: TopicState(f"id of {name}", 1) for name in NAMES}


LIVES = {name: Life(state.id, 1) for name, state in PRESENT.items()}
AUDIENCE = next(iter(VIEW.audiences))
JOINED_MS = {VIEW.view: {AUDIENCE: 70}}
NO_ROWS = NoRows()


def keep_owner() -> None:
    """Raise nothing: the partition keeps its owner."""


def loaded(
    views: Collection[ViewPlan] = (VIEW,),
    topics: ReleaseTopics | None = None,
    rows: Rows = NO_ROWS,
    lives: Mapping[str, Life] = LIVES,
    present: Mapping[str, TopicState] = PRESENT,
) -> ReleaseTopics:
    topics = topics or ReleaseTopics(TOPICS.release)
    topics.load(0, views, lives, present, rows, JOINED_MS)
    return topics


def machine(rows: Sequence[Row]) -> Rows:
    return Machine(rows={key: value for key, value in rows if value is not None})


def stored(row: TopicRow) -> Rows:
    return machine([row.encode_row(TOPIC)])


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
    topics.note_stored(0, TOPIC, TopicRow("another"))
    assert topics.row(0, TOPIC) is None


ID = PRESENT[TOPIC].id


@pytest.mark.parametrize(
    ("row", "life", "present", "reason"),
    [
        (TopicRow(ID), Life(ID, 1), ID, None),
        (None, Life(ID, 1), ID, None),
        (None, None, ID, Reason.NOT_CREATED),
        (TopicRow(ID), Life(ID, 1, 1), "", Reason.NOT_CREATED),
        (TopicRow(ID), Life(ID, 1), "", Reason.DELETED),
        (TopicRow(ID), Life(ID, 1), "another", Reason.DELETED),
        (TopicRow(""), Life(ID, 1), "", Reason.DELETED),
        (TopicRow(""), Life(ID, 1), ID, Reason.UNWRITTEN),
        (TopicRow("former"), Life(ID, 2), ID, Reason.UNWRITTEN),
    ],
)
def test_topic_is_live_or_missing_for_a_reason(
    row: TopicRow | None, life: Life | None, present: str, reason: Reason | None
) -> None:
    lives = {**LIVES, TOPIC: life} if life else {name: one for name, one in LIVES.items() if name != TOPIC}
    there = {name: state for name, state in PRESENT.items() if name != TOPIC}
    if present:
        there[TOPIC] = TopicState(present, 1)
    topics = loaded(rows=NO_ROWS if row is None else stored(row), lives=lives, present=there)
    assert topics.missing == ({} if reason is None else {TOPIC: reason})
    assert (TOPIC in topics.stopped) is (reason is not None)
    assert [name for _, name, _ in topics.unwritten] == [TOPIC] * (reason == Reason.UNWRITTEN)


def test_problem_names_the_remedy_of_its_reason() -> None:
    audience = next(iter(VIEW.audiences))
    others = NAMES[1:]
    remedies = {
        "`stream-dp acl FILE --worker PRINCIPAL`": loaded(lives={name: LIVES[name] for name in others}),
        f"`stream-dp republish FILE {VIEW.view} {audience}`": loaded(present={name: PRESENT[name] for name in others}),
        "is writing topic": loaded(rows=stored(TopicRow(""))),
    }
    for remedy, topics in remedies.items():
        (problem,) = topics.problems
        assert remedy in problem
        assert f"audience {audience}" in problem


def test_given_up_topic_begins_again() -> None:
    """Only records that leave after its audience came back are written to it, however late a worker notices that."""
    topics = ReleaseTopics(TOPICS.release)
    given_up = {**LIVES, TOPIC: Life(ID, 1, 1)}
    (fresh,) = topics.load(0, [VIEW], given_up, {}, rows_of_all(TopicRow(ID)), JOINED_MS)
    assert fresh == TopicRow("").encode_row(TOPIC)

    created = {**LIVES, TOPIC: Life("new", 2, 1)}
    present = {**PRESENT, TOPIC: TopicState("new", 1)}
    for row in (TopicRow(ID), TopicRow("")):  # nobody noticed that it was given up, or somebody did
        (begun,) = topics.load(0, [VIEW], created, present, rows_of_all(row), {VIEW.view: {AUDIENCE: 90}})
        assert begun == TopicRow("", 1, 90).encode_row(TOPIC)
    later = {VIEW.view: {AUDIENCE: 120}}
    assert topics.load(0, [VIEW], created, present, rows_of_all(TopicRow("", 1, 90)), later) == []
    assert topics.unwritten == [(0, TOPIC, "new")]


def rows_of_all(row: TopicRow) -> Rows:
    return machine([*(TopicRow(one.id).encode_row(name) for name, one in LIVES.items()), row.encode_row(TOPIC)])


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
        assert not await made._publish_or_stop(messages, owner, 0, keep_owner)
        assert await made._publish_or_stop(messages, owner, 0, keep_owner)
    assert owner.calls == []


async def test_topic_of_others_that_is_stopped_repeats_no_record() -> None:
    topics, owner = loaded(), Owner()
    message = Message(TOPIC, b"key", b"value")
    publishing = asyncio.ensure_future(carrier(topics)._publish_or_stop([message], owner, 0, keep_owner))
    while not owner.calls:
        await asyncio.sleep(0)
    topics.look({}, [NAMES[1]])
    await asyncio.sleep(0.01)
    owner.acknowledged.set()
    async with asyncio.timeout(5):
        assert await publishing
    assert owner.calls == [[TOPIC]]


async def test_worker_that_lost_a_partition_waits_for_none_of_its_topics() -> None:
    """It no longer watches them, so it would publish nothing of its other partitions either."""
    topics, owner = loaded(), Owner()

    def lost() -> None:
        raise PartitionLostError

    topics.forget()
    with pytest.raises(PartitionLostError):
        async with asyncio.timeout(5):
            await carrier(topics)._publish_or_stop([Message(TOPIC, b"key", b"value")], owner, 0, lost)


async def test_record_is_left_out_once_its_topic_is_known_to_be_missing() -> None:
    """A partition is loaded while one of its records is published, as after new settings."""
    topics, owner = loaded(), Owner()
    topics.forget()
    publishing = asyncio.ensure_future(
        carrier(topics)._publish_or_stop([Message(TOPIC, b"key", b"value")], owner, 0, keep_owner)
    )
    while not owner.calls:
        await asyncio.sleep(0)
    loaded(topics=topics, present={})
    async with asyncio.timeout(5):
        assert not await publishing


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
