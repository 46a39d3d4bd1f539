"""Releases from a gateway: a list of windows over HTTP, then server-sent events from its position on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError

from stream_dp.client.sources import Item, Mark, Patience, Tombstone, record_of
from stream_dp.errors import AccessError, BrokerError, OutageError, StateError
from stream_dp.records.codec import AnyRecord
from stream_dp.windows.durations import format_time, parse_time

SILENT_SECONDS = 40
"""A stream without a heartbeat for so long is given up."""
ONE_ANSWER = aiohttp.ClientTimeout(total=60, sock_connect=10)
A_STREAM = aiohttp.ClientTimeout(sock_connect=10, sock_read=SILENT_SECONDS)
LARGEST_LINE = 4 << 20
"""Of a stream; the gateway's events are at most 256 KiB."""
_RETRIED = {429, 500, 502, 503, 504}
_FAILURES = aiohttp.ClientError, TimeoutError
_NULL = msgspec.Raw(b"null")
_Answer = tuple[aiohttp.ClientResponse, bytes]


class _Sent(msgspec.Struct):
    """A page, window, event or problem of a gateway: the fields that are used."""

    record: msgspec.Raw = _NULL
    refusal: msgspec.Raw = _NULL
    window: dict[str, str] = {}
    windows: list[_Sent] = []
    next: str | None = None
    reason: str = ""
    retry_after_s: float = 0
    detail: str = ""


class SentEvent(NamedTuple):
    """An event of a stream: its name, data and, if it has one, id."""

    name: str
    data: bytes
    id: str


async def sent_events(lines: AsyncIterable[bytes]) -> AsyncIterator[SentEvent]:
    """Return the events in lines of `text/event-stream`; one that is cut off is none."""
    name, data, at = b"", list[bytes](), b""
    async for line in lines:
        key, _, value = line.rstrip(b"\r\n").partition(b":")
        value = value.removeprefix(b" ")
        if key == b"data":
            data.append(value)
        elif key == b"event":
            name = value
        elif key == b"id":
            at = value
        elif not line.strip():
            if data:
                yield SentEvent(name.decode(errors="replace"), b"\n".join(data), at.decode(errors="replace"))
            name, data = b"", []


