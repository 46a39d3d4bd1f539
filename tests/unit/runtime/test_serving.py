"""The HTTP port of a worker: three answers, on loopback, by its own event loop."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from stream_dp.errors import AddressError, StateError
from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.runtime.worker import health as server
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.health import LOOPBACK, MOST_CONNECTIONS, Address, Exposition, Health, Start, serving
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.probes import get, loaded, parsed

FREE = Address(LOOPBACK, 0)


@pytest.fixture
async def worker(worker: Worker) -> Worker:
    """One that is ready."""
    return await loaded(worker)


async def test_probes_are_answered_before_there_is_a_worker_while_it_runs_and_when_it_has_crashed(
    worker: Worker,
) -> None:
    start = Start()
    health = Health(start)
    async with serving(FREE, health, Exposition(health)) as (_, port):
        start.wait_for("the broker at here:9092")
        assert await get(port, "/livez") == (200, "ok\n")
        assert await get(port, "/readyz") == (503, "waiting for the broker at here:9092\n")

        health.worker = worker
        assert await get(port, "/livez") == await get(port, "/readyz") == (200, "ok\n")

        await worker.app.crash(StateError("the counts of zelda"))
        assert await get(port, "/livez") == (503, "the worker has crashed; its process ends\n")
        assert await get(port, "/readyz") == (503, "waiting for its end, since it has crashed\n")
    assert await get(port, "/livez") == (0, "")


async def test_metrics_are_in_the_text_format_of_prometheus_and_nothing_else_is_served(worker: Worker) -> None:
    health = Health(Start())
    health.worker = worker
    async with serving(FREE, health, Exposition(health)) as (_, port):
        status, page = await get(port, "/metrics")
        assert status == 200
        assert parsed(page)["stream_dp_ready", ()] == 1
        for path in ("/", "/table", "/metrics/x", "/stats"):
            assert (await get(port, path))[0] == 404


async def test_an_address_that_cannot_be_listened_at_is_said_in_one_sentence(worker: Worker) -> None:
    health = Health(Start())
    page = Exposition(health)
    port = free_port()
    with socket.socket() as other:
        other.bind((LOOPBACK, port))
        other.listen()
        words = f"^the worker cannot listen on {LOOPBACK}:{port}: Address already in use; give --http another address$"
        with pytest.raises(AddressError, match=words):
            async with serving(Address(LOOPBACK, port), health, page):
                pass
    with pytest.raises(AddressError, match=r"^the worker cannot listen on \[2001:db8::1\]:9102: "):
        async with serving(Address("2001:db8::1", 9102), health, page):
            pass


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def half_sent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with a request that does not end."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"GET /livez HTTP/1.1\r\nX: ")
    return reader, writer


async def test_connections_beyond_the_most_are_closed_and_those_within_are_answered(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 3600)
    health = Health(Start())
    health.worker = worker
    async with serving(FREE, health, Exposition(health)) as (_, port):
        before = open_files()
        ours = [await half_sent(port) for _ in range(MOST_CONNECTIONS)]
        more = [await half_sent(port) for _ in range(100)]
        for reader, _ in more:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WITHIN_SECONDS) == b""
        for _, writer in more:
            writer.close()
        async with asyncio.timeout(WITHIN_SECONDS):
            while open_files() - before > 2 * MOST_CONNECTIONS:
                await asyncio.sleep(0.01)
        ours[0][1].close()
        async with asyncio.timeout(WITHIN_SECONDS):
            while open_files() - before > 2 * (MOST_CONNECTIONS - 1):
                await asyncio.sleep(0.01)
        assert await get(port, "/livez") == (200, "ok\n")
        for _, writer in ours:
            writer.close()


def test_one_too_many_is_closed_without_a_word_on_the_loop_of_workers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)

    async def flood() -> None:
        health = Health(Start())
        async with serving(FREE, health, Exposition(health)) as (_, port):
            _, first = await half_sent(port)
            await asyncio.sleep(0.1)
            reader, second = await half_sent(port)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), WITHIN_SECONDS) == b""
            first.close()
            second.close()

    uvloop.run(flood())
    assert caplog.messages == []


async def test_a_connection_without_a_whole_request_is_closed(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    health = Health(Start())
    health.worker = worker
    async with serving(FREE, health, Exposition(health)) as (_, port):
        idle, other = await asyncio.open_connection(LOOPBACK, port)
        reader, writer = await half_sent(port)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(idle.read(), WITHIN_SECONDS) == b""
            writer.write(b"more")
            assert await asyncio.wait_for(reader.read(), WITHIN_SECONDS) == b""
        writer.close()
        other.close()
        assert await get(port, "/livez") == (200, "ok\n")


STARTS_OVER = """
import asyncio, os, sys, uvloop
from stream_dp.runtime.worker.health import Exposition
from stream_dp.runtime.worker.health import Health
from stream_dp.runtime.worker.health import Address, serving
from stream_dp.runtime.worker.health import Start
from stream_dp.runtime.worker.process import start_over

async def run():
    health = Health(Start())
    async with serving(Address("127.0.0.1", int(sys.argv[1])), health, Exposition(health)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /livez HTTP/1.0\\r\\n\\r\\n")
        print((await reader.readline()).decode(), end="", flush=True)
        if "again" not in os.environ:
            os.environ["again"] = "1"
            start_over("the worker starts over")

uvloop.run(run())
"""


def test_a_process_that_starts_over_has_its_port_again() -> None:
    command = [sys.executable, "-c", STARTS_OVER, str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("HTTP/1.0 200 OK\n" * 2, "the worker starts over\n")
