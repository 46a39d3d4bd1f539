"""Counts items per window with Quix Streams, in an environment of its own: `python quix.py --broker ...`.

The state of Quix belongs to a record's key, so the events are keyed by item first. Grouped: through a topic, as a
program in use must. Else within their partition, which costs less; Quix does so itself where a topic has one partition.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]

_GRACE_MS = {False: 10_000, True: 3_600_000}
"""Long where grouped: partitions are read unevenly, and a topic of items has the events of all of them."""


class Timed(Application):  # type: ignore[misc]
    """An application that looks at the clock at its first event and behind its last commit, before it closes."""

    begun: tuple[float, float] | None = None
    ended = (0.0, 0.0)

    def is_event(self, value: Any) -> bool:
        """True but for a watermark."""
        if value is not None and self.begun is None:
            self.begun = time.perf_counter(), time.process_time()
        return value is not None

    def _run_dataframe(self, sink: Any = None) -> None:
        super()._run_dataframe(sink)
        self.ended = time.perf_counter(), time.process_time()


def main() -> None:
    """Count the events, and print what that took and what came out."""
    parser = argparse.ArgumentParser(description="Quix Streams as a side of the benchmark.")
    parser.add_argument("--broker", required=True, help="host:port")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--folder", required=True, help="An empty folder for state.")
    parser.add_argument("--window-ms", type=int, required=True)
    parser.add_argument("--name", required=True, help="A new consumer group.")
    parser.add_argument("--grouped", action="store_true")
    asked = parser.parse_args()
    app = Timed(
        broker_address=asked.broker,
        consumer_group=asked.name,
        auto_offset_reset="earliest",
        state_dir=asked.folder,
        loglevel="ERROR",
    )
    counted = running_sum = 0

    def count(window: dict[str, Any]) -> None:
        nonlocal counted, running_sum
        counted += 1
        running_sum += window["value"]
        if counted == asked.events:
            app.stop()

    events = app.dataframe(app.topic(asked.topic, value_deserializer="json")).filter(app.is_event)
    items = events.group_by("item") if asked.grouped else events._single_partition_groupby("item", "item")
    timed = items.set_timestamp(lambda value, key, sent, headers: value["ts"])
    timed.tumbling_window(asked.window_ms, _GRACE_MS[asked.grouped]).count().current().update(count)
    app.run()
    assert app.begun is not None
    wall, cpu = (end - begin for begin, end in zip(app.begun, app.ended, strict=True))
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "counted": counted, "running_sum": running_sum}))


if __name__ == "__main__":
    main()
