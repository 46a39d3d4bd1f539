"""`stream-dp serve`: the readers' gateway, for browsers and programs; `stream-dp console`: the operators' console."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import click

from stream_dp.cli.command_line import FILE, Parsed, command_line, host_and_port
from stream_dp.cli.output import announce
from stream_dp.config.loading import unknown
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.limits import open_more_files
from stream_dp.windows.encoding import parse_size

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
SIZE = Parsed("text", parse_size)


@dataclass(frozen=True)
class Listening:
    """Where a program listens.

    Attributes:
        host: the address.
        port: the port.
        tls_cert: file of the certificate chain; None: without TLS.
        tls_key: file of its key.
    """

    host: str
    port: int
    tls_cert: str | None
    tls_key: str | None

    def check(self, remedy: str = "", *, without_tls: bool = False) -> None:
        """Refuse to send tokens in plaintext over a network, unless told to; `remedy` is another one than TLS."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key belong together")
        if self.host not in LOOPBACK and self.tls_cert is None and not without_tls:
            raise click.UsageError(
                f"{self.host} is not loopback and tokens would be sent in plaintext: give --tls-cert and --tls-key"
                f"{remedy}"
            )

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{name}:{self.port}/"

    def serve(self, app: Any, bye: Callable[[], None], started: Callable[[], None]) -> None:  # noqa: ANN401  of an extra
        """Serve an application until it is ended; `bye` ends its streams."""
        from stream_dp.gateway.server import Server  # noqa: PLC0415 - an extra

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        open_more_files()
        tls = {"ssl_certfile": self.tls_cert, "ssl_keyfile": self.tls_key}
        asyncio.run(Server(app, bye, started, host=self.host, port=self.port, **tls).serve())


def _listens(port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options of a program that listens, on this port unless told otherwise: the fields of `Listening`."""
    file = click.Path(exists=True, dir_okay=False)
    options = [
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option("--port", default=port, show_default=True, type=click.IntRange(0, 65535), help="Its port."),
        click.option("--tls-cert", type=file, help="Certificate chain, PEM."),
        click.option("--tls-key", type=file, help="Its key, PEM."),
    ]
    return lambda command: reduce(lambda found, option: option(found), reversed(options), command)


def _missing_extra(error: ImportError, path: str, extra: str = "gateway") -> ConfigError:
    """Return the error of a command, or of a place in the file, whose extra is not installed."""
    return ConfigError(f"{error.name} is missing; install the extra: pip install 'stream-dp[{extra}]'", path)


@click.command()
@FILE
@_listens(8080)
@click.option("--memory", "memory_bytes", default="512MiB", show_default=True, type=SIZE, help="For releases.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    type=host_and_port,
    help="Answer /metrics there, for operators. HOST is 127.0.0.1 unless given. [default: off]",
)
@click.option("--without-tls", is_flag=True, help="Listen elsewhere than on loopback without TLS, behind a proxy.")
def serve(
    file: Path,
    memory_bytes: int,
    metrics: tuple[str, int] | None,
    *,
    without_tls: bool,
    **place: Any,  # noqa: ANN401  of `Listening`
) -> None:
    """Serve readers the releases of the application that FILE describes.

    Readers open the page in a browser, or ask for JSON, CSV and events. Each reads its own audience: those under
    `serve.public` need no token, others one from `stream-dp token new`. The gateway reads release topics and writes
    nothing; it needs neither the key file nor the data folder. Without a broker it answers 503 and waits.

    Exit codes: 0 ended; 1 it cannot listen there; 2 wrong usage or configuration, or the extra is missing.
    """
    try:
        from stream_dp.gateway.metrics import publish  # noqa: PLC0415
        from stream_dp.gateway.routes import Gateway  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise _missing_extra(error, "serve") from None
    from stream_dp.gateway.boards import Boards  # noqa: PLC0415
    from stream_dp.gateway.reader import BoardReader  # noqa: PLC0415
    from stream_dp.gateway.tokens import Tokens, read_tokens  # noqa: PLC0415

    plan, listening = load_plan(file), Listening(**place)
    for audience in plan.serve.public:
        if audience not in plan.audiences:
            raise ConfigError(f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}", "serve.public")
    listening.check(", or --without-tls if a proxy in front of it has TLS", without_tls=without_tls)
    if plan.readers is not None:
        read_tokens(plan.readers)
    boards = Boards(memory_bytes // len(plan.audiences))
    tokens = Tokens(plan.readers, wall_clock_ms)
    if plan.serve.jwt is not None:
        try:
            from stream_dp.gateway.jwt_tokens import JwtTokens  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise _missing_extra(error, "serve.jwt", "jwt") from None
        tokens.signed = JwtTokens(plan.serve.jwt, plan.audiences, wall_clock_ms).given
    gateway = Gateway(plan.serve, boards, tokens)
    reader = BoardReader(plan, boards, lambda: connect(plan.broker))

    def started() -> None:
        announce(f"{plan.name}: look at {listening}  Ctrl-C ends.")
        if not plan.serve.public and plan.readers is None and plan.serve.jwt is None:
            announce("Nobody may read yet: name an audience under serve.public, or a file under serve.tokens.")

    with nullcontext() if metrics is None else publish(metrics, gateway, reader):
        listening.serve(gateway.app(reader.run), gateway.hub.shut_down, started)


@click.command()
@FILE
@_listens(8081)
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
        raise _missing_extra(error, "console") from None
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
        lambda: announce(f"{plan.name}: console at {listening}  Ctrl-C ends."),
    )
