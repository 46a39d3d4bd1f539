"""The state folder of one local Kafka: what is in it, and the record of the broker's last run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
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
    command = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
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
