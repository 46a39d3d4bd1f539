"""With any content in the time column, reading a history ends and raises only errors of the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_dp.cli.feed_command import still_open, surveyed
from stream_dp.config.plan import Plan
from stream_dp.errors import StreamDPError
from stream_dp.operations.feed import FeedOptions, Watermarks
from stream_dp.operations.past_counts import EventColumns, count_windows
from stream_dp.operations.past_events import PastEvents, open_past_events
from stream_dp.operations.replay import _steps, windows_to_release
from stream_dp.testing import plan_from
from stream_dp.windows.durations import parse_time
from tests.support.visits import configuration

JANUARY = parse_time("2024-01-01T00:00:00Z")
NUMBERS = [0, -1, 1 << 31, 1 << 63, 10**30, -(10**30), 10**400, JANUARY, JANUARY // 1000, JANUARY * 1000]
TEXTS = ["", "NaN", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9999-12-31", "2024-02-30", "1e9"]
VALUES = st.one_of(
    st.integers(JANUARY, JANUARY + 600_000),
    st.sampled_from([*NUMBERS, *map(str, NUMBERS), *TEXTS, None, True, 1.5, [], {}]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.datetimes(timezones=st.sampled_from([None, UTC])).map(lambda moment: moment.isoformat()),
)
OPTIONS = st.builds(
    FeedOptions,
    time_format=st.sampled_from([None, "ms", "s", "iso"]),
    unchecked_data=st.booleans(),
    drop_outliers=st.booleans(),
    from_ms=st.sampled_from([None, JANUARY]),
    until_ms=st.sampled_from([None, JANUARY + 600_000, parse_time("9999-12-31T00:00:00Z")]),
    skip_bad=st.just(True),
)
UNITS = ["ms", "s", "iso"]


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[[str], Plan]:
    def made(unit: str) -> Plan:
        return plan_from(configuration("a", ("{field: at}", f"{{field: at, unit: {unit}}}")), tmp_path)

    return made


def read(plan: Plan, file: Path, options: FeedOptions) -> None:
    """Read a history as `feed`, `replay` and `plan` do, up to what would be written, released or counted."""
    (view,) = plan.views.values()
    columns = EventColumns(view, [view.name])
    history = open_past_events(plan, file, options, None, columns.take)
    assert [*surveyed(history.survey, history.views), *still_open(history.views, history.until_ms)]
    assert writes_events(history)
    assert windows_to_release(history) >= 0
    assert len(list(_steps(history, skips=False))) < 1000
    assert len(list(_steps(history, skips=True))) < 1000
    with suppress(StreamDPError):
        count_windows(columns, history.views[0], history.until_ms)


def writes_events(history: PastEvents) -> bool:
    marks = Watermarks(history.source, history.views, history.until_ms, ordered=history.survey.ordered)
    written = [marks.among(chunk) for chunk in history.events.chunks(1)]
    return any(written) or not history.survey.events


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(VALUES, min_size=1, max_size=6), OPTIONS, st.sampled_from(UNITS))
def test_any_times_in_a_file_are_read_or_refused(
    plan_of: Callable[[str], Plan], tmp_path: Path, times: list[Any], options: FeedOptions, unit: str
) -> None:
    rows = [{"user": f"u{number}", "page": "/", "at": time} for number, time in enumerate(times)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with suppress(StreamDPError):
        read(plan_of(unit), tmp_path / "rows.jsonl", options)


@pytest.mark.parametrize("unit", UNITS)
def test_any_times_in_parquet_are_read_or_refused(plan_of: Callable[[str], Plan], tmp_path: Path, unit: str) -> None:
    """Times that Python cannot represent make only their own rows invalid."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    good = datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)
    columns = {
        "us": pyarrow.array([int(good.timestamp()) * 10**6, 1 << 62, -(1 << 62)], pyarrow.timestamp("us")),
        "ms": pyarrow.array([int(good.timestamp()) * 10**3, 1 << 62, -(1 << 62)], pyarrow.timestamp("ms", "UTC")),
        "date": pyarrow.array([date(2024, 1, 1), date.max, date.min]),
        "decimal": pyarrow.array([Decimal("1704067201000"), Decimal(10) ** 30, None], pyarrow.decimal128(38)),
        "float": pyarrow.array([1704067201000.0, float("nan"), float("inf")]),
    }
    for name, cells in columns.items():
        table = pyarrow.table({"user": ["a", "b", "c"], "page": ["/"] * 3, "at": cells})
        parquet.write_table(table, tmp_path / "rows.parquet")
        options = FeedOptions(skip_bad=True, unchecked_data=True)
        with suppress(StreamDPError):
            read(plan_of(unit), tmp_path / "rows.parquet", options)
        if name in ("us", "ms"):
            history = open_past_events(plan_of(unit), tmp_path / "rows.parquet", options)
            assert (history.survey.events, history.survey.refused) == (1, {"wrong_type": 2})
