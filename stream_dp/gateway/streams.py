"""Server-sent events: what changes on boards, for any number of clients that come back with a position.

A client's queue has windows, not records: what is sent is the newest record at that moment, the same bytes object for
every client. So a client that is slow misses no window, and costs no memory.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from stream_dp.gateway.boards import Board, Reset, Window, compact, window_json
from stream_dp.gateway.tokens import Entry, Tokens
from stream_dp.windows.durations import format_time

HEARTBEAT_SECONDS = 15
SEND_SECONDS = 10
"""Time that a client has to take what is sent."""
MOST_WAITING = 256
"""Windows that may wait for a client, beside those that it was behind by at first."""
RETRY_MS = 3000
FEWEST_SECONDS, MOST_SECONDS = 1, 10
"""Bounds of the time after which clients come back when the gateway ends, so that they do not come at once."""
MOST_STREAMS, MOST_OF_TOKEN, MOST_OF_ADDRESS = 2000, 50, 20
CONNECTION = "stream_dp.connection"
"""Key of a connection in the scope of its request."""
_POSITION = re.compile(r"(?:([a-z0-9-]{1,63})\.)?([0-9a-f]{8})-(-1|[0-9]{1,18})")


class PositionError(ValueError):
    """A text that is no position."""


def parse_positions(text: str, views: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Return the positions by view of an id of an event, `[view.]topic-offset`, several with ~ between them.

    Raises:
        PositionError: it is none.
    """
    found, views = {}, tuple(views)
    for part in text.split("~"):
        match = _POSITION.fullmatch(part)
        if match is None or (match[1] is None and len(views) != 1):
            raise PositionError
        found[match[1] or views[0]] = match[2], int(match[3])
    return found


@dataclass(eq=False)
class Stream:
    """One client's stream.

    Attributes:
        boards: that it follows, by view.
        is_single: of one view, whose ids need no name.
        entry: of its token; None without one.
        now_ms: the clock.
        after: by view the position that the client comes back with: id of the topic, and offset.
    """

    boards: Mapping[str, Board]
    is_single: bool
    entry: Entry | None
    now_ms: Callable[[], int]
    after: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)
    _is_over: bool = False
    _waiting: dict[tuple[str, Window], int] = field(default_factory=dict)
    """By view and window: the offset that has changed it, oldest first."""
    _resets: dict[str, str] = field(default_factory=dict)
    _most: int = MOST_WAITING
    _bye: bytes | None = None
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """Note what the client has to be told that comes back with positions; of other views only what is new."""
        changes = []
        for view, board in self.boards.items():
            self.positions[view] = board.position
            if view not in self.after:
                continue
            topic, offset = self.after[view]
            behind = board.since(offset, self.now_ms()) if topic == board.topic else Reset("recreated")
            if isinstance(behind, Reset):
                self._resets[view] = behind.reason
            else:
                self.positions[view] = f"{topic}-{offset}"
                changes += [(at, view, window) for at, window in behind]
        self._waiting = {(view, window): at for at, view, window in sorted(changes)}
        self._most += len(self._waiting)

    def tell(self, view: str, window: Window) -> None:
        """Note that a window has changed: it takes the place of what was not sent of it."""
        self._waiting.pop((view, window), None)
        self._waiting[view, window] = self.boards[view].offset
        if len(self._waiting) > self._most:
            self.end("slow")
        self._awake.set()

    def reset(self, view: str, reason: str) -> None:
        """Note that the topic of a view is gone or was made anew; the stream ends when the client is told."""
        self._is_over = True
        self._resets[view] = reason
        self._waiting = {place: at for place, at in self._waiting.items() if place[0] != view}
        self._awake.set()

    def end(self, reason: str, retry_after_s: int = 0) -> None:
        """End the stream with `bye`, before anything that waits."""
        if self._bye is None:
            self._bye = frame("bye", compact({"reason": reason, "retry_after_s": retry_after_s}))
            self._awake.set()

    async def frames(self) -> AsyncIterator[bytes]:
        """What is sent, until the stream ends."""
        yield b"retry: %d\nid: %s\n\n" % (RETRY_MS, self._id())
        while True:
            while self._bye is None and (self._resets or self._waiting):
                yield self._next()
            if self._bye is not None:
                yield self._bye
            if self._bye is not None or self._is_over:
                return
            self._awake.clear()
            await self._awake.wait()

    def _next(self) -> bytes:
        if self._resets:
            view, reason = self._resets.popitem()
            board = self.boards[view]
            self.positions[view] = board.position
            return frame("reset", compact({"view": view, "reason": reason, "position": board.position}), self._id())
        view, window = place = next(iter(self._waiting))
        board, offset = self.boards[view], self._waiting.pop(place)
        self.positions[view] = f"{board.topic}-{offset}"
        cell = board.cells.get(window)
        if cell is None:
            data = {"view": view, "position": self.positions[view], "window": window_json(window)}
            return frame("expired", compact(data), self._id())
        start = format_time(window[0])
        href = f"/v1/views/{view}/windows/{start}?end={format_time(window[1])}&audience={board.audience}"
        return frame(cell.event_name, cell.event(board.topic, view, href), self._id())

    def _id(self) -> bytes:
        if self.is_single:
            return next(iter(self.positions.values())).encode()
        return "~".join(f"{view}.{position}" for view, position in self.positions.items()).encode()


