"""A worker process answers its operators from its very start to its end, through an outage of the broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.runtime.worker.health import LOOPBACK
from stream_dp.testing import Application, application
from tests.support.probes import get, parsed
from tests.support.processes import WorkerProcess
from tests.support.visits import RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker

LIVES = (200, "ok\n")


async def until_ready(app: Application, worker: WorkerProcess, port: int) -> list[str]:
    """What the worker says that it waits for until it is ready; it lives all the while."""
    said: list[str] = []

    async def ready() -> bool:
        worker.check()
        status, text = await get(port, "/readyz")
        said.append(text)
        assert (await get(port, "/livez")) == LIVES
        return status == 200

    await app.eventually(ready)
    return list(dict.fromkeys(said[:-1]))


async def until_not_ready(app: Application, port: int) -> str:
    """What a worker that was ready says that it waits for."""

    async def waits() -> str | None:
        status, text = await get(port, "/readyz")
        return text if status == 503 else None

    return await app.eventually(waits)


async def test_probes_are_answered_from_the_start_to_the_end_and_readiness_follows_the_broker(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, proxied: Any
) -> None:
    async with application(visits(*WITNESSED, *RICH), tmp_path, broker=kafka) as app:
        stream, proxy, port = Stream(app), proxied(), free_port()
        address = app.plan.broker.address
        options = ("--terse", "--log-format", "json", "--http", str(port))
        worker = spawn(app, "state", *options, proxy=proxy)
        proxy.cut()
        worker.start()
        await app.eventually(lambda: lives(port))
        assert (await get(port, "/readyz"))[0] == 503
        await worker.wait_until_said("connecting to the broker")
        assert await get(port, "/readyz") == (503, f"waiting for the broker at {address}\n")
        assert parsed((await get(port, "/metrics"))[1])["stream_dp_ready", ()] == 0

        proxy.mend()
        waited_for = await until_ready(app, worker, port)
        assert all(text.startswith("waiting for ") and text.count("\n") == 1 for text in waited_for)
        await stream.go_on(2)
        await stream.wait_until_shown()

        proxy.cut()
        assert await until_not_ready(app, port) == f"waiting for the broker at {address}, which does not answer\n"
        assert await get(port, "/livez") == LIVES
        proxy.mend()
        await until_ready(app, worker, port)
        await stream.go_on()
        await stream.wait_until_shown()

        async def released() -> bool:
            found = parsed((await get(port, "/metrics"))[1])
            # A page may be ten seconds old, and the first ones have neither.
            ready = found["stream_dp_ready", ()], found.get(("stream_dp_partitions_owned", ()))
            counts = {
                dict(labels)["view"]: amount
                for (name, labels), amount in found.items()
                if name == "stream_dp_windows_released_total"
            }
            return (ready, counts) == ((1, app.plan.partitions), dict.fromkeys(app.plan.views, stream.windows))

        await app.eventually(released)
        _, half = await asyncio.open_connection(LOOPBACK, port)  # it delays no end
        half.write(b"GET /livez HTTP/1.1\r\n")
        reader, wrong = await asyncio.open_connection(LOOPBACK, port)  # it is not logged
        wrong.write(b"\x16\x03\x01 this is TLS\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.0 400 Bad Request\r\n"
        assert worker.terminate(10) == 0
        assert await get(port, "/livez") == (0, "")
        half.close()
        wrong.close()
        said = [json.loads(line) for line in worker.ending().splitlines()]
        assert said[-1]["message"] == f"worker of {app.plan.name} stopped"
        assert all(line.keys() == {"time", "level", "logger", "message"} for line in said)
        (await stream.audit()).assert_clean()


async def lives(port: int) -> bool:
    return await get(port, "/livez") == LIVES


async def test_a_worker_whose_port_is_taken_ends_with_one_sentence_before_it_asks_for_anything(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        other = await asyncio.start_server(lambda *_: None, LOOPBACK)
        port = other.sockets[0].getsockname()[1]
        worker = spawn(app, "state", "--terse", "--http", str(port))
        worker.start()
        assert await asyncio.to_thread(worker.wait) == 1
        other.close()
        (line,) = worker.said().splitlines()
        assert line == (
            f"error: the worker cannot listen on {LOOPBACK}:{port}: Address already in use; give --http another address"
        )
