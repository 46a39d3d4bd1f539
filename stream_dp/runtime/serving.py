"""The HTTP port of a worker, for its operators: `/metrics`, `/livez` and `/readyz`, answered by its event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

from aiohttp import web

from stream_dp.errors import AddressError
from stream_dp.runtime.exposition import CONTENT_TYPE, Exposition
from stream_dp.runtime.health import Health

LOOPBACK = "127.0.0.1"
MOST_CONNECTIONS = 32
"""At once; one more is closed as it comes. Each takes a descriptor that the broker and the files of the worker need."""
IDLE_SECONDS = 10.0
"""How long a connection may stay without a whole request."""
CLOSE_SECONDS = 1.0
"""How long an answer may take that is on its way when the port is closed."""


class Address(NamedTuple):
    """Where to listen; port 0 stands for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@asynccontextmanager
async def serving(address: Address, health: Health, metrics: Exposition) -> AsyncIterator[Address]:
    """Answer at an address until the context is left; yields the address with its port.

    Args:
        address: where to listen.
        health: what the probes are told.
        metrics: the page of metrics.

    Raises:
        AddressError: nobody can listen there.
    """

    async def livez(_request: web.Request) -> web.Response:
        return _answer("" if health.is_alive else "the worker has crashed; its process ends")

    async def readyz(_request: web.Request) -> web.Response:
        return _answer(f"waiting for {words}" if (words := health.waits_for) else "")

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", page)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS, keepalive_timeout=IDLE_SECONDS)
    await runner.setup()
    answering = runner.server
    assert answering is not None  # noqa: S101  (it is set up)

    def connected() -> asyncio.Protocol:
        return answering() if len(answering.connections) < MOST_CONNECTIONS else _Refusal()

    try:
        try:
            server = await asyncio.get_running_loop().create_server(
                connected, address.host, address.port, backlog=MOST_CONNECTIONS
            )
        except OSError as error:
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror
            raise AddressError(f"the worker cannot listen on {address}: {why}; give --http another address") from error
        try:
            yield Address(address.host, server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()


class _Refusal(asyncio.Protocol):
    """A connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        cast("asyncio.WriteTransport", transport).abort()


def _answer(fault: str) -> web.Response:
    return web.Response(text=f"{fault}\n", status=503) if fault else web.Response(text="ok\n")
