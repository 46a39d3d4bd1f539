"""With any value in place of a time, a record is counted or refused, and no error is raised."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows.avro import _in_ms
from stream_dp.windows.durations import DAY_MS, CalendarUnit
from stream_dp.windows.events import EventDecoder, EventFormat, TimeUnit
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView
from tests.support.counting import VIEW, Entry, counter, letters, totals, watermark
from tests.support.machine import Machine

NOW = 1_790_000_000_000
NUMBERS = [0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 10**30, -(10**30), 10**400, NOW, NOW // 1000, NOW * 1000]
TEXTS = ["", "NaN", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2024-02-30", "10000-01-01", "now", "1e9"]
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS, None, True, 1.5, float("nan"), float("inf"), [], {}]),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.datetimes().map(lambda moment: moment.isoformat()),
)


def shaped(shape: Any, **changes: Any) -> CountedView:
    start = shape.start_of(NOW - 40 * DAY_MS)
    return replace(VIEW, windows=shape, first_ms=start, max_ahead_ms=DAY_MS, grace_ms=0, **changes)


SHAPES = {
    "days": shaped(Tiling(DAY_MS)),
    "months": shaped(Calendar(CalendarUnit.MONTH, "Europe/Berlin"), clock="event"),
    "hopping weeks": shaped(Hopping(7 * DAY_MS, DAY_MS, 0)),
}


@settings(deadline=None, max_examples=60)
@given(st.lists(VALUES, min_size=1, max_size=5), st.sampled_from(["ms", "s", "iso"]), st.sampled_from([*SHAPES]))
def test_any_time_of_an_event_is_counted_or_refused(values: list[Any], unit: TimeUnit, shape: str) -> None:
    entries = [
        Entry(at, b"u%d" % at, json.dumps({"page": "a", "at": value}).encode(), timestamp=-1)
        for at, value in enumerate(values)
    ]
    machine, one = Machine(), counter(SHAPES[shape], form=EventFormat(("page",), None, "at", unit))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk(entries, NOW))
    machine.carry_out(one.ticks([NOW + 400 * DAY_MS]))
    refused = sum(amount for (name, _), amount in totals(machine).items() if name == "events_refused")
    assert refused == len(letters(machine.sent)) <= len(entries)


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.sampled_from(NUMBERS), st.integers(), st.text(max_size=9), st.sampled_from(["9" * 5000, "1_0"])))
def test_any_watermark_is_believed_or_refused(mark: int | str) -> None:
    machine, one = Machine(), counter(SHAPES["months"])
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([watermark(0, mark)], NOW))
    found = totals(machine)
    read = found.get(("watermarks_read", ()), 0)
    assert read + found.get(("events_refused", (("reason", "bad_watermark"), ("view", ""))), 0) == 1


@pytest.mark.parametrize("timestamp", [-1, -5])
def test_a_record_without_a_timestamp_says_so(timestamp: int) -> None:
    """The record's timestamp is the event's time; -1 is Kafka's "no timestamp"."""
    decoder = EventDecoder(EventFormat(("page",), None, None, "ms"))
    records = [Entry(0, b"u", b'{"page": "a"}', timestamp), Entry(1, b"u", b'{"page": "b"}', NOW)]
    decoded = decoder.decode(records)
    assert (decoded.refused, decoded.times) == ([(0, "no_timestamp")], [NOW])


@given(VALUES, st.sampled_from(["ms", "s", "iso"]), st.sampled_from(["", "date", "timestamp-micros", "time-millis"]))
def test_any_time_in_avro_is_a_number_or_none(value: Any, unit: TimeUnit, logical: str) -> None:
    found = _in_ms(unit, logical, UTC)(value)
    assert found is None or type(found) is int
