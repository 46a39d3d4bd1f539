"""`stream-dp reset FILE`: delete what an application has on its cluster, so that it begins anew; for operators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stream_dp.cli.command_line import command_line, run
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations.numbers import moment
from stream_dp.operations.reset import Holdings, holdings, spendings
from stream_dp.operations.reset import reset as forget
from stream_dp.records.statement import Statement
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.key_file import read_keys

DIGITS = 4


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--yes", "name", metavar="NAME", help="The name of the application, instead of typing it when asked.")
def reset(file: Path, name: str | None) -> None:
    """Make the application that FILE describes forget everything; its next worker begins anew.

    Deletes its internal, dead-letter and release topics, those of views that were taken out too, what its workers have
    committed of the sources, and its claims: what `stream-dp-owners` says is its own, nothing else. The sources stay,
    and so do the data folders of workers: delete those as well, they hold exact counts. Stop all workers first.

    The ledgers forget what was spent. A new life reads the sources from their beginning, and views whose `start` has
    passed release what they find there once more: with other noise, from full budgets, to readers who may have kept
    what was published before. A ledger's promise holds for each life alone; for both together it is the sum. So this
    shows what was spent, and asks for the application's name.

    A reset that is cut short is finished by another one; until then no worker starts.

    Exit codes: 0 done, or nothing was there; 1 not agreed to, workers run, or the broker refused; 2 wrong usage, or
    another key file than the application's.
    """
    plan = load_plan(file)
    if name not in (None, plan.id):
        raise ConfigError([Fault("--yes", f"the application that {file} describes is {plan.id!r}, not {name!r}")])
    run(plan, lambda client: _reset(plan, file, client, asked=name is None))


async def _reset(plan: Plan, file: Path, client: Client, *, asked: bool) -> None:
    keys = read_keys(plan.key_file)
    found = await holdings(plan, client, keys)
    if not any(found):
        click.echo(f"Application {plan.id} has nothing at {plan.broker.address}.")
        return
    for line in [*_topics(plan, found), *_spent(await spendings(plan, client))]:
        click.echo(line)
    if asked and click.prompt("Type the name of the application to delete them") != plan.id:
        click.echo("That is not its name. Nothing was deleted.")
        raise click.Abort
    await forget(plan, client, keys, found)
    click.echo(f"Application {plan.id} is forgotten. Delete the data folders of its workers; to begin anew:")
    click.echo(f"  {command_line('worker', file)}")


def _topics(plan: Plan, found: Holdings) -> Iterator[str]:
    yield f"At {plan.broker.address} application {plan.id} has"
    for topic in found.own:
        yield f"  {topic}"
    yield f"  {len(found.own)} topics, what its workers have committed of the sources, and its claims."
    if found.others:
        yield f"Not its own any more, and left alone: {', '.join(found.others)}"


def _spent(statements: list[Statement]) -> list[str]:
    """What is forgotten of the ledgers, a line for each period."""
    if not statements:
        return ["No entry tells what its ledgers have spent; whatever that is, they forget it."]
    return ["Its ledgers forget that they have spent, and release from full budgets again:", *map(_line, statements)]


def _line(statement: Statement) -> str:
    account, budget, spent = statement.account, statement.budget, statement.spent
    amounts = [
        f"{name} {decimal_up(value, DIGITS)} of {decimal_down(getattr(budget, name), DIGITS)}"
        for name, value in spent.entries(at_least=2)
    ]
    period = f"{moment(account.period.start_ms)} to {moment(account.period.end_ms)}"
    return f"  {account.name}, about {account.population}, {period}: {', '.join(amounts)}"
