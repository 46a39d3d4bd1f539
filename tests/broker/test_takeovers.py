"""A worker stands still or is cut off with writes on their way, another one takes over, and the first comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import application
from tests.support.crew import Crew, Member
from tests.support.visits import RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

Setting = Callable[..., AbstractAsyncContextManager[tuple[Stream, Crew]]]
FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}


@pytest.fixture
def setting(kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any) -> Setting:
    """Makes an application whose every count can be checked, its stream, and workers that do not run yet."""

    @asynccontextmanager
    async def make(workers: int = 2) -> AsyncIterator[tuple[Stream, Crew]]:
        async with application(visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH), tmp_path, broker=kafka) as app:
            proxies = [proxied() for _ in range(workers)]
            members = [Member(spawn(app, f"w{at}", proxy=proxy), proxy) for at, proxy in enumerate(proxies)]
            async with Crew(members) as crew:
                yield Stream(app), crew

    return make


async def both_count(stream: Stream, crew: Crew) -> None:
    """Feed the workers until all of them count events."""
    before = [member.worker.counters()["events_consumed"] for member in crew.members]

    async def counting() -> bool:
        await stream.go_on()
        await asyncio.sleep(0.5)
        now = [member.worker.counters()["events_consumed"] for member in crew.members]
        return all(later > earlier for later, earlier in zip(now, before, strict=True))

    await stream.app.eventually(counting, 60)


async def trapped_one(stream: Stream, crew: Crew, topic: str, number: int) -> tuple[Member, Member]:
    """The member that stopped itself with something unsent, and the other one."""
    shared = crew.members[0].worker
    for member in crew.members:
        member.worker.trap = shared.trap
    shared.set_trap(topic, number)

    async def found() -> Member | None:
        return next((member for member in crew.members if member.worker.is_trapped()), None)

    for _ in range(20):
        await stream.go_on(2)
        try:
            one = await stream.app.eventually(found, 2)
        except TimeoutError:
            continue
        return one, next(member for member in crew.members if member is not one)
    pytest.fail(f"nobody sent {number} times to {topic}")


async def everybody_anew(stream: Stream, crew: Crew, first: Member) -> None:
    """One after the other dies with its folder, so that every partition is read from its changelog."""
    for member in [first, *(member for member in crew.members if member is not first)]:
        await member.kill(fresh=True)
        member.start()
        await stream.go_on(2)
        await stream.wait_until_shown()


async def assert_all_is_right(stream: Stream, crew: Crew) -> None:
    """Grant the finest level of everything, wait for it, let everybody leave, and audit what is left."""
    for audience, level in FINEST.items():
        await stream.app.grant(audience, level)
    await stream.wait_until_sharpened(FINEST)
    await crew.leave()
    report = await stream.audit(FINEST)
    print(f"\n{report}\nended by themselves: {dict(crew.ends)}")
    report.assert_clean()


@pytest.mark.parametrize(
    ("topic", "number"),
    [
        ("counts-changelog", 2),
        ("merges-changelog", 2),
        ("releases-changelog", 1),
        ("releases-changelog", 2),
        ("releases-changelog", 3),
        ("releases-changelog", 4),
        ("releases-changelog", 5),
        ("releases-changelog", 7),
        ("-pages.public", 1),
    ],
)
async def test_what_a_stopped_worker_had_not_sent_yet_does_no_harm_when_it_goes_on(
    setting: Setting, topic: str, number: int
) -> None:
    async with setting() as (stream, crew):
        for member in crew.members:
            member.start()
        await both_count(stream, crew)
        stopped, other = await trapped_one(stream, crew, topic, number)

        await stream.go_on(4)
        await stream.wait_until_shown()  # by the other one: every window needs all partitions
        await stopped.stand_still(0)
        await stream.go_on(4)
        await stream.wait_until_shown()

        await everybody_anew(stream, crew, other)
        await assert_all_is_right(stream, crew)


async def test_what_was_on_its_way_from_a_worker_that_was_cut_off_does_no_harm_when_it_arrives(setting: Setting) -> None:
    async with setting() as (stream, crew):
        first, second = crew.members
        first.start()
        await stream.go_on(20)
        await stream.wait_until_shown(3)
        second.start()
        first.proxy.freeze()  # in the middle of its backlog
        await stream.wait_until_shown()
        first.proxy.thaw()
        await stream.go_on(10)
        await stream.wait_until_shown()

        await everybody_anew(stream, crew, second)
        await assert_all_is_right(stream, crew)


async def test_what_was_on_its_way_from_a_worker_that_died_does_no_harm_when_it_arrives(setting: Setting) -> None:
    async with setting() as (stream, crew):
        first, second = crew.members
        first.start()
        await stream.go_on(20)
        await stream.wait_until_shown(3)
        second.start()
        first.proxy.freeze()
        await asyncio.sleep(0.5)
        await first.kill()
        await stream.wait_until_shown()
        first.proxy.thaw()
        await stream.go_on(4)
        await stream.wait_until_shown()
        first.start()

        await everybody_anew(stream, crew, second)
        await assert_all_is_right(stream, crew)
