"""A small application with a view of every kind, and what its engine publishes: windows of every state of the page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted, next_record, plan_holding
from stream_dp.control.grant_records import Scope
from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.models import Release
from stream_dp.windows.durations import parse_time
from stream_dp.windows.effects import Message
from tests.browser.served_reader import ServedReader
from tests.support.releasing import Desk, plan_of

DAY = 86_400_000
BEGIN = parse_time("2026-03-01T00:00:00Z")
CONFIG = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  flights: {topic: flights, partitions: 1}
ledgers:
  planes: {population: aircraft, epsilon: "4000", delta: "1/5", period: 70d, start: 2026-03-01T00:00:00Z}
  short: {population: helicopters, epsilon: "3/50", delta: "1/5", period: 70d, start: 2026-03-01T00:00:00Z}
  pooled:
    {population: gliders, epsilon: "400", delta: "1/5", period: 70d, start: 2026-03-01T00:00:00Z,
     zcdp: {epsilon: "300", slack: "1/100"}}
ladders:
  three: [{level: coarse, epsilon: "1/20"}, {level: middle, epsilon: "1/10"}, {level: fine, epsilon: "1/5"}]
  one: [{level: coarse, epsilon: "1/2"}]
audiences: {public: coarse, partner: middle}
views:
"""
VIEW = "  {name}: {{source: flights, item: dest, retention: 3000d, window: {window}, {more}}}\n"
WINDOW = "{size: 1d, start: 2026-03-01T00:00:00Z, grace: 1h}"
PANES = "{size: 7d, pane: 1d, start: 2026-03-01T00:00:00Z, grace: 1h}"
PLACES = "ORD, ATL, LAX, DCA, MIA, BOS"
LADDER = "items_per_user: 1, ledger: planes, ladder: three"
POOLED = "items_per_user: 1, ledger: pooled, ladder: three"
ONE = "items_per_user: 1, ledger: planes, ladder: one, audiences: [public]"
KEYS = 'items_per_user: 1, ladder: three, kind: histogram, delta: "1e-6", item_meaning: the airport of arrival'
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
VIEWS = {
    "destinations": f"ledger: planes, {KEYS}",
    "short": f"ledger: short, {KEYS}, audiences: [public]",
    "lost": f"ledger: planes, {KEYS}",
    "fresh": f"ledger: planes, {KEYS}",
    "known": f"ledger: planes, {KEYS}, remember: {{audience: public}}",
    "ends": f'{ONE}, kind: histogram, delta: "1e-6", noise: truncated-laplace',
    "leaders": f'{LADDER}, kind: gap, catalogue: [{PLACES}], k: 3, selection: {{epsilon: "1/5"}}',
    "largest": f'{LADDER}, kind: subset, catalogue: [{PLACES}], k: 3, selection: {{epsilon: "1/5"}}',
    "airlines": f"{LADDER}, kind: catalogue, catalogue: [{PLACES}, NONE]",
    "ranked": f"{LADDER}, kind: catalogue, catalogue: [{PLACES}, NONE], rank: 3",
    "first": f"ledger: planes, {KEYS}, rank: 3",
    "gaussian": f"{LADDER}, kind: catalogue, catalogue: [{PLACES}], noise: discrete-gaussian".replace(
        "planes", "pooled"
    ),
    "totals": f"{LADDER}, kind: running, catalogue: [{PLACES}]",
    "busiest": f'{LADDER}, kind: topk, k: 4, kbar: 8, selection: {{epsilon: "1/5", delta: "1e-6"}}',
    "found": f"{ONE}, kind: pure_topk, k: 4, key_bytes: 8",
    "names": f'{ONE}, kind: keys, delta: "1e-6"',
    "spread": f"{LADDER}, kind: bounds, grid: [1, 2]".replace("user: 1", "user: 3"),
    "table": f"{ONE}, kind: lookup, rows: 101, key_bytes: 8",
}
COUNTS = {"ORD": 812_400, "ATL": 790_100, "LAX": 655_700, "DCA": 301_900, "MIA": 204_600, "BOS": 103_300}
"""Numbers that nothing else on a page is: no date, no noise, no limit."""
KNOWN = {"shop.releases.known.public": KeyList.of(["ORD", "ATL", "SML", "GONE"])}
"""The keys that the view of that name was shown before."""
FEW = {"SML": 320, "TNY": 3}
"""The first may be shown by its noise alone; the second is hidden."""
DAYS, EMPTY, LOST, EDITION = 7, 2, 1, 5
"""Windows of each view; the days of the empty one, of the lost one, and of the first of the second edition."""
LAST = DAYS - 1
SHARPER = 4
"""Windows before this day were made sharper."""


