"""The gateway and its page, served to a browser from the embedded log of this process; it can be killed and started."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from stream_dp.config.file_schema import ServeConfig
from stream_dp.config.plan import Plan
from stream_dp.errors import OutageError
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.server import Server
from stream_dp.gateway.tokens import RequestRate, Tokens, new_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.effects import Message
from tests.support.proxy import Proxy


class FailingClient(MemoryClient):
    """A client whose broker may fall silent."""

    def __init__(self, served: ServedReader) -> None:
        super().__init__(served.log)
        self.served = served

    async def ends(self, places: Any) -> Any:
        self._check()
        return await super().ends(places)

    async def follow(self, topics: Sequence[str], **how: Any) -> AsyncIterator[Any]:
        async for record in super().follow(topics, **how):
            self._check()
            yield record

    def _check(self) -> None:
        if not self.served.has_broker:
            raise OutageError("no Kafka answers")


class ServedReader:
    """A gateway that runs, with a network before it.

    Attributes:
        log: what the application has published.
        plan: of the application.
        public: audiences that need no token.
        has_broker: whether Kafka answers the gateway.
        network: between the gateway and browsers.
        url: of the page, through the network.
    """

    def __init__(self, folder: Path, plan: Plan, messages: Iterable[Message] = (), *public: str) -> None:
        self.log, self.plan, self.public, self.has_broker = MemoryLog(), plan, public or ("public",), True
        self.tokens = folder / "readers.tokens"
        for view in {view.view for view in plan.views.values()}:
            for audience in self._readers(view):
                self.log.create(f"{plan.id}.releases.{view}.{audience}", 1)
        self.publish(messages)
        self._port, self._is_held = 0, False
        self.start()
        self.network = Proxy(f"127.0.0.1:{self._port}")
        self.url = f"http://{self.network.address}/"

    def _readers(self, name: str) -> set[str]:
        return {reader for view in self.plan.views.values() if view.view == name for reader in view.readers}

    def publish(self, messages: Iterable[Message]) -> None:
        """Append what an engine has published."""
        for message in messages:
            self.log.append(message.topic, 0, message.key, message.value)

    def token(self, audience: str, expires_ms: int | None = None) -> tuple[str, str]:
        """Make a reader's token; returns its id and itself."""
        entry, token = new_token(self.tokens, audience, wall_clock_ms(), expires_ms)
        return entry.id, token

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        while self._is_held:
            await asyncio.sleep(0.02)
        if not self.has_broker:
            raise OutageError("no Kafka answers")
        yield FailingClient(self)

    def start(self, *, is_ready: bool = True) -> None:
        """Start a gateway, on the port of the one before it, and wait until it has read everything."""
        self._place = socket.create_server(("127.0.0.1", self._port), backlog=100)
        self._port = self._place.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        path = "readyz" if is_ready else "livez"
        self._until(lambda: urlopen(f"http://127.0.0.1:{self._port}/{path}").status == 200)

    def _run(self) -> None:
        with self._place, suppress(asyncio.CancelledError):
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        boards = Boards()
        gateway = Gateway(ServeConfig(public=[*self.public]), boards, Tokens(self.tokens, wall_clock_ms))
        gateway.requests = RequestRate(1e6, 10**6)
        reader = BoardReader(self.plan, boards, self.client, list_seconds=0.2, ask_seconds=0.05)
        self._server = Server(gateway.app(reader.run), gateway.hub.shut_down, lambda: None)
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._boards = boards
        await self._server.serve([self._place])

    def kill(self) -> None:
        """End the gateway as a crash does: without a word to anybody."""

        def abort() -> None:
            for connection in list(self._server.server_state.connections):
                connection.transport.abort()
            for listening in self._server.servers:
                listening.close()
            assert self._task is not None
            self._task.cancel()

        self._loop.call_soon_threadsafe(abort)
        self._thread.join(WITHIN_SECONDS)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """End the gateway as an operator does: streams are told."""
        self._server.should_exit = True
        self._thread.join(WITHIN_SECONDS)

    def close(self) -> None:
        """End everything."""
        if self._thread.is_alive():
            self.kill()
        self.network.close()

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Have no gateway for a while."""
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Have a gateway for a while that has not read anything yet."""
        self._is_held = True
        self.kill()
        self.start(is_ready=False)
        try:
            yield
        finally:
            self._is_held = False

    @contextmanager
    def silent_broker(self) -> Iterator[None]:
        """Have no Kafka for a while."""
        self.has_broker = False
        try:
            self._until(lambda: self._boards.silent)
            yield
        finally:
            self.has_broker = True
            self._until(lambda: not self._boards.silent)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let nobody read without a token for a while."""
        public, self.public = self.public, ()
        self.kill()
        self.start()
        try:
            yield
        finally:
            self.public = public
            self.kill()
            self.start()

    @staticmethod
    def _until(holds: Any) -> None:
        until = time.monotonic() + WITHIN_SECONDS
        while True:
            with suppress(URLError, OSError):
                if holds():
                    return
            assert time.monotonic() < until
            time.sleep(0.02)


@contextmanager
def serving(folder: Path, plan: Plan, messages: Iterable[Message] = (), *public: str) -> Iterator[ServedReader]:
    """Serve the page as long as it is needed."""
    one = ServedReader(folder, plan, messages, *public)
    try:
        yield one
    finally:
        one.close()
