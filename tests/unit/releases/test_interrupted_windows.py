"""Windows that were closed before their source had caught up say so in each of their releases."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from stream_dp.records.codec import decode, encode, schema
from stream_dp.records.models import Release
from stream_dp.windows.encoding import decode as decode_row
from stream_dp.windows.merging import MergedBucket
from tests.support.panes import paned
from tests.support.releasing import Desk, buckets_of, merged_message, plan
from tests.support.running import running
from tests.support.schemas import mismatch

COUNTS = {"home": 40, "cart": 30}


def hand_over_window(desk: Desk, start: int, *, interrupted_in: int | None = None) -> None:
    """Hand a window of the view `pages` over; at most one of its buckets was interrupted."""
    messages = buckets_of(desk.plan.views["pages"], start, COUNTS)
    found = [decode_row(MergedBucket, message.value or b"") for message in messages]
    desk.reader.write(
        [merged_message(msgspec.structs.replace(one, interrupted=one.bucket == interrupted_in)) for one in found]
    )


def interruptions(desk: Desk) -> Mapping[tuple[int, int, int], bool]:
    """Return, by start and end of a window and revision, whether its releases say that it was interrupted."""
    found: dict[tuple[int, int, int], bool] = {}
    for audience in desk.plan.views["pages"].audiences:
        for record in desk.records("pages", audience):
            assert isinstance(record, Release)
            place = record.window.start_ms, record.window.end_ms, record.revision
            assert found.setdefault(place, record.interrupted is True) == (record.interrupted is True)
    return found


def test_every_revision_of_an_interrupted_window_says_so() -> None:
    desk = Desk(plan())
    hand_over_window(desk, 0)
    hand_over_window(desk, 1000, interrupted_in=1)
    desk.reader.restart()
    hand_over_window(desk, 2000)
    desk.grant(5, "public", "fine")
    assert interruptions(desk) == {
        (start, start + 1000, revision): start == 1000 for start in (0, 1000, 2000) for revision in (1, 2)
    }


def test_field_is_optional_and_in_the_schema() -> None:
    desk = Desk(plan())
    hand_over_window(desk, 0)
    hand_over_window(desk, 1000, interrupted_in=0)
    first, second = desk.records("pages", "public")
    assert "interrupted" not in json.loads(encode(first))
    assert json.loads(encode(second))["interrupted"] is True
    assert decode(encode(second)) == second
    for name in ("record", "histogram"):
        assert mismatch(json.loads(encode(second)), schema(name), schema(name)) == []


def test_sum_of_panes_is_interrupted_if_one_of_its_panes_is() -> None:
    desk = Desk(paned(3, 1))
    for start in range(0, 8000, 1000):
        hand_over_window(desk, start, interrupted_in=0 if start == 3000 else None)
    desk.grant(5, "public", "middle")
    found = interruptions(desk)
    assert {window: value for window, value in found.items() if value} == {
        (start, start + 3000, revision): True for start in (1000, 2000, 3000) for revision in (1, 2)
    }
    assert len(found) == 12


def test_running_total_is_interrupted_from_an_interrupted_pane_on() -> None:
    desk = Desk(running())
    for start in range(0, 12000, 1000):
        hand_over_window(desk, start, interrupted_in=0 if start == 2000 else None)
    desk.grant(5, "public", "middle")
    assert {(start, end) for (start, end, _), value in interruptions(desk).items() if value} == {
        (0, end) for end in range(3000, 7000, 1000)
    }
