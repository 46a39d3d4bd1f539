"""A worker for half an hour on windows of a second: its folder, its topics and its memory level off.

`STREAM_DP_SOAK_MINUTES` is for how long; thirty where nothing is said.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.factory import SourceRecords
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.runtime.storage import LOG_BYTES, LOG_FILES, MANIFEST_BYTES
from stream_dp.testing import application
from stream_dp.windows.encoding import TABLES, WRITE_BUFFERS_BYTES

pytestmark = [pytest.mark.broker, pytest.mark.nightly]

MINUTES = float(os.environ.get("STREAM_DP_SOAK_MINUTES", "30"))
LOOK_SECONDS = 5.0
EVENTS_A_SECOND = 200
ROWS_BYTES = 8 << 20
"""Of a partition: what is retained here is far less, and a compaction holds it twice."""
GROWTH = 1.1
"""The most in the last third of the time, by the most in the third before."""
KEPT_BYTES = 1 << 20
"""What topics that keep records for an hour or a day, not for `erase_within`, may gain from one third to the next."""
LIVELY = (
    ("erase_within: 20s", "erase_within: 10s\nblock_cache: 8MiB"),
    ('epsilon: "100"', 'epsilon: "100000000"'),
    ('delta: "1/100"', 'delta: "9/10"'),
    ("period: 366d", "period: 36500d"),
    (
        "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}",
        "window: {size: 1s, grace: 1s}",
    ),
    ('delta: "1e-4"', 'delta: "1e-9"'),
    ("retention: 1d", "retention: 20s"),
)


def size_of(folder: Path, files: str = "*") -> int:
    """What files of a folder take."""
    found = 0
    for path in folder.rglob(files):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # it was deleted meanwhile
            continue
    return found


def memory_of(pid: int) -> int:
    """What a process holds of memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the process is gone")


def sizes_of(topics: Collection[str], kafka_folder: Path) -> Counter[str]:
    """What records of topics take on the disk of a local Kafka, whose indexes are as long as they may get at once."""
    found: Counter[str] = Counter()
    for path in kafka_folder.rglob("*-*"):
        topic = path.name.rpartition("-")[0]
        if topic in topics and path.is_dir():
            found[topic] += size_of(path, "*.log")
    return found


async def test_folder_topics_and_memory_of_a_worker_level_off(
    kafka: str, kafka_folder: Path, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(*LIVELY), tmp_path, broker=kafka) as app:
        (source,) = sources_of(app.plan).values()
        makes, worker = SourceRecords(source), spawn(app, "worker", "--terse")
        worker.start()
        await worker.wait_until_said(" is running: ")
        names = {spec.name for spec in Topics.of(app.plan).all(app.plan)} - {Topics.of(app.plan).accounts}
        sizes: dict[str, list[int]] = {"folder": [], "memory": []}
        began = time.monotonic()
        number = 0
        while time.monotonic() < began + MINUTES * 60:
            until = time.monotonic() + LOOK_SECONDS
            while time.monotonic() < until:
                now_ms = time.time_ns() // 1_000_000
                events = []
                for _ in range(EVENTS_A_SECOND // 5):
                    number += 1
                    user = f"u{number % 500}"
                    value = b'{"user":"%s","page":"/%d","at":%d}' % (user.encode(), number % 7, now_ms)
                    events.append(makes.event(user.encode(), value))
                await app.client.publish(events)
                await asyncio.sleep(0.2)
            worker.check()
            sizes["folder"].append(size_of(worker.data_dir))
            sizes["memory"].append(memory_of(worker.pid))
            for topic, size in sizes_of(names, kafka_folder).items():
                sizes.setdefault(topic, []).append(size)
        third = len(sizes["folder"]) // 3
        said = {name: [max(found[at * third : (at + 1) * third]) for at in range(3)] for name, found in sizes.items()}
        print(said)
        assert worker.terminate() == 0

    beside = TABLES * (LOG_FILES * LOG_BYTES + 2 * MANIFEST_BYTES)
    assert said["folder"][2] <= app.plan.partitions * (beside + WRITE_BUFFERS_BYTES + ROWS_BYTES)
    allowed = {name: GROWTH * found[1] + KEPT_BYTES for name, found in said.items() if name != "folder"}
    assert {name: said[name] for name, most in allowed.items() if said[name][2] > most} == {}
