"""Public lists in compacted topics, read before a worker starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.lists import KeyList
from stream_dp.runtime.lists import read_lists
from stream_dp.runtime.memory import MemoryLog
from stream_dp.runtime.memory_client import MemoryClient
from tests.support.releasing import ONLY_PAGES, plan

TOPIC = "page-list"


def listing(**changes: Any) -> Plan:
    """A shop whose kind asks for a list in a topic."""
    shop = plan(ONLY_PAGES)
    view = shop.views["pages"]
    assert isinstance(view.kind, HistogramPlan)

    class Listing(HistogramPlan):
        topics = (TOPIC,)

        def check_lists(self, lists: Any) -> None:
            if not lists[TOPIC].keys:
                raise ConfigError([Fault("list", "is empty")])

    kind = view.kind
    listed = Listing(kind.levels, kind.sensitivity, kind.delta, kind.minimum_counts)
    return replace(shop, views={"pages": replace(view, kind=listed, **changes)})


def filled(*records: tuple[bytes | None, bytes | None], partitions: int = 2) -> MemoryLog:
    log = MemoryLog()
    log.create(TOPIC, partitions)
    for key, value in records:
        log.append(TOPIC, len(key or b"") % partitions, key, value)
    return log


async def test_the_last_record_of_a_key_says_whether_it_is_in_the_list() -> None:
    log = filled((b"home", b"1"), (b"cart", b""), (b"gone", b"1"), (b"gone", None), (b"back", None), (b"back", b"1"))

    lists, faults = await read_lists(listing(), MemoryClient(log))

    assert faults == []
    assert lists == {TOPIC: KeyList.of(["back", "cart", "home"])}


async def test_an_application_that_needs_no_list_reads_none() -> None:
    assert await read_lists(plan(), MemoryClient(MemoryLog())) == ({}, [])


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        (MemoryLog(), "views.pages: the broker has no topic page-list, which its list stands in; create it first"),
        (filled(), "views.pages.list: is empty"),
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
