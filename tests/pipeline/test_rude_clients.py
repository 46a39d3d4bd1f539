"""Clients that hold connections without a use: they are ended within the limits, and others are answered meanwhile."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway import server
from tests.support.published import visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import WITHIN_SECONDS, World, status

MANY = 2000
PACE_SECONDS = 0.02
SOON_SECONDS = 0.3
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
def _open_files() -> Iterator[None]:
    """Room for both ends of many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MANY + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"a process may open {hard} files here, {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


@pytest.mark.parametrize("how", RUDE)
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


@pytest.mark.usefixtures("_open_files")
async def test_among_thousands_of_idle_connections_others_are_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 3)
    async with world.serving() as session, asyncio.timeout(2 * WITHIN_SECONDS):
        idle = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(MANY)]
        assert await status(session, "/livez") == 200
        for reader, writer in idle:
            assert await reader.read() == b""
            writer.close()


async def test_more_connections_than_the_most_are_refused_until_others_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    async with world.serving(), asyncio.timeout(WITHIN_SECONDS):
        held = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(5)]
        assert await fresh(world) == 503
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while await fresh(world) == 503:
            pass
        assert await fresh(world) == 200


async def fresh(world: World) -> int:
    """The status of an answer on a connection of its own."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{world.port}") as session:
        return await status(session, "/livez")
