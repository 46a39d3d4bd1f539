"""A history for commands that work offline: a file of events, checked as `stream-dp feed` checks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.operations.event_tables import open_table
from stream_dp.operations.events_file import Events, FileSurvey
from stream_dp.operations.feed import FeedOptions, columns_of, last_watermark, source_of_history
from stream_dp.operations.outliers import survey_limited
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.windows.events import Decoded


@dataclass(frozen=True, slots=True)
class PastEvents:
    """A history and what it is fed to.

    Attributes:
        source: the source whose events it has.
        views: the views of the source. One without a configured start begins with the window of the first event.
        events: the events.
        survey: of the rows.
        first_ms: the earliest plausible time of an event.
        until_ms: the history is complete up to this time.
    """

    source: SourcePlan
    views: Sequence[ViewPlan]
    events: Events
    survey: FileSurvey
    first_ms: int
    until_ms: int


def open_past_events(
    plan: Plan,
    file: Path,
    options: FeedOptions,
    source: str | None = None,
    take: Callable[[Decoded], None] | None = None,
    report: Callable[[FileSurvey, Sequence[ViewPlan]], None] = lambda *_: None,
) -> PastEvents:
    """Read and check all rows of a history.

    Args:
        plan: of a file.
        file: the history.
        options: how to read it.
        source: name of its source; None if there is only one.
        take: called with the events of each chunk, which are read once only.
        report: called with the survey of the rows and the views before the rows are judged.

    Raises:
        OutlyingTimesError: rows have outlying times.
        ConfigError: no such source, a column is missing, or rows are invalid.
        TableError: the file cannot be read.
    """
    fed = source_of_history([*plan.views.values()], source)
    views = [view for view in plan.views.values() if view.source.name == fed.name]
    table = open_table(file)
    columns = columns_of(fed, views, file, table, options)
    events = Events(table, fed, views, columns)
    now_ms = wall_clock_ms()
    survey = survey_limited(events, options.limits, now_ms, take)
    plausible = survey.spread.plausible
    if plausible is not None:
        views = [_begun(view, plausible.first_ms) for view in views]
    report(survey, views)
    until_ms = last_watermark(file, survey, events, views, options, now_ms)
    if plausible is None:
        views = [_begun(view, until_ms) for view in views]
    first_ms = until_ms if plausible is None else plausible.first_ms
    return PastEvents(fed, views, events, survey, first_ms, until_ms)


def _begun(view: ViewPlan, first_ms: int) -> ViewPlan:
    window = view.window
    if window.first_ms is not None:
        return view
    return replace(view, window=replace(window, first_ms=window.charged(first_ms).start_ms))