def frame(event: str, data: bytes, at: bytes | None = None) -> bytes:
    """Return an event as it is sent."""
    lines = b"event: %s\n" % event.encode() + (b"" if at is None else b"id: %s\n" % at)
    return lines + b"data: %s\n\n" % data


@dataclass
class Hub:
    """All streams of the gateway.

    Attributes:
        tokens: whose end ends streams.
        answers: number of answered requests, by status.
    """

    tokens: Tokens
    streams: set[Stream] = field(default_factory=set)
    by_key: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)

    def has_room(self, key: str, stream: Stream) -> bool:
        """Return True if a reader may open a stream besides those that are open."""
        most = MOST_OF_ADDRESS if stream.entry is None else MOST_OF_TOKEN
        return self.by_key.total() < MOST_STREAMS and self.by_key[key] < most

    @contextmanager
    def opened(self, stream: Stream, key: str) -> Iterator[None]:
        """Let a stream hear of its boards."""
        watching = [(board, _watcher(stream, view), _closer(stream, view)) for view, board in stream.boards.items()]
        for board, watcher, closer in watching:
            board.watchers.add(watcher)
            board.closers.add(closer)
        self.streams.add(stream)
        self.by_key[key] += 1
        stream.begin()
        try:
            yield
        finally:
            self.streams.discard(stream)
            self.by_key[key] -= 1
            self.by_key += Counter()  # drops those that have none
            for board, watcher, closer in watching:
                board.watchers.discard(watcher)
                board.closers.discard(closer)

    def check_tokens(self) -> None:
        """End the streams whose token was revoked or has expired."""
        for stream in self.streams:
            if stream.entry is not None and (reason := self.tokens.ended(stream.entry)) is not None:
                stream.end(reason)

    def shut_down(self) -> None:
        """End all streams; clients come back at different times."""
        for stream in self.streams:
            stream.end("shutdown", random.randint(FEWEST_SECONDS, MOST_SECONDS))  # noqa: S311 - spreads load


def _watcher(stream: Stream, view: str) -> Callable[[Window], None]:
    return lambda window: stream.tell(view, window)


def _closer(stream: Stream, view: str) -> Callable[[str], None]:
    return lambda reason: stream.reset(view, reason)


class EventResponse(EventSourceResponse):
    """The response of a stream: heartbeats with the gateway's time; a client that takes nothing is let go."""

    def __init__(self, stream: Stream, hub: Hub, key: str) -> None:
        self._stream, self._hub, self._key = stream, hub, key
        super().__init__(
            stream.frames(),
            headers={"Cache-Control": "no-store"},
            ping=HEARTBEAT_SECONDS,
            ping_message_factory=lambda: ServerSentEvent(comment=format_time(stream.now_ms()), sep="\n"),
            send_timeout=SEND_SECONDS,
            shutdown_grace_period=1,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it or its client ends."""
        connection = scope.get(CONNECTION)
        with self._hub.opened(self._stream, self._key):
            try:
                if connection is not None:
                    connection.keep()
                await super().__call__(scope, receive, send)
            except SendTimeoutError:
                if connection is not None:
                    connection.transport.abort()  # what waits in its buffer is not taken either
