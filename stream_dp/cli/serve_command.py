"""`stream-dp serve FILE`: the readers' gateway, releases over HTTP for browsers and programs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from stream_dp.cli.command_line import FILE
from stream_dp.config.loading import unknown
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import connect
from stream_dp.windows.encoding import parse_size

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def _memory(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _missing(error: ImportError, extra: str, path: str) -> ConfigError:
    return ConfigError(f"{error.name} is missing; install the extra: pip install 'stream-dp[{extra}]'", path)


@click.command()
@FILE
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option("--memory", "memory_bytes", default="512MiB", show_default=True, callback=_memory, help="For releases.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key, PEM.")
@click.option("--without-tls", is_flag=True, help="Listen elsewhere than on loopback without TLS, behind a proxy.")
def serve(
    file: Path, host: str, port: int, memory_bytes: int, tls_cert: str | None, tls_key: str | None, *, without_tls: bool
) -> None:
    """Serve readers the releases of the application that FILE describes.

    Readers open the page in a browser, or ask for JSON, CSV and events. Each reads its own audience: those under
    `serve.public` need no token, others one from `stream-dp token new`. The gateway reads release topics and writes
    nothing; it needs neither the key file nor the data folder. Without a broker it answers 503 and waits.

    Exit codes: 0 ended; 1 it cannot listen there; 2 wrong usage or configuration, or the extra is missing.
    """
    try:
        from stream_dp.gateway.routes import Gateway  # noqa: PLC0415 - an extra
        from stream_dp.gateway.server import Server  # noqa: PLC0415
    except ImportError as error:
        raise _missing(error, "gateway", "serve") from None
    from stream_dp.gateway.boards import Boards  # noqa: PLC0415
    from stream_dp.gateway.reader import BoardReader  # noqa: PLC0415
    from stream_dp.gateway.tokens import Tokens, read_tokens  # noqa: PLC0415

    plan = load_plan(file)
    for audience in plan.serve.public:
        if audience not in plan.audiences:
            raise ConfigError(f"no audience is named {audience!r}; {unknown(audience, plan.audiences)}", "serve.public")
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if host not in LOOPBACK and tls_cert is None and not without_tls:
        raise click.UsageError(
            f"{host} is not loopback and tokens would be sent in plaintext: give --tls-cert and --tls-key, or "
            "--without-tls if a proxy in front of it has TLS"
        )
    if plan.serve.tokens is not None:
        read_tokens(plan.serve.tokens)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    boards = Boards(memory_bytes // len(plan.audiences))
    tokens = Tokens(plan.serve.tokens, wall_clock_ms)
    if plan.serve.jwt is not None:
        try:
            from stream_dp.gateway.jwt_tokens import JwtTokens  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise _missing(error, "jwt", "serve.jwt") from None
        tokens.signed = JwtTokens(plan.serve.jwt, plan.audiences, wall_clock_ms).given
    gateway = Gateway(plan.serve, boards, tokens)
    reader = BoardReader(plan, boards, lambda: connect(plan.broker))

    def started() -> None:
        name = f"[{host}]" if ":" in host else host
        click.echo(f"{plan.name}: look at {'http' if tls_cert is None else 'https'}://{name}:{port}/  Ctrl-C ends.")
        if not plan.serve.public and plan.serve.tokens is None and plan.serve.jwt is None:
            click.echo("Nobody may read yet: name an audience under serve.public, or a file under serve.tokens.")

    server = Server(
        gateway.app(reader.run),
        gateway.hub.shut_down,
        started,
        host=host,
        port=port,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    asyncio.run(server.serve())
