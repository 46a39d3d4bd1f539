"""The clocks of the simulator: catch-up after a silence, watermarks and idle partitions (sections 3, 6, 9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stream_dp.config.plan import WindowPlan
from tests.transcript.clock import Partition, readings
from tests.transcript.predictions import Record
from tests.transcript.tapes import SECOND, Placed, first_settings, lines, predict, shop, tape
from tests.transcript.transcript import Gap, PartitionEvent, Tick, Watermark

ONE_READER = {"public": "coarse"}


def window(**changes: Any) -> WindowPlan:
    return shop(view={"window": changes}).views["pages"].window


def shown(ticks: Iterable[int], plan: WindowPlan, watermarks: dict[int, int] | None = None) -> dict[int, int | None]:
    """Return, by second of the tick, the second that the clock shows; a watermark comes before its tick."""
    events: list[PartitionEvent] = []
    for second in ticks:
        if second in (watermarks or {}):
            events.append(Watermark("visits", (watermarks or {})[second] * SECOND))
        events.append(Tick(second * SECOND, 0, frozenset({"visits"})))
    found = readings(Partition.from_events(events), "visits", plan)
    return {one.tick_ms // SECOND: None if one.closes_ms is None else one.closes_ms // SECOND for one in found}


def release_of(records: Iterable[Record], start: int) -> Record:
    return next(one for one in records if one.kind == "release" and one.start_ms == start * SECOND)


# Catch-up


def test_distance_of_five_seconds_is_no_silence() -> None:
    assert shown([0, 5, 10], window()) == {0: 0, 5: 5, 10: 10}


def test_distance_of_half_the_grace_is_no_silence() -> None:
    assert shown([0, 10, 21], window(grace="20s")) == {0: 0, 10: 10, 21: 10}


def test_clock_stands_still_as_long_as_the_silence() -> None:
    """After ten seconds of silence, the clock waits for the first tick ten seconds later, and jumps to it."""
    assert shown([0, 1, 11, 15, 20, 22, 23], window()) == {0: 0, 1: 1, 11: 1, 15: 1, 20: 1, 22: 22, 23: 23}


def test_clock_stands_still_for_at_most_thirty_seconds() -> None:
    ticks = [0, 100, *range(101, 140)]
    assert [second for second, clock in shown(ticks, window()).items() if clock == second] == [0, *range(130, 140)]


def test_further_silence_begins_again() -> None:
    found = shown([0, 10, *range(11, 20), 28, *range(29, 38)], window())
    assert [second for second, clock in found.items() if clock == second] == [0, 37]


def test_flapping_cannot_stall_forever() -> None:
    """Silences of 6 s from 6 on: the limit is 60 s after the end of the first, so at 66."""
    found = shown(range(0, 120, 6), window(catch_up="6s"))
    assert [second for second, clock in found.items() if clock == second][:2] == [0, 66]


def test_short_silence_does_not_end_what_a_long_one_began() -> None:
    """A silence of 40 s, then one of 6 s: the catch-up of 30 s goes on."""
    found = shown([0, 40, 46, *range(47, 75)], window())
    assert [second for second, clock in found.items() if clock == second] == [0, *range(70, 75)]


def test_silence_without_a_catch_up_changes_nothing() -> None:
    assert shown([0, 100, 101], window(catch_up="0s")) == {0: 0, 100: 100, 101: 101}


def test_catch_up_moves_the_slot_and_not_the_place() -> None:
    """Source partition 1 is silent from 9 to 19: the window is decided at 12 and closed at 29."""
    ticks = {0: range(40), 1: [*range(10), *range(19, 40)]}
    records = predict(tape(first_settings(shop(audiences=ONE_READER)), ticks=ticks)).records
    release = release_of(records, 0)
    assert (release.place.tick_ms, release.slot_ms) == (12_000, 31_000)
    assert not release.is_interrupted


def test_window_closed_by_the_limit_is_interrupted() -> None:
    """One interrupted source partition marks the window; the next one is closed as usual."""
    ticks = {0: range(90), 1: [*range(0, 67, 6), *range(67, 90)]}
    plan = shop(view={"window": {"catch_up": "6s"}}, audiences=ONE_READER)
    records = predict(tape(first_settings(plan), ticks=ticks)).records
    assert release_of(records, 0).slot_ms == 68_000
    assert [release_of(records, start).is_interrupted for start in (0, 50, 60)] == [True, True, False]


def test_silence_without_a_leader_counts_by_ticks_about_the_source() -> None:
    """The partition has a tick every second, but from 5 to 15 none that is about the source."""
    silent = {(1, second): {"visits"} for second in range(5, 15)}
    records = predict(tape(first_settings(shop(audiences=ONE_READER)), ticks=range(40), silent=silent)).records
    assert release_of(records, 0).slot_ms == 28_000


# Watermarks


def test_watermark_closes_at_the_tick_after_it() -> None:
    plan = window(clock="event")
    assert shown([5, 6, 7], plan, {6: 3}) == {5: None, 6: 3, 7: 3}


def test_watermark_counts_as_its_tick_at_most() -> None:
    assert shown([5, 6], window(clock="event"), {6: 90}) == {5: None, 6: 6}


def test_watermark_never_goes_back() -> None:
    assert shown([5, 6, 7], window(clock="event"), {5: 4, 6: 2}) == {5: 4, 6: 4, 7: 4}


def test_idle_clock_advances_like_the_wall_clock() -> None:
    found = shown(range(10, 20), window(clock="event", idle="5s"), {10: 3})
    assert found == {**dict.fromkeys(range(10, 16), 3), 16: 4, 17: 5, 18: 6, 19: 7}


def test_partition_without_watermarks_becomes_idle() -> None:
    found = shown(range(10, 18), window(clock="event", idle="5s"))
    assert found == {**dict.fromkeys(range(10, 16)), 16: 11, 17: 12}


def test_idle_clock_stands_still_in_a_catch_up() -> None:
    found = shown([10, 11, 12, 30, 34, 38, 42, 46, 48, 49], window(clock="event", idle="5s"), {10: 3})
    assert found == {**dict.fromkeys([10, 11, 12, 30, 34, 38, 42, 46], 3), 48: 36, 49: 37}


def test_window_by_watermark_has_the_tick_of_the_last_partition() -> None:
    plan = shop(audiences=ONE_READER, view={"window": {"clock": "event", "idle": "1h"}})
    placed = {0: [(20, Watermark("visits", 12_000))], 1: [(24, Watermark("visits", 12_000))]}
    records = predict(tape(first_settings(plan), ticks=range(15, 30), placed=placed)).records
    assert release_of(records, 0).place.tick_ms == 24_000


def test_place_of_a_gap_between_two_ticks_does_not_matter() -> None:
    """Issue: regular watermarks did not hide whose record was deleted last."""
    plan = shop(audiences=ONE_READER, view={"window": {"clock": "event", "idle": "1h", "max_ahead": "1s"}})
    gap = (22, Gap("visits"))
    watermark = (22, Watermark("visits", 12_000))
    later = (30, Watermark("visits", 22_000))
    other = [(22, Watermark("visits", 12_000)), (29, Watermark("visits", 22_000))]
    orders: list[list[Placed]] = [[gap, watermark, later], [watermark, gap, later]]
    for order in orders:
        found = predict(tape(first_settings(plan), ticks=range(15, 35), placed={0: order, 1: other}))
        assert lines(found) == ["22.2 refusal pages/public 0 lost", "30.2 refusal pages/public 10 lost"]


def test_windows_have_closing_times_of_their_own() -> None:
    """Issue: several ticks in one step shared one closing time, so one late record changed slot and list."""
    reading = {"catalogue": {"topic": "keys"}}
    views = {"early": reading, "late": {**reading, "window": {"grace": "4s"}}}
    plan = shop(views=views, audiences=ONE_READER)
    records = predict(tape(first_settings(plan), ticks=range(20), lists={"keys": [(0, "old"), (13, "new")]})).records
    found = [(one.view, one.slot_ms // SECOND, one.list_version) for one in records if one.kind == "release"]
    assert found == [("early", 14, "keys=old"), ("late", 16, "keys=new")]


def test_both_clocks_share_one_order() -> None:
    views = {"wall": {}, "event": {"window": {"clock": "event", "idle": "1h"}}}
    plan = shop(views=views, audiences=ONE_READER)
    placed = {number: [(12, Watermark("visits", 12_000))] for number in (0, 1)}
    found = predict(tape(first_settings(plan), ticks=range(14), placed=placed))
    assert lines(found) == ["12.2 release event/public 0 coarse r1", "12.2 release wall/public 0 coarse r1"]


def test_ledger_with_watermarks_waits_for_every_source_partition() -> None:
    """A counter that lags holds up all views of its ledger."""
    views = {"wall": {}, "event": {"window": {"clock": "event", "idle": "1h"}}}
    plan = shop(views=views, audiences=ONE_READER)
    found = predict(tape(first_settings(plan), ticks={0: range(30), 1: range(11)}))
    assert lines(found) == []
    assert found.until_ms == 11_000
