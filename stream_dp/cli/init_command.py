"""`stream-dp init`: write a first configuration from a file or a topic of events, and some answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from stream_dp.cli.command_line import Parsed, command_line, write_new
from stream_dp.config.access import BrokerConfig, plan_broker
from stream_dp.config.plan import ViewPlan
from stream_dp.config.shares import windows_in
from stream_dp.errors import ConfigError
from stream_dp.operations.event_columns import SAMPLED_ROWS, Guess, MalformedRows, guess, topic_rows, without_outliers
from stream_dp.operations.event_tables import BadRow, Row, open_table
from stream_dp.operations.first_file import Answers, best_pair, first_file, usual_period, usual_window, zone_note
from stream_dp.operations.outliers import describe
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import connect
from stream_dp.windows.durations import DAY_MS, format_time
from stream_dp.windows.local_times import DEFAULT_ZONE
from stream_dp.windows.time_zones import check_zone

OLD_MS = 2 * DAY_MS
"""Events are history if the newest is older than this."""
BROKER = "127.0.0.1:9092"
MANY_WINDOWS = 12
"""Of a period: with so many, users are seldom in all."""


@click.command()
@click.argument("events", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--topic", help="Topic of the events. Without EVENTS, its newest records are looked at.")
@click.option("--broker", default=BROKER, show_default=True, help="Address of the cluster.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. [default: NAME.yaml]")
@click.option("--name", help="Name of the application.")
@click.option("--user", metavar="COLUMN", help="Who is protected: one value of this column is one user.")
@click.option("--population", help="The same in words, in the plural, such as `customers`. [default: users (COLUMN)]")
@click.option("--item", metavar="COLUMN", help="What is counted: the number of users with each value is released.")
@click.option("--time", metavar="COLUMN", help="When it happened.")
@click.option(
    "--zone",
    type=Parsed("zone", check_zone),
    help="Time zone such as Europe/Berlin. It applies to times without an offset. Windows begin at its midnight, and "
    "weeks on Mondays. [default: UTC]",
)
@click.option("--window", help="How often counts are released: 1h, 1d, 1w, 1mo.")
@click.option("--period", help="The promise is for so long: 4w, 1y; a whole number of windows.")
@click.option("--epsilon", help="The promise to each user and period: smaller protects better. 1 is usual.")
@click.option("--delta", default="1e-6", show_default=True, help="Well below 1 in the number of users.")
@click.option("--items-per-user", type=click.IntRange(1), help="Different items of one user that count in a window.")
@click.option(
    "--windows-per-user",
    type=click.IntRange(1),
    help="Windows of the period that a user counts in; each may then cost more. [default: all]",
)
@click.option(
    "--two-views/--one-view",
    "two",
    default=None,
    help="Find keys rarely in one view and count them often in another, at half of the promise each; or both in one "
    "view. [default: what shows more useful counts of EVENTS; one view of a topic]",
)
@click.option("--one-level", is_flag=True, help="The same noise for all readers: keys of fewer users are shown.")
@click.option("--yes", is_flag=True, help="Ask nothing: take what is guessed.")
def init(
    events: Path | None,
    topic: str | None,
    broker: str,
    out: Path | None,
    *,
    two: bool | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Write a first configuration from a file of EVENTS (.csv, .jsonl, .parquet), or from a topic.

    It asks who is a user, what is counted, how often, and what is promised. The levels of noise follow from the
    promise. Of the events the file says only the names of columns, the first day, the form of times, and whether two
    views show more than one. Rows with outlying or malformed times are
    named and otherwise ignored.

    \b
    stream-dp init orders.csv
    stream-dp init --topic orders --broker kafka:9092
    stream-dp init orders.csv --user customer --item product --window 1w --epsilon 1 --yes
    """
    if events is None and topic is None:
        raise click.UsageError("name a file of events, or --topic")
    partitions = 4
    rows: list[Row | BadRow] = []
    if events is not None:
        rows = list(islice(open_table(events).rows(), SAMPLED_ROWS))
    elif topic is not None:
        rows, partitions = asyncio.run(_read(topic, broker))
    zone = given["zone"] or DEFAULT_ZONE
    all_rows = rows if events is None else open_table(events).rows()
    found = without_outliers(guess(rows, zone), all_rows, wall_clock_ms(), zone)
    stem = (events.stem if events is not None else str(topic)).lower().replace("_", "-").replace(".", "-")
    answers = _asked(found, Answers(stem, broker, topic or stem, partitions), given, needs_time=events is not None)
    text, plan = first_file(answers)
    if note := zone_note(answers):
        click.echo(note)
    if two or (two is None and events is not None):
        with nullcontext() if two else suppress(ConfigError):
            text_of_two, plan_of_two, why = best_pair(answers, plan, events)
            if why:
                click.echo(why)
            if two or (why and (given["yes"] or click.confirm("Write two views?", default=True))):
                text, plan = text_of_two, plan_of_two
    file = out or Path(f"{answers.name}.yaml")
    write_new(file, text)
    click.echo(f"Wrote {file}. Next:")
    for words in _next(file, events, plan.views, answers):
        click.echo(f"  {command_line(*words)}")


