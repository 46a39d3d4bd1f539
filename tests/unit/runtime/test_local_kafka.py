"""The local Kafka without a Kafka: what is missing is named, and nothing half done or foreign is taken for ours."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.errors import BrokerError, ConfigError
from stream_dp.runtime.localkafka import broker, jars, processes
from stream_dp.runtime.localkafka.jars import fetch_jars, jars_folder
from stream_dp.runtime.localkafka.processes import carries, spawn_detached, terminate
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.chosen import ordinarily

GOOD_MAVEN = """
for argument; do case $argument in
  -DoutputDirectory=*) folder=${argument#*=};;
  -Dkafka.version=*) version=${argument#*=};;
esac; done
echo asked >> "$STREAM_DP_CACHE/asked"
echo jar > "$folder/kafka_2.13-$version.jar"
"""
JAVA_17 = """
case "$*" in
  -version) echo 'openjdk version "17.0.15" 2025-04-15' >&2;;
  *StorageTool*) mkdir -p data && touch data/meta.properties;;
  *) echo '[now] INFO fine'; echo '[now] ERROR the moon is in the wrong house'; exit 1;;
esac
"""

LISTENING_JAVA = f"""#!{sys.executable}
import os, re, socket, sys, time
if "-version" in sys.argv:
    print('openjdk version "17.0.15"')
    sys.exit()
settings = open("server.properties").read()
if "format" in sys.argv:
    os.mkdir("data")
    open("data/meta.properties", "w").write("version=1\\ncluster.id=ours\\n")
    sys.exit()
listening = []
for port in re.findall(r"[A-Z]://127.0.0.1:([0-9]+)", settings.partition("listeners=")[2].partition("advertised")[0]):
    try:
        listening.append(socket.create_server(("127.0.0.1", int(port))))
    except OSError as error:
        sys.exit(f"[now] ERROR {{error.strerror}}")
