"""`stream-dp init`: write a first configuration from a file or a topic of events, and some answers."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

import click

from stream_dp.cli.command_line import command_line
from stream_dp.config.access import BrokerConfig, plan_broker
from stream_dp.errors import ConfigError
from stream_dp.operations.events_file import Row, open_table
from stream_dp.operations.first_file import (
    SAMPLED_ROWS,
    Answers,
    Guess,
    first_file,
    guess,
    topic_rows,
    usual_period,
    usual_window,
)
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import connect
from stream_dp.windows.durations import DAY_MS

OLD_MS = 2 * DAY_MS
"""Events of which the newest is older are past ones."""


@click.command()
@click.argument("events", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--topic", help="Topic of the events. Without EVENTS, its newest records are looked at.")
@click.option("--broker", default="127.0.0.1:9092", show_default=True, help="Address of the cluster.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. [default: NAME.yaml]")
@click.option("--name", help="Name of the application.")
@click.option("--user", metavar="COLUMN", help="Who is protected: one value of this column is one user.")
@click.option("--population", help="The same in words, in the plural, such as `customers`.")
@click.option("--item", metavar="COLUMN", help="What is counted: the number of users with each value is released.")
@click.option("--time", metavar="COLUMN", help="When it happened.")
@click.option("--window", help="How often counts are released, such as 1h, 1d or 1w.")
@click.option("--period", help="The promise is for so long, such as 4w: a whole number of windows.")
@click.option("--epsilon", help="The promise to each user and period: smaller protects better. 1 is usual.")
@click.option("--delta", default="1e-6", show_default=True, help="Well below 1 in the number of users.")
@click.option("--items-per-user", type=click.IntRange(1), help="Different items of one user that count in a window.")
@click.option("--yes", is_flag=True, help="Ask nothing: take what is guessed.")
def init(events: Path | None, topic: str | None, broker: str, out: Path | None, **given: Any) -> None:  # noqa: ANN401
    """Write a first configuration from a file of EVENTS (.csv, .jsonl, .parquet), or from a topic.

    It asks who is a user, what is counted, how often, and what is promised. The levels of noise follow from the
    promise. Of the events the file says only the names of columns, the first day, and the form of times.

    \b
    stream-dp init orders.csv
    stream-dp init --topic orders --broker kafka:9092
    stream-dp init orders.csv --user customer --item product --window 1w --epsilon 1 --yes
    """
    if events is None and topic is None:
        raise click.UsageError("name a file of events, or --topic")
    partitions = 4
    if events is not None:
        rows: list[Row | None] = list(islice(open_table(events).rows(), SAMPLED_ROWS))
        last = _last(events)
    else:
        rows, partitions = asyncio.run(_read(str(topic), broker))
        last = None
    found = guess(rows if last is None else [*rows, last])
    stem = (events.stem if events is not None else str(topic)).lower().replace("_", "-").replace(".", "-")
    answers = _asked(found, stem, partitions, broker, topic or stem, is_file=events is not None, given=given)
    file = out or Path(f"{answers.name}.yaml")
    if file.exists():
        raise ConfigError(f"{file} exists; name another file with --out")
    file.write_text(first_file(answers), encoding="utf-8")
    click.echo(f"Wrote {file}. Next:")
    click.echo(f"  {command_line('check', file)}")
    if events is not None:
        click.echo(f"  {command_line('plan', file, '--events', events, '--grid', 'window=1d,1w')}")
        click.echo(f"  {command_line('feed', file, '--from', events)}")
    click.echo(f"  {command_line('worker', file)}")


def _last(events: Path) -> Row | None:
    """Return the last row of a file, which shows how far its times reach."""
    last = None
    for row in open_table(events).rows():
        last = row or last
    return last


async def _read(topic: str, broker: str) -> tuple[list[Row | None], int]:
    async with connect(plan_broker(BrokerConfig(address=broker), "stream-dp-init", Path())) as client:
        return await topic_rows(client, topic)


def _asked(
    found: Guess, stem: str, partitions: int, broker: str, topic: str, *, is_file: bool, given: dict[str, Any]
) -> Answers:
    """Return the answers: options, or what is typed; with --yes what was guessed."""

    def ask(key: str, words: str, usual: str) -> str:
        if given[key] is not None:
            return str(given[key])
        return usual if given["yes"] else str(click.prompt(words, default=usual))

    if not given["yes"]:
        click.echo(f"Columns: {', '.join(found.columns)}")
    user = ask("user", "Who is protected? One value of this column is one user", found.user)
    population = ask("population", "In words, in the plural", f"{user or 'user'}s")
    item = ask("item", "What is counted?", found.item)
    time = ask("time", "When did it happen?", found.time)
    for column in (one for one in (user, item, time) if one and one not in found.columns):
        raise ConfigError(f"there is no column {column!r}; there are {', '.join(found.columns)}")
    window = ask("window", "How often are counts released?", usual_window(found))
    period = ask("period", "For how long is the promise?", usual_period(window))
    is_history = is_file and wall_clock_ms() - found.last_ms > OLD_MS
    return Answers(
        name=ask("name", "Name of the application", stem),
        broker=broker,
        topic=topic,
        partitions=partitions,
        user=user,
        item=item,
        time=time,
        time_unit=found.time_unit,
        population=population,
        window=window,
        period=period,
        epsilon=ask("epsilon", f"Epsilon promised to each user in {period} (smaller protects better)", "1"),
        delta=given["delta"],
        items_per_user=int(ask("items_per_user", "Different items of one user that count in a window", "3")),
        start_ms=found.first_ms - found.first_ms % DAY_MS if is_history else None,
        is_history=is_history,
    )
