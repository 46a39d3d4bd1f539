"""Discover rarely, count often: a view whose list is what an audience was shown of another, from events to records."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.records.codec import parse
from stream_dp.records.models import Release
from stream_dp.testing import Application, Event, Watermark
from tests.pipeline.test_replay import IN_MEMORY, WALL, assert_alike, replayed
from tests.support.given import there
from tests.support.views import start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
START_MS = 1_704_067_200_000
LONGER = ("size: 1m", "size: 2m")
RARELY = ('delta: "1e-4"', 'delta: "1e-7"')
"""So that hardly any run shows a key of one user."""
COUNTED = (
    "    buckets: 4\n",
    """\
    buckets: 4
  NAME-counted:
    kind: catalogue
    catalogue: {from: NAME-pages, audience: public, keep: 1}
    source: visits
    item: page
    items_per_user: 2
    window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 2
""",
)

WITHOUT_COUNTS = (
    ("    kind: histogram\n", "    kind: keys\n    audiences: [public]\n"),
    ("ladders:\n", 'ladders:\n  one: [{level: overview, epsilon: "1"}]\n'),
    ('"1e-7"\n    ledger: visitors\n    ladder: standard\n', '"1e-7"\n    ledger: visitors\n    ladder: one\n'),
)
"""The view that finds the keys shows them without counts."""


def minute(start: int, at: int) -> list[Event | Watermark]:
    """Many read /often all the time, and /late from the fourth minute on; three users read /rare."""
    pages = ["/often", *(["/late"] if at >= 4 else [])]
    crowd = [Event(f"u{n}", page, start + at * MINUTE + n) for page in pages for n in range(150)]
    few = [Event(f"few{n}", "/rare", start + at * MINUTE + 500) for n in range(3)]
    return [*crowd, *few, Watermark(start + (at + 1) * MINUTE + 10_000)]


def but_for_the_period(record: bytes) -> bytes:
    whole = json.loads(record)
    del whole["privacy"]["period"]
    return json.dumps(whole).encode()


RUNNING = COUNTED[1].partition("  NAME-counted:")[2]
"""The same view without its name."""
KINDS = (
    COUNTED[0],
    COUNTED[0]
    + "  NAME-running:"
    + RUNNING.replace("kind: catalogue", "kind: running").replace("size: 1m", "size: 4m, pane: 1m")
    + "  NAME-panes:"
    + RUNNING.replace("size: 1m", "size: 4m, step: 4m, pane: 1m")
    + "  NAME-gap:"
    + RUNNING.replace("kind: catalogue", 'kind: gap\n    k: 2\n    selection: {epsilon: "1/100"}'),
)


async def test_windows_of_panes_keep_the_list_of_their_first_and_selections_take_what_there_is(launch: Launch) -> None:
    app = await launch(LONGER, KINDS)
    finds, running, panes, gap = (
        next(name for name in app.plan.views if name.endswith(end)) for end in ("-pages", "-running", "-panes", "-gap")
    )
    start, (topic,) = start_of(app.plan.views[finds]), app.plan.views[gap].kind.topics
    await app.start()
    for at in range(8):
        await app.publish(minute(start, at))
        await app.wait_for_releases(gap, at + 1)
        await app.wait_for_releases(running, at + 1)
        if at % 2:
            released = (await app.wait_for_releases(finds, (at + 1) // 2))["public"][-1]
            assert isinstance(released, Release)
            keys = {entry.item for entry in released.items}
            newest = there(app.worker).lists._lists.newest

            async def is_read(keys: set[str] = keys) -> bool:
                return all(set(newest(name)[topic].keys) == keys for name in (running, panes, gap))  # noqa: B023

            await app.eventually(is_read)
    await app.wait_for_releases(panes, 2)

    async def shown(view: str) -> list[set[str]]:
        records = (await app.releases(view))["public"]
        releases = [one for one in records if isinstance(one, Release)]
        return [{entry.item for entry in one.items} for one in sorted(releases, key=lambda one: one.window.end_ms)]

    assert await shown(running) == [set()] * 4 + [{"/often"}] * 4
    assert await shown(panes) == [set(), {"/often"}]
    chosen = await shown(gap)
    assert chosen[:6] == [set()] * 6, "one key leaves none to be ahead of"
    assert [len(one) for one in chosen[6:]] == [1, 1]


@pytest.mark.parametrize("finds_by", [(), WITHOUT_COUNTS], ids=["histogram", "keys"])
async def test_keys_that_were_shown_are_counted_and_others_are_not(
    launch: Launch, tmp_path: Path, finds_by: Sequence[tuple[str, str]]
) -> None:
    """The first view finds keys in windows of two minutes, the second counts them every minute without a delta.

    A replay of the same events has the same lists, and publishes the same bytes, but for what the period has cost: of
    two views that close a window at once either may be charged first.
    """
    app = await launch(LONGER, RARELY, *finds_by, COUNTED)
    finds, counts = (next(name for name in app.plan.views if name.endswith(end)) for end in ("-pages", "-counted"))
    start, (topic,) = start_of(app.plan.views[finds]), app.plan.views[counts].kind.topics
    await app.start()
    found: list[set[str]] = [set()]
    for at in range(8):
        await app.publish(minute(start, at))
        await app.wait_for_releases(counts, at + 1)
        if at % 2:
            released = (await app.wait_for_releases(finds, (at + 1) // 2))["public"][-1]
            assert isinstance(released, Release)
            found.append({entry.item for entry in released.items})
            newest = there(app.worker).lists._lists.newest

            async def is_read(keys: set[str] = found[-1]) -> bool:
                return set(newest(counts)[topic].keys) == keys  # noqa: B023

            await app.eventually(is_read)

    assert found == [set(), {"/often"}, {"/often"}, {"/late", "/often"}, {"/late", "/often"}]
    records = (await app.releases(counts))["public"]
    shown = {(one.window.start_ms - start) // MINUTE: one for one in records if isinstance(one, Release)}
    assert sorted(shown) == list(range(8))
    for at, record in shown.items():
        assert {entry.item for entry in record.items} == found[at // 2], "the list that was read when the window closed"
        assert record.privacy.window.cost.delta == 0
        assert record.privacy.window.cost.epsilon == app.plan.views[counts].levels[0].epsilon
    if app.plan.broker.is_embedded and not finds_by:
        events = [one for at in range(8) for one in minute(start, at) if isinstance(one, Event)]
        rows = sorted(events, key=lambda one: one.time_ms)
        found_again = await replayed(app, tmp_path, rows, start + 8 * MINUTE + 10_000)
        await assert_alike(app, found_again, but_for_the_period)
        with pytest.raises(ConfigError, match="made of releases, so sort the rows of the history by time"):
            await replayed(app, tmp_path, rows[::-1], start + 8 * MINUTE + 10_000)


@IN_MEMORY
async def test_a_replay_by_the_wall_clock_reads_each_list_before_the_next_window_closes(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock would otherwise stop more rarely, and lists would be read too late."""
    monkeypatch.setattr("stream_dp.operations.replay.STEPS", 4)
    app = await launch(LONGER, COUNTED, WALL)
    counts, start = next(name for name in app.plan.views if name.endswith("-counted")), START_MS
    rows = [Event(f"u{n}", "/often", start + at * MINUTE + n) for at in range(12) for n in range(100)]

    found = await replayed(app, tmp_path, rows, start + 12 * MINUTE + 10_000)

    (records,) = (one.records for one in found if (one.view, one.audience) == (counts, "public"))
    releases = [record for record in map(parse, records) if isinstance(record, Release)]
    shown = {(one.window.start_ms - start) // MINUTE: {entry.item for entry in one.items} for one in releases}
    assert shown == {at: {"/often"} if at >= 2 else set() for at in range(12)}
