"""Counters of the pipeline: how many records took which way, never which records."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from stream_dp.windows.effects import ROWS_LOADED, Increment

log = logging.getLogger("stream_dp.worker")


OF_A_PROCESS = frozenset({"events_replayed", "partials_repeated", ROWS_LOADED, "grants"})
"""The counters that say what a process did. All others say what became of the data, and are stored with it."""


class Counters:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, count: Increment) -> None:
        """Carry out a `Increment`."""
        self._totals[count.name, count.labels] += count.amount

    def take(self, counts: Iterable[Increment]) -> None:
        """Carry out several."""
        for count in counts:
            self.add(count)

    def __iter__(self) -> Iterator[Increment]:
        """All counters, as what they have come to."""
        return (Increment(name, amount, labels) for (name, labels), amount in self._totals.items())

    def total(self, name: str, **labels: str) -> int:
        """The sum of a counter over all label values that contain `labels`."""
        wanted = set(labels.items())
        return sum(amount for (key, found), amount in self._totals.items() if key == name and wanted <= set(found))

    def by_labels(self, name: str) -> dict[tuple[tuple[str, str], ...], int]:
        """The totals of a counter, by its labels."""
        return {labels: amount for (key, labels), amount in self._totals.items() if key == name}

    def lines(self) -> dict[str, int]:
        """Every counter as text, sorted: `events_refused{reason=late,view=x}`."""
        return {
            name + ("{" + ",".join(f"{key}={value}" for key, value in labels) + "}" if labels else ""): amount
            for (name, labels), amount in sorted(self._totals.items())
        }


class CountersFile:
    """`counters.json`, where only operators look: beside the tables, not in a log that may be shipped elsewhere."""

    def __init__(self, folder: Path) -> None:
        """Set up the file; `write` makes it.

        Args:
            folder: where the tables are.
        """
        self._file = folder / "counters.json"
        self._written = True

    def write(self, counters: Counters) -> None:
        """Put the counters in the place of those written before; a disk that refuses is told of once."""
        fresh = self._file.with_suffix(".json.new")
        try:
            fresh.write_text(json.dumps(counters.lines(), indent=1) + "\n")
            fresh.replace(self._file)
        except OSError as error:
            if self._written:
                log.warning("%s is not written while the disk refuses: %s", self._file, error.strerror)
            self._written = False
        else:
            if not self._written:
                log.info("%s is written again", self._file)
            self._written = True
