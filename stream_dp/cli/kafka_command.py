"""`stream-dp kafka`: a real Apache Kafka on this machine, for development, the demo and the tests."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from stream_dp.cli.command_line import print_json
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka.broker import LocalKafka

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

    One node on loopback, without authentication: for development, the demo and the tests. Needs Java 17 or newer. Maven
    downloads the jars once into the cache folder (STREAM_DP_CACHE, else ~/.cache/stream-dp).

    If STREAM_DP_BROKER names a cluster, commands use that and start nothing.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not running (status).
    """


@kafka.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients. [default: the former, else a free one]")
@click.option("--heap", default="1g", show_default=True, help="Limit of the Java heap.")
@_dir_option
@_json_option
def up(port: int | None, heap: str, folder: Path | None, as_json: bool) -> None:
    """Start Kafka and return when clients can use it.

    Kafka runs until `stream-dp kafka down`. If it runs already, nothing changes. If it was stopped, it comes back with
    its topics.
    """
    external = localkafka.external_broker()
    if external is not None:
        fields = {"address": external, "external": True, "started": False}
        _tell(fields, f"STREAM_DP_BROKER names [bold]{escape(external)}[/]: using it, nothing started", as_json)
        return
    found = localkafka.start(folder, port=port, heap=heap, say=_say)
    done = "Kafka is up" if found.started else "Kafka was running already"
    _show(found, f"{done} on [bold]{found.address}[/]", as_json, ready=True)


@kafka.command()
@_dir_option
@_json_option
def down(folder: Path | None, as_json: bool) -> None:
    """Stop Kafka; its topics stay for the next `up`.

    If it does not run, nothing changes. A cluster of STREAM_DP_BROKER is never stopped.
    """
    stopped, found = localkafka.stop(folder), localkafka.status(folder)
    words = f"Kafka on {found.address} is stopped; its topics stay in {escape(str(found.data_dir))}"
    _tell({"stopped": stopped}, words if stopped else "Kafka was not running", as_json)


@kafka.command(short_help="Show the state of Kafka.")
@_dir_option
@_json_option
@click.pass_context
def status(context: click.Context, folder: Path | None, as_json: bool) -> None:
    """Show the state of Kafka, its address, data and log.

    Exits with 0 if clients can use it, 3 if it does not run, 1 if it runs (or is named by STREAM_DP_BROKER) but does
    not answer.
    """
    external = localkafka.external_broker()
    if external is not None:
        ready = localkafka.answers(external)
        words = f"STREAM_DP_BROKER names [bold]{escape(external)}[/]: {'it answers' if ready else 'it does not answer'}"
        _tell({"address": external, "external": True, "ready": ready}, words, as_json)
        context.exit(0 if ready else 1)
    found = localkafka.status(folder)
    if not found.running or found.address is None:
        _show(found, "Kafka is not running", as_json, ready=False)
        context.exit(NOT_RUNNING)
    ready = localkafka.answers(found.address)
    state = "is up" if ready else "runs but does not answer"
    _show(found, f"Kafka {state} on [bold]{found.address}[/]", as_json, ready=ready)
    context.exit(0 if ready else 1)


def _say(words: str) -> None:
    """Print progress to standard error, so that `--json` output stays clean."""
    _progress.print(f"[dim]{escape(words)}[/]")


def _tell(fields: dict[str, object], words: str, as_json: bool) -> None:
    if as_json:
        print_json(fields)
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
    process = [] if found.pid is None else [f"  [dim]process[/]  {found.pid}"]
    paths = [("data", found.data_dir), ("log", found.log_file)]
    lines = [f"  [dim]{name:<9}[/]{escape(str(path))}" for name, path in paths]
    _tell(fields, "\n".join([headline, *process, *lines]), as_json)
