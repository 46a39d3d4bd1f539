"""Two workers share the partitions; one that dies, or stands still, is replaced by the other."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_dp.records.codec import encode
from stream_dp.runtime.topics import Topics
from stream_dp.testing import Application, Event, Watermark, application, count_script, expected_records
from tests.support.views import only_view, start_of

pytestmark = pytest.mark.broker

MINUTE = 60_000
NOISE_KEY = b"crash tests"
SESSION_SECONDS = 8.0
"""Instead of the 60 s of a real worker, so that a takeover is waited for; the lease is half of it."""


class Stream:
    """The visits of an application, minute by minute."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.view = only_view(app)
        self.start = start_of(self.view)
        self.script: list[Event | Watermark] = []
        self.windows = 0

    async def go_on(self, windows: int) -> None:
        """Publish the visits of some minutes, and their end."""
        for _ in range(windows):
            at = self.start + self.windows * MINUTE
            self.windows += 1
            part = [Event(f"u{number % 240}", f"/{number * number % 7}", at + 100 * number) for number in range(480)]
            await self.app.publish([*part, Watermark(at + MINUTE + 10_000)])
            self.script += [*part, Watermark(at + MINUTE + 10_000)]

    async def assert_released(self) -> None:
        """All windows are there, byte for byte what the oracle says; those that the budget pays for charged once."""
        await self.app.wait_for_releases(self.view.name, self.windows)
        counts = count_script(self.view, self.start, self.script)
        windows = counts.between(self.view, self.start, self.start + self.windows * MINUTE)
        expected = expected_records(self.view, windows, prf_key=self.app.prf_key, entropy=self.app.entropy)
        found = await self.app.published(self.view.name)
        assert found == {name: [encode(row) for row in rows] for name, rows in expected.items()}
        (ledger,) = (await self.app.ledgers()).values()
        assert ledger.spent.epsilon == min(2 * self.windows, ledger.budget.epsilon)
        assert not ledger.reserved


Pair = Callable[..., AbstractAsyncContextManager[tuple[Application, Stream, Any, Any]]]


@pytest.fixture
def pair(kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any) -> Pair:
    """Makes an application with its stream and two workers that are not started yet, under a budget of epsilon."""

    @asynccontextmanager
    async def make(epsilon: str = "1000") -> AsyncIterator[tuple[Application, Stream, Any, Any]]:
        text = visits(("partitions: 3", "partitions: 4"), ('epsilon: "100"', f'epsilon: "{epsilon}"'), ("1/100", "1/2"))
        async with application(text, tmp_path / "app", broker=kafka, noise_key=NOISE_KEY) as app:
            first, second = (spawn(app, name, "--session-seconds", str(SESSION_SECONDS)) for name in ("one", "two"))
            yield app, Stream(app), first, second

    return make


async def both_count(app: Application, stream: Stream, first: Any, second: Any) -> None:
    """Feed the workers until both of them count events."""
    before = [worker.counters()["events_consumed"] for worker in (first, second)]

    async def counting() -> bool:
        first.check()
        second.check()
        await stream.go_on(1)
        await asyncio.sleep(1)
        now = [worker.counters()["events_consumed"] for worker in (first, second)]
        return all(later > earlier for later, earlier in zip(now, before, strict=True))

    await app.eventually(counting, within_s=60)


async def test_partitions_of_a_killed_worker_go_to_the_other_and_back(pair: Pair) -> None:
    async with pair() as (app, stream, first, second):
        first.start()
        await stream.go_on(1)
        await stream.assert_released()
        second.start()
        await both_count(app, stream, first, second)
        await stream.assert_released()

        first.signal(signal.SIGKILL)
        assert first.wait(5) == -signal.SIGKILL
        await stream.go_on(2)
        await stream.assert_released()

        first.start()
        await both_count(app, stream, first, second)
        await stream.assert_released()
        assert [first.terminate(), second.terminate()] == [0, 0]


async def test_worker_that_stood_still_while_the_other_took_over_changes_nothing_when_it_wakes(pair: Pair) -> None:
    async with pair() as (app, stream, first, second):
        first.start()
        second.start()
        await both_count(app, stream, first, second)
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


async def test_a_budget_that_is_spent_stays_spent_whoever_keeps_the_ledger(pair: Pair) -> None:
    """Five windows are paid for; two before the first worker is killed, and the sixth is refused by the second."""
    async with pair(epsilon="10") as (app, stream, first, second):
        first.start()
        await stream.go_on(2)
        await stream.assert_released()
        first.signal(signal.SIGKILL)
        assert first.wait(5) == -signal.SIGKILL

        second.start()
        await stream.go_on(4)
        await stream.assert_released()
        second.signal(signal.SIGKILL)
        assert second.wait(5) == -signal.SIGKILL

        first.start()
        await stream.go_on(2)
        await stream.assert_released()
        assert first.terminate() == 0
        releases = await app.releases(stream.view.name)
        for records in releases.values():
            assert [record.type for record in records] == ["release"] * 5 + ["refusal"] * 3


BACKLOG = 240


async def test_of_a_backlog_that_a_second_worker_joins_no_revision_has_two_records(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """Noise from the operating system: a window that both draw would differ. Every record is compared, none dropped."""
    text = visits(("partitions: 3", "partitions: 2"), ('epsilon: "100"', 'epsilon: "10000"'), ("1/100", "1/2"))
    async with application(text, tmp_path / "app", broker=kafka) as app:
        first, second = (spawn(app, name, "--session-seconds", "8", "--fresh-noise") for name in ("one", "two"))
        view = only_view(app)
        start = start_of(view)
        part = [Event(f"u{user}", "/", start + minute * MINUTE) for minute in range(BACKLOG) for user in range(40)]
        await app.publish([*part, Watermark(start + BACKLOG * MINUTE + 10_000)])

        async def published(number: int) -> bool:
            return len(await app.read(Topics.release(view.name, "public"))) >= number

        first.start()
        await app.eventually(lambda: published(20), 60)
        second.start()
        await app.eventually(lambda: published(BACKLOG), 150)
        first.check()
        second.check()

        records = [record for audience in view.audiences for record in (await app.releases(view.name))[audience]]
        revisions = Counter((record.audience, record.window.start_ms, record.revision) for record in records)
        distinct = {encode(record) for record in records}
        assert len(distinct) == len(revisions) == BACKLOG * len(view.audiences)
        (ledger,) = (await app.ledgers()).values()
        assert ledger.spent.epsilon == 2 * BACKLOG
