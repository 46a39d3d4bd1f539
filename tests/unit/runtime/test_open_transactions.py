"""Transactions that stay open for a long time: what is reported, and when that ends."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import pytest
from aiokafka import TopicPartition

from stream_dp.errors import OutageError
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.open_transactions import LONG_MS, OpenTransaction, OpenTransactions

VISITS, LISTS = TopicPartition("visits", 1), TopicPartition("lists", 0)
FIRST, SECOND = OpenTransaction(VISITS, 3), OpenTransaction(VISITS, 5)


class Undecided(MemoryClient):
    """A client of partitions in which transactions are open."""

    def __init__(self) -> None:
        log = MemoryLog()
        log.create("visits", 2)
        log.create("lists", 1)
        for number in range(9):
            log.append("visits", 1, b"%d" % number, b"")
            log.append("lists", 0, b"%d" % number, b"")
        super().__init__(log)
        self.open: dict[TopicPartition, int] = {}
        self.is_silent = False

    async def stable_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self.is_silent:
            raise OutageError("no answer")
        ends = await self.ends(places)
        return {place: self.open.get(place, end) for place, end in ends.items()}


class Watched:
    """What is known of open transactions as time passes."""

    def __init__(self) -> None:
        self.client = Undecided()
        self.now_ms = 0
        self.assigned = {VISITS, TopicPartition("deleted", 0)}
        self.transactions = OpenTransactions(
            self.client, lambda: self.assigned, lambda: ["lists", "gone"], lambda: self.now_ms
        )

    async def after(self, passed_ms: int) -> dict[OpenTransaction, int]:
        """Look once more when some time has passed."""
        self.now_ms += passed_ms
        await self.transactions.look()
        return self.transactions.long()


async def test_long_transaction_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line when it has been open for long, and one when it has ended."""
    watched = Watched()
    watched.client.open[VISITS] = FIRST.offset
    assert await watched.after(0) == {}
    assert await watched.after(LONG_MS - 1) == {}
    assert caplog.messages == []
    assert await watched.after(1) == {FIRST: LONG_MS}
    watched.client.is_silent = True
    assert await watched.after(1000) == {FIRST: LONG_MS + 1000}
    watched.client.is_silent = False
    assert await watched.after(1000) == {FIRST: LONG_MS + 2000}
    assert len(caplog.messages) == 1
    del watched.client.open[VISITS]
    assert await watched.after(1000) == {}
    assert [words.split(" in ")[0] for words in caplog.messages] == [
        "a transaction has been open for more than 30s",
        "the transaction of topic visits, partition 1, offset 3 has ended",
    ]


async def test_short_transactions_are_not_reported() -> None:
    watched = Watched()
    for one in (FIRST, SECOND, OpenTransaction(VISITS, 7)):
        watched.client.open[VISITS] = one.offset
        assert await watched.after(LONG_MS - 1) == {}


async def test_lost_partition_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """This worker no longer knows whether the transaction has ended."""
    caplog.set_level(logging.INFO)
    watched = Watched()
    watched.client.open[VISITS] = FIRST.offset
    await watched.after(0)
    assert await watched.after(LONG_MS) == {FIRST: LONG_MS}
    watched.assigned.remove(VISITS)
    assert await watched.after(1000) == {}
    assert len(caplog.messages) == 1


async def test_whole_list_topic_is_watched() -> None:
    watched = Watched()
    watched.client.open[LISTS] = 2
    await watched.after(0)
    assert await watched.after(LONG_MS) == {OpenTransaction(LISTS, 2): LONG_MS}
