"""What operators are told of calendar windows: `check`, the forecast of `ledger`, `status`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.accounting import Cost, Ledger
from stream_dp.cli.check_command import check
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.operations.reports import Reports
from stream_dp.operations.status import summary
from stream_dp.records.models import LedgerEntry, PartitionStatus, ViewStatus
from stream_dp.records.statement import read_statements
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import audience_charge, entry_record
from stream_dp.runtime.kafka.client import NO_GROUP
from stream_dp.windows.durations import parse_time
from stream_dp.windows.shapes.shape import Interval
from tests.support.views import balance
from tests.unit.cli.test_status import worker

FIRST = parse_time("2024-02-29T23:00:00Z")
"""Midnight in Berlin at the beginning of March, in which a day has 23 hours."""
NOON = parse_time("2024-03-31T10:00:00Z")
"""Of that day."""


@pytest.fixture
def local(visits_file: Path) -> Path:
    """The file of the application with local days, and a budget for every local month."""
    text = visits_file.read_text()
    for old, new in (
        ("size: 1d", "size: 1d, zone: Europe/Berlin"),
        ("period: 10d", "period: 1mo, zone: Europe/Berlin"),
    ):
        assert old in text
        text = text.replace(old, new)
    visits_file.write_text(text)
    return visits_file


@pytest.fixture
def planned(local: Path) -> Plan:
    return load_plan(local)


def test_check_explains_them(local: Path) -> None:
    said = " ".join(CliRunner().invoke(check, [str(local), "--explain"], env={"COLUMNS": "400"}).stdout.split())
    assert "1mo in Europe/Berlin" in said
    assert "A window is a day of the calendar of Europe/Berlin, from local midnight on: 23 to 25 hours." in said


def test_the_forecast_is_that_of_the_month_that_runs(planned: Plan) -> None:
    """After ten of the 31 days of March each view has 21 to come; the budget pays for some of them."""
    view = planned.views["pages"]
    left, entries = view.ledger.budget, list[LedgerEntry]()
    for start in view.window.shape.starts(FIRST, parse_time("2024-03-10T23:00:00Z")):
        left -= view.cost(1)
        readers = [
            audience_charge(view, name, level, 1, Cost.ZERO, view.cost(1)) for name, level in view.audiences.items()
        ]
        booking = Booking(Ledger(left), balance(view, left, planned.views.values()), view.cost(1))
        entries.append(entry_record(view, start, "charge", readers, booking))
    assert len(entries) == 10
    ((period, statement),) = read_statements(iter(enumerate(entries))).items()
    assert (period.start_ms, period.end_ms) == (FIRST, parse_time("2024-03-31T22:00:00Z"))
    found, _ = forecast(planned, statement)
    assert found["pages"].to_come == 21
    assert found["searches"].to_come == 31
    shape = view.window.shape
    for name, first in (("pages", shape.next(FIRST, 10)), ("searches", FIRST)):
        one = found[name]
        assert one.until_ms == (shape.next(first, one.windows) if one.windows < one.to_come else period.end_ms)


def test_status_says_which_window_is_open_and_when_it_leaves(planned: Plan) -> None:
    window = planned.views["pages"].window
    day = Interval(parse_time("2024-03-30T23:00:00Z"), parse_time("2024-03-31T22:00:00Z"))
    views = {name: ViewStatus(clock_ms=NOON, open_from_ms=day.start_ms) for name in planned.views}
    part = PartitionStatus(
        lag={"visits": 0}, views=views, next_windows_ms=dict.fromkeys(planned.views, day.start_ms), counters={}
    )
    one = worker("one", dict.fromkeys(range(planned.partitions), part), at_ms=NOON)
    found = summary(planned, Reports(NOON, {"one": one}, dict(one.partitions), frozenset(), NO_GROUP)).views["pages"]
    assert (found.open_windows, found.open_from_ms, found.open_until_ms) == (1, day.start_ms, day.end_ms)
    assert found.released_to_ms == day.start_ms
    assert found.next_due_ms == planned.slots.after(day.end_ms + window.grace_ms)
