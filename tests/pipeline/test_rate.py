"""Many short windows of one ledger: they are released together, and each leaves at its slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dp.records.codec import AnyRecord
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.testing import Event, ManualClock, application
from tests.support.views import released, start_of

VIEWS = 15
WINDOWS = 3
SHORT = (
    ('epsilon: "100", delta: "1/100"', 'epsilon: "10000", delta: "1/10"'),
    ("buckets: 4", "buckets: 1"),
    (
        "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}",
        "window: {size: 1s, start: 2024-01-01T00:00:00Z, grace: 0s, clock: wall, catch_up: 0s}",
    ),
)


async def test_fifteen_views_of_a_ledger_with_windows_of_a_second_leave_at_their_slots(
    tmp_path: Path, visits: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that close together are erased together, a few times a second and not once for each of them."""
    erasures: Counter[str] = Counter()
    erase = DurableTable.erase

    def counted(self: DurableTable, *args: Any) -> None:
        erasures[self.name] += 1
        erase(self, *args)

    monkeypatch.setattr(DurableTable, "erase", counted)
    text = visits(*SHORT)
    view = text[text.index("views:\n") + 7 :]
    many = "".join(view.replace("-pages:", f"-pages{number}:") for number in range(VIEWS))
    async with application(text.replace(view, many), tmp_path) as app:
        clock = ManualClock(start_of(next(iter(app.plan.views.values()))))
        worker = await app.start(clock_ms=clock)

        async def left(windows: int) -> Sequence[AnyRecord] | None:
            ready = [(await app.releases(name))["internal"] for name in app.plan.views]
            return ready[0] if all(len(records) == windows for records in ready) else None

        await app.eventually(lambda: left(0))
        for window in range(1, WINDOWS + 1):
            if window == 2:
                erasures.clear()  # of the start, and of a first window
            await app.publish([Event(f"u{number}", "/page", clock.now_ms) for number in range(30)])
            clock.now_ms += 1000
            records = await app.eventually(lambda windows=window: left(windows))  # type: ignore[misc]

    assert len(released(records)) == WINDOWS
    assert worker.counters.total("windows_released") == VIEWS * WINDOWS
    assert worker.counters.total("releases_late") == 0
    assert worker.counters.total("events_refused") == 0
    rounds = WINDOWS - 1
    # Eight windows are a step of the release engine, and buckets of a window may come in several chunks.
    assert 0 < erasures["counts"] <= rounds * app.plan.partitions
    assert 0 < erasures["releases"] < rounds * VIEWS