print("it serves", flush=True)
time.sleep(60)
"""
"""A Java whose broker does nothing but listen at its ports, or end because it cannot."""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with neither Java nor Maven and an empty cache; `tmp_path/bin` is all of its PATH that a test fills."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "cache").mkdir()
    for tool in ("cat", "echo", "kill", "mkdir", "sh", "touch"):
        (tmp_path / "bin" / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    monkeypatch.delenv("STREAM_DP_KAFKA_VERSION", raising=False)
    return tmp_path


def install(machine: Path, name: str, script: str) -> None:
    program = machine / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)


@pytest.fixture
def bystander(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody else's process."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_missing_java_is_named_with_what_to_install(machine: Path) -> None:
    problem = jars.java_problem()

    assert problem is not None
    assert "Java was not found on PATH" in problem
    assert "install a Java 17" in problem
    with pytest.raises(BrokerError, match="Java was not found"):
        broker.start(machine / "kafka")


def test_java_home_without_java_is_named_even_when_path_has_one(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "java", JAVA_17)
    assert jars.java_problem() is None
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert "JAVA_HOME=/nowhere" in (jars.java_problem() or "")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", "8"), ("11.0.22", "11"), ("16", "16")])
def test_old_java_is_refused(machine: Path, version: str, major: str) -> None:
    install(machine, "java", f"echo 'openjdk version \"{version}\"' >&2")
    assert f"is Java {major}, too old" in (jars.java_problem() or "")


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.2", "26-ea"])
def test_new_java_is_taken(machine: Path, version: str) -> None:
    install(machine, "java", f"echo 'openjdk version \"{version}\"' >&2")
    assert jars.java_problem() is None


def test_java_that_fails_is_quoted(machine: Path) -> None:
    install(machine, "java", "echo 'No Java runtime present' >&2; exit 1")
    assert "No Java runtime present" in (jars.java_problem() or "")


def test_maven_is_needed_only_until_the_jars_are_there(machine: Path) -> None:
    install(machine, "java", JAVA_17)
    assert "install Maven" in (jars.maven_problem() or "")
    assert jars.local_kafka_problem() == jars.maven_problem()
    with pytest.raises(BrokerError, match="install Maven"):
        fetch_jars()

    jars_folder().mkdir(parents=True)
    assert jars.local_kafka_problem() is None


def test_fetch_is_done_once(machine: Path) -> None:
    install(machine, "mvn", GOOD_MAVEN)
    said: list[str] = []

    folder = fetch_jars(said.append)
    assert fetch_jars(said.append) == folder

    assert [jar.name for jar in folder.iterdir()] == [f"kafka_2.13-{jars.KAFKA_VERSION}.jar"]
    assert (machine / "cache" / "asked").read_text() == "asked\n"
    assert len(said) == 1


def test_the_version_can_be_chosen(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "mvn", GOOD_MAVEN)
    default = fetch_jars()
    monkeypatch.setenv("STREAM_DP_KAFKA_VERSION", "3.4.1")

    chosen = fetch_jars()

    assert chosen != default
    assert [jar.name for jar in chosen.iterdir()] == ["kafka_2.13-3.4.1.jar"]


@pytest.mark.parametrize("version", ["newest", "4.3", "../4.3.0", "4.3.0 -X"])
def test_chosen_version_that_is_none_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_KAFKA_VERSION", version)

    with pytest.raises(BrokerError, match="STREAM_DP_KAFKA_VERSION"):
        fetch_jars()


def test_failed_fetch_leaves_nothing_and_says_what_maven_said(machine: Path) -> None:
    install(machine, "mvn", GOOD_MAVEN + "echo 'the disk is full'; exit 1")

    with pytest.raises(BrokerError, match=r"(?s)could not fetch.*the disk is full"):
        fetch_jars()

    assert list(jars_folder().parent.iterdir()) == []


def test_fetch_without_the_broker_jar_is_an_error(machine: Path) -> None:
    install(machine, "mvn", "exit 0")
    with pytest.raises(BrokerError, match="did not fetch kafka"):
        fetch_jars()
    assert not jars_folder().exists()


def test_fetch_killed_halfway_is_not_taken_for_a_finished_one(machine: Path) -> None:
    install(machine, "mvn", GOOD_MAVEN + "kill -9 $PPID")
    fetch = "from stream_dp.runtime.localkafka.jars import fetch_jars; fetch_jars()"
    checkout = Path(broker.__file__).parents[3]
    killed = subprocess.run([sys.executable, "-c", fetch], env={**os.environ, "PYTHONPATH": str(checkout)}, check=False)
    assert killed.returncode == -9
    assert [path.name.startswith("partial-") for path in jars_folder().parent.iterdir()] == [True]
    assert jars.local_kafka_problem() is not None

    install(machine, "mvn", GOOD_MAVEN)
    fetch_jars()
    assert jars_folder().is_dir()


def test_pom_pins_the_version_the_code_names() -> None:
    pom = (Path(broker.__file__).parent / "pom.xml").read_text()
    versions = re.findall(r"<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>", pom)
    assert f"<kafka.version>{jars.KAFKA_VERSION}</kafka.version>" in pom
    assert ("kafka_2.13", "${kafka.version}") in versions
    assert all(re.fullmatch(r"[\d.]+|\$\{kafka\.version\}", version) for _, version in versions)


def write_state(folder: Path, pid: int, marker: str) -> None:
    folder.mkdir()
    state = {"pid": pid, "marker": marker, "port": 40000, "controller_port": 40001}
    (folder / "broker.json").write_text(json.dumps(state))


def test_foreign_process_with_the_recorded_id_is_never_signalled(
    machine: Path, bystander: subprocess.Popen[bytes]
) -> None:
    write_state(machine / "kafka", bystander.pid, "-Dstream.dp.kafka=0123")

    assert not broker.status(machine / "kafka").running
    assert broker.status(machine / "kafka").address == "127.0.0.1:40000"
    assert not broker.stop(machine / "kafka")
    terminate(bystander.pid, "-Dstream.dp.kafka=0123", 0.0)

    assert bystander.poll() is None


def test_process_id_zero_is_nobody(machine: Path) -> None:
    write_state(machine / "kafka", 0, "")
    assert not broker.stop(machine / "kafka")


def test_process_that_ignores_sigterm_is_killed(machine: Path) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    log = machine / "log"
    pid = spawn_detached([sys.executable, "-c", stubborn, "the-marker"], machine, log)
    deadline = time.monotonic() + WITHIN_SECONDS
    while not (log.exists() and "deaf" in log.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert carries(pid, "the-marker")
    assert os.getsid(pid) != os.getsid(0)

    terminate(pid, "the-marker", 0.1)

    assert not carries(pid, "the-marker")


def test_process_that_begins_to_run_its_command_shows_no_arguments_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = iter([b"", b"", b"java\0the-marker\0"])
    monkeypatch.setattr(processes, "_command_line", lambda pid: next(shown))
    assert carries(os.getpid(), "the-marker")


def test_damaged_state_file_is_named(machine: Path) -> None:
    (machine / "kafka").mkdir()
    (machine / "kafka" / "broker.json").write_text('{"pid": 1')
    with pytest.raises(BrokerError, match=r"broker\.json is damaged"):
        broker.status(machine / "kafka")


def test_start_that_fails_ends_with_what_the_broker_said(machine: Path) -> None:
    install(machine, "java", JAVA_17)
    jars_folder().mkdir(parents=True)

    with pytest.raises(
        BrokerError, match=r"(?s)did not start.*kafka\.log:\n\[now\] ERROR the moon is in the wrong house$"
    ):
        broker.start(machine / "kafka")

    assert not broker.status(machine / "kafka").running


def test_taken_port_is_named_before_anything_starts(machine: Path) -> None:
    install(machine, "java", JAVA_17)
    jars_folder().mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} is taken"):
            broker.start(machine / "kafka", port=port)
    assert not (machine / "kafka" / "broker.json").exists()


def listening(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of a broker that only listens."""
    install(machine, "java", "")
    (machine / "bin" / "java").write_text(LISTENING_JAVA)
    jars_folder().mkdir(parents=True)
    monkeypatch.setattr(broker, "cluster_of", lambda _: "ours" if serves(machine / "kafka") else None)
    return machine / "kafka"


