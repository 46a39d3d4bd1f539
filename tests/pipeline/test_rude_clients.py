"""Clients that hold connections without a use: they are ended within the limits, and others are answered meanwhile."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway import server
from stream_dp.runtime.limits import open_more_files
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.chosen import spread
from tests.support.published import release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import World, ready, status

Make = Callable[..., Any]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PACE_SECONDS = 0.02
SOON_SECONDS = 1.0
SESSION = (
    b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Type: application/json\r\n"
)
LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
RUDE = {
    "says nothing": (b"", b""),
    "head that does not go on": (b"GET /v1/views HTTP/1.1\r\nHost", b""),
    "head in drops": (b"GET /v1/views HTTP/1.1\r\nX: ", b"x"),
    "body that does not go on": (SESSION + b"Content-Length: 60000\r\n\r\n", b""),
    "body in drops": (SESSION + b"Content-Length: 60000\r\n\r\n", b" "),
    "body in drops where none belongs": (b"GET /v1/events HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n", b" "),
    "body without an end": (SESSION + b"Transfer-Encoding: chunked\r\n\r\n", b"4000\r\n%b\r\n" % (b" " * 0x4000)),
    "empty lines in drops": (b"", b"\r\n"),
    "empty lines in drops after a request": (LIVE, b"\r\n"),
    "next head in drops": (LIVE + b"GET /", b"x"),
}


@pytest.fixture
def world(visits: Plan, tmp_path: Path) -> World:
    return World(visits, tmp_path / "readers.tokens")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server end no connection because of its age: on a loaded machine a test may take longer than that."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 3600)
    monkeypatch.setattr(server, "IDLE_SECONDS", 3600)


async def until_ended(port: int, head: bytes, drop: bytes) -> None:
    """Send a head, then drops as long as the server takes them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    ended = asyncio.ensure_future(reader.read())
    while not ended.done():
        if not writer.is_closing():
            writer.write(drop)
        await asyncio.wait([ended], timeout=PACE_SECONDS)
    ended.exception()  # a connection may be reset
    writer.close()


@pytest.mark.parametrize("how", spread(3, RUDE))
async def test_a_request_that_never_ends_is_ended_and_others_are_answered(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", SOON_SECONDS)
    monkeypatch.setattr(server, "IDLE_SECONDS", 3600)
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        rude = [asyncio.create_task(until_ended(world.port, *RUDE[how])) for _ in range(20)]
        assert await status(session, "/livez") == 200
        await asyncio.gather(*rude)
        assert await status(session, "/livez") == 200


async def connected(port: int, count: int) -> list[Connection]:
    """Connections that say nothing yet."""
    found: list[Connection] = []
    while len(found) < count:  # no more at once than the backlog takes
        many = range(min(50, count - len(found)))
        found += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in many))
    return found


async def said(connection: Connection, request: bytes, until: bytes) -> bytes:
    """What a connection is answered, as far as some bytes."""
    connection[1].write(request)
    return await connection[0].readuntil(until)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("count", [1000, 5000])
async def test_connections_that_say_nothing_lock_nobody_out(
    world: World, release: Make, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    if count < server.MOST_CONNECTIONS:
        monkeypatch.setattr(server, "MOST_CONNECTIONS", count * 4 // 5)
    open_more_files()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * count + 1000:
        pytest.skip("the system lets a process open too few files")
    world.publish(release({"home": 40}))
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        await ready(session)
        idle = await connected(world.port, 1)
        async with session.get("/v1/views/pages/events") as stream:
            await stream.content.readline()
            idle += await connected(world.port, count - 1)
            assert await status(session, "/livez") == 200
            world.publish(release({"home": 41}, day=1))
            assert b"event: release\n" in await stream.content.readuntil(b"data: ")
            ended = [reader.at_eof() or reader.exception() is not None for reader, _ in idle]
            most = server.MOST_CONNECTIONS
            assert ended == sorted(ended, reverse=True)  # the oldest ones
            assert count - most <= sum(ended) <= count - most + 3  # the stream, and those of the session
        for _, writer in idle:
            writer.close()


@pytest.mark.usefixtures("patient")
async def test_beyond_the_limit_the_connection_that_asked_least_recently_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        first, second, third, fourth = idle = await connected(world.port, 4)
        for one in (second, first, third):
            assert (await said(one, LIVE, b"}")).startswith(b"HTTP/1.1 200")
        assert await status(session, "/livez") == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await said(fourth, LIVE, b"}")
        idle += await connected(world.port, 1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await said(second, LIVE, b"}")
        for one in (first, third):
            assert (await said(one, LIVE, b"}")).startswith(b"HTTP/1.1 200")
        for _, writer in idle:
            writer.close()


@pytest.mark.usefixtures("patient")
async def test_an_answer_that_is_not_taken_keeps_nobody_out(
    world: World, release: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    many = {f"{'x' * 200} {number}": 900 for number in range(800)}
    world.publish(*(release(many, day=day) for day in range(60)), most=1 << 19)
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        await ready(session)
        await session.close()
        while world.connections:  # one that the server still has would count among the four
            await asyncio.sleep(0.01)
        ask = b"GET /v1/views/pages/windows?limit=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        hoarders = await connected(world.port, 4)
        for one in hoarders:
            await said(one, ask, b"HTTP/1.1 200")
        others = []
        for _ in range(4):
            others += await connected(world.port, 1)
            assert (await said(others[-1], LIVE, b"}")).startswith(b"HTTP/1.1 200")
        for reader, _ in hoarders:
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1 << 40)
        for _, writer in hoarders + others:
            writer.close()