@dataclass
class GatewaySource:
    """The records of a view as a gateway has them.

    Attributes:
        url: of the gateway, without a slash at its end.
        view: the view.
        audience: the audience; empty: that of the token.
        token: a reader's token; None without one.
        since_ms: start of the first window; None: of all that are there.
        revisions: "newest" or "all".
        patience: for a gateway that does not answer.
    """

    url: str
    view: str
    audience: str
    token: str | None = field(repr=False)
    since_ms: int | None
    revisions: str
    patience: Patience

    async def items(self) -> AsyncGenerator[Item, None]:
        """Read the list, then follow the stream. If a position cannot be resumed, read the list anew."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        asked = {"limit": "500", "revisions": self.revisions}
        if self.since_ms is not None:
            asked["from"] = format_time(self.since_ms)
        async with aiohttp.ClientSession(
            headers=headers, timeout=ONE_ANSWER, trust_env=True, read_bufsize=LARGEST_LINE // 2
        ) as self._session:
            while True:
                yield Mark.BEGIN
                position, windows = await self._list(asked)
                for record in self._records(reversed(windows)):  # by time, and of each window the former one first
                    yield record
                yield Mark.END
                async for item in self._follow(position):
                    yield item

    async def _list(self, asked: Mapping[str, str]) -> tuple[str, list[_Sent]]:
        position, windows, more = "", list[_Sent](), dict[str, str]()
        while True:
            answer, body = await self._opened("windows", {**asked, **more})
            page = self._decoded(body)
            position = position or answer.headers.get("Stream-Position", "")
            windows += page.windows
            if page.next is None:
                return position, windows
            more = {"cursor": page.next}

    async def _follow(self, position: str) -> AsyncGenerator[Item, None]:
        """Return what comes behind a position, until it cannot be resumed."""
        while True:
            error, pause = OutageError(f"the gateway at {self.url} has ended the stream"), 0.0
            headers = {"Accept": "text/event-stream", "Last-Event-ID": position}
            try:
                answer, _ = await self._opened("events", {}, headers=headers, timeout=A_STREAM)
                async with answer:
                    async for event in sent_events(answer.content):
                        if event.name == "reset":
                            return
                        if event.name == "bye":
                            pause = self._pause(self._decoded(event.data))
                            break
                        async for item in self._items_of(event):
                            yield item
                        position = event.id or position
            except _FAILURES as failure:
                error = self._silent(failure)
            except HttpProcessingError:
                raise StateError(f"the gateway at {self.url} has sent an event that is too large") from None
            await self.patience.wait(error, pause)

    async def _items_of(self, event: SentEvent) -> AsyncGenerator[Item, None]:
        sent = self._decoded(event.data)
        start, end = sent.window.get("start"), sent.window.get("end")
        if event.name in ("release", "refusal"):
            found = [sent]
            if start is not None:  # too large for an event
                _, found = await self._list({"from": start, "until": format_time(parse_time(start) + 1)})
            for record in self._records(found):
                yield record
        elif event.name == "expired" and start is not None:
            yield Tombstone(parse_time(start), None if end is None else parse_time(end))

    def _records(self, windows: Iterable[_Sent]) -> Iterator[AnyRecord]:
        for value in (bytes(raw) for window in windows for raw in (window.record, window.refusal)):
            if value != bytes(_NULL):
                record = record_of(value, self.view, self.audience, f"the gateway at {self.url}")
                if record is not None:
                    yield record

    async def _opened(self, what: str, asked: Mapping[str, str], **options: Any) -> _Answer:  # noqa: ANN401
        """Return an answer and, but for a stream, its body. Wait for a gateway that has none now."""
        params = {**asked, **({"audience": self.audience} if self.audience else {})}
        url = f"{self.url}/v1/views/{self.view}/{what}"
        while True:
            try:
                answer = await self._session.get(url, params=params, allow_redirects=False, **options)
                if answer.status == 200 and options:
                    return answer, b""
                async with answer:
                    body = await answer.read()
                error, pause = self._refusal(answer, body), answer.headers.get("Retry-After", "")
            except _FAILURES as failure:
                error, pause = self._silent(failure), ""
            if error is None:
                self.patience.succeeded()
                return answer, body
            await self.patience.wait(error, int(pause) if pause.isdecimal() else 0)

    def _refusal(self, answer: aiohttp.ClientResponse, body: bytes) -> OutageError | None:
        """Return the error of an answer if it may pass; None if it is none.

        Raises:
            AccessError: the token is not good, or does not give the view.
            BrokerError: the gateway does not take the request.
        """
        if answer.status == 200:
            return None
        if answer.status in (401, 403):
            token = "needs a token" if self.token is None else "does not take the token: it is wrong, or no longer good"
            raise AccessError(f"the gateway at {self.url} {token}")
        if answer.status == 404:
            whose = f" for audience {self.audience}" if self.audience else ""
            raise AccessError(f"the gateway at {self.url} has no view {self.view}{whose} that this reader may read")
        words = f"the gateway at {self.url} does not answer this: {answer.status} {answer.reason}"
        if answer.status not in _RETRIED:
            raise BrokerError(f"{words}. {self._decoded(body).detail}")
        return OutageError(words)

    def _pause(self, bye: _Sent) -> float:
        if bye.reason in ("revoked", "expired"):
            was = "was revoked" if bye.reason == "revoked" else "has expired"
            raise AccessError(f"the gateway at {self.url} has ended the stream: the token {was}")
        return bye.retry_after_s

    def _silent(self, error: BaseException) -> OutageError:
        return OutageError(f"the gateway at {self.url} does not answer: {error or type(error).__name__}")

    def _decoded(self, data: bytes) -> _Sent:
        try:
            return msgspec.json.decode(data, type=_Sent)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise StateError(f"the gateway at {self.url} has sent what cannot be read: {error}") from None
