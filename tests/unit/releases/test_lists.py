"""Which list a window is made with: that of its close, whatever happens until it is sealed; and what is outside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream_dp.config.plan import Plan
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.by_kind import CatalogueRelease
from stream_dp.runtime.kafka.list_topics import Lists
from tests.support.machine import Machine
from tests.support.releasing import ONLY_PAGES, SECOND, Desk, buckets_of, plan

TOPIC = "page-list"
FORMER, CHANGED = KeyList.of(["home", "cart"]), KeyList.of(["cart", "help"])
CHANGED_MS = 5000
COUNTS = {"home": 9, "cart": 4, "rare": 2, "odd": 1}
CATALOGUE = (
    ONLY_PAGES,
    ("kind: histogram", f"kind: catalogue\n    catalogue: {{topic: {TOPIC}}}"),
    ('    delta: "1/100"\n', ""),
)


def shop() -> Plan:
    return plan(*CATALOGUE)


def read_by_a_worker() -> Lists:
    """A worker that began with one list, and read another one later."""
    lists = Lists({"pages": {TOPIC: FORMER}})
    lists.take("pages", {TOPIC: CHANGED}, CHANGED_MS)
    return lists


def begun_later() -> Lists:
    """A worker that began when the list had changed."""
    return Lists({"pages": {TOPIC: CHANGED}})


def shown(desk: Desk) -> list[tuple[str, set[str]]]:
    """By window, the version of its list and its keys; all audiences and all revisions are shown the same."""
    found: dict[int, tuple[str, set[str]]] = {}
    for audience in desk.plan.audiences:
        for record in desk.records("pages", audience):
            assert isinstance(record, CatalogueRelease)
            made = record.catalogue.version, {entry.item for entry in record.items}
            assert found.setdefault(record.window.start_ms, made) == made
    return [found[start] for start in sorted(found)]


def of(listed: KeyList) -> tuple[str, set[str]]:
    return listed.version, set(listed)


def test_a_window_is_made_with_the_list_of_its_close_however_late_it_is_sealed() -> None:
    desk = Desk(shop(), lists=read_by_a_worker().at)
    for number, closed in enumerate((1000, CHANGED_MS, CHANGED_MS + 1, CHANGED_MS + 2)):
        desk.give("pages", number * SECOND, COUNTS, closed)
    assert shown(desk) == [of(FORMER), of(FORMER), of(CHANGED), of(CHANGED)]


def test_the_last_of_its_buckets_closes_a_window() -> None:
    desk = Desk(shop(), lists=read_by_a_worker().at)
    first, _ = buckets_of(desk.plan.views["pages"], 0, COUNTS, 1000)
    _, second = buckets_of(desk.plan.views["pages"], 0, COUNTS, CHANGED_MS + 1)
    desk.reader.write([second])
    desk.reader.write([first])
    assert shown(desk) == [of(CHANGED)]


def test_a_sealed_window_keeps_its_list_when_it_is_sharpened_by_a_worker_with_another_one() -> None:
    desk = Desk(shop(), lists=read_by_a_worker().at)
    desk.give("pages", 0, COUNTS, 1000)
    desk.lists = begun_later().at
    desk.reader.restart()
    desk.grant(1, "public", "fine")
    desk.give("pages", SECOND, COUNTS, 2000)
    assert shown(desk) == [of(FORMER), of(CHANGED)]
    assert len(desk.records("pages", "public")) == 3


class Worker:
    """The lists as the process that runs now has them: a cut ends it, and the next one begins with the changed list."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.restarts = 0

    def at(self, view: str, closed_ms: int) -> Mapping[str, KeyList]:
        cut = self._machine.cut_after is None
        return (begun_later() if cut else read_by_a_worker()).at(view, closed_ms)


def given(cuts: Sequence[int]) -> Desk:
    machine = Machine()
    desk = Desk(shop(), lists=Worker(machine).at, entropy=system_entropy, cuts=cuts, machine=machine)
    for number in range(2):
        desk.give("pages", number * SECOND, COUNTS, 1000)
    return desk


def test_a_restart_between_change_and_sealing_gives_a_window_one_list_wherever_it_cuts() -> None:
    """A window that was not stored is drawn anew, with the list of the new start; one that was keeps its own."""
    whole = given([10**6])
    assert shown(whole) == [of(FORMER)] * 2
    found = []
    for cut in range(whole.machine.points):
        desk = given([cut])
        desk.auditor.settled()
        found.append(shown(desk))
    orders = [[of(CHANGED)] * 2, [of(FORMER), of(CHANGED)], [of(FORMER)] * 2]
    assert all(one in orders for one in found)
    assert all(found.count(one) for one in orders)
    assert found == sorted(found, key=orders.index), "the later the cut, the more windows keep the former list"


def test_what_is_outside_the_list_of_a_window_is_counted_when_it_is_sealed() -> None:
    desk = Desk(shop(), lists=read_by_a_worker().at)
    first, second = buckets_of(desk.plan.views["pages"], 0, COUNTS, 1000)
    label = ("events_unknown", (("view", "pages"),))
    desk.reader.write([first])
    assert desk.machine.counts[label] == 0, "the window is not complete"
    desk.reader.write([second, first, second])
    assert desk.machine.counts[label] == 3
    desk.grant(1, "public", "fine")
    desk.reader.restart()
    assert desk.machine.counts[label] == 3
    desk.give("pages", SECOND, COUNTS, CHANGED_MS + 1)
    assert desk.machine.counts[label] == 3 + 9 + 3
