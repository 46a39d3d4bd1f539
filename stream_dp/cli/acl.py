"""`stream-dp acl FILE`: the least rights of worker, readers, operators and producers on a secured cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import run
from stream_dp.config.loading import unknown
from stream_dp.config.planning import load_plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.kafka.client import Client, KafkaClient
from stream_dp.runtime.kafka.rights import Right, commands, reader_groups, rights_of

WIDE = 400
"""Columns of a table that goes into a pipe: no name is broken."""


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise click.BadParameter(f'write a principal as the cluster calls it, "User:name", not {text!r}')
    return text


def _principals(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> list[str]:
    return [_principal(text) for text in texts]


def _readers(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for text in texts:
        audience, equals, principal = text.partition("=")
        if not equals:
            raise click.BadParameter(f'write an audience and its principal, "partner=User:name", not {text!r}')
        found.append((audience, _principal(principal)))
    return found


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--worker",
    "workers",
    metavar="PRINCIPAL",
    multiple=True,
    callback=_principals,
    help="The account of the workers.",
)
@click.option(
    "--reader",
    "readers",
    metavar="AUDIENCE=PRINCIPAL",
    multiple=True,
    callback=_readers,
    help="The account of an audience's readers; several times for several.",
)
@click.option(
    "--operator",
    "operators",
    metavar="PRINCIPAL",
    multiple=True,
    callback=_principals,
    help="An account for `apply`, `tune`, `settings`, `grant`, `ledger`, `status` and `tail`.",
)
@click.option(
    "--producer",
    "producers",
    metavar="PRINCIPAL",
    multiple=True,
    callback=_principals,
    help="An account that writes the events of the sources.",
)
@click.option(
    "--apply",
    is_flag=True,
    help="Give the rights, on the cluster of FILE and as the account of FILE, which needs Alter on the cluster. What "
    "was given before stays, so it may be done again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def acl(
    file: Path,
    workers: list[str],
    readers: list[tuple[str, str]],
    operators: list[str],
    producers: list[str],
    *,
    apply: bool,
    as_json: bool,
) -> None:
    """Print the least rights that the accounts of the application FILE need on a cluster with an authorizer.

    Who gets what: a table, and the same as calls of Kafka's kafka-acls.sh. Where no account is named, an example of
    each is shown. A reader may read the topics of its audience and use consumer groups whose names begin with
    NAME.AUDIENCE. (NAME is the application's, the dots belong to it), nothing else. `--apply` gives exactly what is
    printed: the rights that FILE needs, whatever settings are in effect. So give them before you apply FILE. Rights
    that an account has beyond these are not looked for, and none is taken away.

    \b
    stream-dp acl app.yaml --worker User:app --reader public=User:site --operator User:ops
    stream-dp acl app.yaml --worker User:app --apply

    Exit codes: 0 done; 1 the cluster does not answer or refuses; 2 wrong usage or configuration.
    """
    plan = load_plan(file)
    faults = [
        Fault("reader", f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}")
        for audience, _ in readers
        if audience not in plan.audiences
    ]
    if apply and not (workers or readers or operators or producers):
        faults.append(
            Fault("apply", "name the accounts that get the rights: --worker, --reader, --operator, --producer")
        )
    if apply and plan.broker.is_embedded:
        faults.append(Fault("broker", "memory:// has no accounts and no rights"))
    if faults:
        raise ConfigError(faults)
    if not (workers or readers or operators or producers):
        workers, operators, producers = ["User:worker"], ["User:operator"], ["User:producer"]
        readers = [(audience, f"User:reader-{audience}") for audience in plan.audiences]
    rights = list(
        rights_of(plan, workers=workers, readers=readers, operators=operators, producers=producers),
    )
    if apply:
        run(plan, lambda client: _given(client, rights))
    lines = commands(rights, plan.broker.address)
    if as_json:
        groups = {audience: reader_groups(plan, audience) for audience, _ in readers}
        body = {"applied": apply, "rights": [right._asdict() for right in rights], "reader_groups": groups}
        click.echo(json.dumps({**body, "commands": lines}, indent=2))
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(_table(rights))
    if apply:
        console.print(f"\nGiven on {plan.broker}: {len(rights)} rights.")
        return
    console.print("\nWith Kafka's own tool (admin.properties: how an administrator connects):", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


async def _given(client: Client, rights: Sequence[Right]) -> None:
    assert isinstance(client, KafkaClient)  # noqa: S101  (the embedded log was refused)
    await client.allow(rights)


def _table(rights: Sequence[Right]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for heading in ("principal", "resource", "name", "may"):
        table.add_column(heading, overflow="fold")
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        name = f"{right.name}*" if right.prefixed else right.name
        grouped.setdefault((right.principal, right.resource, name), []).append(right.operation)
    for place, operations in grouped.items():
        table.add_row(*place, ", ".join(operations))
    return table
