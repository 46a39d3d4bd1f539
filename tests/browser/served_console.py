"""The operators' console of the small application, served to a browser from the embedded log of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import uvicorn

from stream_dp.config.plan import Plan
from stream_dp.gateway.console import Console
from stream_dp.gateway.reader import Connect
from stream_dp.gateway.tokens import LOOKER, OPERATOR, OPERATORS_PREFIX, Tokens, new_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import connect
from tests.browser import air


class Served:
    """A console that runs.

    Attributes:
        log: what the application has written.
        plan: of the application.
        url: of the page.
        token: of an operator.
        looker: of an operator who may look only.
    """

    def __init__(self, folder: Path, epsilon: str = "7") -> None:
        self.log, self.plan = MemoryLog(), air.plan(folder, epsilon)
        air.fill(self.log, self.plan)
        self.file = folder / "operators.tokens"
        self.token, self.looker = self._new(OPERATOR), self._new(LOOKER)
        tokens = Tokens(self.file, wall_clock_ms, OPERATORS_PREFIX)
        self.console = Console(self.plan, self._connect(self.plan), tokens)
        self.console.watch.look_seconds, self.console.watch.status_seconds = 0.05, 0.2
        self._place = socket.create_server(("127.0.0.1", 0), backlog=100)  # a browser may ask before the server runs
        self.url = f"http://127.0.0.1:{self._place.getsockname()[1]}/"
        self._server = uvicorn.Server(uvicorn.Config(self.console.app(), log_config=None, ws="none"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _new(self, gives: str) -> str:
        return new_token(self.file, gives, wall_clock_ms(), prefix=OPERATORS_PREFIX)[1]

    def _connect(self, plan: Plan) -> Connect:
        return partial(connect, plan.broker, MemoryClient(self.log))

    def _run(self) -> None:
        self._loop.run_until_complete(self._server.serve([self._place]))
        for task in (left := asyncio.all_tasks(self._loop)):
            task.cancel()
        if left:  # of none, gather asks for a loop of this thread, which has none
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def end_streams(self) -> None:
        """End every stream; browsers come back."""
        for stream in list(self.console.hub.streams):
            self._loop.call_soon_threadsafe(stream.end, "slow")

    def stop(self) -> None:
        """End every stream, and the server."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.console.hub.shut_down)
        self._server.should_exit = True
        self._thread.join(10)


@contextmanager
def served(folder: Path, epsilon: str = "7") -> Iterator[Served]:
    """Serve the console as long as it is needed."""
    one = Served(folder, epsilon)
    one.start()
    try:
        yield one
    finally:
        one.stop()
