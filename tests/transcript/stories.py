"""Random applications with random transcripts: what operators, clocks, brokers and outages may do to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from tests.transcript.tapes import PEOPLE, SECOND, shop
from tests.transcript.transcript import (
    Control,
    DeclaredLoss,
    Gap,
    Grant,
    KeyAdded,
    KeyRetired,
    LossAccepted,
    PartitionEvent,
    Settings,
    StoredList,
    Tick,
    Transcript,
    Verdict,
    Watermark,
    Withdrawal,
)

SECONDS = 150
PARTITIONS = 2
FIRMS = "firms"
SOURCES: dict[str, dict[str, Any]] = {
    "visits": {"topic": "visits", "partitions": PARTITIONS},
    "orders": {"topic": "orders", "partitions": PARTITIONS, "key": "user"},
}
LEVELS = ("coarse", "fine", "exact")
LADDER = [{"level": name, "epsilon": at} for name, at in zip(LEVELS, ("1/2", "1", "2"), strict=True)]
KINDS: dict[str, dict[str, Any]] = {
    "catalogue": {},
    "topic": {"catalogue": {"topic": "keys"}},
    "releases": {"catalogue": {"from": "a", "audience": "public"}},
    "histogram": {"kind": "histogram", "delta": "1e-7", "catalogue": None},
    "remember": {"kind": "histogram", "delta": "1e-7", "catalogue": None, "remember": {"audience": "public"}},
    "topk": {
        "kind": "topk",
        "catalogue": None,
        "k": 2,
        "kbar": 4,
        "selection": {"epsilon": "1/10", "delta": "1e-7"},
    },
    "running": {"kind": "running", "window": {"size": "20s", "pane": "10s"}},
}
SHAPES: tuple[dict[str, str], ...] = (
    {"size": "10s"},
    {"size": "15s"},
    {"size": "20s"},
    {"size": "20s", "step": "10s"},
    {"size": "20s", "step": "10s", "pane": "10s"},
)


@dataclass(frozen=True)
class Story:
    """A transcript and what it was made from.

    Attributes:
        seed: makes the same story again.
        transcript: the transcript.
        sections: of the configuration of each of the settings, for `planned`.
    """

    seed: int
    transcript: Transcript
    sections: tuple[dict[str, Any], ...]


def story(seed: int) -> Story:
    """Return the story of a seed."""
    return _Author(seed).write()


def planned(sections: dict[str, Any], *, backwards: bool = False) -> Plan:
    """Return the plan of a configuration; backwards: with views, audiences and ledgers in the reverse order."""
    ordered = dict(sections)
    if backwards:
        for name in ("views", "audiences", "ledgers"):
            ordered[name] = dict(reversed(sections[name].items()))
    return shop(**ordered)


class _Author:
    """Makes up one story."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._control: list[tuple[int, Control]] = []
        self._sections: list[dict[str, Any]] = []

    def write(self) -> Story:
        sections, plan = self._first_plan()
        self._sections.append(sections)
        starts = dict.fromkeys(plan.views, 0)
        self._post(self._random.randrange(3), [Settings(1, plan, starts), Verdict(1, accepted=True)])
        self._change_settings(sections, plan)
        self._operate(plan)
        control = sorted(self._control, key=lambda one: one[0])
        return Story(self._seed, self._transcript(control, plan), tuple(self._sections))

    # Applications

    def _first_plan(self) -> tuple[dict[str, Any], Plan]:
        """The first random configuration that is accepted."""
        while True:
            sections = self._configuration()
            try:
                return sections, planned(sections)
            except ConfigError:
                continue

    def _configuration(self) -> dict[str, Any]:
        populations = [PEOPLE, FIRMS][: self._random.randint(1, 2)]
        return {
            "sources": SOURCES,
            "ledgers": {name: self._ledger(name) for name in populations},
            "ladders": {"standard": LADDER},
            "audiences": self._audiences(),
            "views": {name: self._view(populations) for name in "abcd"[: self._random.randint(1, 4)]},
            "release": {"slot": self._one("1s", "1s", "5s", "10s"), "offset": self._one("0s", "2s", "2s", "7s")},
        }

    def _ledger(self, population: str) -> dict[str, Any]:
        return {
            "population": population,
            "epsilon": str(self._one(4, 8, 16, 32, 100)),
            "delta": "1e-4",
            "period": self._one("1m", "1m", "2m"),
            "start": "1970-01-01T00:00:00Z",
        }

    def _audiences(self) -> dict[str, Any]:
        audiences: dict[str, Any] = {}
        for name in ["public", "partner", "staff"][: self._random.randint(1, 3)]:
            level = self._random.randrange(3)
            unlocks: list[dict[str, str]] = []
            if level < 2 and self._chance(1, 3):
                unlocks.append({"level": LEVELS[self._random.randint(level + 1, 2)], "after": self._one("5s", "8s")})
            audiences[name] = {"level": LEVELS[level], "unlock": unlocks}
        return audiences

    def _view(self, populations: Sequence[str]) -> dict[str, Any]:
        view = dict(KINDS[self._random.choice(sorted(KINDS))])
        view["source"] = self._one("visits", "visits", "orders")
        view["ledger"] = self._random.choice(populations)
        view["retention"] = self._one("10s", "25s", "1h")
        view["when_short"] = self._one("refuse", "coarser")
        window = dict(view.get("window") or self._random.choice(SHAPES))
        window["grace"] = self._one("0s", "2s", "5s", "15s")
        window["max_ahead"] = self._one("1s", "15s")
        window["catch_up"] = self._one("0s", "7s", "30s")
        if self._chance(1, 3):
            window |= {"clock": "event", "idle": self._one("10s", "1h")}
        view["window"] = window
        if self._chance(1, 4):
            level = self._one("fine", "exact")
            view["sharpen"] = {"audience": "public", "level": level, "every": self._one("10s", "24s")}
        if self._chance(1, 4):
            view["windows_per_user"] = self._random.randint(1, 4)
        return view

    # The control topic

    def _post(self, second: int, records: Sequence[Control]) -> None:
        self._control += [(second, record) for record in records]

    def _change_settings(self, sections: dict[str, Any], plan: Plan) -> None:
        """Post up to two changes, some of them refused."""
        for number in range(2, self._random.randint(2, 4)):
            second = 30 * number - self._random.randrange(25)
            boundary_ms = (second + 90) // 60 * 60 * SECOND
            changed = self._changed(sections)
            try:
                latter = planned(changed)
            except ConfigError:
                continue
            is_accepted = self._chance(4, 5)
            settings = _settings(number, plan, latter, boundary_ms)
            self._post(second, [settings, Verdict(number, is_accepted, second * SECOND)])
            self._sections.append(changed)
            if is_accepted:
                sections = changed
                plan = latter

    def _changed(self, sections: dict[str, Any]) -> dict[str, Any]:
        changed = dict(sections)
        views = dict(sections["views"])
        name = self._random.choice(sorted(views))
        what = self._random.randrange(5)
        if what == 0:
            changed["audiences"] = self._audiences()
        elif what == 1:
            changed["ledgers"] = {one: self._ledger(one) for one in sections["ledgers"]}
        elif what == 2:
            views[name] = {**views[name], "items_per_user": self._random.randint(2, 3)}
        elif what == 3 and len(views) > 1:
            del views[name]
        else:
            views.setdefault("e", self._view(sorted(sections["ledgers"])))
        changed["views"] = views
        return changed

    def _operate(self, plan: Plan) -> None:
        """Grant, withdraw, revoke, rotate keys and declare losses."""
        for number in range(self._random.randrange(5)):
            second = self._random.randrange(5, SECONDS)
            grant = Grant(
                f"grant {number}",
                self._random.choice(plan.audiences),
                self._one(*LEVELS, "none"),
                self._one(None, None, ("a",), ("b", "c")),
                self._one("both", "retained", "future"),
                self._one(0, 0, 30_000),
                self._one(None, None, 60_000),
                self._one(None, None, (second + self._random.randrange(-5, 20)) * SECOND),
            )
            self._post(second, [grant])
            if self._chance(1, 5):
                self._post(second + self._random.randrange(20), [Withdrawal(grant.name)])
        if self._chance(1, 3):
            self._post(0, [KeyAdded("one")])
            self._post(40, [KeyAdded("two")])
            self._post(self._random.randrange(45, 120), [KeyRetired("one")])
        if self._chance(1, 8):
            loss = DeclaredLoss("visits", self._random.randrange(PARTITIONS), self._random.randrange(80) * SECOND)
            self._post(self._random.randrange(80, 120), [loss])

    # Partitions

    def _transcript(self, control: Sequence[tuple[int, Control]], plan: Plan) -> Transcript:
        partitions = {number: tuple(self._events(control)) for number in range(PARTITIONS)}
        ledgers = {ledger.population: self._random.randrange(PARTITIONS) for ledger in plan.ledgers.values()}
        lists: dict[tuple[str, str], tuple[StoredList, ...]] = {}
        for population, number in ledgers.items():
            seconds = sorted({event.time_ms // SECOND for event in partitions[number] if isinstance(event, Tick)})
            chosen = [seconds[0], *sorted(self._random.sample(seconds[1:], 4))]
            versions = [StoredList(second * SECOND, f"version {at}") for at, second in enumerate(chosen)]
            lists[population, "keys"] = tuple(versions)
        return Transcript(tuple(record for _, record in control), partitions, ledgers, lists)

    def _events(self, control: Sequence[tuple[int, Control]]) -> Iterator[PartitionEvent]:
        """The ticks of a partition: late, missing, without a leader, with gaps and watermarks between them."""
        lag = self._one(0, 0, 1, 3)
        silence = self._silence()
        leaderless = self._silence()
        flapping = range(20, 100) if self._chance(1, 10) else range(0)
        watermark = dict.fromkeys(SOURCES, 0)
        for second in range(SECONDS):
            is_flapping = second in flapping and second % 7
            if second in silence or is_flapping or self._chance(1, 30):
                continue
            for name in SOURCES:
                if self._chance(1, 3):
                    watermark[name] = max(watermark[name], second - self._random.randrange(12))
                    yield Watermark(name, watermark[name] * SECOND)
                if self._chance(1, 500):
                    yield Gap(name)
            if self._chance(1, 300):
                yield LossAccepted(("a",), second // 2 * SECOND, second * SECOND)
            sources = frozenset(SOURCES) - ({"visits"} if second in leaderless else set())
            end = sum(1 for at, _ in control if at <= second - lag)
            yield Tick(second * SECOND + self._random.randrange(SECOND), end, sources)

    def _silence(self) -> range:
        if self._chance(2, 3):
            return range(0)
        start = self._random.randrange(10, 100)
        return range(start, start + self._random.randrange(3, 40))

    # Chance

    def _chance(self, part: int, whole: int) -> bool:
        return self._random.randrange(whole) < part

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)


def _settings(number: int, former: Plan, latter: Plan, boundary_ms: int) -> Settings:
    """The settings that lead from one plan to another, with a new edition of every view that differs."""
    starts: dict[str, int] = {}
    for name, view in latter.views.items():
        if former.views.get(name) != view:
            starts[name] = boundary_ms
    ends = {name: boundary_ms for name in former.views if name not in latter.views}
    return Settings(number, latter, starts, ends)


def with_plans(told: Story, *, backwards: bool) -> Transcript:
    """Return the transcript of a story with its settings planned again, from a configuration in another order."""
    plans = iter(planned(sections, backwards=backwards) for sections in told.sections)
    control: list[Control] = []
    for record in told.transcript.control:
        control.append(replace(record, plan=next(plans)) if isinstance(record, Settings) else record)
    return replace(told.transcript, control=tuple(control))
