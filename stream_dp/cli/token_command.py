"""`stream-dp token`: make, list and revoke the tokens of readers at the gateway, and of operators at the console."""

from __future__ import annotations

from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, Parsed, print_json, short_path
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.gateway.tokens import (
    LOOKER,
    OPERATOR,
    OPERATORS_PREFIX,
    PREFIX,
    new_token,
    read_tokens,
    revoke_token,
)
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.windows.durations import parse_duration

LIFETIME = Parsed("text", parse_duration)
OPERATORS = click.option("--operator", is_flag=True, help="Tokens of operators, for `stream-dp console`.")


def _tokens(plan: Plan, *, operator: bool) -> Path:
    if operator:
        if plan.operators is None:
            raise ConfigError("is required: the file of the operators' tokens, as ./operators.tokens", "console.tokens")
        return plan.operators
    if plan.readers is None:
        raise ConfigError("is required: the file of the readers' tokens, as ./readers.tokens", "serve.tokens")
    return plan.readers


@click.group()
def token() -> None:
    """Make, list and revoke tokens: of readers for `stream-dp serve`, of operators for `stream-dp console`.

    A reader's token gives the releases of one audience. An operator's token (--operator) gives the console, or with
    --look everything there but changes. The file `serve.tokens` or `console.tokens` has its hash; the token is printed
    once and kept nowhere. A running program notices changes within 2 s and ends the streams of a revoked token.

    Exit codes: 0 done; 2 no such audience or id, or a file that cannot be read or changed.
    """


@token.command("new")
@FILE
@click.argument("audience", required=False)
@OPERATORS
@click.option("--look", is_flag=True, help="With --operator: a token that changes nothing.")
@click.option("--expires", "lifetime_ms", type=LIFETIME, help="Lifetime, as 90d. [default: until it is revoked]")
@click.option("--note", default="", help="Who has it; shown by `token list`.")
def new(file: Path, audience: str | None, lifetime_ms: int | None, note: str, *, operator: bool, look: bool) -> None:
    """Make a token of AUDIENCE, or with --operator one of an operator, and print it."""
    if operator == (audience is not None) or (look and not operator):
        raise click.UsageError("name an audience, or --operator, with --look for one that changes nothing")
    plan = load_plan(file)
    if audience is None:
        audience = LOOKER if look else OPERATOR
    elif audience not in plan.audiences:
        raise ConfigError(f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}", "audience")
    now_ms = wall_clock_ms()
    expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
    prefix = OPERATORS_PREFIX if operator else PREFIX
    entry, made = new_token(_tokens(plan, operator=operator), audience, now_ms, expires_ms, note, prefix)
    whose = f"an operator ({audience})" if operator else audience
    click.echo(f"token {entry.id} of {whose}; it is shown only once:", err=True)
    click.echo(made)


@token.command("list")
@FILE
@OPERATORS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_tokens(file: Path, *, operator: bool, as_json: bool) -> None:
    """List the tokens: ids, audiences, when they were made and expire; never a token."""
    path, now_ms = _tokens(load_plan(file), operator=operator), wall_clock_ms()
    entries = read_tokens(path)
    if as_json:
        names = ("id", "audience", "made", "expires", "note")
        print_json({"tokens": [{name: getattr(entry, name) for name in names} for entry in entries]})
        return
    click.echo(f"tokens in {short_path(path)}: {len(entries)}")
    for entry in entries:
        until = "until revoked" if entry.expires is None else f"until {entry.expires}"
        state = "  expired" if entry.is_expired(now_ms) else ""
        click.echo(f"  {entry.id}  {entry.audience}  made {entry.made}  {until}{state}  {entry.note}".rstrip())


@token.command()
@FILE
@click.argument("identifier", metavar="ID")
@OPERATORS
def revoke(file: Path, identifier: str, *, operator: bool) -> None:
    """Revoke the token with this ID; its streams end within 2 s."""
    entry = revoke_token(_tokens(load_plan(file), operator=operator), identifier)
    click.echo(f"token {entry.id} of {entry.audience} is revoked")
