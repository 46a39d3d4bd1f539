"""What is read of the public topics when a worker loads its state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from aiokafka import TopicPartition

from stream_dp.errors import StateError
from stream_dp.records.codec import encode, topic_key
from stream_dp.records.models import Refusal
from stream_dp.releases.losses import Shown
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.faust.published import NEWEST, read_published
from tests.support.editions import holding
from tests.support.releasing import ONLY_PAGES, Desk, plan, release_topic

POOR = plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "5"'))
(PAGES,) = POOR.views.values()


def log_of(desk: Desk) -> MemoryLog:
    """The public topics with what was published."""
    log = MemoryLog()
    for audience in PAGES.audiences:
        log.create(release_topic("pages", audience), 1)
        for record in desk.records("pages", audience):
            log.append(release_topic("pages", audience), 0, topic_key(record), encode(record))
    return log


@pytest.fixture
def desk() -> Desk:
    """Two releases, two refusals, a release of the next period, for each of three audiences."""
    desk = Desk(POOR)
    for start in range(0, 5000, 1000):
        desk.give("pages", start, {"home": 40})
    return desk


async def test_releases_and_refusals_are_told_apart(desk: Desk) -> None:
    found = await read_published(MemoryClient(log_of(desk)), release_topic, [PAGES], whole=True)
    assert found == {
        "pages": {
            Shown(audience, start, 1, refused=start in (2000, 3000))
            for audience in PAGES.audiences
            for start in range(0, 5000, 1000)
        }
    }
    assert {isinstance(record, Refusal) for record in desk.records("pages", "staff")} == {True, False}


@pytest.mark.parametrize("whole", [False, True])
async def test_the_newest_records_are_read_unless_all_are_needed(desk: Desk, whole: bool) -> None:
    log, topic = log_of(desk), release_topic("pages", "staff")
    (first, *_, newest) = desk.records("pages", "staff")
    log.append(topic, 0, b"withdrawn", None)
    for _ in range(NEWEST):
        log.append(topic, 0, topic_key(newest), encode(newest))
    found = await read_published(MemoryClient(log), release_topic, [PAGES], whole=whole)
    staff = {one.start_ms for one in found["pages"] if one.audience == "staff"}
    assert staff == ({*range(0, 5000, 1000)} if whole else {newest.window.start_ms})
    assert {one.start_ms for one in found["pages"] if one.audience == "public"} == {*range(0, 5000, 1000)}
    assert first.window.start_ms == 0


@pytest.mark.parametrize("tombstones", [1, NEWEST, 5 * NEWEST])
@pytest.mark.parametrize("whole", [False, True])
async def test_tombstones_neither_stand_for_records_nor_take_their_place(
    desk: Desk, tombstones: int, whole: bool
) -> None:
    """However many were written last, the newest records are found, and what was taken back is not."""
    log, topic = log_of(desk), release_topic("pages", "staff")
    expired = desk.records("pages", "staff")[:2]
    for at in range(tombstones):
        log.append(topic, 0, topic_key(expired[at]) if at < len(expired) else b"pages/staff/0/%d" % at, None)
    found = await read_published(MemoryClient(log), release_topic, [PAGES], whole=whole)
    staff = {one.start_ms for one in found["pages"] if one.audience == "staff"}
    assert staff == {*range(0, 5000, 1000)} - {record.window.start_ms for record in expired[:tombstones]}


async def test_nothing_is_asked_for_where_no_ledger_lives() -> None:
    assert await read_published(MemoryClient(MemoryLog()), release_topic, [], whole=False) == {}


async def test_a_record_of_somebody_else_is_an_error_that_names_its_place(desk: Desk) -> None:
    log = log_of(desk)
    log.append(release_topic("pages", "staff"), 0, b"key", b"{}")
    with pytest.raises(StateError, match=r"topic shop\.releases\.pages\.staff, offset 5: not a release record"):
        await read_published(MemoryClient(log), release_topic, [PAGES], whole=False)


async def test_a_record_of_an_edition_that_another_took_the_place_of_is_no_record_of_that_one() -> None:
    """It had released a window before it was decided that it never holds: nothing of the other one was lost."""
    bound = ("items_per_user: 1", "items_per_user: 2")
    desk = Desk(holding((0, plan(ONLY_PAGES)), (1, plan(ONLY_PAGES, bound))))
    desk.give("pages", 0, {"home": 40})
    desk.give("pages@2", 1000, {"home": 40})
    views = [*holding((0, plan(ONLY_PAGES)), (1, plan(ONLY_PAGES, bound)), (1, plan(ONLY_PAGES))).views.values()]
    assert [one.never_holds for one in views] == [False, True, False]
    found = await read_published(MemoryClient(log_of(desk)), release_topic, views, whole=True)
    starts = {name: {one.start_ms for one in shown} for name, shown in found.items()}
    assert starts == {"pages": {0}, "pages@2": {1000}, "pages@3": set()}


async def test_hidden_releases_stop_the_worker(desk: Desk) -> None:
    """A worker that lost its state would release their windows again."""

    class Undecided(MemoryClient):
        async def stable_ends(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
            return dict.fromkeys(places, 1)

    with pytest.raises(StateError, match=r"a transaction is open in topic .*, partition 0, at offset 1: later records"):
        await read_published(Undecided(log_of(desk)), release_topic, [PAGES], whole=True)
