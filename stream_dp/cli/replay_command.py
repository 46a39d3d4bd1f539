"""`stream-dp replay FILE HISTORY`: the releases that a configuration would publish of a history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress

from stream_dp.cli.command_line import FILE, MOMENT
from stream_dp.cli.display import price, table
from stream_dp.cli.feed_command import (
    DROP_OUTLIERS,
    EVENTS,
    SKIP_BAD,
    TIME,
    TIME_FORMAT,
    USER,
    decide_on_outliers,
    still_open,
    surveyed,
)
from stream_dp.config.plan import ViewPlan
from stream_dp.config.planner import load_plan
from stream_dp.operations import named
from stream_dp.operations.empty_stretches import LONG_STRETCH, why_all_windows
from stream_dp.operations.events_file import FileSurvey
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_events import PastEvents, open_past_events
from stream_dp.operations.skipped_windows import SkippedWindows
from stream_dp.records.models import PrivacyCost
from stream_dp.windows.durations import moment

F = TypeVar("F", bound=Callable[..., Any])
MOST_STRETCHES = 5
"""Largest number of stretches without events that the output names."""
PRIVATE = "Publishing this output spends budget of the people in it, and no ledger of an application counts that."


def reading_options(command: F) -> F:
    """Add the options that say how a history is read, as `feed` has them."""
    for option in (
        click.option(
            "--until",
            "until_ms",
            type=MOMENT,
            help="The history is complete up to this time. Windows whose end and grace have passed are complete. "
            "Outlying rows at this time or later are left out; other later rows are an error. [default: just after the "
            "last event]",
        ),
        click.option("--from", "from_ms", type=MOMENT, help="Leave out rows before this time."),
        DROP_OUTLIERS,
        SKIP_BAD,
        click.option("--unchecked-data", is_flag=True, help="Read the rows even if their times look wrong."),
        TIME_FORMAT,
        TIME,
        USER,
        click.option("--source", help="The source whose events they are. Needed if FILE has several with a view."),
    ):
        command = option(command)
    return command


@click.command()
@FILE
@click.argument("history", type=EVENTS)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the records to VIEW.AUDIENCE.jsonl in this folder: a line each, as they would be published.",
)
@click.option("--views", metavar="VIEW,...", help="Report only these views. The others still use their budget.")
@click.option("--all-windows", is_flag=True, help="Replay every window, including long stretches without events.")
@reading_options
def replay(
    file: Path,
    history: Path,
    *,
    out: Path | None,
    views: str | None,
    all_windows: bool,
    source: str | None,
    **given: Any,  # noqa: ANN401  the fields of FeedOptions
) -> None:
    """Compute the releases that FILE would publish of a HISTORY, offline.

    HISTORY is a file of past events, as `stream-dp feed` reads it. The engine is that of a worker: it counts, bounds,
    charges the ledgers from zero, and draws fresh noise. Nothing connects to a broker. State and keys are in a
    temporary folder, which is deleted.

    If the rows are in order of time, the clock follows them. Otherwise no event is late, and all windows close
    together at the end. A list that is made of releases has the keys that were released before, so it needs rows in
    order. Only views of one source are computed.

    The output is private as releases are: it has their noise and their guarantee. But publishing it spends real budget
    of the people in it, and no ledger of an application counts that. A second replay draws other noise, so publishing
    both costs twice. Use it to look at a configuration before it is put into effect; then delete it.

    \b
    stream-dp replay app.yaml events.csv               a table: windows, keys, cost
    stream-dp replay app.yaml events.csv --out trial   the records, too

    Workers release windows without events, too, and they cost budget. If a stretch without events has more than 200
    windows of all views together, these are not replayed: their charges are counted, and the output says how many were
    left out. The other windows are the same as with --all-windows. All windows are replayed if the rows are not in
    order of time, or if windows depend on earlier ones: windows of panes, lists made of releases, kind topk, `unlock`,
    `sharpen`, or a view that falls back to coarser levels. If you stop the command with Ctrl-C, no files are left.

    The cost is that for one user, to an audience alone, in the period of the ledger that spent most.

    Exit codes: 0 done; 1 the history cannot be read, or the engine failed; 2 wrong usage, a fault in FILE, or invalid
    rows, which are named on stderr with the reason and the remedy.
    """
    from stream_dp.operations.replay import replay as replayed  # noqa: PLC0415  Faust, which takes a second
    from stream_dp.operations.replay import windows_to_release, write_releases  # noqa: PLC0415

    plan = load_plan(file)
    wanted = None if views is None else {named("view", name, plan.views, "--views").name for name in views.split(",")}
    err = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def report(survey: FileSurvey, views: Sequence[ViewPlan]) -> None:
        for line in surveyed(survey, views):
            err.print(line)

    def look(options: FeedOptions) -> PastEvents:
        with err.status("reading the history"):
            return open_past_events(plan, history, options, source, report=report)

    read = decide_on_outliers(FeedOptions(**given), look)
    for line in still_open(read.views, read.until_ms):
        err.print(line)
    logging.getLogger("stream_dp").addHandler(logging.NullHandler())  # its warnings are about workers that go on
    windows = windows_to_release(read)
    err.print(f"{windows:,} windows to release, including windows without events", markup=False)
    why_all = why_all_windows(read.views, ordered=read.survey.ordered)
    if why_all and windows > LONG_STRETCH and not all_windows:
        err.print(f"Every window is replayed, even in long stretches without events: {why_all}.")
    with Progress(console=err, disable=not err.is_terminal, transient=True) as bar:
        task = bar.add_task("windows", total=windows)

        def show(released: int) -> None:
            bar.update(task, completed=released)

        result = asyncio.run(replayed(plan, read, progress=show, all_windows=all_windows))
    for line in _describe_left_out(result.skipped):
        err.print(line)
    found = [one for one in result.audiences if wanted is None or one.view in wanted]
    written = [] if out is None else write_releases(found, out)
    console = Console(highlight=False, markup=False)
    left_out = ["windows\nleft out"] if result.skipped.stretches else []
    console.print(
        table(
            *("view", "audience", "windows\nreleased", "windows\nrefused", *left_out, "keys\n(median)"),
            *("spent in\na period", "budget\nleft"),
            rows=[
                (
                    *(one.view, one.audience, f"{one.released:,}", f"{one.refused:,}"),
                    *([f"{one.skipped + one.skipped_refused:,}"] if left_out else []),
                    *("-" if one.keys is None else f"{one.keys:g}", price(PrivacyCost.spent(one.spent))),
                    price(PrivacyCost.left(one.left)),
                )
                for one in found
            ],
            words={"view", "audience", "spent in\na period", "budget\nleft"},
            no_wrap=True,
        )
    )
    for path in written:
        console.print(str(path), soft_wrap=True)
    err.print(PRIVATE)


def _describe_left_out(skipped: SkippedWindows) -> Iterator[str]:
    """Yield the lines that say which windows were not replayed."""
    for stretch, number in skipped.stretches[:MOST_STRETCHES]:
        between = f"between {moment(stretch.from_ms)} and {moment(stretch.until_ms)}"
        yield f"{number:,} windows without events {between} were not replayed."
    if more := skipped.stretches[MOST_STRETCHES:]:
        yield f"{sum(number for _, number in more):,} more in {len(more):,} other stretches were not replayed."
    if skipped.stretches:
        charged = f"{skipped.charged.total():,} of them are charged"
        yield f"{charged}, {skipped.refused.total():,} are refused. Use --all-windows to replay them."
