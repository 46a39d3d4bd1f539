"""Start, stop and look at a real, single-node Apache Kafka (KRaft) on loopback."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import os
import re
import secrets
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

import msgspec
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_dp.errors import BrokerError, ConfigError
from stream_dp.runtime.localkafka.jars import cache_folder, fetch_jars, java_command, java_problem
from stream_dp.runtime.localkafka.processes import carries, spawn_detached, terminate

HOST = "127.0.0.1"
"""The only address the local Kafka listens on."""


class BrokerRun(msgspec.Struct, frozen=True):
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
            return msgspec.json.decode(self.run_file.read_bytes(), type=BrokerRun)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError as error:
            raise BrokerError(f"{self.run_file} is damaged ({error}); remove it if no broker runs") from error

    def write_run(self, run: BrokerRun) -> None:
        """Record a run that has begun; a crash leaves the former record or this one, never half of it."""
        fresh = self.path / "broker.json.new"
        fresh.write_bytes(msgspec.json.encode(run))
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

    def _log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def said(self, words: str) -> bool:
        """Return True if some words are in what the broker said since it was started last."""
        return words in self._log()

    def complaint(self) -> str:
        """Return the last lines of the broker's log, for the end of a message: errors first, long lines cut."""
        said = self._log().splitlines()[-400:]
        telling = [line for line in said if line.strip() and "] INFO " not in line] or said
        return f"; from the end of {self.log_file}:\n" + "\n".join(line[:240] for line in telling[-12:])


def answers(address: str, within_s: float = 5.0) -> bool:
    """Return True if a client can list the topics of a cluster. Blocks: from an event loop, use `asyncio.to_thread`.

    Args:
        address: "host:port", or several with commas between.
        within_s: how long to wait for an answer.
    """
    return cluster_of(address, within_s) is not None


def cluster_of(address: str, within_s: float = 5.0) -> str | None:
    """The id of a cluster whose topics a client can list, None if it cannot. Blocks as `answers` does.

    Args:
        address: "host:port", or several with commas between.
        within_s: how long to wait for an answer.
    """
    with ThreadPoolExecutor(1) as own_loop:  # the calling thread may have an event loop
        return own_loop.submit(lambda: asyncio.run(_describe(address, within_s))).result()


async def _describe(address: str, within_s: float) -> str | None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=round(within_s * 1000))
    try:
        async with asyncio.timeout(within_s):
            await admin.start()
            return str((await admin.describe_cluster())["cluster_id"])
    except (KafkaError, OSError, TimeoutError, ValueError):
        return None
    finally:
        await admin.close()


_STOP_WITHIN_S = 30.0
_STARTS = 5


class _PortTakenError(BrokerError):
    """Somebody took a port between its choice and the moment when the broker would listen there."""


@dataclass(frozen=True, slots=True)
class LocalKafka:
    """One local Kafka, as its state folder and the living processes show it.

    Attributes:
        data_dir: where the topics are.
        log_file: what the broker says; the log of the run before is beside it, with `.1` at the end.
        address: "host:port" for clients, kept while it is stopped; None when it was never started.
        pid: process id; None when it is not running.
        started: whether this very call started it (False: it was running already, or is not running).
    """

    data_dir: Path
    log_file: Path
    address: str | None = None
    pid: int | None = None
    started: bool = False

    @property
    def running(self) -> bool:
        """True if its process lives; `answers(address)` tells whether it also serves."""
        return self.pid is not None


def default_folder() -> Path:
    """The state folder of the broker that `stream-dp kafka` handles when no other is named."""
    return cache_folder() / "kafka" / "local"


def external_broker() -> str | None:
    """The existing cluster that `STREAM_DP_BROKER` names, without `kafka://`; it wins over a local Kafka.

    Whoever wants a broker asks this first: `start`, `stop` and `status` are about the local Kafka alone.
    """
    return os.environ.get("STREAM_DP_BROKER", "").strip().removeprefix("kafka://") or None


def status(folder: Path | None = None) -> LocalKafka:
    """Look at the local Kafka of a state folder without touching it.

    A broker that was killed, or whose process id is someone else's by now, is not running.

    Args:
        folder: state folder; None: `default_folder()`.

    Raises:
        BrokerError: the record of its last run is damaged.
    """
    state = _state_of(folder)
    return _seen(state, state.read_run())


