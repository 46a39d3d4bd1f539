"""The `stream-dp` command."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from stream_dp.cli.output import guarded_output
from stream_dp.errors import StreamDPError, exit_code
from stream_dp.runtime.worker.logs import last_line
from stream_dp.version import __version__

_COMMANDS = (
    *("demo", "init", "check", "plan", "replay", "worker", "feed", "acl", "schema", "asyncapi", "apply", "tune"),
    *("settings", "grant", "grants", "tail", "lookup", "ledger", "status", "serve", "console", "token", "keys"),
    *("republish", "reset", "kafka"),
)
_FILES = {
    **{"apply": "settings", "tune": "settings", "grant": "grants"},
    **{"lookup": "tail", "schema": "tail", "console": "serve"},
}
"""Commands that share a file with another one."""


class _Commands(click.Group):
    """Loads a command's module when it is asked for, so that `--help` does not wait for Faust."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        file = "demo" if cmd_name == "demo" else f"{_FILES.get(cmd_name, cmd_name)}_command"
        module = import_module(f"stream_dp.cli.{file}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="stream-dp")
def cli() -> None:
    """Differentially private releases of a Kafka topic of user events.

    \b
    See a demo:            stream-dp demo
    Write a first file:    stream-dp init events.csv
    Check a configuration: stream-dp check app.yaml
    Plan its settings:     stream-dp plan app.yaml --events events.csv --grid epsilon=1/2,1,2
    Try it on a history:   stream-dp replay app.yaml events.csv
    Feed history:          stream-dp feed app.yaml --from events.csv
    Run a worker:          stream-dp worker app.yaml
    Read a release topic:  stream-dp tail app.yaml VIEW AUDIENCE
    Look up some keys:     stream-dp lookup app.yaml VIEW AUDIENCE KEY...
    See the budget:        stream-dp ledger app.yaml
    See the status:        stream-dp status app.yaml
    Serve readers:         stream-dp serve app.yaml
    Give a reader a token: stream-dp token new app.yaml AUDIENCE
    Serve operators:       stream-dp console app.yaml
    Change settings:       stream-dp apply app.yaml
    Sharpen an audience:   stream-dp grant app.yaml AUDIENCE --level LEVEL
    List grants:           stream-dp grants app.yaml
    Change the key:        stream-dp keys rotate app.yaml
    Rewrite a topic:       stream-dp republish app.yaml VIEW AUDIENCE
    Delete everything:     stream-dp reset app.yaml

    STREAM_DP_BROKER, "host:port", overrides the `broker` of every file. STREAM_DP_CACHE is the cache folder, for the
    jars of the local Kafka and the runs of the demo. [default: ~/.cache/stream-dp] STREAM_DP_KAFKA_VERSION is the
    version of the local Kafka.

    Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 a warning (`check --strict`), workers that do not
    use new settings yet (`apply`, `tune`), or not running (`kafka status`).
    """


def main() -> None:
    """Run the console script: an error of the package becomes a message and an exit code."""
    with guarded_output():
        try:
            cli()
        except StreamDPError as error:
            for fault in getattr(error, "faults", [error]):
                click.echo(last_line(f"error: {fault}"), err=True)
            sys.exit(exit_code(error))
