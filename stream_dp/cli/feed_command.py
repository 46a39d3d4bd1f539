"""`stream-dp feed FILE SOURCE --from EVENTS`: write history into a source topic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress

from stream_dp.cli.command_line import FILE, MOMENT, effective, run
from stream_dp.config.forecast import withdrawal_faults
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import load_plan
from stream_dp.errors import BrokerError, StreamDPError
from stream_dp.operations import feed as operations
from stream_dp.operations.event_tables import open_table
from stream_dp.operations.events_file import Events, FileSurvey
from stream_dp.operations.outliers import OutlyingTimesError, describe, survey_limited
from stream_dp.operations.single_watermark import write_watermark
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import format_duration, format_time

EVENTS = click.Path(exists=True, dir_okay=False, path_type=Path)
USER = click.option("--user", metavar="COLUMN", help="Column of the user. [default: `user` or `key` of the source]")
TIME = click.option("--time", metavar="COLUMN", help="Column of the time. [default: `time.field` of the source]")
TIME_FORMAT = click.option(
    "--time-format",
    type=click.Choice(["iso", "s", "ms"]),
    help="Form of the time: RFC 3339 text, or a number since 1970. [default: as in the source]",
)
SKIP_BAD = click.option("--skip-bad", is_flag=True, help="Skip invalid rows.")
DROP_OUTLIERS = click.option(
    "--drop-outliers",
    is_flag=True,
    help="Leave out rows with outlying times: before 1990 (unless a view begins earlier), later than max_ahead from "
    "now, or separated from most others by more than 30 windows and 90 days.",
)

T = TypeVar("T")


def has_terminal() -> bool:
    """Return True if a question can be asked on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def decide_on_outliers(options: operations.FeedOptions, work: Callable[[operations.FeedOptions], T]) -> T:
    """Read a file of events; if it has outlying times, ask on the terminal whether to leave them out.

    Args:
        options: options of the feed.
        work: function that reads the file with the given options.

    Returns:
        The result of `work`.

    Raises:
        OutlyingTimesError: some times are outlying, and the user answers no or no terminal is attached.
    """
    try:
        return work(options)
    except OutlyingTimesError as error:
        if not has_terminal():
            raise
        click.echo(str(error), err=True)
        if not click.confirm("Leave these rows out?", err=True):
            raise
        return work(replace(options, drop_outliers=True))


