"""A worker stands still or is cut off with writes on their way, another one takes over, and the first comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.testing import application
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.crew import Crew, Member
from tests.support.visits import PAGES, RICH, TOP, WITNESSED, Stream

pytestmark = pytest.mark.broker

Setting = Callable[..., AbstractAsyncContextManager[tuple[Stream, Crew]]]
FINEST = {"public": "detailed", "partner": "detailed", "internal": "detailed"}


@pytest.fixture
def setting(kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any) -> Setting:
    """Makes an application whose every count can be checked, its stream, and workers that do not run yet."""

    @asynccontextmanager
    async def make(*changes: tuple[str, str], workers: int = 2) -> AsyncIterator[tuple[Stream, Crew]]:
        text = visits(("views:\n", "views:" + TOP), *WITNESSED, *RICH, *changes)
        async with application(text, tmp_path, broker=kafka) as app:
            proxies = [proxied() for _ in range(workers)]
            members = [Member(spawn(app, f"w{at}", proxy=proxy, trap="any"), proxy) for at, proxy in enumerate(proxies)]
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

    await stream.app.eventually(counting)


def trap(crew: Crew, topic: str, number: int) -> None:
    """Let the first member that has something for a topic in its buffers stop itself there."""
    crew.members[0].worker.set_trap(topic, number)


async def sprung(stream: Stream, crew: Crew, within_s: float = WITHIN_SECONDS) -> tuple[Member, Member]:
    """The member that stopped itself, and the other one."""

    async def found() -> Member | None:
        return next((member for member in crew.members if member.worker.is_trapped()), None)

    one = await stream.app.eventually(found, within_s)
    return one, next(member for member in crew.members if member is not one)


async def trapped_one(stream: Stream, crew: Crew, topic: str, number: int) -> tuple[Member, Member]:
    """Feed the members until one stopped itself with something unsent for a topic; it and the other one."""
    trap(crew, topic, number)

    async def over() -> bool:
        """A member stopped itself, or everything that was fed is shown without that."""
        return any(member.worker.is_trapped() for member in crew.members) or await stream.shown() >= stream.windows

    for _ in range(20):
        await stream.go_on(2)
        await stream.app.eventually(over)
        if any(member.worker.is_trapped() for member in crew.members):
            return await sprung(stream, crew)
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


WRITES = {
    "counts": ("counts-changelog", 2),
    "merges": ("merges-changelog", 2),
    "counts that wait": ("releases-changelog/b..*-pages", 1),
    "reservation": ("releases-changelog/l", 1),
    "window": ("releases-changelog/t..*-pages", 1),
    "emptied outbox": ("releases-changelog/w..*-pages", 2),
    "partials": ("-partials", 5),
    "merged": ("-merged", 3),
    "records": ("-pages.public", 1),
}
"""What is on its way: the so-many-th record or batch for a topic with such an end, and such a key in it."""


async def hold_up(member: Member, how: str) -> None:
    """What a member that stopped itself has not sent yet stays on its way, until `let_go`."""
    if how != "stopped":
        member.proxy.freeze()
        await member.stand_still(0)
        await asyncio.sleep(0.3)  # it hands over to the network what it had
    if how == "dead":
        await member.kill()


async def let_go(member: Member, how: str) -> None:
    """What was held up arrives, and the member goes on if it lives."""
    if how == "stopped":
        await member.stand_still(0)
    member.proxy.thaw()
    if how == "dead":
        await asyncio.sleep(1)
        member.start()


@pytest.mark.parametrize(
    ("how", "what"),
    [pytest.param(how, what, marks=pytest.mark.slow) for how in ("stopped", "cut off", "dead") for what in WRITES],
)
async def test_what_was_on_its_way_from_a_former_owner_does_no_harm_when_it_arrives(
    setting: Setting, how: str, what: str
) -> None:
    async with setting() as (stream, crew):
        for member in crew.members:
            member.start()
        await both_count(stream, crew)
        former, other = await trapped_one(stream, crew, *WRITES[what])
        await hold_up(former, how)

        await stream.go_on(4)
        await stream.wait_until_shown()  # by the other one: every window needs all partitions
        await let_go(former, how)
        await stream.go_on(4)
        await stream.wait_until_shown()

        await everybody_anew(stream, crew, other)
        await assert_all_is_right(stream, crew)


REKEYED = (
    ("user: user, time", "key: user, time"),
    ("items_per_user: 2", f"items_per_user: {len(PAGES)}"),
    ('epsilon: "80"', f'epsilon: "{40 * len(PAGES)}"'),
)
"""Nobody has more pages than count, so it is no matter in which order the events of a user come."""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "cut off", "dead"])
async def test_events_that_a_former_owner_still_passes_on_to_their_users_count_once(setting: Setting, how: str) -> None:
    async with setting(*REKEYED) as (stream, crew):
        for member in crew.members:
            member.start()
        await both_count(stream, crew)
        former, other = await trapped_one(stream, crew, "-rekeyed-visits", 5)
        await hold_up(former, how)

        await stream.go_on(4)
        await stream.wait_until_shown()
        await let_go(former, how)
        await stream.go_on(4)
        await stream.wait_until_shown()

        await everybody_anew(stream, crew, other)
        await assert_all_is_right(stream, crew)


GRANTED = {
    "reservation": ("releases-changelog/l", 2),
    "windows": ("releases-changelog/w..*-pages", 2),
    "records": ("-pages.public", 3),
    "orders": ("-orders", 2),
}
"""What is on its way while windows are sharpened."""


@pytest.mark.parametrize(
    ("how", "what"),
    [pytest.param(how, what, marks=pytest.mark.slow) for how in ("stopped", "cut off", "dead") for what in GRANTED],
)
async def test_what_was_on_its_way_during_a_grant_does_no_harm_when_it_arrives(
    setting: Setting, how: str, what: str
) -> None:
    """The former owner sharpens the windows to one level, its successor to that and then to a finer one."""
    async with setting() as (stream, crew):
        for member in crew.members:
            member.start()
        await both_count(stream, crew)
        await stream.go_on(30)
        await stream.wait_until_shown()
        trap(crew, *GRANTED[what])
        await stream.app.grant("public", "standard")
        former, other = await sprung(stream, crew)
        await hold_up(former, how)

        await stream.wait_until_sharpened({"public": "standard"})
        await stream.app.grant("public", "detailed")
        await stream.wait_until_sharpened({"public": "detailed"})
        await let_go(former, how)
        await stream.go_on(4)
        await stream.wait_until_shown()

        await everybody_anew(stream, crew, other)
        await assert_all_is_right(stream, crew)
