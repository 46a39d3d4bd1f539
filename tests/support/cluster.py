"""A cluster of three small brokers, each of which can be killed, frozen and brought back."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

import stream_dp.runtime.localkafka.broker as local
from stream_dp.runtime.localkafka.jars import fetch_jars, java_command
from stream_dp.runtime.localkafka.processes import carries, spawn_detached, terminate
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.ports import free_ports

HOST = "127.0.0.1"
HEAP = "-Xmx320m"
STOPS_WITHIN_S = 30.0
READY_WITHIN_S = 4 * WITHIN_SECONDS
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
COORDINATORS = 6
"""Partitions of each of these."""
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "data",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": str(COORDINATORS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "3",
}
"""What brokers come with elsewhere, but for their number, their size, and how often they look what is to be erased.

Kafka's default lets a client create a topic by asking for it (`auto.create.topics.enable`); so it is here.
"""


COPIES = (("erase_within: 20s", "erase_within: 20s\ntopics: {replication: 3, min_insync_replicas: 2}"),)
"""Changes to the visits' configuration that say so of the application's topics."""


class _ElectionResponse(Response):
    API_KEY = 43
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                ("partitions", Array(("partition", Int32), ("error_code", Int16), ("message", String("utf-8")))),
            ),
        ),
    )


class _Election(RequestStruct):
    API_KEY = 43
    API_VERSION = 0
    RESPONSE_TYPE = _ElectionResponse
    SCHEMA = Schema(
        ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )


class Election(Request[_Election]):
    """Let the preferred replicas of partitions lead them: ElectLeaders, version 0 (Kafka 2.2)."""

    API_KEY: ClassVar[int] = 43

    def __init__(self, places: Mapping[str, list[int]]) -> None:
        """Set up the request, for the partitions of some topics."""
        self._places = list(places.items())

    def build(self, request_struct_class: type[_Election]) -> _Election:
        """The request as it is sent."""
        return request_struct_class(self._places, 20_000)


@dataclass
class Node:
    """A broker and controller of the cluster."""

    number: int
    folder: Path
    port: int
    controller_port: int
    marker: str = field(default_factory=lambda: f"-Dstream.dp.kafka={uuid.uuid4().hex}")
    pid: int = 0

    @property
    def alive(self) -> bool:
        """Whether its process is there, frozen or not."""
        return carries(self.pid, self.marker)

    def start(self, jars: Path) -> None:
        """Start it, with the topics that it had."""
        if self.alive:
            return
        command = [java_command(), HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        command += ["-Djava.awt.headless=true", "-Dlog4j2.configurationFile=log4j2.properties", self.marker]
        command += ["-cp", f"{jars}/*", "kafka.Kafka", "server.properties"]
        self.pid = spawn_detached(command, self.folder, self.folder / "kafka.log")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)


class Cluster:
    """Three brokers that run, on loopback; every topic has three replicas, of which two have to be there."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Start them; blocks until they serve.

        Args:
            folder: for their data, below it `nodeN/data` for each, which may be a disk of its own.
            settings: of the brokers, beside or instead of `SETTINGS`.
        """
        self._jars = fetch_jars()
        ports = iter(free_ports(6))
        self.nodes = {number: Node(number, folder / f"node{number}", next(ports), next(ports)) for number in (1, 2, 3)}
        self.address = self.address_of(self.nodes)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        voters = ",".join(f"{one.number}@{HOST}:{one.controller_port}" for one in self.nodes.values())
        for node in self.nodes.values():
            self._format(node, cluster, {"controller.quorum.voters": voters, **SETTINGS, **(settings or {})})
        self.come_back()

    def address_of(self, numbers: Iterable[int]) -> str:
        """Where some brokers are reached."""
        return ",".join(f"{HOST}:{self.nodes[number].port}" for number in numbers)

    def _format(self, node: Node, cluster: str, settings: Mapping[str, str]) -> None:
        node.folder.mkdir(parents=True, exist_ok=True)
        client, controller = f"PLAINTEXT://{HOST}:{node.port}", f"CONTROLLER://{HOST}:{node.controller_port}"
        own = {"node.id": str(node.number), "listeners": f"{client},{controller}", "advertised.listeners": client}
        lines = [f"{name}={value}" for name, value in {**own, **settings}.items()]
        (node.folder / "server.properties").write_text("\n".join(lines), encoding="utf-8")
        logging = Path(local.__file__).with_name("log4j2.properties").read_text(encoding="utf-8")
        (node.folder / "log4j2.properties").write_text(logging, encoding="utf-8")
        tool = [java_command(), "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        subprocess.run(
            [*tool, "format", f"--cluster-id={cluster}", "--config=server.properties"],
            cwd=node.folder,
            check=True,
            capture_output=True,
        )

    @property
    def numbers(self) -> list[int]:
        """Of its brokers."""
        return list(self.nodes)

    def kill(self, *numbers: int) -> None:
        """End brokers with SIGKILL; their topics stay."""
        for number in numbers:
            self.nodes[number].signal(signal.SIGKILL)
        while any(self.nodes[number].alive for number in numbers):
            time.sleep(0.02)

    def freeze(self, *numbers: int) -> None:
        """Stop brokers with SIGSTOP: they accept connections and say nothing."""
        for number in numbers:
            self.nodes[number].signal(signal.SIGSTOP)

    def restart(self, number: int) -> None:
        """End a broker in order, start it, and wait until it has caught up."""
        node = self.nodes[number]
        terminate(node.pid, node.marker, STOPS_WITHIN_S)
        self.come_back()

    def come_back(self) -> None:
        """Let all go on, or start again; blocks until every replica of every partition has caught up."""
        for node in self.nodes.values():
            if node.alive:
                node.signal(signal.SIGCONT)
            node.start(self._jars)
        until = time.monotonic() + READY_WITHIN_S
        while not all(local.listens(node.port) for node in self.nodes.values()) or not asyncio.run(self._is_whole()):
            assert time.monotonic() < until, "the cluster does not come back"
            time.sleep(0.2)

    def close(self) -> None:
        """End it for good."""
        for node in self.nodes.values():
            if node.alive:
                node.signal(signal.SIGKILL)

    async def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the broker that leads a partition."""
        for found in await self._topics([topic]):
            for place in found["partitions"]:
                if place["partition"] == partition:
                    return int(place["leader"])
        raise AssertionError(f"{topic} has no partition {partition}")

    async def coordinator(self, topic: str, name: str) -> int:
        """The broker that coordinates a group (`GROUPS`), or a transactional id (`TRANSACTIONS`)."""
        digest = 0
        for letter in name:
            digest = (31 * digest + ord(letter)) & 0xFFFFFFFF
        digest -= (digest >> 31) << 32
        return await self.leader(topic, abs(digest) % COORDINATORS)

    async def reassign(self, topics: list[str]) -> None:
        """Take every partition from its leader, and give it back as the last of its three replicas."""
        for is_back in (False, True):
            wanted: list[Any] = []
            for found in await self._topics(topics):
                places: list[Any] = []
                for place in found["partitions"]:
                    others = [number for number in self.nodes if number != place["leader"]]
                    places.append((place["partition"], [*others, *([place["leader"]] if is_back else [])], {}))
                wanted.append((found["topic"], places, {}))
            await self._ask(AlterPartitionReassignmentsRequest(60_000, wanted, {}))
            while not await self._is_whole():
                await asyncio.sleep(0.5)

    async def prefer(self) -> None:
        """Let the preferred replica lead every partition."""
        places = {
            str(one["topic"]): [place["partition"] for place in one["partitions"]] for one in await self._topics()
        }
        await self._ask(Election(places))

    async def _topics(self, names: list[str] | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._patiently(lambda admin: admin.describe_topics(names))
        return found

    async def _ask(self, request: Any) -> None:
        await self._patiently(lambda admin: admin._send_to_controller(request))

    async def _patiently(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        """The answer of some broker; one that came back a moment ago may be left alone still."""
        until = time.monotonic() + WITHIN_SECONDS
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address, request_timeout_ms=5000)
            try:
                await admin.start()
                return await ask(admin)
            except (KafkaError, OSError):
                if time.monotonic() > until:
                    raise
            finally:
                await admin.close()
            await asyncio.sleep(0.5)

    async def _is_whole(self) -> bool:
        try:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address, request_timeout_ms=5000)
            try:
                await admin.start()
                there = await admin.describe_cluster()
                topics = await admin.describe_topics()
            finally:
                await admin.close()
        except (KafkaError, OSError):
            return False
        places = [place for topic in topics for place in topic["partitions"]]
        return len(there["brokers"]) == len(self.nodes) and all(
            len(place["isr"]) == len(place["replicas"]) and place["leader"] >= 0 for place in places
        )
