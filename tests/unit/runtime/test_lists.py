"""Public lists in compacted topics: read before a worker starts, followed while it runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError, Fault, OutageError
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.public_lists import KeyList
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.list_topics import KEPT, Lists, ListWatch, read_lists
from stream_dp.testing import ManualClock
from tests.support.releasing import ONLY_PAGES, plan

TOPIC = "page-list"


def listing(fewest: int = 1, **more: int) -> Plan:
    """A shop whose view asks for a list in a topic, of some keys at least; more views with the least that they need."""
    shop = plan(ONLY_PAGES)
    view = shop.views["pages"]
    assert isinstance(view.kind, HistogramPlan)
    kind = view.kind

    def of(least: int) -> HistogramPlan:
        class Listing(HistogramPlan):
            def check_lists(self, lists: Any) -> None:
                if lists[TOPIC].size < least:
                    raise ConfigError([Fault("list", f"must have {least} keys")])

        return Listing(
            levels=kind.levels,
            sensitivity=kind.sensitivity,
            topics=(TOPIC,),
            delta=kind.delta,
            minimum_counts=kind.minimum_counts,
        )

    views = {name: replace(view, name=name, kind=of(least)) for name, least in {"pages": fewest, **more}.items()}
    return replace(shop, views=views)


def filled(*records: tuple[bytes | None, bytes | None], partitions: int = 2) -> MemoryLog:
    log = MemoryLog()
    log.create(TOPIC, partitions)
    write(log, *records)
    return log


def write(log: MemoryLog, *records: tuple[bytes | None, bytes | None]) -> None:
    for key, value in records:
        log.append(TOPIC, len(key or b"") % log.partitions[TOPIC], key, value)


def put(log: MemoryLog, *keys: str) -> None:
    write(log, *((key.encode(), b"1") for key in keys))


async def test_the_last_record_of_a_key_says_whether_it_is_in_the_list() -> None:
    log = filled((b"home", b"1"), (b"cart", b""), (b"gone", b"1"), (b"gone", None), (b"back", None), (b"back", b"1"))

    lists, faults = await read_lists(listing(), MemoryClient(log))

    assert faults == []
    assert lists.at("pages", 0) == {TOPIC: KeyList.of(["back", "cart", "home"])}


async def test_an_application_that_needs_no_list_reads_none() -> None:
    lists, faults = await read_lists(plan(), MemoryClient(MemoryLog()))
    assert (lists.topics, lists.at("pages", 0), faults) == ({}, {}, [])


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (MemoryLog(), "views.pages: the broker has no topic page-list, which its list stands in; create it first"),
        (filled(), "views.pages.list: must have 1 keys"),
        (filled((b"\xff", b"1")), "views.pages: topic page-list holds a key that is not text in UTF-8"),
    ],
)
async def test_a_list_that_cannot_be_used_is_a_fault_before_anything_starts(log: MemoryLog, fault: str) -> None:
    _, faults = await read_lists(listing(), MemoryClient(log))
    assert [str(one) for one in faults] == [fault]


def test_a_version_names_the_list_by_its_content() -> None:
    versions = {KeyList.of(keys).version for keys in (["a", "b"], ["b", "a"], ["b", "a", "b"])}
    assert len(versions) == 1
    others = {KeyList.of(keys).version for keys in (["ab"], ["a", "b", ""], ["a"], ["a", "c"], [])}
    assert len(others | versions) == 6
    assert all(len(version) == 16 for version in others)


# -- followed -------------------------------------------------------------------------------------------------------


class Reader:
    """A worker's eye on the lists of a shop."""

    def __init__(self, shop: Plan, log: MemoryLog, client: MemoryClient | None = None) -> None:
        self.shop = shop
        self.log = log
        self.client = client or MemoryClient(log)
        self.clock = ManualClock(1000)

    async def start(self) -> None:
        self.lists, faults = await read_lists(self.shop, self.client)
        assert faults == []
        self.watch = ListWatch(self.shop, self.lists, self.client, self.clock)

    async def look(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms
        await self.watch.look()

    def keys(self, closed_ms: int, view: str = "pages") -> tuple[str, ...]:
        return self.lists.at(view, closed_ms)[TOPIC].keys


async def started(log: MemoryLog, shop: Plan | None = None) -> Reader:
    reader = Reader(shop or listing(), log)
    await reader.start()
    return reader


async def test_a_change_holds_for_windows_that_close_after_it_was_read_and_for_no_other() -> None:
    log = filled((b"home", b"1"))
    reader = await started(log)
    put(log, "cart")
    assert reader.keys(10_000) == ("home",), "nobody has read it"

    await reader.look(2000)
    write(log, (b"home", None))
    await reader.look(3000)
    await reader.look(4000)

    assert [reader.keys(closed) for closed in (0, 2000)] == [("home",)] * 2
    assert [reader.keys(closed) for closed in (2001, 3000)] == [("cart", "home")] * 2
    assert [reader.keys(closed) for closed in (3001, 4001, 10**15)] == [("cart",)] * 3


async def test_a_worker_that_starts_after_a_window_closed_goes_by_the_list_of_its_start() -> None:
    log = filled((b"home", b"1"))
    former = await started(log)
    put(log, "cart")
    await former.look(2000)
    assert former.keys(1500) == ("home",)

    assert (await started(log)).keys(1500) == ("cart", "home")


async def test_a_record_that_changes_nothing_is_no_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stream_dp.worker")
    log = filled((b"home", b"1"))
    reader = await started(log)
    first = reader.lists.at("pages", 10**15)

    write(log, (b"home", b"2"), (b"gone", None), (None, b"1"))
    await reader.look(2000)

    assert reader.lists.at("pages", 10**15) is first
    assert caplog.messages == []


async def test_only_what_is_new_is_read() -> None:
    class Seeing(MemoryClient):
        seen: list[bytes] = []  # noqa: RUF012

        async def follow(self, topics: Any, **options: Any) -> Any:
            async for record in super().follow(topics, **options):
                self.seen.append(record.key)
                yield record

    log = filled((b"home", b"1"), (b"cart", b"1"))
    reader = Reader(listing(), log, Seeing(log))
    await reader.start()
    Seeing.seen.clear()

    await reader.look(2000)
    put(log, "help")
    await reader.look(3000)
    await reader.look(4000)

    assert Seeing.seen == [b"help"]
    assert reader.keys(10_000) == ("cart", "help", "home")


UNUSABLE: Mapping[str, tuple[list[tuple[bytes, bytes | None]], str]] = {
    "empty": ([(b"home", None)], "list: must have 1 keys"),
    "no text": ([(b"\xff", b"1")], "topic page-list holds a key that is not text in UTF-8"),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_a_list_that_cannot_be_used_is_told_of_once_and_the_last_one_goes_on(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stream_dp.worker")
    log = filled((b"home", b"1"))
    reader = await started(log)
    records, fault = UNUSABLE[case]
    write(log, *records)
    await reader.look(2000)
    write(log, (b"other", None))
    await reader.look(3000)

    assert reader.keys(10_000) == ("home",)
    version = KeyList.of(["home"]).version
    assert caplog.messages == [
        f"view pages cannot use what stands in topic page-list now: {fault}; its windows go on with list {version} of "
        "topic page-list, 1 keys"
    ]

    write(log, *((key, b"1" if value is None else None) for key, value in records), (b"cart", b"1"))
    await reader.look(4000)

    both = KeyList.of(["cart", "home"])
    assert [reader.keys(closed) for closed in (4000, 4001)] == [("home",), both.keys]
    assert caplog.messages[1:] == [
        f"windows of view pages that close from now on are made with list {both.version} of topic page-list, 2 keys"
    ]


async def test_a_list_that_one_view_cannot_use_is_taken_by_the_others() -> None:
    log = filled((b"home", b"1"), (b"cart", b"1"))
    reader = await started(log, listing(1, tops=2))
    write(log, (b"cart", None))
    await reader.look(2000)
    assert (reader.keys(3000), reader.keys(3000, "tops")) == (("home",), ("cart", "home"))


async def test_a_topic_that_is_gone_is_believed_the_second_time_and_a_new_one_is_read_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = filled((b"home", b"1"), (b"cart", b"1"))
    reader = await started(log)
    log.delete(TOPIC)
    await reader.look(2000)
    assert caplog.messages == []
    await reader.look(3000)
    await reader.look(4000)
    (warning,) = caplog.messages
    assert "cannot use what stands in topic page-list now: the broker has no topic page-list; its windows" in warning
    assert reader.keys(10_000) == ("cart", "home")

    log.create(TOPIC, 2)
    put(log, "help", "x", "yy", "zzzz")  # its partitions are longer than those of the former
    await reader.look(5000)
    assert len(caplog.messages) == 1
    assert reader.keys(10_000) == ("help", "x", "yy", "zzzz")


async def test_a_broker_that_does_not_answer_changes_nothing() -> None:
    class Silent(MemoryClient):
        silent = False

        async def ends(self, places: Any) -> Any:
            if self.silent:
                raise OutageError("no answer")
            return await super().ends(places)

    log = filled((b"home", b"1"))
    client = Silent(log)
    reader = Reader(listing(), log, client)
    await reader.start()
    put(log, "cart")
    client.silent = True
    await reader.look(2000)
    assert reader.keys(10_000) == ("home",)
    client.silent = False
    await reader.look(3000)
    assert (reader.keys(3000), reader.keys(3001)) == (("home",), ("cart", "home"))


async def test_a_broker_that_refuses_is_told_of_once_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(MemoryClient):
        refuses = False

        async def describe(self, topics: Any) -> Any:
            if self.refuses:
                raise BrokerError("not allowed")
            return await super().describe(topics)

    caplog.set_level(logging.INFO, "stream_dp.worker")
    log = filled((b"home", b"1"))
    client = Refusing(log)
    reader = Reader(listing(), log, client)
    await reader.start()
    client.refuses = True
    await reader.look(2000)
    await reader.look(3000)
    client.refuses = False
    await reader.look(4000)
    await reader.look(5000)
    warning, told = caplog.messages
    assert "page-list now: not allowed; its windows go on with" in warning
    assert told.startswith("windows of view pages that close from now on are made with")


def test_of_many_lists_the_last_are_kept() -> None:
    every = [{TOPIC: KeyList.of([str(number)])} for number in range(2 * KEPT)]
    lists = Lists({"pages": every[0]})
    for number, one in enumerate(every[1:], start=1):
        lists.take("pages", one, number)
    assert lists.at("pages", 10**15) == lists.newest("pages") == every[-1]
    for number in range(2 * KEPT):
        assert lists.at("pages", number + 1) == every[max(number, KEPT)]
