"""A broker that takes a connection and says nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.config.access import Broker
from stream_dp.errors import OutageError
from stream_dp.runtime.kafka import client as connecting
from stream_dp.runtime.kafka import outages as refusals
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import explain_silence, patiently
from stream_dp.testing.application import WITHIN_SECONDS


async def test_a_command_does_not_wait_long_for_a_broker_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(refusals, "PROBE_SECONDS", 0.2)
    over = asyncio.Event()

    async def mute(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                with pytest.raises(OutageError, match=rf"no Kafka answers at {host}:{port}: nothing came for 0\.5 s;"):
                    async with connect(Broker(f"kafka://{host}:{port}")):
                        pytest.fail("there is no client of a mute broker")
        finally:
            over.set()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A port on which somebody listens."""
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def advertise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let every broker advertise some addresses; a name that ends with .invalid cannot be resolved."""

    def advertise(*addresses: tuple[str, int]) -> None:
        brokers = [(number, *address) for number, address in enumerate(addresses)]

        async def send(_request: object) -> Any:
            return SimpleNamespace(brokers=brokers)

        async def create_conn(*_: object, **__: object) -> Any:
            return SimpleNamespace(send=send, close=lambda: None)

        monkeypatch.setattr(refusals, "create_conn", create_conn)

    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def getaddrinfo(host: str, *rest: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await resolve(host, *rest, **options)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    return advertise


def cluster(address: str) -> Cluster:
    return Cluster.of(Broker(f"kafka://{address}"))


async def test_bootstrap_name_that_does_not_resolve_is_named(advertise: Callable[..., None]) -> None:
    assert "cannot resolve kafka.invalid. Correct `broker`" in await explain_silence(cluster("kafka.invalid:9092"))


async def test_advertised_address_that_fails_is_named(port: int, advertise: Callable[..., None]) -> None:
    """A container that advertises its own name, and a port that nobody listens on."""
    at = f"127.0.0.1:{port}"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
        for address, failure in (
            (("kafka.invalid", 29092), "cannot resolve that name"),
            (("127.0.0.1", nobody), "cannot connect to it"),
        ):
            advertise(address)
            words = await explain_silence(cluster(at))
            assert f"the broker at {at} answers, but it advertises {address[0]}:{address[1]}, and this" in words
            assert f"{failure}" in words
            assert "advertised.listeners" in words


async def test_one_of_several_brokers_may_be_down(port: int, advertise: Callable[..., None]) -> None:
    advertise(("127.0.0.1", port), ("kafka-2.invalid", 9092))
    words = await explain_silence(cluster(f"127.0.0.1:{port}"))
    assert "it advertises kafka-2.invalid:9092, and this machine cannot resolve that name. That broker is down" in words


async def test_cluster_that_can_be_reached_has_no_explanation(port: int, advertise: Callable[..., None]) -> None:
    advertise(("127.0.0.1", port))
    assert await explain_silence(cluster(f"127.0.0.1:{port}")) == ""


async def test_command_that_fails_says_what_the_broker_advertises(
    port: int, advertise: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client starts on the bootstrap address alone; the first request to another one finds nobody."""
    advertise(("kafka.invalid", 29092))

    async def nothing() -> None:
        """Do nothing."""

    part = SimpleNamespace(start=nothing, stop=nothing, close=nothing)
    for name in ("AIOKafkaProducer", "AIOKafkaAdminClient"):
        monkeypatch.setattr(connecting, name, lambda **_: part)
    monkeypatch.setattr(Cluster, "consumer", lambda *_, **__: part)
    with pytest.raises(OutageError, match=r"no answer: the broker at .* advertises kafka\.invalid:29092"):
        async with connect(Broker(f"kafka://127.0.0.1:{port}")):
            raise OutageError("no answer")


async def test_worker_that_waits_says_why_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "NOTICED_SECONDS", 0)
    monkeypatch.setattr(refusals, "RETRY_SECONDS", 0)
    explained = asyncio.Event()

    async def ask() -> int:
        if not explained.is_set():
            raise OutageError("no answer")
        return 7

    async def explain() -> str:
        explained.set()
        return "it is unplugged"

    async with asyncio.timeout(WITHIN_SECONDS):
        assert await patiently(ask, explain) == 7
    assert caplog.messages == ["it is unplugged"]
