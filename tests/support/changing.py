"""An application whose settings change while a worker runs, what it is fed, and what must come of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.settings_change import LEAD_MS, Situation, boundary
from stream_dp.records.codec import AnyRecord, decode_entry
from stream_dp.records.models import Refusal, Release
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, ManualClock, Watermark, plan_from
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, start_of

MINUTE = 60_000
Script = Sequence[Event | Watermark]


class Changing:
    """An application with one view whose settings a test changes, and what must come of it."""

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

    def minute(self, time_ms: int) -> int:
        return (time_ms - self.start) // MINUTE

    async def apply(self, minute: int, *changes: tuple[str, str]) -> None:
        await self.app.apply(self.plan(*changes), {self.view.name: self.at(minute)})

    async def tune(self, plan: Plan, minute: int) -> int:
        """Post the settings of a plan where events have come to a minute; the minute from which on they hold."""
        assert self.app.worker is not None
        name, now_ms = self.view.name, self.at(minute)
        situation = Situation(now_ms, self.app.worker.plan, {name: now_ms - LEAD_MS}, workers=True)
        begins = boundary(plan.views[name], situation)
        await self.app.apply(plan, {name: begins})
        return self.minute(begins)

    async def pass_to(self, minute: int, windows: int) -> dict[str, list[AnyRecord]]:
        """Let the clock pass a minute and its grace, and wait for so many windows altogether."""
        self.clock.now_ms = self.at(minute) + 30_000
        return await self.app.wait_for_releases(self.view.name, windows)

    async def consumed(self, count: int) -> None:
        async def all_of_them() -> bool:
            worker = self.app.worker
            return worker is not None and worker.counters.total("events_consumed") >= count

        await self.app.eventually(all_of_them)

    async def learned(self, number: int) -> None:
        async def knows() -> bool:
            return self.app.worker is not None and self.app.worker.plan.settings == number

        await self.app.eventually(knows)

    def definitions(self) -> Sequence[ViewPlan]:
        """The definitions of the view so far, in the order in which they were decided."""
        assert self.app.worker is not None
        return [one for one in self.app.worker.plan.views.values() if one.view == self.view.name]

    def later_audiences(self) -> list[str]:
        """Return the audiences of today that some edition was made without."""
        editions = [edition for asked in self.definitions() for edition in asked.editions]
        return [name for name in self.view.audiences if not all(name in one.audiences for one in editions)]

    def expected(
        self, script: Script, until: int, seen: Callable[[ViewPlan, Event], Event | None] = lambda _asked, event: event
    ) -> dict[str, list[AnyRecord]]:
        """What a computation at once makes of a script: every definition from its first window to its end.

        Args:
            script: what was published.
            until: in minutes; windows that begin there or later are not over.
            seen: an event as a definition is to count it by its time, its bounds and the watermarks; None: not at all.
        """
        found: dict[str, list[AnyRecord]] = {}
        for asked in self.definitions():
            end = self.at(until) if asked.until_ms is None else min(self.at(until), asked.until_ms)
            own: list[Event | Watermark] = []
            for one in script:
                if isinstance(one, Watermark):
                    own.append(one)
                elif asked.begins_ms <= one.time_ms < end + asked.window.shape.paid.shortest_ms:
                    own += [event] if (event := seen(asked, one)) is not None else []
            windows = count_script(asked, asked.begins_ms, own).between(asked, asked.begins_ms, end)
            made = expected_records(_for_late_ones(asked), windows, prf_key=self.app.prf_key, entropy=self.app.entropy)
            for audience, records in made.items():
                found.setdefault(audience, []).extend(records)
        return found

    async def assert_released(
        self,
        script: Script,
        until: int,
        seen: Callable[[ViewPlan, Event], Event | None] = lambda _asked, event: event,
        lost: Collection[int] = (),
    ) -> None:
        """Records and charges are, or come to be, those of a computation at once (`expected`), but for lost windows.

        Args:
            script: what was published.
            until: in minutes; windows that begin there or later are not over.
            seen: an event as a definition is to count it.
            lost: the starts of the windows that are refused as lost.
        """
        expected = _without(self.expected(script, until, seen), lost)

        async def shown() -> Mapping[str, Sequence[AnyRecord]] | None:
            found = await self.app.releases(self.view.name)
            due = {name: len(records) + len(lost) for name, records in expected.items()}
            return found if all(len(found[name]) >= number for name, number in due.items()) else None

        releases = await self.app.eventually(shown)
        for records in releases.values():
            refused = [record for record in records if isinstance(record, Refusal)]
            assert [(record.window.start_ms, record.reason) for record in refused] == [(at, "lost") for at in lost]
        releases = _without(releases, lost)
        for name in self.later_audiences():
            # Windows that an audience gets late come after some that it gets in time. How many is not promised.
            releases.get(name, []).sort(key=_place)
            expected.get(name, []).sort(key=_place)
        assert differing(told(releases), told(expected)) == []
        await self.assert_charged(releases)

    async def assert_charged(self, releases: Mapping[str, Sequence[AnyRecord]]) -> None:
        """Every window, or pane, was charged once, by its edition, with what its finest release costs; that is all."""
        (ledger,) = (await self.app.ledgers()).values()
        due: dict[int, tuple[int, Cost]] = {}
        for start, records in by_window(releases).items():
            finest = max(records, key=lambda one: (one.privacy.window.cost.epsilon, one.privacy.window.cost.delta))
            asked = next(one for one in self.definitions() if finest.edition in [made.number for made in one.editions])
            if not (asked.window.shape.is_sum or asked.window.shape.tells_totals):
                due[start] = finest.edition, finest.privacy.window.cost
                continue
            for pane in asked.window.shape.starts(asked.begins_ms, finest.window.end_ms):
                if asked.window.pays(pane):
                    due[pane] = asked.edition(pane).number, asked.cost(asked.at(pane).start_level)
        assert ledger.spent == sum((cost for _, cost in due.values()), Cost.ZERO)
        assert set(ledger.views) == {self.view.name}
        values = {value for _, value in await self.app.read(Topics.of(self.app.plan).accounts) if value is not None}
        entries = [decode_entry(value) for value in values]
        charged = [
            (entry.window.start_ms, (entry.edition, cost))
            for entry in entries
            if (cost := sum((one.charged.cost for one in entry.audiences), Cost.ZERO)) != Cost.ZERO
        ]
        assert len(dict(charged)) == len(charged), "each window is charged once"
        assert dict(charged) == due, "a lost one costs nothing, nor does a late audience"


def _for_late_ones(asked: ViewPlan) -> ViewPlan:
    """A definition of which the audiences that it has now get all windows that somebody has as fine."""
    editions = tuple(
        replace(
            one,
            audiences={name: at for name, at in asked.audiences.items() if at <= max(one.audiences.values())}
            | dict(one.audiences),
        )
        for one in asked.editions
    )
    return replace(asked, editions=editions)


def _without(releases: Mapping[str, Sequence[AnyRecord]], lost: Collection[int]) -> dict[str, list[AnyRecord]]:
    return {
        name: [record for record in records if record.window.start_ms not in lost] for name, records in releases.items()
    }


def _place(record: AnyRecord) -> tuple[int, int]:
    return record.window.start_ms, record.revision


def told(releases: Mapping[str, Iterable[AnyRecord]]) -> dict[str, list[dict[str, Any]]]:
    """Records by audience, without what was told before them."""
    return {
        name: [one.model_dump(exclude={"privacy": {"period"}}) for one in records] for name, records in releases.items()
    }


def differing(
    found: Mapping[str, Sequence[dict[str, Any]]], due: Mapping[str, Sequence[dict[str, Any]]]
) -> list[tuple[Any, ...]]:
    """Where records are not those that are due: audience, window, field, and both values."""
    wrong: list[tuple[Any, ...]] = []
    for audience in found.keys() | due.keys():
        nothing: dict[str, Any] = {}
        for one, other in zip_longest(found.get(audience, ()), due.get(audience, ()), fillvalue=nothing):
            fields = one.keys() | other.keys()
            place = audience, (one or other)["window"]["start"]
            wrong += [
                (*place, name, one.get(name), other.get(name)) for name in fields if one.get(name) != other.get(name)
            ]
    return wrong


def by_window(releases: Mapping[str, Sequence[AnyRecord]]) -> dict[int, list[Release]]:
    """The releases by the starts of their windows; there is nothing else."""
    found: dict[int, list[Release]] = {}
    for records in releases.values():
        for record in records:
            assert isinstance(record, Release)
            found.setdefault(record.window.start_ms, []).append(record)
    return found


Make = Callable[..., Awaitable[Changing]]


@pytest.fixture
def changing(launch: Callable[..., Awaitable[Application]], visits: Callable[..., str], tmp_path: Path) -> Make:
    """Makes an application with changes to its configuration; starts no worker."""

    async def make(*changes: tuple[str, str]) -> Changing:
        return Changing(await launch(*changes), lambda *more: visits(*changes, *more), tmp_path)

    return make
