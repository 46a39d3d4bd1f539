"""Outlying times in a file of events: leave them out, or raise an error until the user has decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stream_dp.errors import ConfigError
from stream_dp.operations.events_file import Events, FileSurvey
from stream_dp.windows.durations import DAY_MS, moment
from stream_dp.windows.events import Decoded
from stream_dp.windows.outlying_times import NAMED_PLACES, Outlying, Span, TimeSpread


class OutlyingTimesError(ConfigError):
    """Raised when rows have outlying times and no option says what to do with them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the times of events; events outside are left out.

    Attributes:
        from_ms: leave out events before this time; None: no such limit.
        until_ms: leave out events at this time or later; None: no such limit.
        drop_outliers: leave out events with outlying times.
    """

    from_ms: int | None = None
    until_ms: int | None = None
    drop_outliers: bool = False


def survey_limited(
    events: Events, limits: Limits, now_ms: int, take: Callable[[Decoded], None] | None = None
) -> FileSurvey:
    """Leave out events outside the limits, and return the survey of the others.

    A separate first pass finds the outlying events, so that the survey describes only the events that are kept.

    Args:
        events: events of a file.
        limits: decides which events are left out.
        now_ms: the clock of this machine.
        take: called with the kept events of each chunk.
    """
    events.limit(limits.from_ms, limits.until_ms)
    dropped: Sequence[Outlying[int]] = ()
    if limits.drop_outliers:
        spread = events.survey(now_ms).spread
        if (bulk := spread.bulk) is not None:
            events.limit(bulk.first_ms, bulk.last_ms + 1)
            dropped = spread.outlying()
    survey = events.survey(now_ms, take)
    survey.dropped = dropped
    return survey


def check_outliers(file: Path, spread: TimeSpread[int], from_option: str) -> None:
    """Make sure that no row has an outlying time.

    Args:
        file: the file with the rows.
        spread: the times of the rows.
        from_option: name of the option that sets the first time.

    Raises:
        OutlyingTimesError: some times are outlying.
        ConfigError: no time is plausible.
    """
    outlying = spread.outlying()
    if not outlying:
        return
    said = "; ".join(map(describe, outlying))
    bulk = spread.bulk
    if bulk is None:
        message = f"no time is plausible: {said}. Nothing was written. Correct --time or --time-format"
        raise ConfigError(f"{message}, or add --unchecked-data", str(file))
    limits = _limit_options(bulk, outlying, from_option)
    others = f"The other times are from {moment(bulk.first_ms)} to {moment(bulk.last_ms)}"
    raise OutlyingTimesError(
        f"some times are outlying: {said}. {others}. Nothing was written. "
        f"To leave these rows out, add --drop-outliers or {limits}. To keep them, add --unchecked-data",
        str(file),
    )


def _limit_options(bulk: Span[int], outlying: Sequence[Outlying[int]], from_option: str) -> str:
    """Return the options that set limits around the bulk, as dates, so that only whole days are left out."""
    limits: list[str] = []
    if any(one.span.first_ms < bulk.first_ms for one in outlying):
        limits.append(f"{from_option} {moment(bulk.first_ms - bulk.first_ms % DAY_MS)}")
    if any(one.span.last_ms > bulk.last_ms for one in outlying):
        end_ms = bulk.last_ms + 1
        end_ms -= end_ms % -DAY_MS
        later = min(one.span.first_ms for one in outlying if one.span.last_ms > bulk.last_ms)
        if end_ms + DAY_MS <= later:
            end_ms += DAY_MS  # so that a window that ends with the last day closes, because its grace is over
        limits.append(f"--until {moment(end_ms)}")
    return " ".join(limits)


def describe(outlying: Outlying[int]) -> str:
    """Return how many rows are outlying and why, and the first of them with their times."""
    span = outlying.span
    named = ", ".join(f"row {row:,} ({_time_words(time_ms)})" for row, time_ms in span.places[:NAMED_PLACES])
    more = ", ..." if span.events > len(span.places) else ""
    rows = "1 row is" if span.events == 1 else f"{span.events:,} rows are"
    return f"{rows} {outlying.why}: {named}{more}"


def _time_words(time_ms: int) -> str:
    """Return a time as text; if no calendar has it, only the direction."""
    try:
        return moment(time_ms)
    except ValueError:
        return "before the year 1" if time_ms < 0 else "after the year 9999"
