"""The peers of `tests.bench.throughput`: where they are installed, how they are started, what they have to count.

They live in a folder of their own, not in the environment of the package: `quix`, a virtual environment with Quix
Streams, and `kafka-streams`, the jars of Kafka Streams.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stream_dp.runtime.localkafka.jars import cache_folder, java_command
from tests.bench.events import START_MS, WINDOW_MS, Event, partition_of

HERE = Path(__file__).parent

PEERS = {
    "quix": "Quix Streams: one window update each",
    "kafka_streams": "Kafka Streams: one store update each",
    "quix_grouped": "Quix Streams, topic keyed by item",
    "kafka_streams_grouped": "Kafka Streams, topic keyed by item",
}


def default_folder() -> Path:
    """Where peers are looked for if no folder is named."""
    return cache_folder() / "bench-peers"


def how_to_install(side: str, folder: Path) -> str | None:
    """The command that installs a peer; None if it is there."""
    if side.startswith("quix"):
        home = folder / "quix"
        if (home / "bin/python").exists() and any(home.glob("lib/python*/site-packages/quixstreams")):
            return None
        return f"python3 -m venv {home} && {home}/bin/pip install 'quixstreams>=3.28,<4'"
    if shutil.which("javac") is None:
        return "install a JDK of Java 17 or newer (Debian: `apt install openjdk-17-jdk-headless`)"
    jars = folder / "kafka-streams"
    if any(jars.glob("kafka-streams-*.jar")):
        return None
    return f"mvn -q -f {HERE / 'pom.xml'} dependency:copy-dependencies -DoutputDirectory={jars}"


def command(side: str, folder: Path, broker: str, topic: str, events: int, scratch: Path) -> Sequence[str]:
    """The command that runs a peer under a new name, its state in an empty folder; Java is compiled before it."""
    name, grouped = f"{side}-{uuid.uuid4().hex[:8]}", side.endswith("_grouped")
    if side.startswith("quix"):
        asked = ["--broker", broker, "--topic", topic, "--events", str(events), "--folder", str(scratch)]
        asked += ["--window-ms", str(WINDOW_MS), "--name", name, *(["--grouped"] if grouped else [])]
        return [str(folder / "quix/bin/python"), str(HERE / "quix.py"), *asked]
    jars, state = folder / "kafka-streams", scratch / "state"
    subprocess.run(["javac", "-d", scratch, "-cp", f"{jars}/*", HERE / "Counts.java"], check=True)
    given = [broker, topic, str(events), str(state), str(WINDOW_MS), name, "grouped" if grouped else ""]
    return [java_command(), "-cp", f"{scratch}:{jars}/*", "Counts", *given]


def running_sum(side: str, events: Sequence[Event]) -> int:
    """Add up what every count was after each event; an event lost, repeated or in another window changes it.

    A count is that of an item, a window and, unless the side is grouped, a partition.
    """
    counts: Counter[tuple[str, int, int]] = Counter()
    total = 0
    for user, item, time in events:
        cell = item, (time - START_MS) // WINDOW_MS, -1 if side.endswith("_grouped") else partition_of(user)
        counts[cell] += 1
        total += counts[cell]
    return total
