"""Kinds without a delta for keys that nobody listed: killed workers, replays, a change of settings, exact counts."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from stream_dp.records.by_kind import LookupRelease, PureTopKRelease
from stream_dp.records.codec import encode
from stream_dp.testing import Application, application, plan_from
from tests.support.visits import EXACT, MINUTE, PAGES, RICH, WITNESSED, Stream, configuration, new_name

pytestmark = [pytest.mark.broker, pytest.mark.slow]

VIEW = EXACT.replace(f"    catalogue: [{', '.join(PAGES)}]\n", "")
TOP = VIEW.replace("NAME-exact", "NAME-large").replace("kind: catalogue", "kind: pure_topk\n    k: 4\n    key_bytes: 4")
ASKED = VIEW.replace("NAME-exact", "NAME-asked").replace(
    "kind: catalogue", "kind: lookup\n    rows: 900\n    key_bytes: 4"
)
TIME = "release: {slot: 100ms, offset: 0s}", "release: {slot: 100ms, offset: 3s}"
"""For a table of 900 rows."""
UNLISTED = (TIME, *WITNESSED, *RICH, ("views:\n", "views:" + TOP + ASKED))
DEATHS = ("send release:1", "commit releases:3")


def changed(text: str) -> str:
    """Another k, and fewer rows: a new edition of both views."""
    return text.replace("k: 4", "k: 3").replace("rows: 900", "rows: 800")


async def assert_exact(app: Application, stream: Stream, first: int, k: int, edition: int) -> None:
    """Noise for an epsilon of 40 (20) a count is other than 0 with a chance of 1e-17 (4e-9) for each key."""
    large, asked = app.plan.views[f"{app.plan.name}-large"], app.plan.views[f"{app.plan.name}-asked"]
    truth = stream.counts(large)
    for view in (large, asked):
        records = (await app.releases(view.name))["public"]
        newest = {record.window.start_ms: record for record in records}
        assert len({encode(record) for record in records}) == len(newest), "one draw for each window"
        for start, record in sorted(newest.items())[first:]:
            assert record.edition == edition
            if isinstance(record, PureTopKRelease):
                assert 1 <= len(record.items) <= k
                assert all(truth[start][entry.item] == entry.count for entry in record.items)
                cut = min(entry.count for entry in record.items)
                missed = {key for key, count in truth[start].items() if count >= cut} - {e.item for e in record.items}
                assert not missed
            else:
                assert isinstance(record, LookupRelease)
                assert {page: record.count_of(page) for page in PAGES} == {
                    page: truth[start].get(page, 0) for page in PAGES
                }
                assert record.count_of("none") == 0


async def test_views_of_unlisted_keys_survive_crashes_replays_and_a_change_of_settings(
    kafka: str, tmp_path: Path, spawn: Any
) -> None:
    name = new_name()
    text = configuration(name, *UNLISTED)
    async with application(text, tmp_path / "app", broker=kafka) as app:
        stream, worker = Stream(app, visits=400), spawn(app, "state")
        for death in DEATHS:
            worker.start("--die-before", death)
            await stream.go_on()
            assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()
        worker.start()
        await stream.go_on()
        await stream.assert_released()
        worker.signal(signal.SIGKILL)
        assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL
        worker.start()
        await assert_exact(app, stream, 0, k=4, edition=1)

        begins, fed = stream.start + (stream.windows + 2) * MINUTE, stream.windows
        after = plan_from(changed(text), tmp_path / "changed", app.plan.broker.address)
        await app.apply(after, dict.fromkeys((f"{name}-large", f"{name}-asked"), begins))
        await stream.go_on(4)
        await stream.wait_until_shown()
        assert await asyncio.to_thread(worker.terminate) == 0
        await assert_exact(app, stream, fed + 2, k=3, edition=2)
        ledgers = await app.ledgers()
        paid = sum(one.spent.epsilon for one in ledgers.values() if one.views.get(f"{name}-large") is not None)
        assert paid == 3 * 80 * stream.windows, "one price for each window of the three exact views"
