"""Settings change under load, and a worker is killed at the boundary: every window is made once, by one edition."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.records.models import Release
from stream_dp.testing import Application, Event, Watermark, application, count_script, plan_from
from tests.support.views import start_of
from tests.support.visits import MINUTE, RICH, WITNESSED, visits_of

pytestmark = pytest.mark.broker


def one_item(text: str) -> str:
    """A configuration in which a user counts once in a window, and exact views are as exact."""
    return text.replace("items_per_user: 2", "items_per_user: 1").replace('epsilon: "80"', 'epsilon: "40"')


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

    async def change(self, minute: int) -> None:
        """Let the other plan hold for every view from a minute on."""
        plan = self.plans[len(self.begins) % len(self.plans)]
        await self.app.apply(plan, dict.fromkeys(plan.views, self.start + minute * MINUTE))
        self.begins.append(minute)

    async def feed(self, minutes: int) -> None:
        """Publish some minutes and, before their ends, what is ahead of them; let them end."""
        for _ in range(minutes):
            ahead = [Event(f"a{n}", "/0", self.start + (self.fed + 2) * MINUTE + n) for n in range(20)]
            # Ahead of time by two minutes: counted before a change to come is posted, or after it.
            events = [event for event in visits_of(self.start, self.fed, VISITS) if event.time_ms >= self.at(self.fed)]
            self.script += [*events, *ahead]
            await self.app.publish([*events, *ahead, Watermark(self.at(self.fed + 1) + 10_000)])
            self.fed += 1

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

    async def assert_released(self) -> None:
        """Every window of every view was released once to everybody, by its edition, with its exact counts."""
        for view in self.app.plan.views:
            found = await self.app.wait_for_releases(view, self.fed)
            for records in found.values():
                told = {record.window.start_ms: record.edition for record in records}
                assert len(records) == len(told) == self.fed, "each once, whatever was published again"
                assert told == {start: edition for start, (edition, _) in self.expected().items()}
        shown = {}
        for record in (await self.app.releases(self.view.name))["public"]:
            assert isinstance(record, Release)
            counts = {entry.item: entry.count for entry in record.items if entry.count}
            shown[record.window.start_ms] = record.edition, counts
        assert shown == self.expected()


@pytest.fixture
async def load(kafka: str, tmp_path: Path, visits: Callable[..., str]) -> Any:
    text = visits(*WITNESSED, *RICH)
    async with application(text, tmp_path / "app", broker=kafka) as app:
        yield Load(app, [app.plan, plan_from(one_item(text), tmp_path / "other", kafka)])


async def test_a_worker_that_is_killed_where_settings_change_leaves_every_window_to_one_edition(
    load: Load, spawn: Any
) -> None:
    first, second = spawn(load.app, "one"), spawn(load.app, "two")
    first.start()
    second.start()
    await load.feed(2)
    await load.assert_released()

    await load.feed(1)
    await load.change(5)
    await load.feed(2)
    second.signal(signal.SIGKILL)
    assert second.wait(5) == -signal.SIGKILL
    await load.feed(2)

    await load.assert_released()
    first.check()
    assert first.terminate() == 0


@pytest.mark.slow
async def test_whatever_is_killed_while_settings_change_again_and_again_every_window_has_one_edition(
    load: Load, spawn: Any
) -> None:
    pair = [spawn(load.app, "one"), spawn(load.app, "two")]
    for worker in pair:
        worker.start()
    await load.feed(2)
    await load.assert_released()
    for turn in range(6):
        await load.change(load.fed + 3)
        await load.feed(1 + turn % 3)
        killed = pair[turn % 2]
        killed.signal(signal.SIGKILL)
        assert killed.wait(5) == -signal.SIGKILL
        await load.feed(2)
        killed.start()
        await load.feed(2)
        await load.assert_released()
    assert [worker.terminate() for worker in pair] == [0, 0]
