"""Bring one broker process up in its state folder: ports, settings, data folder, command line."""

from __future__ import annotations

import base64
import secrets
import socket
import subprocess
import time
import uuid
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from string import Template

from stream_dp.errors import BrokerError
from stream_dp.runtime.localkafka.jars import java_command
from stream_dp.runtime.localkafka.state import HOST, BrokerRun, StateFolder, spawn_detached

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
    return replace(run, pid=spawn_detached(command, folder.path, folder.log_file))


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
    logging = resources.joinpath("log4j2.properties").read_text(encoding="utf-8")
    (folder.path / "log4j2.properties").write_text(logging, encoding="utf-8")


def _format_once(folder: StateFolder, jars: Path) -> None:
    """Format a data folder that never was; `meta.properties` is the last file that formatting writes."""
    if (folder.data / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = [java_command(), "-cp", f"{jars}/*", "kafka.tools.StorageTool"]
    formatted = subprocess.run(  # noqa: S603
        [*tool, "format", f"--cluster-id={cluster}", "--config=server.properties"],
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=False,
    )
    if formatted.returncode != 0:
        said = (formatted.stdout + formatted.stderr).strip()
        raise BrokerError(f"Kafka could not format its data folder {folder.data}; it said:\n{said}")
