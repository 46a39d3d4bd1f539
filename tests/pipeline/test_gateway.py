"""The gateway on the embedded log, asked over HTTP: lists and streams, restarts, slow clients, tokens that end."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway import server, streams
from stream_dp.gateway.boards import Board
from stream_dp.gateway.tokens import new_token, revoke_token
from stream_dp.records.codec import encode_parts
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.published import refusal, release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import World, ready, status

Make = Callable[..., Any]
PAGES = "/v1/views/pages"
MANY = {f"page {number}": 900 - number for number in range(300)}


@pytest.fixture
def world(visits: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("stream_dp.gateway.web.LOOK_SECONDS", 0.05)
    return World(visits, tmp_path / "readers.tokens")


async def get(session: aiohttp.ClientSession, path: str, **headers: str) -> Any:
    async with session.get(path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json(), answer.headers.get("Stream-Position", "")


@dataclass(frozen=True)
class Event:
    name: str
    id: str
    data: Any


async def heard(answer: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """The events of a stream, until it ends."""
    found: dict[str, str] = {}
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            found[name] = value
        elif found:
            if "event" in found:
                yield Event(found["event"], found.get("id", ""), json.loads(found["data"]))
            found = {}


@asynccontextmanager
async def stream(
    session: aiohttp.ClientSession, path: str = f"{PAGES}/events", **headers: str
) -> AsyncIterator[AsyncIterator[Event]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with session.get(path, headers=named) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in answer.headers
        async with asyncio.timeout(WITHIN_SECONDS):
            yield heard(answer)


async def held(session: aiohttp.ClientSession) -> dict[str, Any]:
    """The records by window that a fresh reader has."""
    windows, _ = await get(session, f"{PAGES}/windows?limit=500")
    return {start_of(one): contents(one) for one in windows["windows"]}


def start_of(one: Any) -> str:
    return str((one["record"] or one["refusal"])["window"]["start"])


def contents(one: Any) -> tuple[Any, Any]:
    return one["record"], one["refusal"]


async def test_from_every_offset_a_stream_gives_what_a_fresh_reader_has(
    world: World,
    release: Make,
    refusal: Make,
) -> None:
    first = release(MANY)
    records = [first, release({"home": 40}, day=1), refusal(day=2), release({"home": 44}, day=1, revision=2, level=1)]
    records += [release(dict(list(MANY.items())[:150]), revision=2, level=1), refusal(day=1, revision=3, level=2)]
    records += [release({}, day=4), *(key for key, _ in encode_parts(first, 3200)), release({"about": 77}, day=5)]
    world.publish(*records)
    log = world.log.records[next(iter(world.log.records))]
    end = len(log)
    assert end > 15
    async with world.serving() as session:
        await ready(session)
        _, position = await get(session, f"{PAGES}/windows")
        topic = position.partition("-")[0]
        whole = await held(session)
        assert position == f"{topic}-{end - 1}"
        for offset in range(-1, end):
            board = Board("pages", "public", topic)
            for one in log[: offset + 1]:
                board.take(one.key, one.value, one.offset, one.timestamp)
            client = {
                start_of(body): contents(body)
                for body in map(json.loads, (c.body(topic) for c in board.cells.values()))
            }
            async with stream(session, f"{PAGES}/events?after={topic}-{offset}") as changes:
                while client != whole:
                    change = await anext(changes)
                    if change.name == "expired":
                        client.pop(change.data["window"]["start"], None)
                    else:
                        client[start_of(change.data)] = contents(change.data)


async def test_between_list_and_stream_nothing_is_lost_and_it_goes_on_after_a_restart(
    world: World,
    release: Make,
) -> None:
    world.publish(release({"home": 40}))
    async with world.serving() as session:
        await ready(session)
        _, position = await get(session, f"{PAGES}/windows")
        world.publish(release({"home": 41}, day=1))
        async with stream(session, f"{PAGES}/events?after={position}") as changes:
            second = await anext(changes)
            assert (second.name, second.data["record"]["window"]["start"]) == ("release", "1970-01-02T00:00:00Z")
            world.publish(release({"home": 44}, revision=2, level=1))
            sharper = await anext(changes)
            assert (sharper.data["state"], sharper.data["before"]["revision"]) == ("sharper", 1)
            assert sharper.id == sharper.data["position"] == f"{position.partition('-')[0]}-2"
    world.publish(release({"home": 45}, day=2))
    async with world.serving() as session:
        await ready(session)
        async with stream(session, f"{PAGES}/events?after=00000000-0", Last_Event_ID=sharper.id) as changes:
            assert (await anext(changes)).data["record"]["window"]["start"] == "1970-01-03T00:00:00Z"
        async with stream(session, f"/v1/events?view=pages&after=pages.{second.id}") as changes:
            found = [await anext(changes), await anext(changes)]
            assert [one.id for one in found] == [f"pages.{sharper.id}", f"pages.{sharper.id[:-1]}3"]


async def test_a_topic_that_is_made_anew_resets_its_streams(world: World, release: Make) -> None:
    world.publish(release({"home": 40}))
    async with world.serving() as session:
        await ready(session)
        _, position = await get(session, f"{PAGES}/windows")
        async with stream(session, f"{PAGES}/events?after={position}") as changes:
            world.log.delete(world.topic())
            world.publish(release({"home": 50}))
            reset = await anext(changes)
            assert (reset.name, reset.data["reason"]) == ("reset", "recreated")
            assert [one async for one in changes] == []
        async with asyncio.timeout(WITHIN_SECONDS):
            while await status(session, f"{PAGES}/windows") != 200:
                await asyncio.sleep(0.02)
        for old in (position, position.partition("-")[0] + "-99"):
            async with stream(session, f"{PAGES}/events?after={old}") as changes:
                assert (await anext(changes)).data["reason"] == "recreated"
        fresh, _ = await get(session, f"{PAGES}/windows")
        assert fresh["windows"][0]["record"]["items"][0]["count"] == 50


async def test_offsets_that_begin_again_before_the_topics_are_listed_mix_nothing(
    world: World, release: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(release({"home": 40}), release({"home": 41}, day=1))
    async with world.serving(list_seconds=3600) as session:
        await ready(session)
        async with stream(session) as changes:
            tp = next(iter(world.log.records))
            records, world.log.ids[world.topic()] = world.log.records[tp], "f" * 32
            record = records.pop(0)
            world.publish(release({"home": 50}, day=2))
            records.append(record)
            assert [(one.name, one.data.get("reason")) async for one in changes][-1] == ("reset", "recreated")


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_token_that_ends_ends_its_streams_and_no_others(
    world: World,
    release: Make,
    how: str,
) -> None:
    world.publish(release({"home": 40}, audience="staff"), audience="staff")
    world.publish(release({"home": 40}))
    expires = wall_clock_ms() + 1500 if how == "expired" else None
    entry, token = new_token(world.tokens, "staff", wall_clock_ms(), expires)
    async with world.serving() as session:
        await ready(session)
        async with stream(session) as others, stream(session, Authorization=f"Bearer {token}") as changes:
            if how == "revoked":
                revoke_token(world.tokens, entry.id)
            bye = await anext(changes)
            assert (bye.name, bye.data["reason"]) == ("bye", how)
            world.publish(release({"home": 41}, day=1))
            assert (await anext(others)).name == "release"
        async with session.get("/v1/views", headers={"Authorization": f"Bearer {token}"}) as answer:
            assert answer.status == 401


async def slow_client(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a stream with small buffers, of which nothing is read that is not asked for."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)  # else the kernel may take all there is
    slow.setblocking(False)
    await asyncio.get_running_loop().sock_connect(slow, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=slow, limit=1 << 10)
    writer.write(f"GET {PAGES}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"retry")
    return reader, writer


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends a connection by the time it stalls"
)
async def test_a_client_that_takes_nothing_is_ended_even_if_the_kernel_holds_all_that_was_sent(
    world: World, release: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALLED_MS", 500)
    world.publish(release({"home": 40}))
    async with world.serving() as session, asyncio.timeout(WITHIN_SECONDS):
        await ready(session)
        _, writer = await slow_client(world.port)
        world.publish(release({f"{'x' * 200} {number}": 900 for number in range(200)}, day=1), most=1 << 19)
        while world.streams:
            await asyncio.sleep(0.02)
        writer.close()


async def test_a_client_that_takes_nothing_is_ended_and_others_hear_everything(
    world: World,
    release: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 1.0)
    many = {f"{'x' * 200} {number}": 900 for number in range(800)}
    world.publish(release({"home": 40}))
    async with world.serving() as session:
        await ready(session)
        reader, writer = await slow_client(world.port)
        async with stream(session) as changes:
            for day in range(1, 40):
                world.publish(release(many, day=day), most=1 << 19)
                assert (await anext(changes)).data["record"]["window"]["start_ms"] == day * 86_400_000
        async with asyncio.timeout(WITHIN_SECONDS):
            while world.streams:  # it reads nothing until then
                await asyncio.sleep(0.02)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1 << 40)
        writer.close()


async def test_when_the_gateway_ends_it_says_when_to_come_back(world: World, release: Make) -> None:
    world.publish(release({"home": 40}))
    async with world.serving() as session:
        await ready(session)
        opened = asyncio.Event()

        async def read() -> str:
            async with session.get(f"{PAGES}/events") as answer:
                opened.set()
                return await answer.text()

        reading = asyncio.create_task(read())
        await opened.wait()
    text = await reading
    assert '"reason":"shutdown"' in text


async def test_it_starts_without_a_broker_and_reads_when_there_is_one(
    world: World,
    release: Make,
) -> None:
    world.is_up = False
    async with world.serving() as session:
        async with session.get("/v1/views") as answer:
            assert (answer.status, (await answer.json())["type"]) in [(503, "starting"), (503, "broker_silent")]
        world.publish(release({"home": 40}))
        world.is_up = True
        await ready(session)
        listed, _ = await get(session, "/v1/views")
        assert [view["name"] for view in listed["views"]] == ["pages"]


async def test_a_view_that_is_new_is_found_and_internal_topics_are_not_read(
    world: World,
    release: Make,
) -> None:
    names = ("visits-accounts", "visits.releases.pages.nobody", "other.releases.pages.public", "visits.releases.pages")
    for name in names:
        world.log.create(name, 1)
        world.log.append(name, 0, b"x", b"secret")
    async with world.serving() as session:
        await ready(session)
        assert (await get(session, "/v1/views"))[0]["views"] == []
        world.publish(release({"home": 40}))
        async with asyncio.timeout(WITHIN_SECONDS):
            while not (await get(session, "/v1/views"))[0]["views"]:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/views HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (17 << 10) + b"\r\n\r\n",
        b"GET /" + b"x" * (17 << 10) + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /v1/views\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ],
    ids=["large header", "long address", "no text", "no HTTP"],
)
async def test_what_is_no_request_is_refused_and_others_are_served(world: World, head: bytes) -> None:
    async with world.serving() as session:
        await ready(session)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(head)
        async with asyncio.timeout(WITHIN_SECONDS):
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        assert await status(session, "/livez") == 200


# -- of other audiences ---------------------------------------------------------------------------------------------


async def test_no_byte_of_an_open_stream_depends_on_what_others_get_meanwhile(
    visits: Plan, tmp_path: Path, release: Make, refusal: Make
) -> None:
    """Two worlds with the same records for the public and others for the rest: the frames are the same, and as many."""
    staff = [release({"home": 70 + day}, audience="staff", level=1, day=day) for day in range(7)]
    theirs = [[one, refusal(audience="staff", day=day, revision=2)] for day, one in enumerate(staff)]
    worlds = []
    for number, others in enumerate(([[]] * 7, theirs)):
        world = World(visits, tmp_path / f"{number}.tokens", MemoryLog(clock_ms=lambda: 1_700_000_000_000))
        for audience in ("public", "staff"):
            world.log.create(world.topic(audience), 1)
            world.log.ids[world.topic(audience)] = f"{audience:x<32}".encode().hex()[:32]
        world.publish(release({"home": 50}), most=1 << 19)
        world.publish(*others[0], audience="staff")
        async with world.serving() as session:
            await ready(session)
            async with session.get("/v1/events?after=pages.7075626c-0") as answer, asyncio.timeout(WITHIN_SECONDS):
                frames = [await answer.content.readuntil(b"\n\n")]
                for day in range(1, 6):
                    world.publish(*others[day], audience="staff")
                    await asyncio.sleep(0.05)
                    world.publish(release({"home": 50 + day}, day=day), most=1 << 19)
                    frames.append(await answer.content.readuntil(b"\n\n"))
                world.publish(*others[6], audience="staff")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(answer.content.readany(), 0.3)
        worlds.append(frames)
    assert [frame.partition(b"\n")[0] for frame in worlds[0]] == [b"retry: 3000", *[b"event: release"] * 5]
    assert worlds[0] == worlds[1]
