"""Histograms that remember keys: the list of their own releases, which keys leave it, and what records say of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from stream_dp.config.explanation import describe
from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.errors import ConfigError
from stream_dp.gateway.api import _entry
from stream_dp.gateway.boards import BoardWindow
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.kind import ListPayload
from stream_dp.kinds.public_lists import KeyList
from stream_dp.operations.what_if import check_kind
from stream_dp.records.by_kind import HistogramRelease
from stream_dp.records.codec import AnyRecord, encode, encode_parts, outline
from stream_dp.records.history import Seen
from stream_dp.records.table import interval, rows
from stream_dp.releases.pieces import TableRow, table_rows
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import counted_view
from stream_dp.runtime.kafka.list_topics import Lists, read_lists
from stream_dp.windows.encoding import decode
from tests.support.given import there
from tests.support.releasing import (
    DELTA,
    KEY,
    ONLY_PAGES,
    POOL,
    SHOP,
    Desk,
    keyed,
    plan,
    release_topic,
)
from tests.support.sealing import read_window, seal_window

REMEMBER = (
    '    delta: "1/100"\n    ledger',
    '    delta: "1/100"\n    remember: {audience: public, keep: 2}\n    ledger',
)
TOPIC, OF_STAFF = release_topic("pages", "public"), release_topic("pages", "staff")


def remembering(*changes: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, REMEMBER, *changes)


def kind_of(made: Plan) -> HistogramPlan:
    found = made.views["pages"].kind
    assert isinstance(found, HistogramPlan)
    return found


def knowing(*keys: str) -> dict[str, KeyList]:
    return {TOPIC: KeyList.of(keys)}


def released(desk: Desk, audience: str = "public", start: int = 0) -> HistogramRelease:
    record = desk.record("pages", audience, start)
    assert isinstance(record, HistogramRelease)
    return record


async def listed(records: Iterable[AnyRecord], topic: str = TOPIC, made: Plan | None = None) -> KeyList:
    log = MemoryLog()
    log.create(topic, 1)
    for record in records:
        for key, value in encode_parts(record, 6000):
            log.append(topic, 0, key, value)
    lists, faults = await read_lists(made or remembering(), MemoryClient(log))
    assert faults == []
    return lists.newest("pages")[topic]


# -- records ------------------------------------------------------------------------------------------------------


def test_known_keys_are_shown_at_every_level_and_others_from_the_minimum_count() -> None:
    desk = Desk(remembering(), lists=knowing("gone", "home", "rare"))
    desk.give("pages", 0, {"home": 40, "rare": 1, "found": 40, "hidden": 1})
    record = released(desk)
    assert {entry.item: entry.new for entry in record.items} == {
        "gone": None,
        "home": None,
        "rare": None,
        "found": True,
    }
    known = KeyList.of(["gone", "home", "rare"])
    listed_in = there(record.catalogue)
    assert (listed_in.version, listed_in.keys) == (known.version, 3)
    assert record.extent() == f"all 3 of list {known.version}, and 1 new, from {record.minimum_count} up"
    assert [record.remark(entry) for entry in record.items if entry.new] == ["new"]
    desk.grant(1, "public", "fine")
    sharper = released(desk)
    assert sharper.revision == 2
    assert {"gone", "home", "rare", "found"} <= {entry.item for entry in sharper.items}
    assert sharper.catalogue == record.catalogue
    assert there(sharper.entry("gone")).count < sharper.minimum_count
    desk.auditor.settled()


def test_a_window_costs_what_it_costs_without() -> None:
    plain, other = Desk(plan(ONLY_PAGES)), Desk(remembering(), lists=knowing("gone", "home"))
    for desk in (plain, other):
        desk.give("pages", 0, {"home": 40, "found": 40})
        desk.grant(1, "public", "fine")
    assert other.ledger(view="pages").spent == plain.ledger(view="pages").spent
    assert other.ledger(view="pages").spent.delta == DELTA


def test_an_empty_list_is_a_list_and_a_histogram_without_has_none() -> None:
    desk, plain = Desk(remembering(), lists=knowing()), Desk(plan(ONLY_PAGES))
    for one in (desk, plain):
        one.give("pages", 0, {"home": 40})
    first, other = released(desk), released(plain)
    assert there(first.catalogue).keys == 0
    assert [entry.new for entry in first.items] == [True]
    assert (other.catalogue, other.stays_from, [entry.new for entry in other.items]) == (None, None, [None])


GAUSSIAN = (
    POOL,
    ("    ledger: visitors", "    noise: discrete-gaussian\n    ledger: visitors"),
    (
        '"1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}',
        '"1/4"}, {level: middle, epsilon: "1/2"}, {level: fine, epsilon: "1"}',
    ),
)


@pytest.mark.parametrize("changes", [(), GAUSSIAN])
def test_the_list_is_stored_with_the_window_and_no_key_of_it_is_pruned(changes: Sequence[tuple[str, str]]) -> None:
    made = remembering(*changes)
    view, known = made.views["pages"], [f"page {n:06}" for n in range(2000)]
    counts = {"page 000007": 60, "another": 60, **{f"rare {n}": 1 for n in range(500)}}
    table = seal_window(view, 0, counts, prf_key=KEY, entropy=keyed, lists=knowing(*known))
    assert table.items[:2000] == known
    assert decode(ListPayload, table.payload) == ListPayload(KeyList.of(known).version, 2000)
    assert "another" in table.items
    assert len(table.items) < 2100, "those with one user are hidden at every level"
    assert len(table.payload) < 40
    for level, reading in enumerate(read_window(view, 0, table, range(3), KEY)):
        assert {entry.item for entry in reading.fields["items"]} >= set(known)
        new = {entry.item for entry in reading.fields["items"] if entry.new}
        assert "another" in new
        assert new.isdisjoint(known)
        assert reading.fields["stays_from"] == kind_of(made).stays_from[level]


def test_a_long_list_fits_into_rows_and_is_read_from_them() -> None:
    view, known = remembering().views["pages"], [f"{n:030}" for n in range(100_000)]
    table = seal_window(view, 0, {"another": 90}, prf_key=KEY, entropy=keyed, lists=knowing(*known))
    assert table.items == [*known, "another"]
    values = [there(value) for _, value in table_rows("pages", 0, table)]
    assert len(values) > 4
    assert max(map(len, values)) < 1 << 20
    stored = [decode(TableRow, value).table for value in values]
    assert [item for one in stored for item in one.items] == table.items
    assert {one.payload for one in stored} == {table.payload}


def test_counts_near_the_minimum_are_read_two_sided_where_the_key_was_known() -> None:
    desk = Desk(remembering(), lists=knowing("gone", "home"))
    desk.give("pages", 0, {"home": 7, "found": 60})
    record = released(desk)
    half, known, new = record.noise_interval_95, there(record.entry("home")), there(record.entry("found"))
    near = new.model_copy(update={"count": record.two_sided_from - 1})
    assert known.count < record.two_sided_from
    assert record.interval(known) == (known.count - half, known.count + half)
    assert record.interval(near) == (1, near.count + half)
    assert record.interval(new) == (new.count - half, new.count + half)


def test_readers_see_a_known_key_with_its_count_and_others_as_hidden() -> None:
    desk = Desk(remembering(), lists=knowing("gone", "home"))
    desk.give("pages", 0, {"home": 60, "rare": 1})
    record = released(desk)
    cell, value = BoardWindow((0, 1000)), encode(record)
    cell.take(there(outline(value)), value, 0, 0)
    gone, rare = (_entry(cell, record, item) for item in ("gone", "rare"))
    assert (gone["state"], gone["interval"]) == ("released", interval(record, there(record.entry("gone"))))
    assert (rare["state"], rare["shown_from"]) == ("hidden", record.minimum_count)
    table = {row[4]: row[5] for row in rows([Seen(record, None, None)], ["gone", "rare"])}
    assert table == {"gone": there(record.entry("gone")).count, "rare": None}


# -- the list -----------------------------------------------------------------------------------------------------


async def test_a_key_leaves_when_no_window_that_counts_shows_it_from_a_public_number_up() -> None:
    """Its noise alone keeps it, or not: what the records say decides, and nothing else."""
    desk = Desk(remembering(), lists=lambda _view, _closed: knowing("home", "gone"))
    for at in range(6):
        desk.give("pages", 1000 * at, {"home": 40, **({"found": 40} if at == 1 else {})})
    records = [released(desk, start=1000 * at) for at in range(6)]
    for at in range(1, 7):
        kept = {
            entry.item
            for record in records[max(0, at - 2) : at]
            for entry in record.items
            if entry.new or entry.count >= there(record.stays_from)
        }
        assert await listed(records[:at]) == KeyList.of(kept)
    lists = [set((await listed(records[:at])).keys) for at in range(1, 7)]
    assert ["found" in one for one in lists] == [False, True, True, False, False, False]
    assert all("home" in one for one in lists)
    assert not all("gone" in one for one in lists), "its noise is below"


def test_the_number_is_above_the_noise_and_new_keys_have_it() -> None:
    made = remembering()
    for level, (least, stays) in enumerate(zip(kind_of(made).minimum_counts, kind_of(made).stays_from, strict=True)):
        assert stays == min(least, made.views["pages"].levels[level].noise_interval + 1)


async def test_the_list_is_that_of_the_audience_that_is_named() -> None:
    """Staff is shown more, at a finer level; what public was not shown is not known to windows that follow public."""
    desk = Desk(remembering(), lists=knowing())
    desk.give("pages", 0, {"home": 40, "rare": 7})
    public, staff = released(desk), released(desk, "staff")
    assert {entry.item for entry in public.items} == {"home"}
    assert {entry.item for entry in staff.items} == {"home", "rare"}
    assert kind_of(remembering()).topics == (TOPIC,)
    assert await listed([public]) == KeyList.of(["home"])
    of_staff = remembering(("audience: public, keep", "audience: staff, keep"))
    assert kind_of(of_staff).topics == (OF_STAFF,)
    assert await listed([staff], OF_STAFF, of_staff) == KeyList.of(["home", "rare"])


async def test_a_grant_makes_later_lists_longer_and_none_that_a_window_was_sealed_with() -> None:
    desk = Desk(remembering(), lists=knowing())
    desk.give("pages", 0, {"home": 40, "rare": 7})
    desk.grant(1, "public", "fine")
    records = [one for one in desk.records("pages", "public") if isinstance(one, HistogramRelease)]
    assert [one.revision for one in records] == [1, 2]
    assert await listed(records[:1]) == KeyList.of(["home"])
    assert await listed(records) == KeyList.of(["home", "rare"])
    assert {there(one.catalogue).keys for one in records} == {0}


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_crash_changes_no_record_whatever_list_there_is_afterwards(cut: int) -> None:
    """What was stored before keeps its list; what was not has shown nothing."""
    asked: list[int] = []

    def lists(_view: str, _closed: int) -> dict[str, KeyList]:
        asked.append(1)
        return knowing("home", *(["late"] if len(asked) > 1 else []))

    desk = Desk(remembering(), lists=lists, cuts=(cut,))
    desk.give("pages", 0, {"home": 40})
    desk.grant(1, "public", "fine")
    records = [one for one in desk.records("pages", "public") if isinstance(one, HistogramRelease)]
    assert len({there(one.catalogue).version for one in records}) == 1
    assert len({encode(one) for one in records}) == 2
    desk.auditor.settled()


# -- settings -----------------------------------------------------------------------------------------------------


def test_check_says_what_is_known_and_who_learns_of_whose_keys() -> None:
    view = describe(remembering()).views[0]
    assert "partner and staff also see which keys public was shown of pages" in view.listed
    assert "in the newest 2 released windows" in view.explanation.keys
    assert all(seen.endswith(", or known") for seen in view.explanation.seen)
    assert list(view.explanation.details["stays_from"].values()) == list(kind_of(remembering()).stays_from)


def test_what_is_kept_and_of_whom_is_part_of_the_definition() -> None:
    changes = [(), (("keep: 2", "keep: 3"),), (("public, keep", "staff, keep"),)]
    prints = {remembering(*some).views["pages"].fingerprint for some in changes}
    assert len({*prints, plan(ONLY_PAGES).views["pages"].fingerprint}) == 4


def test_more_windows_than_are_retained_are_warned_of() -> None:
    found = describe(remembering(("retention: 1h", "retention: 2s"), ("keep: 2", "keep: 5"))).warnings
    assert any(one.startswith("view pages: its list keeps 5 windows of pages") for one in found)


def test_a_list_may_be_made_of_a_view_that_remembers() -> None:
    text = SHOP.partition("  tops:\n")[0].replace(*REMEMBER)
    counted = text.partition("  pages:\n")[2].replace(REMEMBER[1].partition("    ledger")[0], "")
    counted = counted.replace("kind: histogram", "kind: catalogue\n    catalogue: {from: pages, audience: public}")
    sections, faults = read_config(f"{text}  counted:\n{counted}", {})
    assert not faults
    assert build_plan(sections.raw).views["counted"].kind.topics == (TOPIC,)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("audience: public, keep", "audience: guests, keep"), "remember: audience 'guests' does not read this view; "),
        (("keep: 2", "keep: 0"), "views.pages.remember.keep"),
        (("keep: 2", "kept: 2"), "views.pages.remember.kept"),
        (
            ("    ladder: three\n", "    ladder: three\n    strict: {rows: 9}\n"),
            "views.pages.remember: a strict histogram",
        ),
        (("size: 1s,", "size: 2s, step: 1s, pane: 1s,"), "windows of a histogram are not made of panes"),
    ],
)
def test_what_cannot_remember_is_a_fault(change: tuple[str, str], fault: str) -> None:
    text = SHOP.partition("  tops:\n")[0].replace(*REMEMBER)
    assert change[0] in text
    sections, faults = read_config(text.replace(*change), {})
    found = list(faults)
    if not found:
        with pytest.raises(ConfigError) as caught:
            build_plan(sections.raw)
        found = list(caught.value.faults)
    assert any(fault in str(one) for one in found), found


def test_what_will_be_known_is_not_forecast() -> None:
    with pytest.raises(ConfigError, match="use `stream-dp replay`"):
        check_kind(remembering().views["pages"], {})


def test_users_are_bounded_as_in_any_histogram() -> None:
    """Keys that are not remembered count too, so nothing waits for the list."""
    counted = counted_view(remembering().views["pages"], 0, None, Lists({"pages": knowing("home")}))
    assert (counted.list_at, counted.domain, counted.most_accepted) == (None, None, counted.items_per_user)
