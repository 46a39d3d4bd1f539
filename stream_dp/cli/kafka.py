"""`stream-dp kafka`: a real Apache Kafka on this machine, for development, the demo and the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.errors import StreamDPError
from stream_dp.runtime import localkafka
from stream_dp.runtime.localkafka import LocalKafka

NOT_RUNNING = 3
"""Exit code of `status` when no broker runs, as service managers use it."""

_out = Console(soft_wrap=True, highlight=False)
_progress = Console(stderr=True, soft_wrap=True, highlight=False)

_dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="State folder: topics, log, process id. [default: kafka/local in the cache folder]",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of words.")


@click.group()
def kafka() -> None:
    """Run a real Apache Kafka on this machine.

    One node on loopback, without authentication: for development, the demo and the tests. Needs Java 17 or newer; Maven
    fetches the jars once into the cache folder (STREAM_DP_CACHE, else ~/.cache/stream-dp).

    STREAM_DP_BROKER names an existing cluster to use instead; then nothing is started here.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not running (status).
    """


@kafka.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients. [default: the former, else a free one]")
@click.option("--heap", default="1g", show_default=True, help="The most memory the Java heap may take.")
@_dir_option
@_json_option
def up(port: int | None, heap: str, folder: Path | None, as_json: bool) -> None:
    """Start Kafka and return when clients can use it.

    It goes on running until `stream-dp kafka down`. One that runs already is left as it is; one that was stopped
    comes back with its topics.
    """
    external = localkafka.external_broker()
    if external is not None:
        fields = {"address": external, "external": True, "started": False}
        _tell(fields, f"STREAM_DP_BROKER names [bold]{escape(external)}[/]: using it, nothing started", as_json)
        return
    with _errors_as_messages():
        found = localkafka.start(folder, port=port, heap=heap, say=_say)
    done = "Kafka is up" if found.started else "Kafka was running already"
    _show(found, f"{done} on [bold]{found.address}[/]", as_json, ready=True)


@kafka.command()
@_dir_option
@_json_option
def down(folder: Path | None, as_json: bool) -> None:
    """Stop Kafka; its topics stay for the next `up`.

    Fine when it is not running. A cluster named by STREAM_DP_BROKER is never touched.
    """
    with _errors_as_messages():
        stopped = localkafka.stop(folder)
        found = localkafka.status(folder)
    words = f"Kafka on {found.address} is stopped; its topics stay in {escape(str(found.data_dir))}"
    _tell({"stopped": stopped}, words if stopped else "Kafka was not running", as_json)


@kafka.command(short_help="Say whether Kafka runs, and where.")
@_dir_option
@_json_option
@click.pass_context
def status(context: click.Context, folder: Path | None, as_json: bool) -> None:
    """Say whether Kafka runs, where clients reach it, and where its data and log are.

    Exits with 0 when clients can use it, 3 when it does not run, 1 when it runs (or is named by STREAM_DP_BROKER) but
    does not answer.
    """
    external = localkafka.external_broker()
    if external is not None:
        ready = localkafka.answers(external)
        words = f"STREAM_DP_BROKER names [bold]{escape(external)}[/]: {'it answers' if ready else 'it does not answer'}"
        _tell({"address": external, "external": True, "ready": ready}, words, as_json)
        context.exit(0 if ready else 1)
    with _errors_as_messages():
        found = localkafka.status(folder)
    if not found.running or found.address is None:
        _show(found, "Kafka is not running", as_json, ready=False)
        context.exit(NOT_RUNNING)
    ready = localkafka.answers(found.address)
    state = "is up" if ready else "runs but does not answer"
    _show(found, f"Kafka {state} on [bold]{found.address}[/]", as_json, ready=ready)
    context.exit(0 if ready else 1)


def _say(words: str) -> None:
    """Progress goes to standard error, so that `--json` output stays clean."""
    _progress.print(f"[dim]{escape(words)}[/]")


def _tell(fields: dict[str, object], words: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(fields))
    else:
        _out.print(words)


def _show(found: LocalKafka, headline: str, as_json: bool, *, ready: bool) -> None:
    fields: dict[str, object] = {
        "address": found.address,
        "external": False,
        "running": found.running,
        "ready": ready,
        "started": found.started,
        "pid": found.pid,
        "data": str(found.data_dir),
        "log": str(found.log_file),
    }
    _tell(fields, headline, as_json)
    if as_json:
        return
    if found.pid is not None:
        _out.print(f"  [dim]process[/]  {found.pid}")
    _out.print(f"  [dim]data[/]     {escape(str(found.data_dir))}")
    _out.print(f"  [dim]log[/]      {escape(str(found.log_file))}")


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    """An error of the package ends the command with its message and exit code 1, without a traceback."""
    try:
        yield
    except StreamDPError as error:
        raise click.ClickException(str(error)) from error
