"""A worker ends within 10 s of SIGTERM whatever it is doing, and a start says what it waits for, and ends in time."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.access import Broker
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.storage import locked
from stream_dp.testing import Application, application
from tests.support.processes import SESSION_SECONDS
from tests.support.visits import RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker

WITHIN_S = 10.0
RUNS = "is running"
CONNECTS = "connecting to the broker"

Setting = Callable[[], AbstractAsyncContextManager[Stream]]


@pytest.fixture
def setting(kafka: str, tmp_path: Path, visits: Callable[..., str]) -> Setting:
    """Makes the stream of an application."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Stream]:
        async with application(visits(*WITNESSED, *RICH), tmp_path, broker=kafka) as app:
            yield Stream(app)

    return make


def elsewhere(app: Application, address: str) -> Application:
    """The same application, on another broker."""
    return replace(app, plan=replace(app.plan, broker=Broker(f"kafka://{address}")))


async def connecting(stream: Stream, spawn: Any, _proxied: Any) -> Any:
    """Nothing listens where the broker should be."""
    worker = spawn(elsewhere(stream.app, "127.0.0.1:1"), "state", "--terse")
    worker.start()
    await worker.wait_until_said(CONNECTS)
    await asyncio.sleep(0.5)
    return worker


async def connecting_to_a_frozen_broker(stream: Stream, spawn: Any, proxied: Any) -> Any:
    proxy = proxied()
    proxy.freeze()
    worker = spawn(stream.app, "state", "--terse", proxy=proxy)
    worker.start()
    await worker.wait_until_said(CONNECTS)
    await asyncio.sleep(0.5)
    return worker


async def joining(stream: Stream, spawn: Any, _proxied: Any) -> Any:
    """The group waits for a member that is dead."""
    first = await running(stream, spawn, _proxied)
    first.signal(signal.SIGKILL)
    first.wait()
    worker = spawn(stream.app, "another", "--terse", "--session-seconds", "40")
    worker.start()
    await worker.wait_until_said("waiting for the group")
    return worker


async def running(stream: Stream, spawn: Any, _proxied: Any) -> Any:
    worker = spawn(stream.app, "state", "--terse", "--session-seconds", "40")
    worker.start()
    await stream.go_on()
    await worker.wait_until_said(RUNS)
    return worker


def hanging(where: str) -> Any:
    async def hangs(stream: Stream, spawn: Any, _proxied: Any) -> Any:
        worker = spawn(stream.app, "state", "--terse", "--hang", where)
        worker.start()
        await stream.go_on()
        await worker.wait_until_said(f"hangs: {where}")
        return worker

    return hangs


def without_broker(how: str) -> Any:
    async def cut_off(stream: Stream, spawn: Any, proxied: Any) -> Any:
        proxy = proxied()
        worker = spawn(stream.app, "state", "--terse", proxy=proxy)
        worker.start()
        await worker.wait_until_said(RUNS)
        await stream.go_on(20)
        getattr(proxy, how)()
        await asyncio.sleep(SESSION_SECONDS)
        return worker

    return cut_off


async def losing_a_partition(stream: Stream, spawn: Any, _proxied: Any) -> Any:
    """It stood still, another worker took over, and it is told to stop as soon as it goes on."""
    worker, other = spawn(stream.app, "state", "--terse"), spawn(stream.app, "other", "--terse")
    for one in (worker, other):
        one.start()
        await one.wait_until_said(RUNS)
    await stream.go_on(20)
    worker.signal(signal.SIGSTOP)
    await stream.wait_until_shown()
    return worker


STATES = {
    "connecting": connecting,
    "connecting to a frozen broker": connecting_to_a_frozen_broker,
    "preparing": hanging("preparing"),
    "joining": joining,
    "recovering": hanging("recovering"),
    "running": running,
    "with a busy event loop": hanging("busy"),
    "with the broker gone": without_broker("cut"),
    "with the broker frozen": without_broker("freeze"),
    "losing a partition": losing_a_partition,
}
ORDINARY = {"connecting"}


