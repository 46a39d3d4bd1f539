"""`stream-dp reset FILE`: delete the topics and offsets of an application, so that it starts anew; for operators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, command_line, run, run_effective
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations import reset as operations
from stream_dp.records.statement import LedgerStatement
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.key_file import read_keys
from stream_dp.windows.durations import moment

DIGITS = 4


@click.command()
@FILE
@click.option("--view", help="Delete only the release topics of this view that no longer have an audience.")
@click.option(
    "--yes", "name", metavar="NAME", help="Name of the application, or of the view with --view; skips the question."
)
def reset(file: Path, view: str | None, name: str | None) -> None:
    """Delete everything that the application that FILE describes has on its cluster; its next worker starts anew.

    Deletes its internal, dead-letter and release topics, also those of removed views, the offsets that its workers
    committed, and its claims: only what `stream-dp-owners` lists as its own. The sources stay. Stop all workers first.
    Delete the data folders of the workers yourself; they have exact counts.

    The ledgers forget what was spent. A restarted application reads the sources from their beginning, and views whose
    `start` has passed release the windows there again: with other noise, from full budgets, to readers who may have
    kept the earlier releases. The guarantee is then the sum of both. So this shows what was spent, and asks for the
    name of the application.

    If a reset is interrupted, run it again; until then no worker starts.

    With --view, only release topics are deleted: all those of a removed view, or those of the removed audiences of a
    view in effect. Workers may keep running, and the ledgers keep what was spent. If an audience returns, its topic is
    created again and begins with what is released from then on. If the workers' account may delete
    topics, they delete those of a removed view themselves when the retention of its last window has ended.

    Exit codes: 0 done, or nothing to delete; 1 not confirmed, workers run, or the broker refused; 2 wrong usage, or the
    key file of another application.
    """
    plan = load_plan(file)
    if view is not None:
        run_effective(file, partial(_reset_view, view=view, name=name))
        return
    if name not in (None, plan.id):
        raise ConfigError(f"{file} describes application {plan.id!r}, not {name!r}", "--yes")
    run(plan, lambda client: _reset(plan, file, client, asked=name is None))


async def _reset(plan: Plan, file: Path, client: Client, *, asked: bool) -> None:
    keys = read_keys(plan.key_file)
    found = await operations.holdings(plan, client, keys)
    if not any(found):
        click.echo(f"Nothing to delete: application {plan.id} has no topics at {plan.broker.address}.")
        return
    for line in [*_topics(plan, found), *_spent(await operations.spendings(plan, client))]:
        click.echo(line)
    if asked and click.prompt("Type the name of the application to delete all of this") != plan.id:
        click.echo("Wrong name. Nothing was deleted.")
        raise click.Abort
    await operations.reset(plan, client, keys, found)
    click.echo(f"Deleted. Now delete the data folders of its workers. To start application {plan.id} anew:")
    click.echo(f"  {command_line('worker', file)}")


async def _reset_view(plan: Plan, client: Client, *, view: str, name: str | None) -> None:
    if name not in (None, view):
        raise ConfigError(f"--view names view {view!r}, not {name!r}", "--yes")
    keys = read_keys(plan.key_file)
    topics = await operations.former_topics(plan, client, keys, view)
    if not topics:
        click.echo(f"Nothing to delete: every existing release topic of view {view} has an audience.")
        return
    click.echo(f"This deletes these release topics of view {view} at {plan.broker.address}:")
    for topic in topics:
        click.echo(f"  {topic}")
    if name is None and click.prompt("Type the name of the view to delete them") != view:
        click.echo("Wrong name. Nothing was deleted.")
        raise click.Abort
    await operations.delete_former(plan, client, keys, topics)
    click.echo("Deleted.")


def _topics(plan: Plan, found: operations.Holdings) -> Iterator[str]:
    yield f"This deletes {len(found.own)} topics of application {plan.id} at {plan.broker.address},"
    yield "the committed offsets of its workers, and its claims:"
    for topic in found.own:
        yield f"  {topic}"
    if found.others:
        yield f"Not deleted, because they were made again by others: {', '.join(found.others)}"


def _spent(statements: list[LedgerStatement]) -> list[str]:
    """Return the spending that the ledgers forget, a line for each period."""
    if not statements:
        return ["Its ledgers forget what they have spent. No entry says how much that is."]
    return ["Its ledgers forget what they have spent, and pay from full budgets again:", *map(_line, statements)]


def _line(statement: LedgerStatement) -> str:
    account, budget, spent = statement.account, statement.budget, statement.spent
    amounts = [
        f"{name} {decimal_up(value, DIGITS)} of {decimal_down(getattr(budget, name), DIGITS)}"
        for name, value in spent.entries(at_least=2)
    ]
    period = f"{moment(account.period.start_ms)} to {moment(account.period.end_ms)}"
    return f"  {account.name} ({account.population}), {period}: {', '.join(amounts)}"
