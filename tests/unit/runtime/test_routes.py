"""Routes: what belongs together meets, and a withdrawal reaches exactly the record that it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.runtime.factory import Routes, dead_letter
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import plan_from
from stream_dp.windows.encoding import decode
from stream_dp.windows.merging import MergedBucket, Partial

START = 1_704_067_200_000


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    return plan_from(visits(("partitions: 3", "partitions: 8")), tmp_path)


def partial(plan: Plan, bucket: int, partition: int) -> Partial:
    (view,) = plan.views
    return Partial(view, START, bucket, partition, START, 1, 2, {"/": 3})


def test_partials_of_a_bucket_meet_in_one_partition_under_keys_of_their_own(plan: Plan) -> None:
    routes = Routes(plan)

    for bucket in range(4):
        messages = [routes.partial(partial(plan, bucket, partition)) for partition in range(plan.partitions)]
        assert len({(message.topic, message.partition) for message in messages}) == 1
        assert len({message.key for message in messages}) == plan.partitions
        assert messages[0].topic == Topics.of(plan).partials
        assert messages[0].partition < plan.partitions
        assert decode(Partial, messages[5].value or b"") == partial(plan, bucket, 5)


def test_withdrawal_is_the_tombstone_of_the_record_that_was_sent(plan: Plan) -> None:
    routes = Routes(plan)
    counts = partial(plan, 2, 5)
    (view,) = plan.views.values()
    bucket = MergedBucket(view.name, START, 2, START, 0, 1, {"/": 9})
    sent = routes.merged(bucket)

    assert routes.withdraw_partial(counts) == replace(routes.partial(counts), value=None)
    assert routes.withdraw_merged(bucket, sent.partition) == replace(sent, value=None)
    assert (sent.topic, sent.partition) == (
        Topics.of(plan).merged,
        Topics.of(plan).ledger_partition(view.ledger),
    )


def test_bucket_of_a_view_that_is_gone_is_withdrawn_where_it_was_read(plan: Plan) -> None:
    bucket = MergedBucket("no longer there", START, 0, START, 0, 1, {})

    assert Routes(plan).withdraw_merged(bucket, 6).partition == 6


def test_dead_letter_says_where_and_why_and_stays_in_the_partition(plan: Plan) -> None:
    (view,) = plan.views.values()

    letter = dead_letter(view.source, 7, 1234, "late", [view.name, "more"])

    assert (letter.topic, letter.key, letter.partition) == (view.source.dead_letter_topic, None, 7)
    assert json.loads(letter.value or b"") == {
        "topic": view.source.topic,
        "partition": 7,
        "offset": 1234,
        "reason": "late",
        "views": [view.name, "more"],
    }
