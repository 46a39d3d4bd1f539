"""Records of views: what they say, when they are sent, and that they follow from the settings alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stream_dp.config.plan import ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.control.editions import first_record, next_record, plan_holding
from stream_dp.control.settings_change import Situation, propose
from stream_dp.records.codec import encode, parse, schema
from stream_dp.records.codec import outline as outline_of
from stream_dp.records.view_record import ViewRecord
from stream_dp.releases.announcements import view_record
from stream_dp.releases.rows import ANNOUNCED
from stream_dp.windows.durations import CalendarUnit
from stream_dp.windows.shapes import asked_shape
from stream_dp.windows.shapes.calendars import Calendar
from tests.support.acts import shop
from tests.support.chosen import ordinarily
from tests.support.editions import holding
from tests.support.given import there
from tests.support.machine import newest
from tests.support.releasing import ONLY_PAGES, SHOP, Desk, plan, plan_of, release_topic
from tests.support.schemas import mismatch

PAGES = plan(ONLY_PAGES)
RICH = ('epsilon: "40", delta: "1/5", period: 4s', 'epsilon: "4000", delta: "9/10", period: 100s')
FIRST = plan(ONLY_PAGES, RICH)
SECOND = plan(ONLY_PAGES, RICH, ('fine, epsilon: "4"', 'fine, epsilon: "5"'))
HOME = {"home": 40, "cart": 12}
WORDS = (
    "    kind: histogram\n",
    "    kind: histogram\n    title: Pages seen\n    unit: people\n    item_meaning: a page\n",
)
AUDIENCES = ("partner", "public", "staff")


def said(desk: Desk, start: int = 0) -> list[tuple[str, str, int]]:
    """Audience, title and edition of each record of a view that was sent, in order; no title: it was taken back."""
    found = []
    for message in desk.described()[start:]:
        _, audience, _, edition = (message.key or b"").decode().split("/")
        record = None if message.value is None else parse(message.value)
        found.append((audience, record.title if isinstance(record, ViewRecord) else "", int(edition)))
    return found


def standing(desk: Desk) -> dict[tuple[str, int], bytes]:
    """By audience and edition: what compaction leaves of the records of views."""
    left = newest(desk.described())
    return {
        (topic.rpartition(".")[2], int((key or b"").rpartition(b"/")[2])): value
        for (topic, _, key), value in left.items()
        if value is not None
    }


def editions_left(desk: Desk, audience: str) -> set[int]:
    """The editions of what compaction leaves of the releases for an audience."""
    left = newest(one for one in desk.published() if one.topic == release_topic("pages", audience))
    return {outline.edition for value in left.values() if value is not None and (outline := outline_of(value))}


def of(view: ViewPlan, audience: str) -> ViewRecord:
    begun = view if view.editions else view.begun(view.window.first_ms or 0)
    return view_record(begun, begun.editions[-1], audience)


# -- what they say ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tumbling", "streamed", "hopping", "paned", "running"])
def test_a_record_of_every_shape_and_kind_fits_its_schema_and_is_read_back(name: str) -> None:
    view = shop().views[name]
    for audience in view.audiences:
        record = of(view, audience)
        data = encode(record)
        assert parse(data) == record
        for one in ("view", "record"):
            assert mismatch(json.loads(data), schema(one), schema(one)) == []
        assert (record.kind, record.level) == (view.kind.name, view.levels[view.audiences[audience]].name)


def test_the_record_of_a_histogram_says_how_to_read_it() -> None:
    record = json.loads(encode(of(shop().views["tumbling"], "public")))
    levels = record.pop("levels")
    del record["neighbours"], record["code_version"]
    amount: dict[str, Any] = {
        "epsilon": {"decimal": "40000", "exact": "40000"},
        "delta": {"decimal": "0.9", "exact": "9/10"},
    }
    assert record == {
        "schema_version": 1,
        "type": "view",
        "view": "tumbling",
        "audience": "public",
        "title": "Tumbling",
        "unit": "visitors",
        "kind": "histogram",
        "items_per_user": 1,
        "edition": {"number": 1, "first_window": "1970-01-01T00:00:00Z", "first_window_ms": 0},
        "window": {
            "size": "10s", "size_ms": 10_000, "every_ms": 10_000, "origin_ms": 0, "grace_ms": 0, "clock": "wall"
        },
        "retention_ms": 60_000,
        "level": "coarse",
        "unlocks": [{"level": "middle", "after_ms": 20_000}, {"level": "fine", "after_ms": 45_000}],
        "ledger": {"name": "visitors", "population": "visitors", "period": "2m", "budget": amount},
    }  # fmt: skip
    kind = shop().views["tumbling"].kind
    assert [one["name"] for one in levels] == ["coarse", "middle", "fine"]
    for at, one in enumerate(levels):
        assert {name: one[name] for name in kind.limits(at)} == kind.limits(at)
        assert one["noise_interval_95"] == kind.levels[at].noise_interval
        assert one["noise"] == kind.levels[at].noise.model_dump(mode="json", exclude_none=True)


def test_intervals_of_panes_and_totals_are_those_of_their_releases() -> None:
    paned, running = shop().views["paned"], shop().views["running"]
    (coarse,) = of(paned, "partner").levels
    assert (there(coarse.epsilon).exact, coarse.noise_interval_95) == ("3", paned.levels[0].interval_of(3))
    (coarse,) = of(running, "partner").levels
    assert coarse.noise_interval_95 == running.levels[0].interval_of(2), "the total of three panes has two blocks"


@pytest.mark.parametrize(
    ("name", "first", "next_"), [("tumbling", 10, 20), ("hopping", 20, 30), ("paned", 30, 40), ("running", 10, 20)]
)
def test_when_the_next_window_is_due_follows_from_the_record(name: str, first: int, next_: int) -> None:
    record = of(shop().views[name], "staff")
    assert record.due_ms(None) == 1000 * first
    assert record.due_ms(1000 * first) == 1000 * next_


@pytest.mark.parametrize("name", ["tumbling", "streamed", "hopping", "paned", "running"])
def test_the_settings_of_a_shape_ask_for_it(name: str) -> None:
    shape = shop().views[name].window.shape
    assert asked_shape(shape.settings).planned(shape.settings) == shape
    local = Calendar(CalendarUnit.MONTH, "Europe/Berlin")
    assert asked_shape(local.settings).planned(local.settings) == local


def test_nobody_can_tell_by_a_clock_when_a_window_of_event_time_is_due() -> None:
    assert of(shop().views["streamed"], "staff").due_ms(10_000) is None


def test_a_window_of_a_calendar_is_due_at_its_end_and_grace() -> None:
    daily = SHOP.replace("period: 4s", "period: 1y, zone: Europe/Berlin").replace(
        "start: 1970-01-01T00:00:00Z, grace: 0s", "grace: 1m"
    )
    view = plan_of(daily.replace("size: 1s", "size: 1mo, zone: Europe/Berlin")).views["pages"]
    april, may = 1_396_303_200_000, 1_398_895_200_000  # local midnights
    record = of(view.begun(april), "public")
    assert (record.window.size, record.window.zone, record.window.size_ms) == ("1mo", "Europe/Berlin", None)
    assert record.due_ms(None) == record.due_ms(april) == may + 60_000


@pytest.mark.parametrize("name", ["tumbling", "streamed", "hopping", "paned", "running"])
def test_no_byte_of_an_audience_depends_on_another(name: str) -> None:
    raw = json.loads(json.dumps(shop().raw, default=str))
    raw["audiences"] = {**raw["audiences"], "staff": "coarse"}
    changed = build_plan(raw)
    assert encode(of(changed.views[name], "staff")) != encode(of(shop().views[name], "staff"))
    assert encode(of(changed.views[name], "partner")) == encode(of(shop().views[name], "partner"))


def test_other_data_give_the_same_records_of_views_byte_for_byte() -> None:
    def run(counts: Mapping[str, int]) -> list[tuple[str, bytes | None, bytes | None]]:
        desk = Desk(holding((0, FIRST), (3, SECOND)))
        for second in range(6):
            desk.give("pages" if second < 3 else "pages@2", 1000 * second, counts)
        desk.reader.restart()
        return [(message.topic, message.key, message.value) for message in desk.described()]

    assert run(HOME) == run({f"page {n}": n for n in range(900)}) == run({})


# -- when they are sent -------------------------------------------------------------------------------------------


def test_they_are_sent_when_a_view_begins_and_not_again() -> None:
    desk = Desk(PAGES)
    desk.reader.load()
    assert said(desk) == [(name, "Pages", 1) for name in AUDIENCES]
    for second in range(3):
        desk.give("pages", 1000 * second, HOME)
        desk.reader.restart()
    assert len(desk.described()) == 3


@pytest.mark.parametrize("step", [10, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("back", ordinarily(1, [2, 0]))
def test_a_crash_anywhere_loses_none_and_sends_nothing_twice_that_differs(back: int, step: int) -> None:
    """The auditor checks at every point that no release is published before the record of its edition."""

    def run(*cuts: int) -> Desk:
        desk = Desk(holding((0, FIRST)), cuts=cuts, back=back)
        desk.reader.load()
        desk.give("pages", 0, HOME)
        desk.change(holding((0, FIRST), (1, SECOND)))
        desk.give("pages@2", 1000, HOME)
        return desk

    whole = run()
    assert len(said(whole)) == 3 + 6, "the first edition names the next one"
    for cut in range(0, whole.machine.points, step):
        desk = run(cut, 5)
        assert standing(desk) == standing(whole)
        assert {(m.key, m.value) for m in desk.described()} == {(m.key, m.value) for m in whole.described()}


def test_what_waits_to_leave_is_sent_by_whoever_takes_the_partition_over() -> None:
    first = Desk(PAGES, until_ms=-1)
    first.reader.load()
    assert first.described() == []
    heir = Desk(PAGES)
    heir.machine.rows = dict(first.machine.rows)
    heir.reader.load()
    assert said(heir) == [(name, "Pages", 1) for name in AUDIENCES]
    assert sum(key.startswith(ANNOUNCED) for key in heir.machine.rows) == 3


def test_settings_that_change_before_a_record_left_send_the_newer_one_alone() -> None:
    desk = Desk(PAGES, until_ms=-1)
    desk.reader.load()
    desk.change(plan(ONLY_PAGES, WORDS))
    desk.slot(1000)
    assert said(desk) == [(name, "Pages seen", 1) for name in AUDIENCES]


def test_other_words_are_sent_at_once_and_begin_no_edition() -> None:
    before, after = PAGES, plan(ONLY_PAGES, WORDS)
    known = [first_record(before, 0)]
    found = propose(before, after, Situation(now_ms=5000, holding=plan_holding(known, before)))
    found.check()
    assert [one.path for one in found.settings] == ["views.pages.title", "views.pages.unit", "views.pages.item_meaning"]
    assert (found.begins, found.ends) == ({}, {})
    desk = Desk(plan_holding(known, before))
    desk.give("pages", 0, HOME)
    desk.change(plan_holding([*known, next_record(known, after, {}, {}, 5000)], before))
    assert said(desk, 3) == [(name, "Pages seen", 1) for name in AUDIENCES]
    record = parse(standing(desk)["public", 1])
    assert isinstance(record, ViewRecord)
    assert (record.unit, record.item_meaning, record.next_edition) == ("people", "a page", None)
    desk.give("pages", 1000, HOME)
    assert [one.edition for one in desk.records("pages", "public")] == [1, 1]


def test_the_words_of_a_former_edition_are_the_newest() -> None:
    holds = holding((0, FIRST), (3, plan(ONLY_PAGES, RICH, ('fine, epsilon: "4"', 'fine, epsilon: "5"'), WORDS)))
    assert {view.words.title for view in holds.views.values()} == {"Pages seen"}


def test_an_edition_that_was_replaced_before_it_began_is_taken_back() -> None:
    desk = Desk(holding((0, FIRST), (3, SECOND)))
    desk.reader.load()
    assert standing(desk).keys() == {(name, at) for name in AUDIENCES for at in (1, 2)}
    desk.change(holding((0, FIRST), (3, SECOND), (2, FIRST)))
    assert standing(desk).keys() == {(name, at) for name in AUDIENCES for at in (1, 3)}
    record = parse(standing(desk)["public", 1])
    assert isinstance(record, ViewRecord)
    assert record.next_edition is not None
    assert (record.next_edition.number, record.next_edition.first_window_ms) == (3, 2000)


def test_the_record_of_an_edition_is_taken_back_with_its_last_windows() -> None:
    short = ("retention: 1h", "retention: 2s")
    desk = Desk(
        holding(
            (0, plan(ONLY_PAGES, RICH, short)),
            (2, plan(ONLY_PAGES, RICH, short, ('coarse, epsilon: "1"', 'coarse, epsilon: "3/2"'))),
        )
    )
    for second in range(4):
        desk.give("pages" if second < 2 else "pages@2", 1000 * second, HOME)
    assert {edition for _, edition in standing(desk)} == {1, 2}
    for second in range(4, 7):
        desk.give("pages@2", 1000 * second, HOME)
    assert {edition for _, edition in standing(desk)} == {2}
    desk.reader.restart()
    assert {edition for _, edition in standing(desk)} == {2}


def test_the_record_of_an_edition_stays_for_windows_that_it_released_before_the_next_was_known() -> None:
    short, dearer = ("retention: 1h", "retention: 2s"), ('coarse, epsilon: "1"', 'coarse, epsilon: "3/2"')
    first, second = plan(ONLY_PAGES, RICH, short), plan(ONLY_PAGES, RICH, short, dearer)
    desk = Desk(holding((0, first)))
    for start in range(5):
        desk.give("pages", 1000 * start, HOME)
    desk.change(holding((0, first), (2, second)))
    for start in range(5, 10):
        assert {("public", edition) for edition in editions_left(desk, "public")} <= standing(desk).keys()
        desk.give("pages@2", 1000 * start, HOME)
        desk.reader.restart()
    assert {edition for _, edition in standing(desk)} == {2}


def test_the_record_of_a_removed_audience_is_taken_back_when_its_windows_are_over() -> None:
    short = ("retention: 1h", "retention: 2s")
    without = (
        "audiences: {partner: coarse, public: coarse, staff: middle}",
        "audiences: {public: coarse, staff: middle}",
    )
    changed = holding((0, plan(ONLY_PAGES, RICH, short)), (2, plan(ONLY_PAGES, RICH, short, without)))
    desk = Desk(holding((0, plan(ONLY_PAGES, RICH, short))))
    for second in range(2):
        desk.give("pages", 1000 * second, HOME)
    desk.change(changed)
    assert {name for name, _ in standing(desk)} == {*AUDIENCES}
    for second in range(2, 8):
        desk.give("pages", 1000 * second, HOME)
    assert {name for name, _ in standing(desk)} == {"public", "staff"}
    assert desk.described()[-1].topic != release_topic("pages", "public")


def test_an_audience_that_comes_later_gets_the_record_of_every_edition_it_reads() -> None:
    later = ("audiences: {partner: coarse,", "audiences: {auditor: coarse, partner: coarse,")
    desk = Desk(holding((0, FIRST)))
    desk.give("pages", 0, HOME)
    desk.change(holding((0, FIRST), (2, plan(ONLY_PAGES, RICH, later))))
    assert {at for name, at in standing(desk) if name == "auditor"} == {1, 2}
