"""The local copies of tables, which are worth something only beside the changelogs that they were made from."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

from stream_dp.config.plan import Plan
from stream_dp.runtime.bootstrap import Settled
from stream_dp.runtime.topics import COUNTS, MERGES, RELEASES, Topics

log = logging.getLogger("stream_dp.worker")


def discard_former_copies(plan: Plan, settled: Settled, tables: Path) -> None:
    """Delete the local rows of tables whose changelog was deleted: the rows of the new one are not behind them.

    Which changelogs the copies in a data folder were made from stands beside them; where that cannot be read, after a
    failure of the disk, all are deleted. Deleting comes first, so it is done again if it was cut short.

    Args:
        plan: the application.
        settled: the topics that there are.
        tables: the folder of the copies.
    """
    topics, beside = Topics.of(plan), plan.data_dir / "changelogs.json"
    ids = {table: settled.topics[topics.changelog(table)].id for table in (COUNTS, MERGES, RELEASES)}
    former = _read(beside)
    for table, changelog in ids.items():
        copies = sorted(tables.glob(f"{table}-*.db")) if former.get(table) != changelog else []
        for copy in copies:
            shutil.rmtree(copy)
        if copies:
            made = "a changelog that was deleted" if table in former else "nobody knows which changelog"
            log.warning("the local copy of %s was made from %s; it is discarded and read again", table, made)
    if former != ids:
        _write(beside, ids)


def _read(beside: Path) -> dict[str, str]:
    try:
        found = json.loads(beside.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(beside: Path, ids: dict[str, str]) -> None:
    """Put the file in the place of the one before when its content is on the disk, so that one of them is there."""
    fresh = beside.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(ids, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(beside)
