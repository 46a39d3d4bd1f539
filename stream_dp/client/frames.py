"""Records as a table: that of the gateway's CSV, of the newest release of every window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stream_dp.client.reading import Expired
from stream_dp.errors import ConfigError
from stream_dp.records.codec import AnyRecord
from stream_dp.records.history import History
from stream_dp.records.table import COLUMNS, NUMBERS, TIMES, Row, arrow_table, rows

if TYPE_CHECKING:
    import pandas
    import pyarrow


def to_pandas(records: Iterable[AnyRecord | Expired]) -> pandas.DataFrame:
    """Return records of a view as a data frame: a row for each count, in order of time.

    A refused window is a row with empty numbers, so that it is not taken for zero. Times are timestamps in UTC,
    numbers whole numbers that may be missing (`Int64`).

    Args:
        records: as `Releases` yields them; several of one window count as the newest, expired windows are left out.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas  # noqa: PLC0415 - an extra
    except ImportError:
        raise _missing("pandas") from None
    frame = pandas.DataFrame(list(_rows(records)), columns=list(COLUMNS))
    for name in TIMES:
        frame[name] = pandas.to_datetime(frame[name], utc=True, format="ISO8601").dt.as_unit("ms")
    kinds = dict.fromkeys(COLUMNS, "string") | dict.fromkeys(NUMBERS, "Int64")
    return frame.astype({name: kind for name, kind in kinds.items() if name not in TIMES})


def to_arrow(records: Iterable[AnyRecord | Expired]) -> pyarrow.Table:
    """Return the same as a table of Arrow.

    Args:
        records: as for `to_pandas`.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        table: Any = arrow_table(_rows(records))
    except ImportError:
        raise _missing("arrow") from None
    return table


def _missing(extra: str) -> ConfigError:
    return ConfigError(f"the extra {extra} is missing: pip install 'stream-dp[{extra}]'")


def _rows(records: Iterable[AnyRecord | Expired]) -> Iterable[Row]:
    history = History()
    for record in records:
        if isinstance(record, Expired):
            history.drop(record.view, record.audience, record.window.start_ms, record.window.end_ms)
        else:
            history.take(record)
    return rows(windows[window] for windows in history.seen.values() for window in sorted(windows))
