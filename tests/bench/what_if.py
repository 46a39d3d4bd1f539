"""Seconds of processor time of `stream-dp plan` with many events and settings: `python -m tests.bench.what_if`.

The events are made up: items by Zipf's law, users by chance, over 30 days. They are read from a CSV file, once.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.table import Table

from stream_dp.config.planner import load_plan
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_counts import EventColumns
from stream_dp.operations.past_events import open_past_events
from stream_dp.operations.what_if import Subject, points, what_if
from tests.bench.figures import show

EVENTS, USERS, ITEMS, DAYS = 1_000_000, 100_000, 20_000, 30
EPSILONS = {"epsilon": ["1/4", "1/2", "1", "2", "4"]}
COMMON = "source: visits, item: page, items_per_user: 3, ledger: visitors"
DAYS_OF = "{{size: {}, start: 2024-01-01T00:00:00Z, clock: event}}"
PAGES = f"pages: {{{COMMON}, ladder: steps, window: {DAYS_OF.format('1d')}, "
SHARED = f"{COMMON}, ladder: parts, share: 1/2"
VIEWS = {
    "histogram": (PAGES + 'kind: histogram, delta: "1e-6"}', EPSILONS),
    "topk": (PAGES + 'kind: topk, k: 10, kbar: 100, selection: {epsilon: "1/10", delta: "1e-8"}}', EPSILONS),
    "list of releases": (
        f'found: {{{SHARED}, kind: histogram, delta: "1e-5", window: {DAYS_OF.format("5d")}, retention: 90d}},\n'
        f"  pages: {{{SHARED}, kind: catalogue, catalogue: {{from: found, audience: public}}, "
        f"window: {DAYS_OF.format('1d')}}}",
        {"split": ["1/8", "1/4", "1/2", "3/4", "7/8"]},
    ),
}
FILE = """\
name: bench
broker: memory://
data_dir: state
key_file: bench.key
sources: {visits: {topic: visits, partitions: 2, user: user, time: {field: at, unit: iso}}}
ledgers: {visitors: {population: visitors, epsilon: 1000, delta: "1/100", period: 30d, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: standard, epsilon: 1}], parts: [{level: standard, share: "1"}]}
audiences: {public: standard}
views: VIEWS
"""
GRID = {
    "window": ["6h", "12h", "1d", "5d"],
    "items_per_user": ["1", "3", "5", "10", "20"],
}


def make(file: Path, events: int) -> None:
    """Write made-up events."""
    chance = random.Random(1)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    seconds = sorted(chance.randrange(DAYS * 86_400) for _ in range(events))
    pages = chance.choices(range(ITEMS), [1 / (1 + place) for place in range(ITEMS)], k=events)
    with file.open("w") as out:
        out.write("user,page,at\n")
        for second, page in zip(seconds, pages, strict=True):
            at = (start + timedelta(seconds=second)).isoformat()
            out.write(f"u{chance.randrange(USERS)},/page/{page},{at}\n")


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of the processor for a kind."""

    kind: str
    events: int
    settings: int
    reading_s: float
    computing_s: float


def measure(kind: str, events: int) -> Figure:
    """Read made-up events and compute the grid."""
    with TemporaryDirectory() as folder:
        file, history = Path(folder, "bench.yaml"), Path(folder, "events.csv")
        views, more = VIEWS[kind]
        file.write_text(FILE.replace("VIEWS", f"{{{views}}}"))
        make(history, events)
        plan = load_plan(file, {})
        began = time.process_time()
        columns = EventColumns(plan.views["pages"], [*plan.views])
        read = open_past_events(plan, history, FeedOptions(), None, columns.take)
        middle = time.process_time()
        found = [*what_if(Subject(plan, "pages", "public", read.until_ms), columns, points({**GRID, **more}))]
        return Figure(kind, events, len(found), middle - began, time.process_time() - middle)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    given = parser.parse_args()
    table = Table("kind", "events", "settings", "read, s", "compute, s", title="stream-dp plan")
    figures = [measure(kind, given.events) for kind in VIEWS]
    for one in figures:
        table.add_row(one.kind, f"{one.events:,}", str(one.settings), f"{one.reading_s:.1f}", f"{one.computing_s:.1f}")
    show(figures, table, ["numpy"], as_json=given.json)


if __name__ == "__main__":
    main()
