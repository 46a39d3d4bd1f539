"""The worker of a run: a process of its own on Kafka, inside this process on the embedded log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from stream_dp.agents import AGENTS
from stream_dp.cli.demo.runs import DemoRun
from stream_dp.errors import StateError
from stream_dp.runtime.faust.embedded import MemoryLog
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.localkafka.state import carries, spawn_detached, terminate
from stream_dp.runtime.worker.process import running
from stream_dp.runtime.worker.worker import Options, Worker

STOP_SECONDS = 30.0
LOG_LINES = 15


class RunningWorker(Protocol):
    """A worker that was started."""

    pid: int | None
    """Its process, None when it is this one."""

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it does not; the message says why.
        """


class WorkerProcess:
    """The `stream-dp worker` command in a process that belongs to no terminal, recognised by its configuration file."""

    def __init__(self, run: DemoRun) -> None:
        """Start it."""
        self._run = run
        self._marker = str(run.file)
        command = [sys.executable, "-m", "stream_dp.cli", "worker", self._marker]
        self.pid: int | None = spawn_detached(command, run.folder, run.log_file)

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it does not; the message ends with what it said last.
        """
        if self.pid is None or not carries(self.pid, self._marker):
            raise StateError(f"the worker has ended; the end of {self._run.log_file}:\n{self.last_words()}")

    def last_words(self) -> str:
        """The end of its log."""
        try:
            said = self._run.log_file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            said = []
        return "\n".join(f"  {line[:240]}" for line in said[-LOG_LINES:])

    def stop(self) -> None:
        """Ask it to finish the chunk at hand and end; blocks until it has."""
        if self.pid is not None:
            terminate(self.pid, self._marker, STOP_SECONDS)


class WorkerHere:
    """A worker of the embedded log, in this process."""

    pid: int | None = None

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def check(self) -> None:
        """Make sure that it lives.

        Raises:
            StateError: it has crashed.
        """
        reason = self._worker.crash_reason()
        if reason is not None:
            raise StateError(f"the worker has crashed: {type(reason).__name__}: {reason}") from reason


@asynccontextmanager
async def started_worker(
    run: DemoRun, client: Client, log: MemoryLog | None, *, keep_running: bool
) -> AsyncIterator[RunningWorker]:
    """The worker of a run. Leaving the context stops it, unless it is to be kept and nothing went wrong.

    Args:
        run: the run; its source topic exists.
        client: a client of its broker.
        log: the embedded log, None on Kafka.
        keep_running: whether it is to be kept.
    """
    if log is not None:
        async with running(run.plan, client, AGENTS, Options(log=log)) as worker:
            yield WorkerHere(worker)
        return
    process = WorkerProcess(run)
    try:
        yield process
    except BaseException:  # Ctrl-C as well
        await asyncio.to_thread(process.stop)
        raise
    if not keep_running:
        await asyncio.to_thread(process.stop)
