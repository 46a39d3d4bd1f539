"""Workers under a supervisor that starts them again, and what can happen to one of them."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.processes import WorkerProcess
from tests.support.proxy import Proxy

TRAPPED_WITHIN_S = 4.0
LEAVES_WITHIN_S = 60.0
"""A worker that is told to end has 10 s; the machine may be slow."""


@dataclass
class Member:
    """A worker, its network, and whether it is meant to run."""

    worker: WorkerProcess
    proxy: Proxy
    wanted: bool = False

    def start(self, *options: str) -> None:
        """Start it, with more options of its process; a supervisor that starts it again does without them."""
        self.worker.start(*options)
        self.wanted = True

    async def kill(self, *, fresh: bool = False) -> None:
        """End it with SIGKILL, or find it dead.

        Args:
            fresh: its folder is deleted.
        """
        self.wanted = False
        if self.worker.pid is not None:
            self.worker.signal(signal.SIGKILL)
            await asyncio.to_thread(self.worker.wait)
        if fresh:
            shutil.rmtree(self.worker.data_dir, ignore_errors=True)

    async def leave(self) -> int:
        """End it with SIGTERM; its exit code, that of SIGKILL if it did not listen."""
        self.wanted = False
        if self.worker.pid is None:
            return 0
        self.worker.signal(signal.SIGTERM)
        for _ in range(round(LEAVES_WITHIN_S / 0.1)):
            if (code := self.worker.ended()) is not None:
                return code
            await asyncio.sleep(0.1)
        await self.kill()
        return -signal.SIGKILL

    async def stand_still(self, seconds: float) -> None:
        """Stop it with SIGSTOP for a while, if it runs, or go on with it where it stopped itself."""
        if self.worker.pid is not None and not self.worker.is_trapped():
            self.worker.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.worker.clear_trap()
        if self.worker.pid is not None:
            self.worker.signal(signal.SIGCONT)

    async def trapped(self, topic: str, number: int, seconds: float) -> bool:
        """Let it stop itself with something unsent for a topic, for a while; whether that came to pass."""
        self.worker.set_trap(topic, number)
        for _ in range(round(TRAPPED_WITHIN_S / 0.05)):
            if self.worker.is_trapped():
                break
            await asyncio.sleep(0.05)
        was = self.worker.is_trapped()
        await self.stand_still(seconds)
        return was


class Crew:
    """Members that are started again whenever they end by themselves, as a supervisor does."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.ends: Counter[str] = Counter()
        """How often a member ended by itself, by what it said."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            for member in self.members:
                if member.wanted and member.worker.pid is not None and (code := member.worker.ended()) is not None:
                    self.ends[f"{code}: {member.worker.reason()}"] += 1
                    member.worker.start()
            await asyncio.sleep(0.2)

    async def leave(self) -> None:
        """Let everybody go, in order."""
        for member in self.members:
            code = await member.leave()
            # One that the supervisor started again just now does not listen for signals before it says anything.
            is_new = code == -signal.SIGTERM and not member.worker.ending()
            assert code in (0, 1) or is_new, member.worker.said()
