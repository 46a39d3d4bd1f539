"""Settings change under load, and a worker is killed at the boundary: every window is made once, by one edition."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.records.codec import AnyRecord, encode, topic_key
from stream_dp.records.models import PrivacyCost, Release
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, Watermark, application, plan_from
from tests.support.oracle import count_script, expected_records
from tests.support.views import released, start_of
from tests.support.visits import MINUTE, RICH, WITNESSED, visits_of

pytestmark = pytest.mark.broker


def one_item(text: str) -> str:
    """A configuration in which a user counts once in a window, and exact views are as exact."""
    return text.replace("items_per_user: 2", "items_per_user: 1").replace('epsilon: "80"', 'epsilon: "40"')


def cheaper(text: str) -> str:
    """A configuration in which the same is counted, and windows cost something else."""
    return text.replace('epsilon: "80"', 'epsilon: "78"').replace("buckets: ", "buckets: 1")


VISITS = 600


class Load:
    """Visits of whole minutes, and what the exact view has to show of them under settings that take turns."""

    def __init__(self, app: Application, plans: Sequence[Plan]) -> None:
        self.app = app
        self.plans = plans
        self.view = next(view for view in app.plan.views.values() if view.name.endswith("-exact"))
        self.start = start_of(self.view)
        self.begins = [0]
        """In minutes, where each edition begins."""
        self.fed = 0
        self.script: list[Event] = []
        self._publishing = asyncio.Lock()

    async def change(self, minutes: int) -> None:
        """Let the other plan hold for every view from so many minutes ahead on.

        With less than two, some events are further ahead: a plan that accepts others than the one before gives them up.
        """
        async with self._publishing:
            plan, minute = self.plans[len(self.begins) % len(self.plans)], self.fed + minutes
            await self.app.apply(plan, dict.fromkeys(plan.views, self.at(minute)))
            self.begins.append(minute)

    async def feed(self, minutes: int) -> None:
        """Publish some minutes and, before their ends, what is ahead of them; let them end."""
        for _ in range(minutes):
            async with self._publishing:
                ahead = [Event(f"a{n}", "/0", self.at(self.fed + 2) + n) for n in range(20)]
                # Ahead of time by two minutes: counted before a change to come is posted, or after it.
                visits = visits_of(self.start, self.fed, VISITS)
                events = [event for event in visits if event.time_ms >= self.at(self.fed)]
                self.script += [*events, *ahead]
                await self.app.publish([*events, *ahead, Watermark(self.at(self.fed + 1) + 10_000)])
                self.fed += 1

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Events keep coming meanwhile, a minute of theirs every half second."""

        async def on_and_on() -> None:
            while not over.is_set():
                await self.feed(1)
                await asyncio.sleep(0.5)

        over = asyncio.Event()
        feeding = asyncio.create_task(on_and_on())
        try:
            yield
        finally:
            over.set()
            await feeding

    def at(self, minute: int) -> int:
        return self.start + minute * MINUTE

    def edition(self, minute: int) -> int:
        return max(number for number, begins in enumerate(self.begins, 1) if begins <= minute)

    def expected(self) -> dict[int, tuple[int, Mapping[str, int]]]:
        """By window its edition and its counts."""
        found = {}
        for minute in range(self.fed):
            edition = self.edition(minute)
            plan = self.plans[(edition - 1) % len(self.plans)]
            own = [event for event in self.script if self.at(minute) <= event.time_ms < self.at(minute + 1)]
            counts = count_script(plan.views[self.view.name], self.at(minute), own).counts
            found[self.at(minute)] = edition, counts.get(self.at(minute), {})
        return found

    def expected_records(self) -> list[Release]:
        """What the exact view has to release; its noise is none, whatever it is drawn from."""
        made: list[Release] = []
        period = Cost.ZERO
        for start, (edition, counts) in self.expected().items():
            view = self.plans[(edition - 1) % len(self.plans)].views[self.view.name].begun(start, edition)
            records = expected_records(view, {start: counts}, prf_key=self.app.prf_key, entropy=self.app.entropy)
            (record,) = released(records["public"])
            period += record.privacy.window.cost
            privacy = record.privacy.model_copy(update={"period": PrivacyCost.spent(period)})
            made.append(record.model_copy(update={"privacy": privacy}))
        return made

    async def assert_released(self) -> None:
        """Every window of every view was released once to everybody, by its edition; the exact view is as expected.

        What is published again after a crash is the same bytes.
        """
        expected = self.expected()
        for view in self.app.plan.views:
            found = await self.app.eventually(partial(self._whole, view))
            for records in found.values():
                told = [(record.window.start_ms, record.edition) for record in records]
                assert told == [(start, edition) for start, (edition, _) in expected.items()]
        topic, made = Topics.of(self.app.plan).release(self.view.name, "public"), self.expected_records()
        rows = [
            (key, value)
            for key, value in await self.app.read(topic)
            if value is not None and b"/view/" not in (key or b"")
        ]
        assert dict.fromkeys(rows) == dict.fromkeys((topic_key(record), encode(record)) for record in made)
        shown = {one.window.start_ms: (one.edition, {e.item: e.count for e in one.items if e.count}) for one in made}
        assert shown == expected
        (entries,) = [one for one in (await self.app.ledgers()).values() if self.view.name in one.views]
        assert entries.spent == sum((record.privacy.window.cost for record in made), Cost.ZERO)

    async def _whole(self, view: str) -> dict[str, list[AnyRecord]] | None:
        found = await self.app.releases(view)
        return found if all(len(records) >= self.fed for records in found.values()) else None


