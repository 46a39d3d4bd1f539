"""`stream-dp republish FILE VIEW AUDIENCE`: write a release topic again that was deleted; for operators."""

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
    """Write the release topic of a VIEW and an AUDIENCE again after it was deleted.

    If a release topic is deleted, its audience gets nothing more, and all others go on. `stream-dp status` names the
    topic. This command creates the topic if it is missing, and asks the workers to write to it. They write the newest
    record of every retained window, with the same bytes and the same time as before, and then continue with new
    windows. Nothing is drawn or charged again, and the topic has nothing that its former one did not have or that it
    was not about to get.

    Windows whose retention is over are not written: their records are deleted for good. Earlier revisions of a window
    are not written either; compaction would remove them.

    \b
    stream-dp republish app.yaml pages public

    The command does not wait for the workers. Run it again whenever you like: a topic that is whole stays as it is. If
    somebody has created the topic by hand, it is used as it is. Readers that stored offsets of the former topic start
    again from the beginning.

    Exit codes: 0 the workers are asked; 1 the broker refused; 2 wrong usage, no such view or audience, or the key file
    of another application.
    """
    run_effective(file, partial(_run, file=file, view=view, audience=audience))


async def _run(plan: Plan, client: Client, *, file: Path, view: str, audience: str) -> None:
    keys = read_keys(plan.key_file)
    found = await operations.republish(plan, client, keys, view, audience)
    click.echo(f"The workers of {plan.id} are asked to write {found.topic} again. To see if they have:")
    click.echo(f"  {command_line('status', file)}")
