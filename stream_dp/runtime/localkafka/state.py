"""The state folder of one local Kafka: what is in it, and the record of the broker's last run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from stream_dp.errors import BrokerError
from stream_dp.runtime.localkafka.process import carries

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
        """Whether the process of this run, and not another one with its id, lives."""
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
        """What the broker says; the log of the run before is beside it, with `.1` at the end."""
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
        """Whether some words are in what the broker said since it was started last."""
        try:
            return words in self.log_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False

    def complaint(self) -> str:
        """What the broker's log says last, for the end of a message: errors before plain news, long lines cut."""
        try:
            said = self.log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
        except FileNotFoundError:
            said = []
        telling = [line for line in said if line.strip() and "] INFO " not in line] or said
        return f"; from the end of {self.log_file}:\n" + "\n".join(line[:240] for line in telling[-12:])