def _next(file: Path, events: Path | None, views: Mapping[str, ViewPlan], answers: Answers) -> list[list[str | Path]]:
    """Return the commands that come next."""
    view = views["counts"]
    until: list[str] = []
    if answers.last_ms is not None:
        over_ms = view.window.shape.interval(view.window.shape.start_of(answers.last_ms)).end_ms + view.window.grace_ms
        until = ["--until", format_time(over_ms - over_ms % -DAY_MS)[:10]]
    reading = [*until, "--drop-outliers"] if answers.has_outliers else until
    reading = [*reading, "--skip-bad"] if answers.has_malformed else reading
    found: list[list[str | Path]] = [["check", file]]
    if events is None:
        return [*found, ["check", file, "--sample"], ["worker", file]]
    grid = ["items_per_user=1,3,10", *_few_windows(view)]
    if len(views) > 1:
        finds = ["--view", "found", "--grid", "items_per_user=1,3,10", "--error", "1"]  # it only has to find keys
        found.append(["plan", file, "--events", events, *finds, *reading])
        grid = ["items_per_user=1,3,10", "--grid", "split=1/4,1/2,3/4", "--goal", "useful"]
    found.append(["plan", file, "--events", events, "--grid", *grid, *reading])
    if len(views) > 1 and until:  # fed at once, all windows would close before a key is found
        return [*found, ["replay", file, events, *reading, "--out", "trial"]]
    found += [["kafka", "up", "--port", "9092"]] if answers.broker == BROKER else []
    return [*found, ["feed", file, "--from", events, *reading], ["worker", file, *(["--backfill"] if until else [])]]


def _few_windows(view: ViewPlan) -> list[str]:
    """Return a grid of how many windows of a period users count in, where there are many."""
    windows = windows_in(view, view.ledger.periods.longest)
    if view.windows_per_user is not None or windows < MANY_WINDOWS:
        return []
    return ["--grid", f"windows_per_user={windows // 10},{windows // 3},{windows}"]


async def _read(topic: str, broker: str) -> tuple[list[Row | BadRow], int]:
    async with connect(plan_broker(BrokerConfig(address=broker), "stream-dp-init", Path())) as client:
        return await topic_rows(client, topic)


def _describe_malformed(malformed: Sequence[MalformedRows], *, are_rows: bool) -> Iterator[str]:
    """Yield for each reason how many rows have no usable time, and the first of them.

    Args:
        malformed: the rows, by reason.
        are_rows: True for rows of a file, False for the newest records of a topic.
    """
    for one in malformed:
        if not are_rows:
            yield f"{one.rows:,} of the newest records cannot be used: {one.reason}."
            continue
        named = ", ".join(f"row {number:,}" for number in one.first)
        more = ", ..." if one.rows > len(one.first) else ""
        rows = "1 row" if one.rows == 1 else f"{one.rows:,} rows"
        yield f"{rows} cannot be used ({named}{more}): {one.reason}. --skip-bad leaves them out."