def start(
    folder: Path | None = None,
    *,
    port: int | None = None,
    heap: str = "1g",
    ready_within_s: float = 60.0,
    say: Callable[[str], None] = lambda _: None,
) -> LocalKafka:
    """Run a local Kafka, detached, and return when a client can list its topics. Blocks until then.

    One that is running already is returned as it is. One that was stopped or lost comes back with its topics, on its
    former port where that is free, else on another one; after a kill that takes about 10 s more, until the controller
    has given up the former session. The broker listens on loopback only, without authentication: every user of this
    machine can read it. A port that is taken while the broker starts is replaced, unless the caller named it.

    Args:
        folder: state folder, made if missing and then readable by its owner only; None: `default_folder()`.
        port: port for clients; None: the former one, else any free one.
        heap: the most memory the Java heap may take, as Java writes it ("1g", "512m").
        ready_within_s: how long the broker may take to serve, not counting the fetch of its jars.
        say: told in one line what is about to take a while.

    Raises:
        BrokerError: Java or Maven is missing or too old, the port is taken, or the broker did not start; the message
            names the cause and ends with what the broker said last.
        ConfigError: `heap` or `port` is not one, or the broker is running on another port than the one asked.
    """
    if not re.fullmatch(r"[1-9]\d*[kmg]", heap, re.IGNORECASE):
        raise ConfigError(f"heap {heap!r} is not a size: write a number and k, m or g, like 1g or 512m")
    if port is not None and not 0 < port < 2**16:
        raise ConfigError(f"port {port} is not between 1 and 65535")
    state = _state_of(folder)
    with state.exclusive():
        former = state.read_run()
        if former is not None and former.alive:
            if port not in (None, former.port):
                raise ConfigError(f"Kafka already runs on {former.address}; stop it before asking for port {port}")
            _wait_ready(state, former, ready_within_s)
            return _seen(state, former)
        if (problem := java_problem()) is not None:
            raise BrokerError(problem)
        jars = fetch_jars(say)
        say("Starting Kafka")
        for _ in range(_STARTS - 1):
            try:
                return _started(state, jars, port, heap, ready_within_s)
            except _PortTakenError:
                say("A port was taken meanwhile: starting Kafka again on another one")
        return _started(state, jars, port, heap, ready_within_s)


def stop(folder: Path | None = None) -> bool:
    """Stop the local Kafka of a state folder: SIGTERM, and SIGKILL after 30 s. Its topics stay.

    Args:
        folder: state folder; None: `default_folder()`.

    Returns:
        Whether there was one to stop.

    Raises:
        BrokerError: its process does not end, or the record of its last run is damaged.
    """
    state = _state_of(folder)
    if not state.path.is_dir():
        return False
    with state.exclusive():
        run = state.read_run()
        if run is None or not run.alive:
            return False
        terminate(run.pid, run.marker, _STOP_WITHIN_S)
        return True


def _state_of(folder: Path | None) -> StateFolder:
    return StateFolder((folder or default_folder()).absolute())


def _seen(state: StateFolder, run: BrokerRun | None, *, started: bool = False) -> LocalKafka:
    if run is None:
        return LocalKafka(state.data, state.log_file)
    return LocalKafka(state.data, state.log_file, run.address, run.pid if run.alive else None, started)


def _started(state: StateFolder, jars: Path, port: int | None, heap: str, ready_within_s: float) -> LocalKafka:
    """Start a broker process and wait until it serves."""
    run = launch(state, jars, port, heap)
    state.write_run(run)
    try:
        _wait_ready(state, run, ready_within_s)
    except BaseException:  # Ctrl-C as well: a start that does not return leaves nothing running
        terminate(run.pid, run.marker, _STOP_WITHIN_S)
        raise
    return _seen(state, run, started=True)


def _wait_ready(state: StateFolder, run: BrokerRun, within_s: float) -> None:
    """Return when a client can list topics of this very broker; say why if that does not come to pass.

    Another Kafka may answer at its address, one that took the port first: this one ends when it finds that out.
    """
    deadline = time.monotonic() + within_s
    while run.alive:
        if listens(run.port) and cluster_of(run.address) == state.cluster is not None:
            return
        if time.monotonic() > deadline:
            raise BrokerError(f"Kafka on {run.address} does not answer after {within_s:g} s{state.complaint()}")
        time.sleep(0.05)
    said = state.complaint()
    if state.said("Address already in use"):
        raise _PortTakenError(f"a port was taken while Kafka started on {run.address}, {_STARTS} times over{said}")
    raise BrokerError(f"Kafka did not start{said}")


