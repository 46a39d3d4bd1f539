"""Streams of events: what is too large, too late, too slow, too many; heartbeats, the gateway's end, its log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from stream_dp.gateway import streams
from stream_dp.gateway.boards import LARGEST_EVENT, MOST_BEHIND
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.streams import MOST_OF_ADDRESS, MOST_OF_TOKEN, MOST_STREAMS, MOST_WAITING, EventResponse, Stream
from stream_dp.gateway.tokens import RequestRate
from stream_dp.records.codec import encode_parts
from tests.support.gateway import NOW, Answer, ask, gateway_of, token_of

Make = Callable[..., Any]
VIEW = "/v1/views/pages"
ALL = f"{VIEW}/events?after=00000000--1"
ADDRESS = "10.0.0.1"


def events(answer: Answer | bytes) -> list[tuple[str, Any]]:
    """Name and data of each event."""
    text = (answer if isinstance(answer, bytes) else answer.body).decode()
    return [(name, json.loads(data)) for name, data in re.findall(r"event: (\w+)\n(?:id: .*\n)?data: (.*)\n\n", text)]


async def sent(stream: Stream) -> list[tuple[str, Any]]:
    """The events of a stream that has ended."""
    return events(b"".join([frame async for frame in stream.frames()]))


def publish(gateway: Gateway, records: Sequence[Any]) -> None:
    """Add records to the board of the public pages."""
    board = gateway.boards.by_name["pages", "public"]
    for record in records:
        for key, value in encode_parts(record, 1 << 19):
            board.take(key, value, board.offset + 1, NOW)


@pytest.fixture
def gateway(tmp_path: Path, release: Make) -> Gateway:
    gateway = gateway_of(tmp_path, {("pages", "public"): [release({"home": 40})], ("pages", "staff"): []})
    gateway.requests = gateway.failures = RequestRate(1e6, 10**6)
    return gateway


def following(gateway: Gateway) -> Stream:
    return Stream({"pages": gateway.boards.by_name["pages", "public"]}, True, None, lambda: NOW)


@pytest.mark.parametrize("is_large", [False, True])
async def test_an_event_of_more_than_256_kib_comes_without_its_record_and_says_where_that_is(
    gateway: Gateway, release: Make, is_large: bool
) -> None:
    counts = {f"{'x' * 240} {number:04}": 900 for number in range(950 if is_large else 900)}
    publish(gateway, [release(counts, day=1)])
    (_, data) = events(await ask(gateway.app(), ALL))[-1]
    whole = await ask(gateway.app(), f"{VIEW}/windows/1970-01-02?end=1970-01-03")
    assert (len(whole.body) > LARGEST_EVENT == 256 << 10) is is_large
    if not is_large:
        assert data == whole.json
        return
    assert data.keys() == {"position", "released", "state", "view", "window", "href"}
    assert (data["view"], data["window"]["start"], data["state"]) == ("pages", "1970-01-02T00:00:00Z", "released")
    assert (await ask(gateway.app(), data["href"])).json == whole.json


@pytest.mark.parametrize("behind", [MOST_BEHIND, MOST_BEHIND + 1])
async def test_a_client_that_is_more_than_1000_windows_behind_begins_again_with_a_list(
    gateway: Gateway, release: Make, behind: int
) -> None:
    publish(gateway, [release({}, day=day) for day in range(1, behind)])
    found = events(await ask(gateway.app(), ALL))
    if behind == 1000:
        assert [name for name, _ in found] == ["release"] * 1000
    else:
        assert found == [("reset", {"view": "pages", "reason": "too_far_behind", "position": f"00000000-{behind - 1}"})]


async def test_a_comment_with_the_time_says_that_the_gateway_is_there(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert streams.HEARTBEAT_SECONDS == 15
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.01)
    stream, body = following(gateway), bytearray()

    async def send(message: Message) -> None:
        body.extend(message.get("body", b""))
        if body.count(b"\n: ") == 3:
            stream.end("shutdown")

    scope = {"type": "http", "method": "GET", "headers": []}
    await EventResponse(stream, gateway.hub, ADDRESS)(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
    first, *comments, bye, _ = body.decode().split("\n\n")
    assert first == "retry: 3000\nid: 00000000-0"
    assert (len(comments) >= 3, set(comments)) == (True, {": 2023-11-14T22:13:20Z"})
    assert bye.startswith("event: bye")


@pytest.mark.parametrize("waiting", [MOST_WAITING, MOST_WAITING + 1])
async def test_a_client_for_whom_more_than_256_windows_wait_is_ended_with_a_reason(
    gateway: Gateway, release: Make, waiting: int
) -> None:
    stream = following(gateway)
    with gateway.hub.opened(stream, ADDRESS):
        publish(gateway, [release({}, day=day) for day in range(1, 1 + waiting)])
        publish(gateway, [release({}, day=1, revision=2, level=1)])  # takes the place of what waits of its window
        stream.end("shutdown")
        found = await sent(stream)
    assert found == [("bye", {"reason": "slow" if waiting > 256 else "shutdown", "retry_after_s": 0})]


async def test_a_window_that_changes_while_it_waits_comes_last_so_that_a_position_skips_nothing(
    gateway: Gateway, release: Make
) -> None:
    stream = following(gateway)
    with gateway.hub.opened(stream, ADDRESS):
        publish(gateway, [release({}, day=1), release({}, day=2), release({}, day=1, revision=2, level=1)])
        frames = stream.frames()
        found = [await anext(frames) for _ in range(3)]
        await frames.aclose()  # type: ignore[attr-defined]
    assert re.findall(rb"id: 00000000-(\d+)", b"".join(found)) == [b"0", b"2", b"3"]
    assert [data["record"]["revision"] for _, data in events(b"".join(found))] == [1, 2]


async def test_at_the_end_of_the_gateway_clients_are_told_to_come_back_at_different_times(gateway: Gateway) -> None:
    with ExitStack() as opened:
        mine = [following(gateway) for _ in range(200)]
        for number, stream in enumerate(mine):
            opened.enter_context(gateway.hub.opened(stream, str(number)))
        gateway.hub.shut_down()
        byes = [(await sent(stream))[-1] for stream in mine]
    assert {(name, data["reason"]) for name, data in byes} == {("bye", "shutdown")}
    assert {data["retry_after_s"] for _, data in byes} == {*range(1, 11)}  # fails once in 100 million runs


async def test_streams_are_limited_by_token_by_address_and_in_all(gateway: Gateway) -> None:
    assert (MOST_STREAMS, MOST_OF_TOKEN, MOST_OF_ADDRESS) == (2000, 50, 20)
    token = token_of(gateway, "staff")
    entry = gateway.tokens.entry(token)
    assert entry is not None
    app = gateway.app()

    async def status(client: str = ADDRESS, **headers: str) -> int:
        audience = "?audience=staff" if headers else ""
        answer = await ask(app, f"{VIEW}/events{audience}", client=client, **headers)
        if answer.status == 429:  # and no stream that ends with `bye`
            assert (answer.json["type"], answer.headers["retry-after"]) == ("too_many", "10")
        return answer.status

    mine = {"authorization": f"Bearer {token}"}
    for key, most in ((ADDRESS, 20), (entry.id, 50)):
        with ExitStack() as opened:
            headers = mine if key == entry.id else {}
            for _ in range(most - 1):
                opened.enter_context(gateway.hub.opened(following(gateway), key))
            assert await status(**headers) == 200
            with gateway.hub.opened(following(gateway), key):
                assert await status(**headers) == 429
                assert await status("10.0.0.2", **({} if headers else mine)) == 200
            assert await status(**headers) == 200
    with ExitStack() as opened:
        for number in range(1999):
            opened.enter_context(gateway.hub.opened(following(gateway), str(number)))
        assert await status() == 200
        with gateway.hub.opened(following(gateway), "one more"):
            assert await status() == await status(**mine) == 429
    assert (gateway.hub.by_key.total(), gateway.hub.streams) == (0, set())


async def test_the_log_has_no_token_no_item_and_no_query(
    gateway: Gateway, release: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, app = token_of(gateway, "staff"), gateway.app()
    bearer, own = f"Bearer {token}", {"origin": "http://localhost", "content_type": "application/json"}
    entry = gateway.tokens.entry(token)
    assert entry is not None
    for target in (
        f"{VIEW}/series?item=my-secret-item&smooth=3",
        f"{VIEW}/windows/1970-01-01?audience=staff",
        f"{VIEW}/events?after=00000000-0&audience=staff",
        "/v1/views?audience=my-secret-audience",
        "/my-secret-path?x=my-secret-query",
        "/%00my-secret-path",
        f"/v1/views?{'my-secret' * 1000}",
    ):
        await ask(app, target, authorization=bearer)
        await ask(app, target, cookie=f"sdp-staff={token}")
        await ask(app, target, authorization="Bearer sdp_my-secret-guess")
    assert (await ask(app, "/v1/session", "POST", json.dumps({"token": token}), **own)).status == 204
    assert (await ask(app, "/v1/session", "POST", json.dumps({"token": "my-secret"}), **own)).status == 401
    lines = [record.getMessage() for record in caplog.records if record.name == "stream_dp.gateway"]
    assert len(lines) == 23
    assert all(re.fullmatch(r"(GET|POST) (/\S*|-) \d{3} \d+ B \d+ ms (-|[0-9a-f]{8})", line) for line in lines), lines
    assert f"GET /v1/views/{{view}}/series 200 {entry.id}" in {re.sub(r" \d+ B \d+ ms", "", line) for line in lines}
    for secret in ("secret", token, token[4:20], "?", "audience=", "1970-01-01", "item"):
        assert secret not in caplog.text
