"""One writer per partition of a table: the log refuses rows of a former owner, the embedded one as Kafka does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from faust.types import TP

from stream_dp.runtime.faust.app import claims
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.runtime.kafka.transactions import CLAIM, PartitionLostError, Row
from stream_dp.testing import Application
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import BATCH_BYTES, MESSAGE_BYTES
from tests.support.views import only_view

Launch = Callable[..., Awaitable[Application]]


async def with_changelogs(launch: Launch) -> tuple[Application, TP]:
    """An application whose topics exist, and a partition of one of its changelogs."""
    app = await launch()
    topics = Topics.of(app.plan)
    await app.client.create(topics.all(app.plan))
    return app, TP(topics.changelog(RELEASES), 1)


async def rows_of(app: Application, tp: TP) -> list[Row]:
    """All rows of a partition of a changelog, as anybody reads them."""
    records = [record async for record in app.client.follow([tp.topic], until_end=True)]
    return [(record.key, record.value) for record in records if record.partition == tp.partition]


async def test_former_owner_is_refused_from_the_first_row_of_its_successor_on(launch: Launch) -> None:
    app, tp = await with_changelogs(launch)
    claim = claims(app.plan.broker, app.log)
    former = await claim(tp)
    first = await former.write([(b"a", b"1"), (b"b", b"2")])
    successor = await claim(tp)
    assert await former.write([(b"c", b"3")]) == first + 1, "recovery will read it: the successor has no row yet"
    assert await successor.write([(CLAIM, b"successor")]) == first + 2

    for _ in range(3):
        with pytest.raises(PartitionLostError, match=rf"partition 1 of {tp.topic} was taken over by another worker"):
            await former.write([(b"x", b"former")])
    assert await successor.write([(b"d", None), (b"e", b"5")]) == first + 4

    expected: list[Row] = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (CLAIM, b"successor"), (b"d", None), (b"e", b"5")]
    assert await rows_of(app, tp) == expected
    await asyncio.gather(former.close(), successor.close())


async def test_former_owner_publishes_nothing_behind_its_successor(launch: Launch) -> None:
    """Else what it repeats could stand behind a newer record of the same key, and compaction would keep that."""
    app, tp = await with_changelogs(launch)
    claim = claims(app.plan.broker, app.log)
    view = only_view(app).name
    topics = Topics.of(app.plan)
    public, partner = topics.release(view, "public"), topics.release(view, "partner")

    def message(topic: str, text: bytes) -> Message:
        return Message(topic, b"window", text)

    former = await claim(tp)
    await former.write([(b"a", b"1")])
    successor = await claim(tp)
    await successor.write([(b"b", b"2")])
    await former.publish([message(public, b"1"), message(partner, b"1")], 1_700_000_000_000)
    await successor.publish([message(public, b"1"), message(public, b"2")], 1_700_000_001_000)

    with pytest.raises(PartitionLostError, match=rf"partition 1 of {tp.topic} was taken over"):
        await former.publish([message(public, b"1")], 1_700_000_002_000)

    read = [record async for record in app.client.follow([public], until_end=True)]
    assert [record.value for record in read] == [b"1", b"1", b"2"]
    assert [record.timestamp for record in read] == [1_700_000_000_000, 1_700_000_001_000, 1_700_000_001_000]
    await asyncio.gather(former.close(), successor.close())


async def test_claim_of_one_partition_leaves_the_others_to_their_owners(launch: Launch) -> None:
    app, tp = await with_changelogs(launch)
    claim = claims(app.plan.broker, app.log)
    others = [TP(tp.topic, 0), TP(Topics.of(app.plan).changelog(MERGES), 1)]
    owners = [await claim(other) for other in others]

    successor = await claim(tp)
    await successor.write([(CLAIM, b"successor")])
    for owner in owners:
        await owner.write([(b"a", b"1")])

    assert [await rows_of(app, other) for other in others] == [[(b"a", b"1")]] * 2
    await asyncio.gather(*(writer.close() for writer in (*owners, successor)))


async def test_claim_is_renewed_by_its_owner_and_by_nobody_else(launch: Launch) -> None:
    app, tp = await with_changelogs(launch)
    claim = claims(app.plan.broker, app.log)
    former, successor = await claim(tp), await claim(tp)

    await successor.renew()
    with pytest.raises(PartitionLostError):
        await former.renew()
    await successor.write([(b"a", b"1")])
    await successor.renew()
    await successor.write([(b"b", b"2")])
    third = await claim(tp)
    await third.write([(b"c", b"3")])
    with pytest.raises(PartitionLostError):
        await successor.write([(b"x", b"former")])

    assert await rows_of(app, tp) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    await asyncio.gather(*(writer.close() for writer in (former, successor, third)))


async def test_commit_that_is_larger_than_a_batch_arrives_in_order(launch: Launch) -> None:
    app, tp = await with_changelogs(launch)
    rows: list[Row] = [(b"%d" % number, os.urandom(BATCH_BYTES // 4)) for number in range(10)]  # it does not compress
    rows += [(b"large %d" % number, os.urandom(MESSAGE_BYTES)) for number in range(3)]
    rows += [(b"batch", os.urandom(BATCH_BYTES - 100)), (b"last", b"1")]
    writer = await claims(app.plan.broker, app.log)(tp)

    last = await writer.write(rows)

    assert await writer.write([(b"next", b"1")]) == last + 1
    assert await rows_of(app, tp) == [*rows, (b"next", b"1")]
    await writer.close()


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
async def test_worker_ends_when_it_would_write_to_a_partition_that_was_taken_over(launch: Launch) -> None:
    """It has not heard of it: no rebalance, no other member of its group. On Kafka: `tests/broker`."""
    app = await launch()
    worker = await app.start(tick_seconds=0.05)
    tp = TP(Topics.of(app.plan).changelog(COUNTS), 1)

    async def has_claimed() -> bool:
        return bool(await rows_of(app, tp))

    await app.eventually(has_claimed)
    successor = await claims(app.plan.broker, app.log)(tp)
    await successor.write([(b"a", b"1")])

    await asyncio.wait_for(worker.crashed(), WITHIN_SECONDS)
    assert isinstance(worker.crash_reason(), PartitionLostError)
    assert (await rows_of(app, tp))[-1] == (b"a", b"1")
