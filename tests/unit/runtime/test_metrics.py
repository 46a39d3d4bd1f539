"""Counters count ways, never content."""

from __future__ import annotations

from stream_dp.runtime.metrics import Counters
from stream_dp.windows.effects import Increment


def counters() -> Counters:
    made = Counters()
    made.add(Increment("events_refused", 2, (("reason", "late"), ("view", "a"))))
    made.add(Increment("events_refused", 3, (("reason", "late"), ("view", "b"))))
    made.add(Increment("events_refused", 5, (("reason", "null_key"), ("view", ""))))
    made.add(Increment("events_refused", 7, (("reason", "late"), ("view", "a"))))
    made.add(Increment("events_consumed", 11))
    return made


def test_total_sums_over_the_labels_that_are_not_named() -> None:
    made = counters()

    assert made.total("events_refused") == 17
    assert made.total("events_refused", reason="late") == 12
    assert made.total("events_refused", reason="late", view="a") == 9
    assert made.total("events_refused", view="c") == 0
    assert made.total("events_consumed") == 11
    assert made.total("events") == 0


def test_lines_are_sorted_and_name_every_label() -> None:
    assert list(counters().lines().items()) == [
        ("events_consumed", 11),
        ("events_refused{reason=late,view=a}", 9),
        ("events_refused{reason=late,view=b}", 3),
        ("events_refused{reason=null_key,view=}", 5),
    ]