def config(views: Mapping[str, str] = VIEWS) -> str:
    """The configuration of an application with some views."""
    windows = {name: PANES if "kind: running" in more else WINDOW for name, more in views.items()}
    return CONFIG + "".join(VIEW.format(name=name, window=windows[name], more=more) for name, more in views.items())


def start_of(day: int) -> int:
    """When the window of a day begins."""
    return BEGIN + day * DAY


def counts_on(day: int) -> dict[str, int]:
    """What is counted on a day, exactly: no large count is that of another day."""
    return {key: count + 1009 * day for key, count in COUNTS.items()} | FEW


def counts_of(view: str, day: int) -> dict[str, int]:
    """What is counted in a view on a day of the story."""
    if (view, day) == ("destinations", EMPTY):
        return {"ORD": 7}
    if view == "spread":
        return {"1": 400_100 + day, "2": 90_300 + day, "more than 2": 70_400 + day}
    return counts_on(day) | ({HOSTILE: 400_000} if view == "lost" else {})


@cache
def plan() -> Plan:
    """The plan of the application; destinations have two editions."""
    first = plan_of(config())
    second = plan_of(config(VIEWS | {"destinations": VIEWS["destinations"].replace("user: 1", "user: 2")}))
    known: list[Posted] = []
    known.append(next_record(known, first, dict.fromkeys(first.views, BEGIN), {}, 0))
    known.append(next_record(known, second, {"destinations": start_of(EDITION)}, {}, 1))
    return plan_holding(known, first)


def fill(desk: Desk, days: range = range(DAYS)) -> None:
    """Let the engine publish the windows of some days, and make those of the first days sharper."""
    for day in days:
        if day == LOST:
            desk.unknown_before = {"lost": start_of(LOST + 1)}
            desk.reader.restart()
        for view in desk.plan.views.values():
            is_of_day = view.begins_ms <= start_of(day) < (view.until_ms or start_of(DAYS))
            if is_of_day and view.view != "fresh" and (view.view, day) != ("lost", LOST):
                desk.give(view.name, start_of(day), counts_of(view.view, day))
        if day == SHARPER - 1:
            desk.grant(1, "public", "middle", start_of(SHARPER), Scope(windows="retained"))


@cache
def published() -> tuple[Message, ...]:
    """What the application has published, of both audiences and of the views themselves."""
    desk = Desk(plan(), audit=False, lists=KNOWN)
    fill(desk)
    return releases_of(desk)


def releases_of(desk: Desk, since: int = 0) -> tuple[Message, ...]:
    """What an engine has published for readers, from its message of a number on."""
    return tuple(message for message in desk.machine.sent[since:] if message.topic.startswith("shop.releases."))


class Shop:
    """An application of some views, a day at a time, and the gateway that serves it.

    Attributes:
        desk: its release engine.
        served: the gateway.
    """

    def __init__(self, folder: Path, *views: str) -> None:
        self.desk = Desk(plan_of(config({name: VIEWS[name] for name in views})), audit=False, lists=KNOWN)
        self.served = ServedReader(folder, self.desk.plan)
        self._sent = self._grants = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.served.close()

    def day(self, day: int) -> None:
        """Release the windows of a day."""
        for name in self.desk.plan.views:
            self.desk.give(name, start_of(day), counts_on(day))
        self.publish()

    def sharpen(self, day: int) -> None:
        """Release the windows of a day again, more precisely."""
        self._grants += 1
        scope = Scope(from_ms=start_of(day), until_ms=start_of(day + 1))
        self.desk.grant(self._grants, "public", "middle", start_of(day + 1), scope)
        self.publish()

    def publish(self) -> None:
        """Let readers have what the engine has sent."""
        self.served.publish(releases_of(self.desk, self._sent))
        self._sent = len(self.desk.machine.sent)

    def record(self, view: str, day: int) -> Release:
        """The newest release of a window."""
        return self.desk.record(view, "public", start_of(day))

    @staticmethod
    def place(topic: str) -> TopicPartition:
        """The partition of a release topic."""
        return TopicPartition(topic, 0)