def serves(folder: Path) -> bool:
    return "it serves" in (folder / "kafka.log").read_text()


@pytest.mark.parametrize("lost", ordinarily(1, [0, 1]), ids=["clients", "controller"])
def test_port_that_is_taken_while_kafka_starts_is_replaced(
    machine: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    folder = listening(machine, monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [broker.free_port() for _ in range(4)]
        ports[lost] = taken.getsockname()[1]  # it was free when it was chosen
        chosen = iter(ports)
        monkeypatch.setattr(broker, "free_port", lambda: next(chosen))
        said: list[str] = []

        found = broker.start(folder, say=said.append)

        assert found.running
        assert found.address in {f"127.0.0.1:{port}" for port in set(ports) - {ports[lost]}}
        assert said == ["Starting Kafka", "A port was taken meanwhile: starting Kafka again on another one"]
    assert broker.stop(folder)


def test_another_kafka_at_the_port_is_not_taken_for_the_one_that_was_started(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = listening(machine, monkeypatch)
    answering = iter(["theirs", None, "ours"])
    monkeypatch.setattr(broker, "cluster_of", lambda address: next(answering))
    assert broker.start(folder).running
    assert next(answering, "all were heard") == "all were heard"
    assert broker.stop(folder)


def test_port_that_is_taken_again_and_again_ends_the_start(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine, "java", JAVA_17.replace("the moon is in the wrong house", "bind: Address already in use"))
    jars_folder().mkdir(parents=True)
    with pytest.raises(BrokerError, match=r"a port was taken while Kafka started on 127.0.0.1:\d+, 5 times over"):
        broker.start(machine / "kafka")


@pytest.mark.parametrize(
    ("ephemeral", "choice"),
    [
        ("32768\t60999\n", range(10000, 32768)),
        ("10500\t60999\n", range(61000, 65536)),
        ("1024\t65535\n", range(10000, 65536)),
        (None, range(10000, 32768)),
    ],
)
def test_ports_lie_outside_those_of_connections(
    machine: Path, monkeypatch: pytest.MonkeyPatch, ephemeral: str | None, choice: range
) -> None:
    file = machine / "range"
    if ephemeral is not None:
        file.write_text(ephemeral)
    monkeypatch.setattr(broker, "_EPHEMERAL_PORTS", file)
    tried: list[int] = []

    def free(port: int) -> bool:
        tried.append(port)
        return len(tried) % 3 == 0

    monkeypatch.setattr(broker, "_is_free", free)
    found = [broker.free_port() for _ in range(100)]
    assert found == tried[2::3], "a port that is not free is passed over"
    assert all(port in choice for port in tried)


def test_state_folder_that_cannot_be_made_is_named(machine: Path) -> None:
    (machine / "file").touch()
    with pytest.raises(BrokerError, match="cannot be used"):
        broker.start(machine / "file" / "kafka")


@pytest.mark.parametrize("heap", ["1", "g", "1gb", "1g -XX:+Evil", "0g", ""])
def test_heap_that_is_no_size_is_refused(machine: Path, heap: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        broker.start(machine / "kafka", heap=heap)


def test_external_cluster_is_named_without_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker.external_broker() is None
    monkeypatch.setenv("STREAM_DP_BROKER", "kafka://one:9092,two:9092")
    assert broker.external_broker() == "one:9092,two:9092"
    monkeypatch.setenv("STREAM_DP_BROKER", " ")
    assert broker.external_broker() is None


def test_cache_folder_follows_the_environment(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jars.cache_folder() == machine / "cache"
    monkeypatch.delenv("STREAM_DP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert jars.cache_folder() == Path("/var/caches/stream-dp")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert jars.cache_folder() == Path("/home/ada/.cache/stream-dp")