@pytest.fixture
async def load(kafka: str, tmp_path: Path, visits: Callable[..., str], other: Callable[[str], str]) -> Any:
    text = visits(*WITNESSED, *RICH)
    async with application(text, tmp_path / "app", broker=kafka) as app:
        yield Load(app, [app.plan, plan_from(other(text), tmp_path / "other", kafka)])


AT_THE_BOUNDARY = {
    "partials": "-partials/.*@2",
    "handed over": "counts-changelog/.*@2",
    "merged": "merges-changelog/.*@2",
    "released": "releases-changelog/.*@2",
}
"""The first record about a window of the new edition that a worker has in its buffers and has not sent."""


@pytest.mark.parametrize("other", [cheaper])
@pytest.mark.parametrize(
    "what", [pytest.param(name, marks=() if name == "partials" else pytest.mark.slow) for name in AT_THE_BOUNDARY]
)
async def test_a_worker_that_is_killed_where_settings_change_leaves_every_window_to_one_edition(
    load: Load, spawn: Any, what: str
) -> None:
    """The first of two workers at the boundary stops itself there and is killed; events keep coming all the while."""
    pair = [spawn(load.app, name, trap="any") for name in ("one", "two")]
    for worker in pair:
        worker.start()
    await load.feed(2)
    await load.assert_released()

    pair[0].set_trap(AT_THE_BOUNDARY[what], 1)
    async with load.going_on():
        await load.change(1)

        async def first_there() -> Any:
            return next((worker for worker in pair if worker.is_trapped()), None)

        killed = await load.app.eventually(first_there)
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        fed = load.fed

        async def more() -> bool:
            return load.fed > fed + 2

        await load.app.eventually(more)

    await load.assert_released()
    (left,) = [worker for worker in pair if worker is not killed]
    left.check()
    assert left.terminate() == 0


@pytest.mark.slow
@pytest.mark.parametrize("other", [one_item])
async def test_whatever_is_killed_while_settings_change_again_and_again_every_window_has_one_edition(
    load: Load, spawn: Any
) -> None:
    pair = [spawn(load.app, "one"), spawn(load.app, "two")]
    for worker in pair:
        worker.start()
    await load.feed(2)
    await load.assert_released()
    for turn in range(6):
        await load.change(3)
        await load.feed(1 + turn % 3)
        killed = pair[turn % 2]
        killed.signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
        await load.feed(2)
        killed.start()
        await load.feed(2)
        await load.assert_released()
    assert [worker.terminate() for worker in pair] == [0, 0]
