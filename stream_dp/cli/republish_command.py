"""`stream-dp republish FILE VIEW AUDIENCE`: write a deleted release topic again; for operators."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from stream_dp.cli.command_line import FILE, command_line, run_effective
from stream_dp.config.plan import Plan
from stream_dp.operations import republish as operations
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.key_file import read_keys


@click.command()
@FILE
@click.argument("view")
@click.argument("audience")
def republish(file: Path, view: str, audience: str) -> None:
    """Write the deleted release topic of a VIEW and an AUDIENCE again.

    If a release topic is deleted, its audience gets nothing more; all other audiences are served as before. `stream-dp
    status` names the topic. This command creates the topic if it is missing, and asks the workers to write to it. They
    write the newest record of every retained window, with the same bytes and the same time as before, and then continue
    with new windows. Nothing is drawn or charged again. The new topic gets only records that the deleted one had or was
    about to get.

    Windows whose retention has ended are not written, because their records are deleted for good. Earlier revisions of
    a window are not written either, because compaction would remove them.

    \b
    stream-dp republish app.yaml pages public

    The command does not wait for the workers. You can run it again at any time: a complete topic stays as it is. A
    topic that someone created by hand is used as it is. Readers that stored offsets of the deleted topic start again
    from the beginning.

    Exit codes: 0 the workers were asked to write the topic; 1 the broker refused; 2 wrong usage, no such view or
    audience, or the key file of another application.
    """
    run_effective(file, partial(_run, file=file, view=view, audience=audience))


async def _run(plan: Plan, client: Client, *, file: Path, view: str, audience: str) -> None:
    keys = read_keys(plan.key_file)
    found = await operations.republish(plan, client, keys, view, audience)
    click.echo(f"Asked the workers of {plan.id} to write {found.topic} again. To check whether they have:")
    click.echo(f"  {command_line('status', file)}")