@click.command()
@FILE
@click.argument("source", required=False)
@click.option(
    "--from",
    "events",
    type=EVENTS,
    help="The history: a .csv or .tsv with a heading (columns separated by comma, semicolon, tab or |), a .jsonl or "
    ".ndjson with one object per line, or a .parquet (needs stream-dp[parquet]).",
)
@click.option(
    "--watermark",
    "watermark_ms",
    type=MOMENT,
    help="Instead of a history, write only a watermark with this time to every partition. It closes the windows that "
    "are over by then; earlier events are late from then on.",
)
@USER
@TIME
@TIME_FORMAT
@click.option("--all-fields", is_flag=True, help="Write every column, not only those that views of the source count.")
@click.option("--unchecked-data", is_flag=True, help="Write the rows even if their times look wrong.")
@SKIP_BAD
@click.option(
    "--append", is_flag=True, help="Append to the records of the topic. Without it the topic must be empty or missing."
)
@click.option("--from-row", type=click.IntRange(1), default=1, show_default=True, help="The first row that is written.")
@click.option(
    "--watermarks/--no-watermarks",
    default=None,
    help="Write watermarks. [default: if a view of the source has clock: event]",
)
@click.option("--from-time", "from_ms", type=MOMENT, help="Leave out rows before this time.")
@click.option(
    "--until",
    "until_ms",
    type=MOMENT,
    help="The history is complete up to this time, which becomes the last watermark. Outlying rows at this time or "
    "later are left out; other later rows are an error. [default: just after the last event]",
)
@DROP_OUTLIERS
def feed(
    file: Path,
    source: str | None,
    events: Path | None,
    watermark_ms: int | None,
    **given: Any,  # noqa: ANN401  the fields of FeedOptions
) -> None:
    """Write history into the topic of a SOURCE of the application that FILE describes; SOURCE, if it has several.

    Each row becomes an event as producers write it: keyed by its user, in the user's partition, the time in the unit of
    the source. Before the first row is written, all rows are checked as
    workers would check them. If some are invalid, nothing is written without --skip-bad; the output names the first
    ones, the reason and the remedy. If most times look like another unit or form, or all are before the first window,
    nothing is written without --unchecked-data, because no command removes a row from a topic. If some times are
    outlying, the command names the rows and asks whether to leave them out; without a terminal, nothing is written. A
    missing topic is created with the number of partitions in FILE and the cluster's retention. Times without an offset
    from UTC are in the time zone of the source (`time.zone`).

    Where the application was started, the settings in effect (`stream-dp settings`) define what an event is, and a note
    on stderr says where FILE differs. While windows of earlier settings are open, events have the fields of both. An
    account that may not read the settings uses FILE.

    Watermarks let windows of views with clock: event close. If the rows are in order of time, there is one before the
    first event of each window and one at the end. Otherwise there is only the last, so all windows close together.
    Views with clock: wall need none. If a feed was interrupted, or a producer writes no watermarks, use --watermark
    to write one without events. It is refused if workers would not believe it. It is also refused if it is much later
    than the newest records of the topic, unless you add --unchecked-data.

    \b
    History first, then the worker:  stream-dp feed app.yaml --from events.csv
                                     stream-dp worker app.yaml --backfill
    Close the last windows:          stream-dp feed app.yaml --watermark 2024-02-01

    Exit codes: 0 written; 1 the broker or the file failed (the message says how many events were written); 2 wrong
    usage, or invalid rows.
    """
    if (events is None) == (watermark_ms is None):
        raise click.UsageError("give either --from or --watermark")
    file_plan, options = load_plan(file), operations.FeedOptions(**given)

    async def read(client: Client) -> tuple[Plan, list[ViewPlan]]:
        plan = (await effective(file_plan, client)).counted
        return plan, await operations.counting(plan, client)

    plan, counted = run(file_plan, read)
    if events is None:
        _write_watermark(plan, counted, source, watermark_ms or 0, options)
        return
    fed = operations.source_of_history(counted, source)
    views = [view for view in counted if view.source.name == fed.name]
    table = open_table(events)
    columns = operations.columns_of(fed, views, events, table, options)
    made = Events(table, fed, views, columns)
    now_ms = wall_clock_ms()
    console = Console(highlight=False, markup=False, soft_wrap=True)

    def look(options: operations.FeedOptions) -> tuple[FileSurvey, int]:
        survey = survey_limited(made, options.limits, now_ms)
        for line in surveyed(survey, views):
            console.print(line)
        checked = (survey, made, views, options, now_ms)
        return survey, operations.last_watermark(events, *checked, from_option="--from-time")

    survey, until = decide_on_outliers(options, look)
    fresh = [view.name for view in views if not view.editions]
    for line in [*map(str, withdrawal_faults(plan, fresh, now_ms, until)), *still_open(views, until)]:
        console.print(line)
    marked = any(view.window.clock == "event" for view in views) if options.watermarks is None else options.watermarks
    watermarks = operations.Watermarks(fed, views, until, ordered=survey.ordered) if marked else None
    progress = operations.FeedProgress(fed.topic, row=options.from_row - 1)

    async def fill(client: Client) -> None:
        if await operations.make_room(plan, fed, client, append=options.append):
            console.print(f"topic {fed.topic} was created with {fed.partitions} partitions")
        with Progress(console=Console(stderr=True), disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("rows", total=survey.rows, completed=progress.row)
            async for _ in operations.write(made, client, progress, watermarks):
                bar.update(task, completed=progress.row)

    try:
        run(plan, fill)
    except KeyboardInterrupt:
        raise StreamDPError(f"stopped. {progress.words()}") from None
    except BrokerError as error:
        raise (BrokerError(f"{error}. {progress.words()}") if progress.events else error) from None
    last = f"; the last watermark is {format_time(until)}" if marked else ""
    console.print(f"{progress.events:,} events written to topic {fed.topic} on {plan.broker}{last}")


def _write_watermark(
    plan: Plan,
    counted: Sequence[ViewPlan],
    source: str | None,
    time_ms: int,
    options: operations.FeedOptions,
) -> None:
    """Write one watermark, and say which windows stay open."""
    marked = operations.source_named(counted, source)
    views = [view for view in counted if view.source.name == marked.name]
    now_ms = wall_clock_ms()

    async def mark(client: Client) -> None:
        await write_watermark(marked, views, time_ms, client, now_ms, unchecked=options.unchecked_data)

    run(plan, mark)
    for line in still_open(views, time_ms):
        click.echo(line)
    click.echo(f"watermark {format_time(time_ms)} written to all partitions of topic {marked.topic} on {plan.broker}")


def still_open(views: Sequence[ViewPlan], until_ms: int) -> Iterator[str]:
    """Yield the windows that end by a time, and stay open because their grace is not over.

    Args:
        views: the views.
        until_ms: the time.
    """
    for view in views:
        window = view.window
        start_ms = window.shape.first_open(until_ms - window.grace_ms)
        end_ms = window.shape.end(start_ms)
        if window.clock == "event" and end_ms <= until_ms:
            grace, closed = format_duration(window.grace_ms), format_time(end_ms + window.grace_ms)
            yield (
                f"the window of {view.name} from {format_time(start_ms)} stays open, because its grace of {grace} is "
                f"not over. To close it, use --until {closed} or later"
            )


def surveyed(survey: FileSurvey, views: Sequence[ViewPlan]) -> Iterator[str]:
    """Yield what the rows of a file are, and which of them no view counts.

    Args:
        survey: of the rows.
        views: the views that count them.
    """
    yield f"{survey.rows:,} rows: {survey.events:,} events"
    yield from survey.refusals()
    if survey.left_out:
        events = "1 event" if survey.left_out == 1 else f"{survey.left_out:,} events"
        yield f"{events} left out because of their times"
    yield from (f"left out: {describe(one)}" for one in survey.dropped)
    if survey.first_ms is None or survey.last_ms is None:
        return
    order = "in order of time" if survey.ordered else "not in order of time"
    yield f"{order}, from {format_time(survey.first_ms)} to {format_time(survey.last_ms)}"
    first = {view.view: view for view in reversed(views)}
    for name in dict.fromkeys(view.view for view in views):
        first_ms = operations.begins_ms(first[name])
        if first_ms is None:
            yield (
                f"view {name} has no window.start. It begins with the window of its first start; earlier events are "
                "refused"
            )
        elif survey.first_ms < first_ms:
            yield f"view {name} begins at {format_time(first_ms)}; earlier events are refused"
