"""`stream-dp tune FILE VIEW key=value ...`: change some settings of one view, from a window on, while workers run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stream_dp.cli.apply import Manner, change, faults_printed, options
from stream_dp.cli.command_line import command_line, run
from stream_dp.config.differences import differences
from stream_dp.config.planning import load_plan
from stream_dp.operations.apply import Wish
from stream_dp.operations.tune import tuned


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("view")
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
@options
def tune(file: Path, view: str, assignments: tuple[str, ...], wish: Wish, manner: Manner) -> None:
    """Change some settings of a VIEW of the application that FILE describes, for windows to come.

    This starts from the settings in effect, whatever FILE says, changes the named ones, and continues as `stream-dp
    apply` does: it shows from which window on they change and what that costs, and asks. FILE is not changed: this
    prints what to write into it. Until you do, applying FILE would revert the change.

    KEY is the place of a setting in the view, with dots: k, items_per_user, ladder, window.size, selection.epsilon.
    `audiences.NAME=LEVEL` is where an audience starts, in every view that it reads.
    `levels.LEVEL.epsilon` is a level of its ladder, in every view with that ladder. VALUE is what the file would have:
    20, 1m, "[public, staff]". An exact number needs no quotes here. An empty VALUE removes the setting; its default is
    in effect then.

    \b
    stream-dp tune app.yaml busiest k=20 kbar=80
    stream-dp tune app.yaml busiest window.size=1h window.grace=1m --from 2026-03-01
    stream-dp tune app.yaml busiest share= --dry-run

    Exit codes: those of `stream-dp apply`.
    """
    with faults_printed(manner):
        plan = load_plan(file)
        code, after = run(
            plan, lambda client: change(plan, lambda before: tuned(before, view, assignments), client, wish, manner)
        )
    missing = [] if manner.dry_run or manner.as_json else differences(plan.raw, after.raw)
    if missing:
        click.echo(f"{file} differs from the settings in effect. To keep them, write into it:")
        for setting in missing:
            click.echo(f"  {setting}")
        click.echo(f"  ({command_line('apply', file)} would revert them)")
    sys.exit(code)
