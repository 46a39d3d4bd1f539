"""`stream-dp acl FILE`: the least rights of worker, readers, operators, producers and gateway on a secured cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stream_dp.cli.command_line import FILE, print_json, run
from stream_dp.cli.display import table
from stream_dp.config.loading import unknown
from stream_dp.config.planner import load_plan
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


def _reader(text: str) -> tuple[str, str]:
    audience, equals, principal = text.partition("=")
    if not equals:
        raise click.BadParameter(f'write an audience and its principal, "partner=User:name", not {text!r}')
    return audience, _principal(principal)


def _accounts(option: str, help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option for the accounts of a role; it may be repeated."""
    return click.option(
        f"--{option}", f"{option}s", metavar="PRINCIPAL", multiple=True, type=_principal, help=help_text
    )


@click.command()
@FILE
@_accounts("worker", "The account of the workers.")
@click.option(
    "--reader",
    "readers",
    metavar="AUDIENCE=PRINCIPAL",
    multiple=True,
    type=_reader,
    help="The account of an audience's readers; several times for several.",
)
@_accounts("operator", "An account for `console`, `apply`, `tune`, `settings`, `grant`, `ledger`, `status` and `tail`.")
@_accounts("producer", "An account that writes the events of the sources.")
@_accounts("gateway", "The account of `serve`.")
@click.option(
    "--apply",
    is_flag=True,
    help="Add the rights on the cluster of FILE, as the account of FILE, which needs Alter on the cluster. Rights that "
    "exist stay, so this can be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")
def acl(file: Path, *, apply: bool, as_json: bool, **accounts: Any) -> None:  # noqa: ANN401  those of `rights_of`
    """Print the least rights that the accounts of the application FILE need on a cluster with an authorizer.

    Prints a table, and the same as calls of Kafka's kafka-acls.sh. Without accounts it shows an example of each. A
    reader may read the topics of its audience and use consumer groups whose names begin with NAME.AUDIENCE. (NAME is
    the name of the application; the dots are part of the name), nothing else. `--apply` adds exactly these rights: what
    FILE needs, whatever settings are in effect. So run it before you apply FILE. It neither checks nor removes other
    rights of an account.

    \b
    stream-dp acl app.yaml --worker User:app --reader public=User:site --operator User:ops
    stream-dp acl app.yaml --worker User:app --apply

    Exit codes: 0 done; 1 the cluster does not answer or refuses; 2 wrong usage or configuration.
    """
    plan = load_plan(file)
    faults = [
        Fault("reader", f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}")
        for audience, _ in accounts["readers"]
        if audience not in plan.audiences
    ]
    named = any(accounts.values())
    if apply and not named:
        words = "name the accounts that get the rights: --worker, --reader, --operator, --producer, --gateway"
        faults.append(Fault("apply", words))
    if apply and plan.broker.is_embedded:
        faults.append(Fault("broker", "memory:// has no accounts and no rights"))
    if faults:
        raise ConfigError(faults)
    if not named:
        accounts = {role: [f"User:{role.removesuffix('s')}"] for role in accounts}
        accounts["readers"] = [(audience, f"User:reader-{audience}") for audience in plan.audiences]
    rights = [*rights_of(plan, **accounts)]
    if apply:
        run(plan, lambda client: _given(client, rights))
    lines = commands(rights, plan.broker.address)
    if as_json:
        groups = {audience: reader_groups(plan, audience) for audience, _ in accounts["readers"]}
        body = {"applied": apply, "rights": [right._asdict() for right in rights], "reader_groups": groups}
        print_json({**body, "commands": lines})
        return
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = WIDE
    console.print(_table(rights))
    if apply:
        console.print(f"\nThe accounts now have these {len(rights)} rights on {plan.broker}.")
        return
    console.print("\nWith Kafka's own tool (admin.properties: how an administrator connects):", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


async def _given(client: Client, rights: Sequence[Right]) -> None:
    assert isinstance(client, KafkaClient)  # noqa: S101  (the embedded log was refused)
    await client.allow(rights)


def _table(rights: Sequence[Right]) -> Table:
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        name = f"{right.name}*" if right.prefixed else right.name
        grouped.setdefault((right.principal, right.resource, name), []).append(right.operation)
    rows = ((*place, ", ".join(operations)) for place, operations in grouped.items())
    return table("principal", "resource", "name", "may", rows=rows, apart=1)
