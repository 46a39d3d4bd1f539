"""Counters of the pipeline: how many records took which way, never which records."""

from __future__ import annotations

from collections import Counter

from stream_dp.windows.effects import Increment


class Counters:
    """Process-local totals since the start of a worker."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, count: Increment) -> None:
        """Carry out a `Increment`."""
        self._totals[count.name, count.labels] += count.amount

    def total(self, name: str, **labels: str) -> int:
        """The sum of a counter over all label values that contain `labels`."""
        wanted = set(labels.items())
        return sum(amount for (key, found), amount in self._totals.items() if key == name and wanted <= set(found))

    def lines(self) -> dict[str, int]:
        """Every counter as text, sorted: `events_refused{reason=late,view=x}`."""
        return {
            name + ("{" + ",".join(f"{key}={value}" for key, value in labels) + "}" if labels else ""): amount
            for (name, labels), amount in sorted(self._totals.items())
        }
