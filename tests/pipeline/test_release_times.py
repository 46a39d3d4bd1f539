"""When a release of strict noise leaves, by the clock on the wall, tells nothing of its window (specs/finite, test 39).

Windows without a key and windows with many follow each other in random order on a worker with the real clock. For each
release it is written down how long after its slot it was handed to the log. The ranks of both sorts are compared by the
exact test of Mann and Whitney. A few windows find a difference that is larger than what the machine does besides; many
windows (the nightly case) find a smaller one.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import mannwhitneyu

from stream_dp.runtime.embedded import MemoryWriter
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Event, Watermark, application
from tests.support.visits import MINUTE, configuration, new_name

KINDS = {
    "pure_topk": "k: 3, key_bytes: 8",
    "lookup": "rows: 60, key_bytes: 8",
    "catalogue": "catalogue: {numbers: {from: 0, to: 49}}, strict: {largest_count: 5000}",
    "histogram": 'delta: "1/100", strict: {rows: 60, largest_count: 5000}',
}
VIEW = """
  NAME-VIEW:
    {SETTINGS, kind: KIND, source: visits, item: page, items_per_user: 1, ledger: visitors, ladder: one,
     window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 0s, clock: event, max_ahead: 1h, idle: 1d}}
"""
ONE_IN = 10**5
"""False alarms of a view: one in so many runs at most."""
FEW, MANY = 0, 50
"""Keys of a window."""


def text() -> str:
    views = "".join(
        VIEW.replace("SETTINGS", settings).replace("KIND", kind).replace("VIEW", kind.replace("_", ""))
        for kind, settings in KINDS.items()
    )
    whole = configuration(
        "NAME",
        ("ladders:\n", 'ladders:\n  one: [{level: overview, epsilon: "8"}]\n'),
        ("audiences: {public: overview, partner: standard, internal: standard}", "audiences: {public: overview}"),
        ('epsilon: "100", delta: "1/100"', 'epsilon: "1000000", delta: "1/2"'),
        ("release: {slot: 100ms, offset: 0s}", "release: {slot: 100ms, offset: 100ms}"),
    )
    return (whole.partition("views:\n")[0] + "views:" + views).replace("NAME", new_name())


async def delays(folder: Path, monkeypatch: pytest.MonkeyPatch, rounds: int, wait_s: float = 0) -> dict[str, Any]:
    """By view, the delays in ms of windows without keys, and of those with many.

    Args:
        folder: of the worker.
        monkeypatch: looks at what is published.
        rounds: windows of each sort.
        wait_s: what a record of a window with keys is held back: the fault that the test is to find.
    """
    sorts = [FEW, MANY] * rounds
    random.Random(1).shuffle(sorts)
    late: dict[str, dict[int, list[float]]] = {kind: {FEW: [], MANY: []} for kind in KINDS}
    publish = MemoryWriter.publish
    async with application(text(), folder) as app:
        views = {Topics.of(app.plan).release(view.name, "public"): view.kind.name for view in app.plan.views.values()}

        async def watched(writer: MemoryWriter, messages: Any, slot_ms: int | None = None) -> None:
            messages = list(messages)
            if slot_ms is not None and wait_s and sorts[window]:
                await asyncio.sleep(wait_s)
            now_ms = time.time() * 1000
            for kind in {views[one.topic] for one in messages if one.topic in views and b"/view/" not in one.key}:
                late[kind][sorts[window]].append(now_ms - (slot_ms or 0))
            await publish(writer, messages, slot_ms)

        monkeypatch.setattr(MemoryWriter, "publish", watched)
        window = 0
        await app.start()
        (start,) = {view.window.first_ms or 0 for view in app.plan.views.values()}
        for window, keys in enumerate(sorts):
            at = start + window * MINUTE
            events = [Event(f"u{key}", str(key), at + key) for key in range(keys)]
            await app.publish([*events, Watermark(at + MINUTE)])
            for view in app.plan.views:
                await app.wait_for_releases(view, window + 1)
    return late


def chances(late: dict[str, dict[int, list[float]]]) -> dict[str, float]:
    """By view, how likely ranks so far apart are if delays do not depend on the windows."""
    return {kind: mannwhitneyu(found[FEW], found[MANY], method="exact").pvalue for kind, found in late.items()}


@pytest.mark.statistical
@pytest.mark.parametrize("rounds", [11, pytest.param(400, marks=pytest.mark.nightly)])
async def test_how_long_after_its_slot_a_release_leaves_tells_nothing_of_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    late = await delays(tmp_path, monkeypatch, rounds)
    assert {kind: [len(found[FEW]), len(found[MANY])] for kind, found in late.items()} == {
        kind: [rounds, rounds] for kind in KINDS
    }
    assert min(chances(late).values()) > 1 / ONE_IN


@pytest.mark.statistical
@pytest.mark.slow
async def test_a_release_that_waits_for_what_is_in_it_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = await delays(tmp_path, monkeypatch, 11, wait_s=0.3)
    assert max(chances(late).values()) < 1 / ONE_IN
