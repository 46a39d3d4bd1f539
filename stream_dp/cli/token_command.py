"""`stream-dp token`: make, list and revoke the tokens of an audience's readers at the gateway."""

from __future__ import annotations

from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, print_json, short_path
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.gateway.tokens import new_token, read_tokens, revoke_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.windows.durations import parse_duration


def _tokens(plan: Plan) -> Path:
    if plan.serve.tokens is None:
        raise ConfigError("is required: the file of the readers' tokens, as ./readers.tokens", "serve.tokens")
    return plan.serve.tokens


def _lifetime(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def token() -> None:
    """Make, list and revoke readers' tokens for `stream-dp serve`.

    A token gives the releases of one audience. The file `serve.tokens` has its hash; the token is printed once and
    kept nowhere. A running gateway notices changes within 2 s and ends the streams of a revoked token.

    Exit codes: 0 done; 2 no such audience or id, or a file that cannot be read or changed.
    """


@token.command("new")
@FILE
@click.argument("audience")
@click.option("--expires", "lifetime_ms", callback=_lifetime, help="Lifetime, as 90d. [default: until it is revoked]")
@click.option("--note", default="", help="Who has it; shown by `token list`.")
def new(file: Path, audience: str, lifetime_ms: int | None, note: str) -> None:
    """Make a token of AUDIENCE and print it."""
    plan = load_plan(file)
    if audience not in plan.audiences:
        raise ConfigError(f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}", "audience")
    now_ms = wall_clock_ms()
    expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
    entry, made = new_token(_tokens(plan), audience, now_ms, expires_ms, note)
    click.echo(f"token {entry.id} of {audience}; it is shown only once:", err=True)
    click.echo(made)


@token.command("list")
@FILE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_tokens(file: Path, *, as_json: bool) -> None:
    """List the tokens: ids, audiences, when they were made and expire; never a token."""
    path, now_ms = _tokens(load_plan(file)), wall_clock_ms()
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
def revoke(file: Path, identifier: str) -> None:
    """Revoke the token with this ID; its streams end within 2 s."""
    entry = revoke_token(_tokens(load_plan(file)), identifier)
    click.echo(f"token {entry.id} of {entry.audience} is revoked")
