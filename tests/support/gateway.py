"""A gateway on records of a small application, and a client that calls it without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from stream_dp.config.file_schema import ServeConfig
from stream_dp.gateway.boards import Board, Boards
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.tokens import Tokens, new_token
from stream_dp.records.codec import encode_parts

NOW = 1_700_000_000_000
Records = Mapping[tuple[str, str], Iterable[Any]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp, target: str, method: str = "GET", body: bytes | str = b"", client: str = "10.0.0.1", **headers: str
) -> Answer:
    """Ask an application for a target as it stands in a request; of a stream, what it sends at once."""
    path, _, query = target.partition("?")
    named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in {"host": "localhost", **named}.items()],
        "client": (client, 1),
        "server": ("localhost", 80),
    }
    sent: list[Message] = []
    streaming = asyncio.Event()
    waiting = [{"type": "http.request", "body": body.encode() if isinstance(body, str) else body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await streaming.wait()  # any other answer ends by itself
        known = 0
        while len(sent) > known:
            known = len(sent)
            await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if (b"content-type", b"text/event-stream") in [
            (n, v.partition(b";")[0]) for n, v in message.get("headers", ())
        ]:
            streaming.set()

    await app(scope, receive, send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:]))


def gateway_of(
    tmp_path: Path, records: Records, public: tuple[str, ...] = ("public",), origins: tuple[str, ...] = ()
) -> Gateway:
    """A gateway whose boards have been read."""
    boards = Boards(started=True)
    for at, ((view, audience), listed) in enumerate(records.items()):
        board = Board(view, audience, f"{at:08x}")
        boards.put(board)
        rows = [row for record in listed for row in encode_parts(record, 1 << 19)]
        for offset, (key, value) in enumerate(rows):
            board.take(key, value, offset, NOW)
        board.loaded()
    tokens = Tokens(tmp_path / "readers.tokens", lambda: NOW)
    return Gateway(ServeConfig(public=[*public], origins=[*origins]), boards, tokens, lambda: NOW)


def token_of(gateway: Gateway, audience: str, expires_ms: int | None = None) -> str:
    """A new token, which the gateway knows."""
    assert gateway.tokens.file is not None
    _, token = new_token(gateway.tokens.file, audience, NOW, expires_ms)
    gateway.tokens.look()
    return token