def _asked(found: Guess, answers: Answers, given: dict[str, Any], *, needs_time: bool) -> Answers:
    """Return the answers: options, or what is typed; with --yes what was guessed."""

    def ask(key: str, words: str, usual: str, kind: click.ParamType | None = None) -> Any:  # noqa: ANN401 - of the kind
        if given[key] is not None:
            return given[key]
        if given["yes"]:
            return usual
        try:
            return click.prompt(words, default=usual or None, type=kind, show_choices=False)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            option = f"--{key.replace('_', '-')}"
            raise ConfigError("nobody answers. Add this option, or --yes to take what is guessed", option) from None

    def column(key: str, words: str, usual: str) -> str:
        name = str(ask(key, words, usual, click.Choice(found.columns)))
        if name not in found.columns:
            raise ConfigError(f"there is no column {name!r}; there are {', '.join(found.columns)}", f"--{key}")
        return name

    if not given["yes"]:
        click.echo(f"Columns: {', '.join(found.columns)}")
    user = column("user", "Who is protected? One value of this column is one user", found.user)
    population = ask("population", "In words, in the plural", f"users ({' '.join(user.split())})")
    item = column("item", "What is counted?", found.item)
    time = column("time", "When did it happen?", found.time) if found.times or given["time"] else ""
    if time not in found.times and (time or needs_time):
        raise ConfigError(
            f"column {time!r} has no times, or too many other values" if time else "no column has times",
            "--time: write them as 2024-01-31, as 2024-01-31T12:00:00Z, or as whole seconds or milliseconds since 1970",
        )
    zone = given["zone"] or DEFAULT_ZONE
    if time in found.local and given["zone"] is None:
        click.echo(
            f"Times in column {time!r} have no offset, so they are read as UTC. For another time zone, add --zone."
        )
    if len({user, item, time}) < 3:
        raise ConfigError(f"user, item and time must be three columns, not {user}, {item} and {time}")
    if given["yes"] and None in (given["user"], given["item"], given["time"]):
        told = f", and {time!r} is the time" if time else ""
        click.echo(
            f"Column {user!r} names the users, who are protected. The values of {item!r} are counted and "
            f"published{told}. If this guess is wrong, write --user, --item and --time."
        )
    outlying = found.outlying.get(time, ())
    for one in outlying:
        which = describe(one) if needs_time else f"{one.span.events:,} of the newest records are {one.why}"
        click.echo(f"Column {time!r}: {which}. The configuration is based on the others.")
    for line in _describe_malformed(found.malformed.get(time, ()), are_rows=needs_time):
        click.echo(f"Column {time!r}: {line}")
    now_ms = wall_clock_ms()
    unit, first_ms, last_ms = found.times.get(time, ("ms", now_ms, now_ms))
    is_past = now_ms - last_ms > OLD_MS
    window = ask("window", "How often are counts released?", usual_window(first_ms, last_ms))
    period = ask("period", "For how long is the promise?", usual_period(window, zone))
    past = (first_ms, last_ms) if is_past else (None, None)
    return replace(
        answers,
        name=ask("name", "Name of the application", answers.name),
        zone=zone if time in found.local else DEFAULT_ZONE,
        window_zone=zone,
        **{"user": user, "item": item, "time": time, "time_unit": unit, "population": population},
        **{"window": window, "period": period, "delta": given["delta"], "first_ms": past[0], "last_ms": past[1]},
        has_outliers=bool(outlying),
        has_malformed=bool(found.malformed.get(time)),
        windows_per_user=given["windows_per_user"],
        one_level=given["one_level"],
        epsilon=ask("epsilon", f"Epsilon promised to each user in {period} (smaller protects better)", "1"),
        items_per_user=ask(
            "items_per_user",
            "Different items of one user that count in a window",
            str(answers.items_per_user),
            click.IntRange(1),
        ),
    )
