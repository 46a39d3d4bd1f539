"""Workers as processes of their own, which can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stream_dp.testing import Application

SCRIPT = Path(__file__).with_name("worker_process.py")


class WorkerProcess:
    """A worker of an application in a process of its own; `start` it again after it died."""

    def __init__(self, app: Application, name: str, *options: str) -> None:
        folder = app.plan.key_file.parent
        self.data_dir = folder / name
        self.log = folder / f"{name}.log"
        self._status = folder / f"{name}.json"
        self._command = [sys.executable, str(SCRIPT), str(folder / "application.yaml"), *options]
        self._command += ["--broker", app.plan.broker, "--data-dir", str(self.data_dir), "--status", str(self._status)]
        self._process: subprocess.Popen[bytes] | None = None
        self._before: Counter[str] = Counter()

    def start(self, *options: str) -> None:
        """Start the process; it takes a few seconds to join."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *options], stdout=log, stderr=log)

    def counters(self) -> Counter[str]:
        """The worker's counters, summed over all its starts, as far as they were reported."""
        return self._before + self._reported()

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, within_s: float) -> int:
        """The exit code, negative for a signal, as soon as it has ended."""
        assert self._process is not None
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the worker did not end within {within_s:g} s; it said:\n{self.said()}")
        self._process = None
        self._before += self._reported()
        self._status.unlink(missing_ok=True)
        return code

    def ended(self) -> int | None:
        """The exit code if it has ended by itself, None while it runs."""
        assert self._process is not None
        return None if self._process.poll() is None else self.wait(1)

    def terminate(self, within_s: float = 15) -> int:
        """End it with SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(within_s)

    def check(self) -> None:
        """Fail the test if the process has ended."""
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            pytest.fail(f"the worker ended with {code}; it said:\n{self.said()}")

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _reported(self) -> Counter[str]:
        return Counter(json.loads(self._status.read_text())) if self._status.exists() else Counter()


Spawn = Callable[..., WorkerProcess]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Makes worker processes of an application, `spawn(app, name, *options)`. None outlives the test."""
    made: list[WorkerProcess] = []

    def make(app: Application, name: str, *options: str) -> WorkerProcess:
        made.append(WorkerProcess(app, name, *options))
        return made[-1]

    yield make
    for worker in made:
        worker.end()
