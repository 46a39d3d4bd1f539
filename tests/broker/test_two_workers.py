"""Two workers share the partitions; one that dies, or stands still, is replaced by the other."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.testing import application
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.probes import Samples, get, parsed
from tests.support.processes import SESSION_SECONDS
from tests.support.totals import stored_totals_of
from tests.support.visits import RICH, WITNESSED, Stream

pytestmark = pytest.mark.broker

Pair = Callable[..., AbstractAsyncContextManager[tuple[Stream, Any, Any]]]


@pytest.fixture
def pair(kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any) -> Pair:
    """Makes the stream of an application and two workers that are not started yet."""

    @asynccontextmanager
    async def make(*changes: tuple[str, str], per_window: int = 480) -> AsyncIterator[tuple[Stream, Any, Any]]:
        async with application(visits(*WITNESSED, *(changes or RICH)), tmp_path / "app", broker=kafka) as app:
            yield Stream(app, per_window), spawn(app, "one"), spawn(app, "two")

    return make


async def both_count(stream: Stream, first: Any, second: Any) -> None:
    """Feed the workers until both of them count events."""
    before = [worker.counters()["events_consumed"] for worker in (first, second)]

    async def counting() -> bool:
        first.check()
        second.check()
        await stream.go_on()
        await asyncio.sleep(1)
        now = [worker.counters()["events_consumed"] for worker in (first, second)]
        return all(later > earlier for later, earlier in zip(now, before, strict=True))

    await stream.app.eventually(counting)


async def test_partitions_of_a_killed_worker_go_to_the_other_and_back(pair: Pair) -> None:
    async with pair(*RICH, ("partitions: 3", "partitions: 4")) as (stream, first, second):
        first.start()
        await stream.go_on()
        await stream.assert_released()
        second_port = free_port()
        second.start("--http", str(second_port))
        await both_count(stream, first, second)
        await stream.assert_released()

        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        await stream.go_on(2)
        await stream.assert_released()

        port = free_port()
        first.start("--http", str(port))
        await both_count(stream, first, second)
        await stream.assert_released()
        await stream.assert_totals()
        pages = [parsed((await get(at, "/metrics"))[1]) for at in (port, second_port)]
        await assert_every_partition_is_on_one_page(stream, pages)
        assert [first.terminate(), second.terminate()] == [0, 0]


async def assert_every_partition_is_on_one_page(stream: Stream, pages: list[Samples]) -> None:
    """The pages together have every total of every partition once, and they add up to what is stored."""
    of_a_partition = [{key: value for key, value in page.items() if "partition" in dict(key[1])} for page in pages]
    assert all(of_a_partition)
    assert not set.intersection(*map(set, of_a_partition))
    stored = await stored_totals_of(stream.app)
    for name in ("events_consumed", "events_counted", "events_refused", "windows_closed", "windows_released"):
        shown = sum(
            value for page in of_a_partition for (key, _), value in page.items() if key == f"stream_dp_{name}_total"
        )
        assert shown == stored.total(name) > 0


@pytest.mark.slow
async def test_worker_that_stood_still_while_the_other_took_over_changes_nothing_when_it_wakes(pair: Pair) -> None:
    async with pair() as (stream, first, second):
        first.start()
        second.start()
        await both_count(stream, first, second)
        second.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        await stream.go_on(2)
        await stream.assert_released()
        assert time.monotonic() - stopped > SESSION_SECONDS

        second.signal(signal.SIGCONT)

        await stream.go_on(2)
        await stream.assert_released()
        if (code := second.ended()) is None:  # it heard of the rebalance before it wrote
            assert second.terminate() == 0
        else:
            assert code == 1
            assert "was taken over by another worker" in second.said()
        assert first.terminate() == 0


@pytest.mark.slow
async def test_a_budget_that_is_spent_stays_spent_whoever_keeps_the_ledger(pair: Pair) -> None:
    """Five windows are paid for; two before the first worker is killed, and the sixth is refused by the second."""
    async with pair(('epsilon: "100"', 'epsilon: "10"')) as (stream, first, second):
        first.start()
        await stream.go_on(2)
        await stream.assert_released()
        first.signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL

        second.start()
        await stream.go_on(4)
        await stream.assert_released(refused=[5])
        second.signal(signal.SIGKILL)
        assert second.wait() == -signal.SIGKILL

        first.start()
        await stream.go_on(2)
        await stream.assert_released(refused=[5, 6, 7])
        await stream.assert_totals(refused=3)
        assert first.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize("backlog", [240, 1000])
async def test_of_a_backlog_that_a_second_worker_joins_no_revision_has_two_records(pair: Pair, backlog: int) -> None:
    """A grant comes in between, so that windows are released and sharpened while partitions change hands."""
    granted = {"partner": "detailed"}
    async with pair(*RICH, ("partitions: 3", "partitions: 2"), per_window=40) as (stream, first, second):
        await stream.go_on(backlog)
        first.start()
        await stream.wait_until_shown(20)
        second.start()
        await stream.app.grant("partner", "detailed")
        await stream.wait_until_shown(within_s=max(backlog, WITHIN_SECONDS))
        await stream.wait_until_sharpened(granted)
        first.check()
        second.check()
        assert [first.terminate(), second.terminate()] == [0, 0]
        (await stream.audit(granted)).assert_clean()
