"""A histogram that remembers keys, from events to records: keys come, stay, and leave; workers are replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from stream_dp.records.by_kind import HistogramRelease
from stream_dp.testing import Application, Event, Watermark
from tests.pipeline.test_replay import assert_alike, replayed
from tests.support.given import there
from tests.support.views import only_view, start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
REMEMBER = ("    kind: histogram\n", "    kind: histogram\n    remember: {audience: public, keep: 2}\n")
WINDOWS = 7


def minute(start: int, at: int) -> list[Event | Watermark]:
    """Many read /often all the time and /once in the second minute, of which one reader is left; few read /rare."""
    pages = ["/often", *(["/once"] if at == 1 else [])]
    crowd = [Event(f"u{n}", page, start + at * MINUTE + n) for page in pages for n in range(150)]
    few = [Event(f"few{n}", "/rare", start + at * MINUTE + 500) for n in range(3)]
    return [*crowd, *few, Watermark(start + (at + 1) * MINUTE + 10_000)]


async def is_read(app: Application, keys: set[str]) -> bool:
    """Whether the worker has read this list."""
    view = only_view(app)
    return set(there(app.worker).lists._lists.newest(view.name)[view.kind.topics[0]].keys) == keys


@pytest.mark.parametrize("replaced", [False, True], ids=["one worker", "a new worker for every window"])
async def test_keys_are_new_once_then_known_and_leave_by_their_counts(
    launch: Launch, tmp_path: Path, replaced: bool
) -> None:
    """A replay of the same events remembers the same keys, and publishes the same bytes."""
    app = await launch(REMEMBER)
    view = only_view(app)
    start = start_of(view)
    await app.start()
    found: list[HistogramRelease] = []
    kept: list[set[str]] = []
    for at in range(WINDOWS):
        if replaced and at:
            await app.stop()
            await app.start()
        await app.publish(minute(start, at))
        record = (await app.wait_for_releases(view.name, at + 1))["public"][-1]
        assert isinstance(record, HistogramRelease)
        found.append(record)
        kept.append({one.item for one in record.items if one.count >= there(record.stays_from)})
        await app.eventually(partial(is_read, app, set.union(*kept[-2:])))

    for at, record in enumerate(found):
        known = set.union(set(), *kept[max(0, at - 2) : at])
        assert {one.item for one in record.items if not one.new} == known, "all of them, and no other"
        assert there(record.catalogue).keys == len(known)
        assert record.privacy.window.cost.delta == view.kind.keys_at_worst(pooled=False).delta
    new = [{one.item for one in record.items if one.new} for record in found]
    assert new[:2] == [{"/often"}, {"/once"}]
    assert all("/often" not in one for one in new[1:])
    assert "/once" in {one.item for one in found[2].items}, "known, though nobody reads it now"
    assert "/rare" not in set.union(*new)
    internal = (await app.releases(view.name))["internal"]
    assert len(internal) == WINDOWS
    for other in internal:
        assert isinstance(other, HistogramRelease)
        of_public = next(one for one in found if one.window == other.window)
        assert other.catalogue == of_public.catalogue, "one list of a window, whoever reads it"
    if app.plan.broker.is_embedded:
        events = [one for at in range(WINDOWS) for one in minute(start, at) if isinstance(one, Event)]
        rows = sorted(events, key=lambda one: one.time_ms)
        await assert_alike(app, await replayed(app, tmp_path, rows, start + WINDOWS * MINUTE + 10_000))
