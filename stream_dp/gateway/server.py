"""The HTTP server of the gateway: uvicorn, with bounds on what a client may send before it is answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stream_dp.gateway.streams import CONNECTION

LARGEST_HEAD = 16 << 10
REQUEST_SECONDS, IDLE_SECONDS = 10, 30
MOST_CONNECTIONS = 4000
STALLED_MS = 12_000
"""After this time without room at the client, the kernel ends a connection, whatever its buffers hold."""
END_SECONDS = 3


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too large, or the request takes too long to come.

    If there are too many, each new one ends another: that whose last request began first, so that nobody keeps
    others out by holding connections. Streams are not ended, they have a limit of their own.

    Args:
        endable: the connections of the server that may be ended, by the time of the last request.
        settings: of the base class.
    """

    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, endable: dict[BoundedProtocol, None], **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self._endable = endable

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS and self._endable:
            oldest = next(iter(self._endable))
            oldest.keep()
            oldest.transport.abort()
        self._endable[self] = None
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
        self._wait()

    def keep(self) -> None:
        """Do not end this connection for a new one."""
        self._endable.pop(self, None)

    def data_received(self, data: bytes) -> None:
        """Take what has come; empty lines before a request end the idle time, so they count as its beginning."""
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        self.keep()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self.keep()
        self._endable[self] = None
        self._head_bytes = 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        """Add to the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_message_complete(self) -> None:
        """End a request, its body too."""
        self._stop()
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > LARGEST_HEAD:
            raise ValueError("the head of a request is too large")  # the parser answers 400 and closes

    def _wait(self) -> None:
        self._stop()
        self._timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """The server; its streams are told when it ends."""

    def __init__(self, app: ASGIApp, bye: Callable[[], None], started: Callable[[], None], **settings: Any) -> None:  # noqa: ANN401
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, partial(BoundedProtocol, {})),  # uvicorn calls it
                ws="none",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=END_SECONDS,
                **settings,
            )
        )
        self._bye, self._say_started = bye, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._say_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell the streams, then close."""
        self._bye()
        await super().shutdown(sockets)
