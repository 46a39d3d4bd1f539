"""Releases as a table: rows, data frames and Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.client import Expired, to_arrow, to_pandas
from stream_dp.records.table import COLUMNS

Make = Callable[..., Any]


def records(release: Make, refusal: Make) -> list[Any]:
    gone = release({"home": 9}, day=4)
    first = [release({"home": 40}), release({}, day=1), refusal(day=3), refusal(day=0, revision=2), gone]
    return [*first, release({"home": 44}, revision=2, level=1), Expired("pages", "public", gone.window)]


def test_a_data_frame_has_the_newest_records_and_no_zero_for_a_refused_window(release: Make, refusal: Make) -> None:
    pytest.importorskip("pandas")
    frame = to_pandas(records(release, refusal))
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["state"]) == ["sharper", "empty", "refused"]
    assert list(frame["count"].fillna(-1)) == [44, -1, -1]
    assert [str(frame[name].dtype) for name in ("window_start", "revision", "count", "low_95", "item")] == [
        "datetime64[ms, UTC]",
        *["Int64"] * 3,
        "string",
    ]
    assert frame["window_start"][2].isoformat() == "1970-01-04T00:00:00+00:00"


def test_arrow_has_the_same(release: Make, refusal: Make) -> None:
    pytest.importorskip("pyarrow")
    table = to_arrow(records(release, refusal))
    assert tuple(table.column_names) == COLUMNS
    assert table.column("count").to_pylist() == [44, None, None]
    assert str(table.schema.field("window_start").type) == "timestamp[ms, tz=UTC]"


def test_nothing_is_a_table_without_rows() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    assert (len(to_pandas([])), to_arrow([]).num_rows) == (0, 0)
    assert str(to_pandas([])["count"].dtype) == "Int64"
