"""`stream-dp status FILE`: the workers, the partitions, the views and the budgets of an application, for operators."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from stream_dp.cli.command_line import hush_libraries
from stream_dp.cli.status.page import page
from stream_dp.cli.status.summary import Reports, Summary, summary
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.control.editions import plan_holding
from stream_dp.records.codec import decode_entry
from stream_dp.records.models import PartitionStatus, WorkerStatus, decode_status
from stream_dp.records.statement import LedgerStatement, periods_of, read_statements
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_history
from stream_dp.runtime.kafka.topics import Topics

LOOK_SECONDS = 5.0
"""Between two looks of `--watch`."""


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
@click.option("--watch", is_flag=True, help="Look again every 5 s, until it is interrupted.")
def status(file: Path, *, as_json: bool, watch: bool) -> None:
    """Show how the application that FILE describes is, and first what needs somebody.

    Every worker says every 10 s how it is, in the topic NAME-status, and what it says follows from what is stored: no
    number is lost by a crash, counted twice, or about a window that is open. It is for operators: this command needs
    READ on NAME-status and NAME-accounts and DESCRIBE on the group NAME, and no access to a worker. It shows

    \b
    * the workers: since when each runs, the number of the settings it goes by, its partitions, whether it is ready or
      what it waits for;
    * of every source, how many records stand in it and are not counted yet;
    * of every view, which edition of its settings holds, what its clock shows where it is furthest behind, which
      windows are open, up to when its windows are released or refused, and when the next one is due, where the wall
      clock decides that;
    * what is to come: settings that hold from a later window on; of every audience and level the next window that it
      is unlocked, of those that are released; when what is left of a budget is spent next. Where watermarks close the
      windows, that is the time of the stream. It is the schedule: where a grant lowered the audience, or it has the
      level, or the ledger cannot pay, that window is not published sharper;
    * what every ledger has left, and how far that reaches (`stream-dp ledger` says who spent it);
    * the counters over all partitions, since the first record.

    A worker that has said nothing for 30 s is silent, one that is silent for 5 minutes is not shown any more. A worker
    that stops says so; one that was killed is silent first.

    Exit codes: 0 all is well; 1 something needs somebody, or no broker is there; 2 wrong configuration.
    """
    hush_libraries()
    plan = load_plan(file)
    with suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(_show(plan, as_json=as_json, watch=watch)))


async def _show(plan: Plan, *, as_json: bool, watch: bool) -> int:
    """Show it, and return the exit code."""
    console = Console(highlight=False)
    live = Live(console=console, auto_refresh=False) if watch and not as_json and console.is_terminal else None
    async with connect(plan.broker) as client:
        with live or nullcontext():
            async for found in _looks(plan, client):
                if as_json:
                    click.echo(json.dumps(found.as_json(), indent=None if watch else 2))
                elif live is not None:
                    live.update(page(plan, found), refresh=True)
                else:
                    console.print(page(plan, found))
                if not watch:
                    return 1 if found.faults else 0
    return 0


async def _looks(plan: Plan, client: Client) -> AsyncIterator[Summary]:
    while True:
        known = await read_history(plan, client)
        holding = await asyncio.to_thread(plan_holding, known, plan)
        yield summary(holding, replace(await look(holding, client), settings=known))
        await asyncio.sleep(LOOK_SECONDS)


async def look(plan: Plan, client: Client, *, accounts: bool = True) -> Reports:
    """Read once what there is to be read.

    Args:
        plan: the application.
        client: of its broker.
        accounts: read what the ledgers say, too.

    Raises:
        BrokerError: the broker does not answer.
        StateError: a record cannot be read.
    """
    topics = Topics.of(plan)
    present = await client.describe([topics.status, topics.accounts])
    said: dict[str, WorkerStatus] = {}
    partitions: dict[int, PartitionStatus] = {}
    stopped: set[str] = set()
    if topics.status in present:
        async for record in client.follow([topics.status], until_end=True):
            if record.value is None:
                stopped.add(record.key.decode())
            else:
                one = decode_status(record.value)
                said[one.instance] = one
                partitions.update(one.partitions)
                stopped.discard(one.instance)
    statements = await _statements(plan, client) if accounts and topics.accounts in present else []
    now_ms = wall_clock_ms()
    group = await client.group(plan.id)
    return Reports(now_ms, said, partitions, frozenset(stopped), group, statements)


async def _statements(plan: Plan, client: Client) -> list[LedgerStatement]:
    """What the entries tell of the newest period of each ledger."""
    records = client.follow([Topics.of(plan).accounts], until_end=True)
    entries = [(record.timestamp, decode_entry(record.value)) async for record in records if record.value is not None]
    found = read_statements((time_ms, entry) for time_ms, entry in entries if entry.ledger.name in plan.ledgers)
    return [found[newest] for *_, newest in periods_of(found).values()]
