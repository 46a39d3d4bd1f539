"""Start, stop and look at a real, single-node Apache Kafka (KRaft) on loopback."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stream_dp.errors import BrokerError, ConfigError
from stream_dp.runtime.localkafka.jars import cache_folder, fetch_jars, java_problem
from stream_dp.runtime.localkafka.launch import launch, listens
from stream_dp.runtime.localkafka.state import BrokerRun, StateFolder, terminate


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