_CLOSING_SECONDS = 1.0
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000
_FEWEST_PORTS = 1000


def launch(folder: StateFolder, jars: Path, port: int | None, heap: str) -> BrokerRun:
    """Start a broker process and return without waiting for it to serve.

    An exhausted heap ends the process rather than leaving it half alive.

    Args:
        folder: its state folder, held by the caller; topics that are in it are kept.
        jars: the folder of jars.
        port: port for clients; None: the one of the last run if it is free, else one of `free_port`.
        heap: the most the Java heap may take.

    Raises:
        BrokerError: the port is taken, Java is missing, or the data folder cannot be formatted.
    """
    run = _choose_ports(folder.read_run(), port)
    _write_settings(folder, run)
    _format_once(folder, jars)
    if folder.log_file.exists():
        folder.log_file.replace(folder.log_file.with_name("kafka.log.1"))
    command = [java_command(), f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
    command += ["-Dlog4j2.configurationFile=log4j2.properties", run.marker]
    command += ["-cp", f"{jars}/*", "kafka.Kafka", "server.properties"]
    return msgspec.structs.replace(run, pid=spawn_detached(command, folder.path, folder.log_file))


def listens(port: int) -> bool:
    """Return True if anything accepts connections on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _choose_ports(former: BrokerRun | None, wanted: int | None) -> BrokerRun:
    """The next run, which has no process yet."""
    if wanted is not None and not _is_free(wanted):
        raise BrokerError(f"port {wanted} is taken; choose another, or leave the choice to stream-dp")
    port = wanted or (former.port if former and _becomes_free(former.port) else free_port())
    controller_port = free_port()
    while controller_port == port:
        controller_port = free_port()
    return BrokerRun(0, f"-Dstream.dp.kafka={uuid.uuid4().hex}", port, controller_port)


def _becomes_free(port: int) -> bool:
    """Return True if a port is free, or will be soon: the sockets of a killed broker close some time after it."""
    deadline = time.monotonic() + _CLOSING_SECONDS
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: connections of the last run linger
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port that nothing uses, chosen at random among those that the kernel gives to no connection.

    A port of the ephemeral range may become the near end of any connection before the process that it is meant for
    listens there.

    Raises:
        BrokerError: none was found.
    """
    choice = _listener_ports()
    for _ in range(_FEWEST_PORTS):
        port = secrets.choice(choice)
        if _is_free(port):
            return port
    raise BrokerError(f"no free port was found between {choice.start} and {choice.stop - 1}")


def _listener_ports() -> range:
    """The ports below or above the kernel's ephemeral range; all, where it leaves few."""
    try:
        low, high = map(int, _EPHEMERAL_PORTS.read_text(encoding="ascii").split())
    except OSError:
        low, high = 32768, 65535  # not Linux; the ephemeral ports of other systems are among these as well
    outside = max(range(_LOWEST_PORT, low), range(high + 1, 2**16), key=len)
    return outside if len(outside) >= _FEWEST_PORTS else range(_LOWEST_PORT, 2**16)


def _write_settings(folder: StateFolder, run: BrokerRun) -> None:
    resources = files(__package__)
    settings = Template(resources.joinpath("server.properties").read_text(encoding="utf-8"))
    filled = settings.substitute(port=run.port, controller_port=run.controller_port)
    (folder.path / "server.properties").write_text(filled, encoding="utf-8")
    (folder.path / "log4j2.properties").write_bytes(resources.joinpath("log4j2.properties").read_bytes())


def _format_once(folder: StateFolder, jars: Path) -> None:
    """Format a data folder that never was; `meta.properties` is the last file that formatting writes."""
    if (folder.data / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [java_command(), "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
    command = [*tool, f"--cluster-id={cluster}", "--config=server.properties"]
    formatted = subprocess.run(command, cwd=folder.path, capture_output=True, text=True, check=False)  # noqa: S603
    if formatted.returncode != 0:
        said = (formatted.stdout + formatted.stderr).strip()
        raise BrokerError(f"Kafka could not format its data folder {folder.data}; it said:\n{said}")
