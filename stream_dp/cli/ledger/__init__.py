"""`stream-dp ledger FILE`: what was spent, by whom, what is left, how far it reaches; for operators."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
from rich.console import Console

from stream_dp.cli.command_line import hush_libraries
from stream_dp.cli.held import held
from stream_dp.cli.ledger.page import page, whole
from stream_dp.cli.moments import MOMENT
from stream_dp.cli.numbers import moment
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.errors import BrokerError, ConfigError, Fault
from stream_dp.records.codec import decode_entry
from stream_dp.records.models import LedgerEntry
from stream_dp.records.statement import LedgerStatement, Period, periods_of, read_statements
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--ledger", "name", metavar="NAME", help="Show this ledger; all of them otherwise.")
@click.option("--period", "at_ms", type=MOMENT, help="Show the period of this day, not the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: every period that entries tell of.")
def ledger(file: Path, name: str | None, at_ms: int | None, *, as_json: bool) -> None:
    """Show what the ledgers of the application that FILE describes have spent and have left.

    Everything is read from the topic NAME-accounts of the application, in which workers write down every window that
    they charge or refuse. It tells what all selections have cost, also to audiences that may not read them, so it is
    internal: this command needs READ on it, and is for operators. No access to a worker or its state is needed. Per
    ledger and period:

    \b
    * the budget by part, what is spent and what is left of each;
    * who spent it: by view, and by the audience whose release was the first to tell so much. A release that only
      repeats what a finer reader has costs nothing. "Alone" is what an audience knows if it shares nothing;
    * what is kept for each view, so that no other one spends it (`share` in the file), what it has spent, and what is
      left for it: the rest of what is kept, and what is kept for nobody;
    * how many more windows that affords at the present levels, charged at worst, and until when: of each view, and of
      all of them at their schedule. A top-k usually costs less than at worst, and gets the rest back;
    * a picture of what was left after each window.

    What is left is always that of the newest entry; what was spent and no entry tells of (entries that are gone, as in
    a topic that was made anew) is one line.

    \b
    stream-dp ledger app.yaml                      every ledger, its newest period
    stream-dp ledger app.yaml --period 2024-03-05  the period of that day
    stream-dp ledger app.yaml --json               for machines, all periods

    Exit codes: 0 done; 1 no broker, no topic or no entry is there; 2 no such ledger.
    """
    hush_libraries()
    plan = held(load_plan(file))
    if name is not None and name not in plan.ledgers:
        raise ConfigError([Fault("ledger", f"no ledger is named {name!r}; {unknown(name, plan.ledgers)}")])
    statements = read_statements(asyncio.run(_entries(plan, name)))
    if not statements:
        raise BrokerError(f"{Topics.of(plan).accounts} holds no entry yet; windows are released when they are over")
    if at_ms is not None:
        statements = _of_period(statements, at_ms)
    if as_json:
        click.echo(json.dumps(whole(plan, statements), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for *earlier, newest in periods_of(statements).values():
        starts = [period.start_ms for period in earlier]
        console.print(page(plan, statements[newest], console.width, starts))


async def _entries(plan: Plan, name: str | None) -> list[tuple[int, LedgerEntry]]:
    """Every entry of a ledger, or of any that is configured, with the time it was published."""
    topic, wanted = Topics.of(plan).accounts, plan.ledgers if name is None else {name}
    async with connect(plan.broker) as client:
        if await client.partitions(topic) is None:
            raise BrokerError(f"{plan.broker} has no topic {topic}; a worker makes it: `stream-dp worker FILE`")
        entries = await read_entries(topic, client)
    return [(time_ms, entry) for time_ms, entry in entries if entry.ledger.name in wanted]


async def read_entries(topic: str, client: Client) -> list[tuple[int, LedgerEntry]]:
    """Every entry of a topic of accounts, with the time it was published."""
    found = [record async for record in client.follow([topic], until_end=True) if record.value is not None]
    return [(record.timestamp, decode_entry(record.value)) for record in found]


def _of_period(statements: dict[Period, LedgerStatement], at_ms: int) -> dict[Period, LedgerStatement]:
    found = {
        key: statement
        for key, statement in statements.items()
        if statement.account.period.start_ms <= at_ms < statement.account.period.end_ms
    }
    if not found:
        known = ", ".join(f"{period.ledger} from {moment(period.start_ms)}" for period in statements)
        raise BrokerError(f"no entry is about a period that holds {moment(at_ms)}; periods: {known}")
    return found
