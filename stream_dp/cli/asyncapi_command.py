"""`stream-dp asyncapi FILE`: the application's topics as an AsyncAPI document."""

from __future__ import annotations

from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, print_json
from stream_dp.cli.output import write_data
from stream_dp.config.planner import load_plan
from stream_dp.config.yaml_data import write_yaml
from stream_dp.operations.asyncapi import asyncapi as document_of


@click.command()
@FILE
@click.option("--audience", help="Only what this audience reads: give it to readers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
def asyncapi(file: Path, audience: str | None, *, as_json: bool) -> None:
    """Print an AsyncAPI 3.0 document of the topics of the application FILE.

    It has the release topics with the JSON Schema of their records, the topics of events, the dead letters, and how
    clients log in; no user and no secret. `receive` and `send` are what other programs do. It follows FILE, whatever
    settings are in effect. With --audience it has the release topics of that audience and nothing else.

    Exit codes: 0 done; 2 wrong usage or configuration.
    """
    document = document_of(load_plan(file), audience)
    if as_json:
        print_json(document)
    else:
        write_data(write_yaml(document), nl=False)
