"""Clients that hold connections without a use: they are ended within the limits, and others are answered meanwhile."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway import server
from stream_dp.runtime.limits import open_more_files
from tests.support.chosen import spread
from tests.support.published import visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import WITHIN_SECONDS, World, status

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


async def test_two_thousand_connections_that_say_nothing_leave_it_serving(world: World) -> None:
    open_more_files()
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        idle = []
        for _ in range(0, 2000, 50):  # no more than the backlog takes
            idle += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", world.port) for _ in range(50)))
        assert await status(session, "/livez") == 200
        assert not any(reader.at_eof() for reader, _ in idle)
        for _, writer in idle:
            writer.close()


async def test_beyond_the_limit_of_connections_requests_are_told_to_come_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 20)
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        idle = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", world.port) for _ in range(20)))
        assert await status(session, "/livez") == 503
        for _, writer in idle:
            writer.close()
        while await status(session, "/livez") != 200:
            await asyncio.sleep(0.02)
