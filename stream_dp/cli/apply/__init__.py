"""`stream-dp apply FILE`: make what a file says hold, from a window on, while the workers run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from stream_dp.cli.apply.changing import Wish, change, faults_told, options
from stream_dp.cli.command_line import hush_libraries
from stream_dp.config.planning import load_plan
from stream_dp.runtime.connecting import connect


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--take-back", is_flag=True, help="With --yes: also where FILE takes back what was changed since it was written."
)
@options
def apply(file: Path, wish: Wish, *, take_back: bool) -> None:
    """Make what FILE says hold, for windows to come, while the workers run.

    FILE is what you want; what holds stands in the control topic of the application. This compares their sources,
    ledgers, ladders, audiences and views, and shows what differs, from which window on that would hold, what a day of
    each view costs and how large its noise is, before and after, and how long the ledgers last. Where you agree it is
    written down under the next number, and every worker goes by it from the same windows on. Windows that begin before
    keep what they count and their noise; who sees what of them follows the new settings at once, and it is shown for
    which editions. What was spent goes on, and so do revisions.

    What cannot be is said, all of it at once, and nothing is changed: a fault in the file; a source that the workers do
    not read, or other words for a population, while workers run; a time that is past; windows that would be cut; a new
    view whose first windows are over, without --backfill; a list of keys that has changed in a file of the same name;
    new topics to which the workers' account has no rights, as far as the cluster shows that.

    The rest of FILE is each machine's own, and holds there from a restart on: broker, data_dir, key_file, erase_within,
    window_memory, block_cache, release, topics. To go back, apply an older file: `stream-dp settings FILE --show N`
    prints it. Where FILE takes back what others have tuned since, this says so; with --yes it is refused, unless you
    add --take-back.

    \b
    stream-dp apply app.yaml --dry-run              what would change, or why it cannot
    stream-dp apply app.yaml                        the same, and the question
    stream-dp apply app.yaml --from 2026-03-01 --yes --note "k as agreed"

    Exit codes: 0 it holds, or nothing differs; 1 not agreed to, somebody was faster, or no broker is there; 2 it
    cannot be; 3 it is posted, and after a minute not every worker uses it, or all workers have ended.
    """
    hush_libraries()
    sys.exit(asyncio.run(_apply(file, wish, take_back=take_back)))


async def _apply(file: Path, wish: Wish, *, take_back: bool) -> int:
    with faults_told(wish):
        plan = load_plan(file)
        async with connect(plan.broker) as client:
            code, _ = await change(plan, lambda _: plan, client, wish, take_back=take_back)
    return code
