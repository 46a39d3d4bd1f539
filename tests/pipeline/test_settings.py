"""Settings change while a worker runs: each window is made with those that hold for it, and with no others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import build_plan
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Refusal, Release
from stream_dp.runtime.client import Outgoing
from stream_dp.testing import (
    Application,
    Event,
    ManualClock,
    Watermark,
    count_script,
    expected_records,
    plan_from,
)
from stream_dp.windows.events import WATERMARK_HEADER
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WALL = ("clock: event", "clock: wall")
ONE_ITEM = ("items_per_user: 2", "items_per_user: 1")
SHARPER = ('overview, epsilon: "1"', 'overview, epsilon: "3/2"')
LONGER = ("size: 1m", "size: 2m")


class Changing:
    """An application whose settings a test changes, and what must come of it."""

    def __init__(self, app: Application, text: Callable[..., str], folder: Path) -> None:
        self.app = app
        self._text = text
        self._folder = folder
        self.view = only_view(app)
        self.start = start_of(self.view)
        self.clock = ManualClock(self.start)

    def plan(self, *changes: tuple[str, str]) -> Plan:
        """The plan of a changed file."""
        return plan_from(self._text(*changes), self._folder / "changed", self.app.plan.broker.address)

    def at(self, minute: int) -> int:
        return self.start + minute * MINUTE

    async def apply(self, minute: int, *changes: tuple[str, str]) -> None:
        await self.app.apply(self.plan(*changes), {self.view.name: self.at(minute)})

    async def pass_to(self, minute: int, windows: int) -> dict[str, list[AnyRecord]]:
        """Let the clock pass a minute and its grace, and wait for so many windows altogether."""
        self.clock.now_ms = self.at(minute) + 30_000
        return await self.app.wait_for_releases(self.view.name, windows)

    def questions(self) -> Sequence[ViewPlan]:
        assert self.app.worker is not None
        return list(self.app.worker.plan.views.values())

    def expected(self, script: Sequence[Event], until: int) -> dict[str, list[dict[str, Any]]]:
        """What a computation at once makes of a script: every question from its first window to its end."""
        found: dict[str, list[dict[str, Any]]] = {}
        for asked in self.questions():
            end = self.at(until) if asked.until_ms is None else asked.until_ms
            own = [event for event in script if asked.begins_ms <= event.time_ms < end]
            windows = count_script(asked, asked.begins_ms, own).between(asked, asked.begins_ms, end)
            made = expected_records(asked, windows, prf_key=self.app.prf_key, entropy=self.app.entropy)
            for audience, records in made.items():
                found.setdefault(audience, []).extend(map(told, records))
        return found

    async def assert_released(self, script: Sequence[Event], until: int) -> None:
        """Records and charges are those of a computation at once."""
        releases = await self.app.releases(self.view.name)
        assert {name: list(map(told, records)) for name, records in releases.items()} == self.expected(script, until)
        (ledger,) = (await self.app.ledgers()).values()
        finest = [max(records, key=lambda r: r.held.cost.epsilon) for records in by_window(releases)]
        assert ledger.spent == sum((record.held.cost for record in finest), Cost.ZERO)
        assert set(ledger.views) == {self.view.name}


def told(record: AnyRecord) -> dict[str, Any]:
    """A record without what was told before it."""
    return record.model_dump(exclude={"told"})


def by_window(releases: Mapping[str, Sequence[AnyRecord]]) -> list[list[Release]]:
    found: dict[int, list[Release]] = {}
    for records in releases.values():
        for record in records:
            assert isinstance(record, Release)
            found.setdefault(record.window.start_ms, []).append(record)
    return list(found.values())


@pytest.fixture
def changing(launch: Launch, visits: Callable[..., str], tmp_path: Path) -> Callable[..., Awaitable[Changing]]:
    async def make(*changes: tuple[str, str]) -> Changing:
        return Changing(await launch(*changes), lambda *more: visits(*changes, *more), tmp_path)

    return make


Make = Callable[..., Awaitable[Changing]]


def events(made: Changing, minute: int, users: int = 60) -> list[Event]:
    """Visits of a minute: each user has three pages."""
    at = made.at(minute)
    return [Event(f"u{n}", f"/{(n + m) % 5}", at + 100 * n + m) for n in range(users) for m in range(3)]


async def consumed(made: Changing, count: int) -> None:
    async def all_of_them() -> bool:
        worker = made.app.worker
        return worker is not None and worker.counters.total("events_consumed") >= count

    await made.app.eventually(all_of_them)


async def learned(made: Changing, number: int) -> None:
    async def knows() -> bool:
        return made.app.worker is not None and made.app.worker.plan.settings == number

    await made.app.eventually(knows)


async def test_every_window_is_made_with_the_settings_that_hold_for_it_and_paid_for_once(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(3) for event in events(made, minute)]
    await made.app.publish(script)
    await made.pass_to(1, 1)

    await made.apply(3, ONE_ITEM, SHARPER)
    await learned(made, 2)
    ahead = events(made, 4)[:90]
    await made.app.publish(ahead)
    await made.apply(6, LONGER)
    await learned(made, 3)
    later = [event for minute in (3, 5, 6, 7, 8) for event in events(made, minute)]
    await made.app.publish(later)
    script += ahead + later
    await consumed(made, len(script))
    found = await made.pass_to(10, 8)

    assert [[record.edition for record in records] for records in found.values()] == [[1, 1, 1, 2, 2, 2, 3, 3]] * 3
    sizes = [record.window.end_ms - record.window.start_ms for record in found["public"]]
    assert sizes == [MINUTE] * 6 + [2 * MINUTE] * 2
    await made.assert_released(script, 10)
    assert made.app.worker is not None
    assert made.app.worker.totals().total("windows_released", view=made.view.name) == 8


async def test_settings_posted_while_no_worker_runs_hold_at_the_next_start_whatever_its_file_says(
    changing: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(2) for event in events(made, minute)]
    await made.app.publish(script)
    await consumed(made, len(script))
    await made.app.stop()
    await made.apply(1, ONE_ITEM)

    with caplog.at_level(logging.WARNING, logger="stream_dp.worker"):
        await made.app.start(clock_ms=made.clock)

    said = f"settings 2 hold, and the file says otherwise about views.{made.view.name}.items_per_user"
    assert [message for message in caplog.messages if message.startswith(said)]
    found = await made.pass_to(2, 2)
    assert [record.edition for record in found["public"]] == [1, 2]
    totals = made.app.worker.totals() if made.app.worker is not None else None
    assert totals is not None
    assert totals.total("events_refused", reason="changed") == 120, "two contributions of each user of minute 1"


@pytest.mark.slow
async def test_windows_that_were_released_before_anybody_knew_better_stay_and_the_view_goes_on_behind_them(
    changing: Make,
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await consumed(made, len(script))
    await made.pass_to(3, 3)

    await made.apply(1, ONE_ITEM)
    await learned(made, 2)
    more = events(made, 3) + events(made, 4)
    await made.app.publish(more)
    await consumed(made, len(script) + len(more))
    found = await made.pass_to(5, 5)

    assert [record.edition for record in found["public"]] == [1, 1, 1, 2, 2]
    assert not [record for records in found.values() for record in records if isinstance(record, Refusal)]
    assert [record.window.start_ms for record in found["public"]] == [made.at(minute) for minute in range(5)]


async def test_windows_that_some_partitions_closed_before_they_knew_are_refused_as_lost(changing: Make) -> None:
    """The clock of one partition was ahead: what it handed on for these windows answers the former question."""
    made = await changing()
    made.clock.now_ms = made.at(60)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await made.app.publish([Watermark(made.at(1) + 10_000)])
    await made.app.wait_for_releases(made.view.name, 1)
    ahead = [(WATERMARK_HEADER, str(made.at(3) + 10_000).encode())]
    await made.app.client.publish([Outgoing(made.view.source.topic, 0, None, b"", ahead)])
    await consumed(made, len(script) + 3 + 1)

    await made.apply(2, ONE_ITEM)
    await learned(made, 2)
    more = events(made, 3)
    await made.app.publish([*more, Watermark(made.at(4) + 10_000)])
    found = await made.app.wait_for_releases(made.view.name, 4)

    for records in found.values():
        first = {record.window.start_ms: record for record in records}
        told = [(first[made.at(m)].edition, first[made.at(m)].type) for m in range(4)]
        assert told == [(1, "release"), (1, "release"), (2, "refusal"), (2, "release")]
    refused = [record for records in found.values() for record in records if isinstance(record, Refusal)]
    assert {record.reason for record in refused} == {"lost"}


SECOND = (
    "views:\n",
    "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s}, "
    'delta: "1e-4", ledger: visitors, ladder: standard, retention: 1d}\n',
)


async def test_views_come_and_go_while_a_worker_runs(changing: Make) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    both = made.plan(SECOND)
    (more,) = both.views.keys() - {made.view.name}

    await made.app.apply(both, {more: made.at(1)})
    await learned(made, 2)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await consumed(made, len(script))
    await made.pass_to(2, 2)
    made.app.plan = both
    found = await made.app.wait_for_releases(more, 1)
    assert [record.window.start_ms for record in found["public"]] == [made.at(1)]

    sections = {**both.raw, "views": {more: both.raw["views"][more]}}
    await made.app.apply(build_plan(sections, both.folder), {}, {made.view.name: made.at(3)})
    await learned(made, 3)
    made.clock.now_ms = made.at(4) + 30_000
    found = await made.app.wait_for_releases(more, 3)
    assert len((await made.app.releases(made.view.name))["public"]) == 3


@pytest.mark.slow
async def test_windows_of_a_former_question_are_sharpened_by_its_own_ladder_and_paid_for_by_the_same_ledger(
    changing: Make,
) -> None:
    made = await changing(WALL)
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await consumed(made, len(script))
    await made.apply(2, ('detailed, epsilon: "6"', 'detailed, epsilon: "7"'))
    await learned(made, 2)
    await made.pass_to(4, 4)

    await made.app.grant("partner", "detailed")
    found = await made.app.wait_for_releases(made.view.name, 4)

    async def sharper() -> bool:
        nonlocal found
        found = await made.app.releases(made.view.name)
        return len(found["partner"]) == 8

    await made.app.eventually(sharper)
    second = [record for record in found["partner"] if record.revision == 2]
    assert sorted((r.window.start_ms, r.edition, r.level.epsilon.exact) for r in second) == [
        (made.at(0), 1, "6"),
        (made.at(1), 1, "6"),
        (made.at(2), 2, "7"),
        (made.at(3), 2, "7"),
    ]
    (ledger,) = (await made.app.ledgers()).values()
    assert ledger.spent.epsilon == 26


@pytest.mark.slow
async def test_what_changes_no_question_goes_on_with_its_windows(changing: Make) -> None:
    """An audience that is added reads from its first window on, and gets what is free of those before."""
    made = await changing(WALL, ("buckets: 4\n", "buckets: 4\n    audiences: [internal, public]\n"))
    await made.app.start(clock_ms=made.clock)
    script = [event for minute in range(4) for event in events(made, minute)]
    await made.app.publish(script)
    await consumed(made, len(script))
    await made.pass_to(1, 1)

    await made.apply(3, ("    audiences: [internal, public]\n", ""))
    await learned(made, 2)
    await made.pass_to(4, 4)
    made.app.plan = made.plan(("    audiences: [internal, public]\n", ""))
    found = await made.app.wait_for_releases(made.view.name, 1)

    async def everything() -> bool:
        nonlocal found
        found = await made.app.releases(made.view.name)
        return made.at(3) in {record.window.start_ms for record in found["partner"]}

    await made.app.eventually(everything)
    assert [record.edition for record in found["public"]] == [1, 1, 1, 2]
    assert {r.edition for r in found["partner"] if r.window.start_ms == made.at(3)} == {2}
    (asked,) = made.questions()
    assert asked.name == made.view.name
