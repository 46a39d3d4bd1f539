"""The state folder of one local Kafka: what is in it, and the record of the broker's last run."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from stream_dp.errors import BrokerError

_LAUNCH = 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!'


def spawn_detached(command: Sequence[str], folder: Path, log_file: Path) -> int:
    """Start a process that outlives this one and belongs to no terminal.

    The shell in between leaves at once, so that the process is nobody's child here: nothing to reap, and a dead one
    does not linger as a zombie of a caller that lives on.

    Args:
        command: what to run, and its arguments.
        folder: its working folder.
        log_file: gets its standard output and error, appended.

    Returns:
        Its process id.
    """
    launched = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", _LAUNCH, "sh", str(log_file), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    return int(launched.stdout)


def carries(pid: int, marker: str) -> bool:
    """Return True if process `pid` lives and has `marker` among its arguments.

    An id alone says nothing: after a reboot or a wrap-around it is someone else's.
    """
    if pid <= 0:
        return False
    if Path("/proc/self/cmdline").exists():
        return marker.encode() in _arguments(pid)
    asked = subprocess.run(  # noqa: S603
        ["ps", "-ww", "-o", "args=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return marker in asked.stdout.split()


def _arguments(pid: int) -> list[bytes]:
    """The arguments of a process, none if there is no such process.

    While a process begins to run its command it shows none for a moment, as a dead one does that nobody has reaped.
    """
    for _ in range(50):
        try:
            shown = _command_line(pid)
        except OSError:
            return []
        if shown:
            return shown.split(b"\0")
        time.sleep(0.01)
    return []


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def terminate(pid: int, marker: str, within_s: float) -> None:
    """Ask the process to end, and kill it when it has not after `within_s` seconds; one that is gone is fine.

    Raises:
        BrokerError: it lives on even after SIGKILL, or may not be signalled.
    """
    for number, patience_s in ((signal.SIGTERM, within_s), (signal.SIGKILL, 10.0)):
        if not carries(pid, marker):
            return
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise BrokerError(f"process {pid} belongs to another user; stop it as that user") from error
        deadline = time.monotonic() + patience_s
        while carries(pid, marker) and time.monotonic() < deadline:
            time.sleep(0.05)
    if carries(pid, marker):
        raise BrokerError(f"process {pid} does not end, not even when killed")


HOST = "127.0.0.1"
"""The only address the local Kafka listens on."""


@dataclass(frozen=True, slots=True)
class BrokerRun:
    """One run of the broker process, from its start on, as `run_file` has it.

    Attributes:
        pid: its process id; 0 until it is started.
        marker: an argument of its command line that no other process has.
        port: the port for clients.
        controller_port: the port on which the node is its own controller.
    """

    pid: int
    marker: str
    port: int
    controller_port: int

    @property
    def alive(self) -> bool:
        """True if the process of this run, and not another one with its id, lives."""
        return carries(self.pid, self.marker)

    @property
    def address(self) -> str:
        """Where clients connect: "host:port"."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The files of one local Kafka."""

    path: Path

    @property
    def data(self) -> Path:
        """Where the topics are."""
        return self.path / "data"

    @property
    def log_file(self) -> Path:
        """Log file of the broker; that of the run before is beside it, with `.1` at the end."""
        return self.path / "kafka.log"

    @property
    def run_file(self) -> Path:
        """Where the last run is recorded."""
        return self.path / "broker.json"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Make the folder, readable by its owner only, and hold it: a second start or stop waits for the first.

        Raises:
            BrokerError: the folder cannot be made or written to.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self.path / "lock").open("w")
        except OSError as error:
            raise BrokerError(f"the state folder {self.path} cannot be used: {error}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read_run(self) -> BrokerRun | None:
        """The last run; None when there was none.

        Raises:
            BrokerError: its record is damaged.
        """
        try:
            fields = json.loads(self.run_file.read_text(encoding="utf-8"))
            return BrokerRun(
                int(fields["pid"]), str(fields["marker"]), int(fields["port"]), int(fields["controller_port"])
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise BrokerError(f"{self.run_file} is damaged ({error!r}); remove it if no broker runs") from error

    def write_run(self, run: BrokerRun) -> None:
        """Record a run that has begun; a crash leaves the former record or this one, never half of it."""
        fresh = self.path / "broker.json.new"
        fresh.write_text(json.dumps(asdict(run)), encoding="utf-8")
        fresh.replace(self.run_file)

    @property
    def cluster(self) -> str | None:
        """The id of the cluster whose topics are in the data folder, None while it was not formatted."""
        try:
            formatted = (self.data / "meta.properties").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        ids = (line.partition("=")[2].strip() for line in formatted.splitlines() if line.startswith("cluster.id="))
        return next(ids, None)

    def said(self, words: str) -> bool:
        """Return True if some words are in what the broker said since it was started last."""
        try:
            return words in self.log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False

    def complaint(self) -> str:
        """Return the last lines of the broker's log, for the end of a message: errors first, long lines cut."""
        try:
            said = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
        except FileNotFoundError:
            said = []
        telling = [line for line in said if line.strip() and "] INFO " not in line] or said
        return f"; from the end of {self.log_file}:\n" + "\n".join(line[:240] for line in telling[-12:])
