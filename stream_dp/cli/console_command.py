"""`stream-dp console FILE`: the operators' console, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stream_dp.cli.command_line import FILE, command_line
from stream_dp.cli.serve_command import Listening, listens, missing_extra
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import connect


@click.command()
@FILE
@listens(8081)
def console(file: Path, **place: Any) -> None:  # noqa: ANN401  of `Listening`
    """Serve operators the status, budgets and settings of the application that FILE describes.

    Operators see in a browser what a change means before they agree to it: noise, price, until when budgets last. They
    need a token from `stream-dp token new FILE --operator`, also on this machine. The console shows exact counters and
    spending, so it is a program of its own, and listens elsewhere than on loopback only with TLS. It needs the account
    of an operator on Kafka (`stream-dp acl FILE --operator`), and neither the key file nor the data folder.

    Exit codes: 0 ended; 1 it cannot listen there; 2 wrong usage or configuration, or the extra is missing.
    """
    try:
        from stream_dp.gateway.console import Console  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing_extra(error, "console") from None
    from stream_dp.gateway.tokens import OPERATORS_PREFIX, Tokens, read_tokens  # noqa: PLC0415

    plan, listening = load_plan(file), Listening(**place)
    listening.check()
    if plan.operators is None:
        raise ConfigError("is required: the file of the operators' tokens, as ./operators.tokens", "console.tokens")
    if not read_tokens(plan.operators):
        make = command_line("token", "new", file, "--operator")
        click.echo(f"note: nobody may use it yet. Make a token: {make}", err=True)
    shown = Console(plan, lambda: connect(plan.broker), Tokens(plan.operators, wall_clock_ms, OPERATORS_PREFIX))
    listening.serve(
        shown.app(),
        shown.hub.shut_down,
        lambda: click.echo(f"{plan.name}: console at {listening}  Ctrl-C ends."),
    )