@pytest.mark.parametrize("state", [pytest.param(s, marks=[] if s in ORDINARY else pytest.mark.slow) for s in STATES])
async def test_worker_ends_within_ten_seconds_of_sigterm_whatever_it_is_doing(
    setting: Setting, spawn: Any, proxied: Any, state: str
) -> None:
    async with setting() as stream:
        worker = await STATES[state](stream, spawn, proxied)
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGCONT)
        told = time.monotonic()
        code = await asyncio.to_thread(worker.wait)
        took = time.monotonic() - told
    print(f"\n{state}: {took:.1f} s, {code}: {worker.said().splitlines()[-1]}")
    assert took < WITHIN_S
    assert code == 0 or (code, state) == (1, "losing a partition"), worker.said()


@pytest.mark.slow
async def test_second_signal_ends_a_worker_at_once(setting: Setting, spawn: Any, proxied: Any) -> None:
    async with setting() as stream:
        worker = await STATES["with a busy event loop"](stream, spawn, proxied)
        worker.signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        worker.signal(signal.SIGINT)
        told = time.monotonic()
        assert await asyncio.to_thread(worker.wait) == 0
    assert time.monotonic() - told < 1
    assert "a second time" in worker.said()


async def test_worker_whose_data_folder_is_in_use_says_so_before_it_asks_for_anything(
    setting: Setting, spawn: Any
) -> None:
    async with setting() as stream:
        worker = spawn(stream.app, "state", "--terse")
        with locked(worker.data_dir):
            worker.start()
            assert await asyncio.to_thread(worker.wait) == 1
        (line,) = worker.said().splitlines()
        assert line == (
            f"error: another worker runs on the data folder {worker.data_dir}; stop it first, or give this one a "
            "folder of its own with --data-dir"
        )
        assert await stream.app.client.partitions(Topics.of(stream.app.plan).ticks) is None


@pytest.mark.slow
async def test_second_worker_on_a_data_folder_disturbs_nobody(setting: Setting, spawn: Any) -> None:
    async with setting() as stream:
        first, second = (spawn(stream.app, "state", "--terse") for _ in range(2))
        first.start()
        await first.wait_until_said(RUNS)
        before = len(first.said().splitlines())
        second.start()
        assert await asyncio.to_thread(second.wait) == 1
        await stream.go_on(2)
        await stream.assert_released()
        assert len(first.said().splitlines()) == before + 1  # they share the log
        assert first.terminate(10) == 0


async def test_start_that_waits_too_long_for_the_broker_ends_and_says_so(
    setting: Setting, spawn: Any, proxied: Any
) -> None:
    async with setting() as stream:
        proxy = proxied()
        proxy.cut()
        worker = spawn(stream.app, "state", "--terse", "--start-within", "2", proxy=proxy)
        worker.start()
        assert await asyncio.to_thread(worker.wait) == 1
        last = worker.said().splitlines()[-1]
        address = stream.app.plan.broker.address
        assert last == f"error: the worker did not start: for 2s it waited for the broker at {address}"


@pytest.mark.slow
async def test_start_waits_for_a_broker_that_comes_later(setting: Setting, spawn: Any, proxied: Any) -> None:
    async with setting() as stream:
        proxy = proxied()
        proxy.cut()
        worker = spawn(stream.app, "state", "--terse", proxy=proxy)
        worker.start()
        await worker.wait_until_said("waiting for the broker at")
        assert RUNS not in worker.said()
        proxy.mend()
        await worker.wait_until_said(RUNS)
        assert worker.terminate(10) == 0


@pytest.mark.slow
async def test_start_that_waits_for_a_dead_peer_says_so_and_runs_when_the_session_is_over(
    setting: Setting, spawn: Any, proxied: Any
) -> None:
    async with setting() as stream:
        worker = await STATES["joining"](stream, spawn, proxied)
        assert RUNS not in worker.said()
        await worker.wait_until_said(RUNS)
        assert "the session of a worker that died may last up to 40 s" in worker.said()
        await stream.assert_released()
        assert worker.terminate(10) == 0


@pytest.mark.slow
async def test_worker_for_whom_no_partition_is_left_runs_and_says_so(setting: Setting, spawn: Any) -> None:
    async with setting() as stream:
        crew = [spawn(stream.app, f"w{number}", "--terse") for number in range(4)]
        for worker in crew:
            worker.start()
            await worker.wait_until_said(RUNS)
        assert any("it has no partition yet, since other workers have them all" in worker.said() for worker in crew)
        assert [worker.terminate(10) for worker in crew] == [0] * 4
