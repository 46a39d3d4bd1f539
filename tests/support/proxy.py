"""A network between a worker and its broker that can be stopped, cut and mended: a TCP proxy that changes no byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_CHUNK_BYTES = 1 << 16


class Proxy:
    """Forwards connections to an address, or to each of several, in a thread of its own, so that a test may block.

    While it is frozen, bytes that were sent stay on their way and arrive when it thaws, even those of a process that
    has died since. While it is cut, there are no connections; what was on its way is lost.
    """

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._is_cut = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._servers = [self._run(self._listen(one)) for one in target.split(",")]
        names = [server.sockets[0].getsockname() for server in self._servers]
        self.address = ",".join(f"{host}:{port}" for host, port in names)

    def freeze(self) -> None:
        """Let nothing through, in either direction, and keep it."""
        self._call(self._flows.clear)

    def thaw(self) -> None:
        """Let through what was kept, and all that comes."""
        self._call(self._flows.set)

    def cut(self) -> None:
        """Reset every connection, and every new one at once."""

        def cut() -> None:
            self._is_cut = True
            self._abort()

        self._call(cut)

    def mend(self) -> None:
        """Accept connections again."""

        def mend() -> None:
            self._is_cut = False

        self._call(mend)

    def close(self) -> None:
        """End the proxy and its thread."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in its thread ----------------------------------------------------------------------------------------

    async def _listen(self, target: str) -> asyncio.Server:
        host, _, port = target.rpartition(":")

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(host, int(port), reader, writer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        return await asyncio.start_server(accept, "127.0.0.1", 0)

    async def _serve(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        far: asyncio.StreamWriter | None = None
        try:
            if self._is_cut:
                return
            with suppress(OSError):  # the broker is gone, and so is what was on its way
                far_reader, far = await asyncio.open_connection(host, port)
                self._writers.add(far)
                await asyncio.gather(self._pump(reader, far), self._pump(far_reader, writer))
        finally:
            for one in filter(None, (writer, far)):
                self._writers.discard(one)
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        await self._flows.wait()  # the end of a stream is on its way like its bytes
        writer.close()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        self._flows.set()
        self._abort()
        await asyncio.gather(*self._serving)

    # -- from other threads -----------------------------------------------------------------------------------

    def _run(self, body: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(body, self._loop).result()

    def _call(self, act: Callable[[], None]) -> None:
        async def run() -> None:
            act()

        self._run(run())
