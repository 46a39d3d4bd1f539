"""Committed offsets that someone moved or deleted: the tables decide where reading continues, and nothing is lost."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stream_dp.releases.engine import ReleaseEngine
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.merging import BucketMerger
from tests.support.deleting import AHEAD, assert_lost, minutes
from tests.support.losing import publish_minutes
from tests.support.moving import ends_of, forget, move, topics_of
from tests.support.totals import stored_totals_of
from tests.support.views import only_view, start_of
from tests.support.visits import visits_of

Launch = Callable[..., Awaitable[Application]]
REKEYED = (("user: user, time", "key: user, time"), ("items_per_user: 2", "items_per_user: 7"))
in_memory = pytest.mark.parametrize("broker", ["memory"], indirect=True)


async def to_the_ends(app: Application) -> None:
    """Skip everything that the group has not read."""
    await move(app, await ends_of(app, topics_of(app)))


async def to_the_starts(app: Application) -> None:
    """Let the group read everything again."""
    await move(app, dict.fromkeys(await ends_of(app, topics_of(app)), 0))


MOVES = [
    pytest.param(to_the_ends, id="ahead"),
    pytest.param(to_the_starts, id="behind", marks=pytest.mark.slow),
    pytest.param(forget, id="deleted", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("move_offsets", MOVES)
@pytest.mark.parametrize(
    ("changes", "on_another_machine"),
    [((), False), pytest.param(REKEYED, True, marks=pytest.mark.slow)],
    ids=["keyed", "rekeyed, on another machine"],
)
async def test_moved_offsets_lose_no_event(
    launch: Launch,
    caplog: pytest.LogCaptureFixture,
    move_offsets: Callable[[Application], Awaitable[None]],
    changes: tuple[tuple[str, str], ...],
    on_another_machine: bool,
) -> None:
    app = await launch(*changes)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 100)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.stop()
    more = [*visits_of(start, 3, 200), *minutes(start, 4, 6)]
    await app.publish(more)
    await move_offsets(app)
    if on_another_machine:
        shutil.rmtree(app.plan.data_dir)

    caplog.clear()
    with caplog.at_level(logging.WARNING, "stream_dp.worker"):
        await app.start()
        await assert_lost(app, view, [*script, *more], 6, ())
    assert (await stored_totals_of(app)).total("records_missing") == 0
    said = [one.getMessage() for one in caplog.records if "committed offset" in one.getMessage()]
    assert bool(said) is (move_offsets is to_the_ends)


@in_memory
async def test_only_what_the_broker_deleted_is_missing(launch: Launch) -> None:
    """Some of the records that a moved offset skips were deleted: only the windows that may miss them are lost."""
    app = await launch(AHEAD)
    view = only_view(app)
    start = start_of(view)
    script = [*minutes(start, 0, 2), *visits_of(start, 2, 200)]
    await app.publish(script)
    await app.start()
    await app.wait_for_releases(view.name, 2)
    await app.stop()
    counted = await ends_of(app, [view.source.topic])
    gap: list[Event | Watermark] = [*minutes(start, 2, 4)]
    await app.publish(gap)
    sources = await ends_of(app, [view.source.topic])
    last = max(sources)
    await app.client.delete_before({last: sources[last]})
    rest = minutes(start, 4, 10)
    await app.publish(rest)
    await to_the_ends(app)

    await app.start()
    # The clock shows 2:10 before the gap, and 5:10 with the first watermark after it.
    await assert_lost(app, view, [*script, *gap, *rest], 10, range(2, 7))
    assert (await stored_totals_of(app)).total("records_missing") == sources[last] - counted[last]


FAILING = {
    "partials": (BucketMerger, "partials"),
    "merged": (ReleaseEngine, "buckets"),
    "orders": (ReleaseEngine, "order"),
    "control": (Host, "order"),
}


@in_memory
@pytest.mark.parametrize(
    "topic", ["partials", *(pytest.param(name, marks=pytest.mark.slow) for name in FAILING if name != "partials")]
)
async def test_moved_offsets_skip_no_record_between_agents(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """A worker crashes on a record of a topic between agents, and the group's offset is moved to after that record."""
    app = await launch()
    view, (of, name) = only_view(app), FAILING[topic]
    await app.start()
    await publish_minutes(app, 0)
    await app.wait_for_releases(view.name, 1)

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(of, name, failing)
        await app.grant("public", "standard")
        await publish_minutes(app, 1)
        assert app.worker is not None
        await app.worker.crashed()
        await app.stop()
    await move(app, await ends_of(app, [getattr(Topics.of(app.plan), topic)]))

    await app.start()
    await publish_minutes(app, 2)

    async def is_complete() -> bool:
        found = (await app.releases(view.name))["public"]
        return [one.revision for one in found if one.revision == 2] != [] and len(found) >= 4

    await app.eventually(is_complete)
