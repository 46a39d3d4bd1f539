"""Events, settings, grants, unlocks and crashes in any order, by the clock of a stream: each window by one edition.

On the embedded log processes end in the middle of a write, and the end of the changelog is lost; on Kafka workers are
stopped, and the next one starts in an empty folder.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from faust.types import TP

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.records.models import Release
from stream_dp.runtime.embedded import MemoryWriter
from stream_dp.runtime.kafka.topics import COUNTS, Topics
from stream_dp.runtime.kafka.transactions import Row
from stream_dp.testing import Event, Watermark
from tests.support.changing import MINUTE, Changing, Make
from tests.support.oracle import count_script
from tests.support.sealing import read_window, seal_window, window_key_of
from tests.support.totals import stored_totals_of

SLOW_ON_KAFKA = True
RICH = ('epsilon: "100", delta: "1/100"', 'epsilon: "10000", delta: "9/10"')
AGE_MINUTES = 2
RISING = ("public: overview,", f"public: {{level: overview, unlock: [{{level: standard, after: {AGE_MINUTES}m}}]}},")
UNLOCKED = {"public": 1}
"""By audience: the index of the level at which windows of that age are unlocked."""
CATALOGUE = (
    ("kind: histogram", "kind: catalogue\n    catalogue: [/0, /1, /2, /none]"),
    ('    delta: "1e-4"\n', ""),
)
SETTINGS = [
    [(), (("items_per_user: 2", "items_per_user: 1"),)],
    [
        (),
        (('standard, epsilon: "2"', 'standard, epsilon: "3"'),),
        (('detailed, epsilon: "6"', 'detailed, epsilon: "7"'),),
    ],
    [(), (("size: 1m", "size: 2m"),), (("size: 1m", "size: 3m, step: 1m"),)],
    [(), (("grace: 10s", "grace: 40s"),)],
    [(), CATALOGUE],
]
"""What is chosen from for each part of the file."""


class Story:
    """What happens to an application, whose workers end in the middle of it."""

    def __init__(self, made: Changing, chance: random.Random, folder: Path) -> None:
        self.made = made
        self.chance = chance
        self.fuse: int | None = None
        """Behind so many writes the worker ends."""
        self.script: list[Event | Watermark] = []
        self.granted: set[str] = set()
        self.fed = self.starts = 0
        self._folder = folder
        self._text: list[tuple[tuple[str, str], ...]] = [choices[0] for choices in SETTINGS]

    async def start(self) -> None:
        """Start a worker, in an empty folder."""
        self.starts += 1
        plan = replace(self.made.app.plan, data_dir=self._folder / f"state {self.starts}")
        await self.made.app.start(clock_ms=self.made.clock, tick_seconds=0.02, plan=plan)

    async def until(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something, with a new worker in the place of each that ends.

        A successor finds less of the counts than was stored last, and reads everything again that it may.
        """
        app = self.made.app
        while True:
            try:
                await app.eventually(check)
                return
            except StateError:
                self.fuse = None
                await app.stop()
                assert app.log is not None
                app.log.committed.clear()
                for partition in range(app.plan.partitions):
                    rows = app.log.records[TP(Topics.of(app.plan).changelog(COUNTS), partition)]
                    del rows[max(0, len(rows) - self.chance.randrange(4)) :]
                await self.start()

    async def feed(self) -> None:
        """Publish a minute in some pieces, with what is too late; let it be counted."""
        at, made, chance = self.made.at(self.fed), self.made, self.chance
        visits = [Event(f"u{chance.randrange(30)}", f"/{chance.randrange(4)}", at + 500 * n) for n in range(100)]
        chance.shuffle(visits)
        part: list[Event | Watermark] = [Watermark(at + 20_000), Event("late", "/0", at - 1), *visits]
        while part:
            some, part = part[: (size := chance.randrange(1, 80))], part[size:]
            self.script += some
            await made.app.publish(some)
        self.fed += 1

    async def counted(self) -> None:
        """Wait until everything that was published is counted."""
        marks = sum(isinstance(one, Watermark) for one in self.script)
        published = len(self.script) - marks + marks * self.made.view.source.partitions

        async def all_of_it() -> bool:
            return (await stored_totals_of(self.made.app)).total("events_consumed") == published

        await self.until(all_of_it)

    async def tune(self) -> None:
        """Change one part of the settings."""
        part = self.chance.randrange(len(SETTINGS))
        self._text[part] = self.chance.choice([one for one in SETTINGS[part] if one != self._text[part]])
        await self.counted()
        assert self.made.app.worker is not None
        number = self.made.app.worker.plan.settings + 1
        plan = self.made.plan(*(change for changes in self._text for change in changes))
        begins = await self.made.tune(plan, self.fed)

        async def learned() -> bool:
            return self.made.app.worker is not None and self.made.app.worker.plan.settings == number

        await self.until(learned)
        while self.fed < begins:
            await self.feed()

    async def grant(self) -> None:
        """Let an audience see everything."""
        audience = self.chance.choice(list(self.made.view.audiences))
        self.granted.add(audience)
        await self.made.app.grant(audience, "detailed")

    async def crash(self) -> None:
        """Let the worker end soon, or stop it and start another one."""
        if self.made.app.log is None:
            await self.made.app.stop()
            await self.start()
        else:
            self.fuse = self.chance.randrange(1, 12)

    def _windows(self, asked: ViewPlan) -> list[int]:
        """The starts of a definition's windows that are over."""
        shape, end = asked.window.shape, self.made.at(self.fed)
        starts = shape.starts(asked.begins_ms, end if asked.until_ms is None else asked.until_ms)
        return [start for start in starts if shape.end(start) <= end]

    async def check(self) -> None:
        """What is shown in the end, and what it costs, is what every definition makes of the events at once."""
        made, app = self.made, self.made.app
        stream_ms = max(one.window.shape.end(start) for one in made.definitions() for start in self._windows(one))
        due: dict[tuple[str, int, int], tuple[int, str, dict[str, int]]] = {}
        spent = Cost.ZERO
        for asked in made.definitions():
            shape = asked.window.shape
            own = [one for one in self.script if isinstance(one, Watermark) or one.time_ms >= asked.begins_ms]
            counts = count_script(asked, asked.begins_ms, own).counts
            for start in self._windows(asked):
                old = shape.end(start) + AGE_MINUTES * MINUTE <= stream_ms
                levels = {
                    name: 2 if name in self.granted else max(level, UNLOCKED.get(name, 0) if old else 0)
                    for name, level in asked.audiences.items()
                }
                key = window_key_of(asked, start, app.prf_key, app.entropy)
                table = seal_window(asked, start, counts.get(start, {}), prf_key=key, entropy=app.entropy)
                spent += asked.spent(table, max(levels.values()))
                for audience, level in levels.items():
                    (reading,) = read_window(asked, start, table, [level], key)
                    place = audience, start, shape.end(start)
                    assert place not in due, "no window is of two editions"
                    due[place] = asked.edition(start).number, asked.levels[level].name, dict(reading.items)

        async def newest() -> dict[tuple[str, int, int], Release]:
            found: dict[tuple[str, int, int], Release] = {}
            for audience, records in (await app.releases(made.view.name)).items():
                for one in records:
                    assert isinstance(one, Release)
                    place = audience, one.window.start_ms, one.window.end_ms
                    assert place not in found or one.revision != found[place].revision, "a revision has one form"
                    if place not in found or one.revision > found[place].revision:
                        found[place] = one
            return found

        async def all_shown() -> bool:
            found = await newest()
            return found.keys() >= due.keys() and all(found[at].level.name == due[at][1] for at in due)

        await self.until(all_shown)
        shown = {
            place: (one.edition, one.level.name, {entry.item: entry.count for entry in one.items})
            for place, one in (await newest()).items()
        }
        assert shown == due
        (ledger,) = (await app.ledgers()).values()
        assert ledger.spent == spent


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 2), *(pytest.param(seed, 4, marks=pytest.mark.slow) for seed in range(2, 12))]
)
async def test_whatever_comes_in_whatever_order_every_window_is_shown_by_one_edition_and_paid_for_once(
    changing: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int, rounds: int
) -> None:
    chance = random.Random(seed)
    made = await changing(RICH, RISING)
    made.clock.now_ms = made.at(600)
    story = Story(made, chance, tmp_path)
    write = MemoryWriter.write

    async def ending(writer: MemoryWriter, rows: list[Row]) -> int:
        if story.fuse is None:
            return await write(writer, rows)
        story.fuse -= 1
        behind = await write(writer, rows[: chance.randrange(len(rows) + 1)] if story.fuse == 0 else rows)
        if story.fuse <= 0:
            raise StateError("the process ends here")
        return behind

    monkeypatch.setattr(MemoryWriter, "write", ending)  # which only the embedded log has
    await story.start()
    for _ in range(rounds):
        for act in chance.sample([story.feed, story.feed, story.feed, story.tune, story.grant, story.crash], 6):
            await act()
    await story.counted()
    story.fuse = None
    last = [Watermark(made.at(story.fed) + 41_000)]
    story.script += last
    await made.app.publish(last)
    await story.check()
