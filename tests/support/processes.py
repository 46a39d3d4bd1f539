"""Workers as processes of their own, which can be killed, stopped and cut off."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from stream_dp.testing import Application
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.proxy import Proxy

ROOT = Path(__file__).parents[2]
MODULE = "tests.broker.worker_process"
SESSION_SECONDS = 6.0
"""How long the group waits for a silent worker in these tests, instead of a minute; brokers admit no less."""


class WorkerProcess:
    """A worker of an application in a process of its own; `start` it again after it died."""

    def __init__(
        self,
        app: Application,
        name: str,
        *options: str,
        proxy: Proxy | None = None,
        trap: str | None = None,
        command: Sequence[str] = (MODULE,),
    ) -> None:
        """Set up the worker; it does not run yet.

        Args:
            app: the application.
            name: of its folder.
            options: of `worker_process.py`.
            proxy: its network; None if it is to reach the broker itself.
            trap: the name of its trap, if several workers share one: the first that steps into it is stopped.
            command: the module that runs it, with options that go first.
        """
        folder = app.plan.key_file.parent
        self.name = name
        self.data_dir = folder / name
        self.log = folder / f"{name}.log"
        self.trap = folder / f"{trap or name}.trap"
        self._status = folder / f"{name}.json"
        self._command = [sys.executable, "-m", *command, str(folder / "application.yaml")]
        self._command += ["--broker", app.plan.broker.url]
        self._command += ["--data-dir", str(self.data_dir), "--status", str(self._status), "--trap", str(self.trap)]
        self._command += ["--session-seconds", str(SESSION_SECONDS)]
        self._command += ["--through", proxy.address] if proxy is not None else []
        self._command += options
        self._process: subprocess.Popen[bytes] | None = None
        self._before: Counter[str] = Counter()
        self._began = 0

    @property
    def pid(self) -> int | None:
        """Its process id, None while it does not run."""
        return None if self._process is None else self._process.pid

    def start(self, *options: str) -> None:
        """Start the process; it takes a few seconds to join."""
        assert self._process is None
        self._began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *options], cwd=ROOT, stdout=log, stderr=log)

    def runs(self) -> bool:
        """Whether it has said so since its start."""
        return self._process is not None and b" is running: " in self.log.read_bytes()[self._began :]

    def counters(self) -> Counter[str]:
        """The worker's counters, summed over all its starts, as far as they were reported."""
        return self._before + self._reported()

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def set_trap(self, place: str, number: int) -> None:
        """Let it stop itself with so many more records or batches in its buffers (see `worker_process.py`)."""
        fresh = self.trap.with_suffix(".set")
        fresh.write_text(f"{place} {number} {uuid.uuid4().hex}")
        fresh.replace(self.trap)

    def is_trapped(self) -> bool:
        """Whether it stopped itself."""
        sprung = self.trap.with_suffix(".sprung")
        return sprung.exists() and sprung.read_text() == str(self.pid)

    def clear_trap(self) -> None:
        """Forget about the trap."""
        self.trap.unlink(missing_ok=True)
        self.trap.with_suffix(".sprung").unlink(missing_ok=True)

    def ended(self) -> int | None:
        """The exit code if it has ended, None while it runs."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            self._process = None
            self._before += self._reported()
            self._status.unlink(missing_ok=True)
        return code

    def wait(self, within_s: float = WITHIN_SECONDS) -> int:
        """The exit code, negative for a signal, as soon as it has ended."""
        assert self._process is not None
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the worker did not end within {within_s:g} s; it said:\n{self.said()}")
        code = self.ended()
        assert code is not None
        return code

    def terminate(self, within_s: float = WITHIN_SECONDS) -> int:
        """End it with SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(within_s)

    def check(self) -> None:
        """Fail the test if the process has ended."""
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            pytest.fail(f"the worker ended with {code}; it said:\n{self.said()}")

    async def wait_until_said(self, words: str, within_s: float = WITHIN_SECONDS) -> None:
        """Wait until its log holds some words."""
        for _ in range(round(within_s / 0.05)):
            if words in self.log.read_text(errors="replace"):
                return
            self.check()
            await asyncio.sleep(0.05)
        pytest.fail(f"it did not say {words!r}; it said:\n{self.said()}")

    def said(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def ending(self) -> str:
        """All that it logged since its last start."""
        return self.log.read_bytes()[self._began :].decode(errors="replace")

    def reason(self) -> str:
        """Why it ended by itself last: the last line that it said, without numbers and names."""
        lines = self.said().splitlines() or ["nothing"]
        return re.sub(r"t[0-9a-f]{8}|\d+", "#", lines[-1])[:90]

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _reported(self) -> Counter[str]:
        return Counter(json.loads(self._status.read_text())) if self._status.exists() else Counter()
