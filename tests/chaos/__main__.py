"""Things happen to an application for some minutes: `python -m tests.chaos --minutes N --seed S`.

It starts a Kafka of its own and one to four workers on data that it makes, and does to them what the table in
`tests/chaos/acts.py` has. At the end it says what happened, how long releases took after the last disturbance, and
what faults the audit found. Exit codes: 0 no fault, 1 faults; then everything is kept for a look at it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.acts import KINDS
from tests.chaos.driver import run
from tests.chaos.schedule import chosen


def main() -> int:
    """Run, and say what came of it."""
    groups = sorted({kind.group for kind in KINDS.values()})
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, help="of the schedule; any by default")
    parser.add_argument("--workers", default="1-4", help="how many, or the least and the most: 1-4")
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1, help="of the cluster; one by default")
    parser.add_argument("--only", default="", help=f"acts or groups of them, with commas between: {', '.join(groups)}")
    parser.add_argument("--folder", type=Path, help="an empty folder for everything; a temporary one by default")
    given = parser.parse_args()
    least, _, most = given.workers.partition("-")
    seed = random.SystemRandom().randrange(1, 1_000_000) if given.seed is None else given.seed
    only = [name for name in given.only.split(",") if name]
    try:
        workers = (int(least), int(most or least))
        kinds = chosen(KINDS, only)
    except ValueError as error:
        parser.error(str(error))
    if not 1 <= workers[0] <= workers[1] <= 4:
        parser.error("--workers: one to four")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # that a broker is gone is what is wanted
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    say = lambda line: print(line, flush=True)  # noqa: E731
    result = asyncio.run(
        run(folder, kinds, seed=seed, minutes=given.minutes, workers=workers, say=say, brokers=given.brokers)
    )
    print(result)
    if result.report.faults:
        print(f"faults; what was said and stored is in {folder}")
        return 1
    if given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
