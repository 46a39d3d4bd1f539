"""The local copies of tables, which are worth something only beside the changelogs that they were made from."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

from stream_dp.config.plan import Plan
from stream_dp.runtime.bootstrap import Settled
from stream_dp.runtime.topics import COUNTS, MERGES, RELEASES, Topics

log = logging.getLogger("stream_dp.worker")


def discard_former_copies(plan: Plan, settled: Settled, tables: Path) -> None:
    """Delete the local rows of tables whose changelog was deleted: the rows of the new one are not behind them.

    Which changelogs the copies in a data folder were made from stands beside them. Deleting comes first, so it is done
    again if it was cut short.

    Args:
        plan: the application.
        settled: the topics that there are.
        tables: the folder of the copies.
    """
    topics, beside = Topics.of(plan), plan.data_dir / "changelogs.json"
    ids = {table: settled.topics[topics.changelog(table)].id for table in (COUNTS, MERGES, RELEASES)}
    former = json.loads(beside.read_text()) if beside.exists() else {}
    for table, changelog in ids.items():
        copies = sorted(tables.glob(f"{table}-*.db")) if former.get(table) != changelog else []
        for copy in copies:
            shutil.rmtree(copy)
        if copies:
            log.warning("the local copy of %s was made from a changelog that was deleted; it is discarded", table)
    fresh = beside.with_suffix(".new")
    fresh.write_text(json.dumps(ids))
    fresh.replace(beside)
