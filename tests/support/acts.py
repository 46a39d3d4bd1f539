"""Everything that can be asked of a release engine in one run, in any order that counting and the clock allow.

Windows of views of every shape arrive, operators grant, apply settings and take views out and put them back, the clock
goes on, and processes end. `acts` makes such a run by chance, and `play` lets a desk do it beside an oracle
(`tests.support.rising`) that works out what should come of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.control.editions import Posted, first_record, next_record, plan_holding
from stream_dp.control.editions import plan_of as plan_of_record
from stream_dp.control.grant_records import Scope
from stream_dp.control.settings_change import Situation, propose
from stream_dp.errors import ConfigError
from stream_dp.windows.effects import Message
from tests.support.releasing import Desk, buckets_of, plan_of
from tests.support.rising import Replay

SECOND = 1000
STEP = 10 * SECOND
"""Of all windows: settings that are applied hold from the window after the next one on."""
LATEST_MS = 3 * STEP
"""How late windows come at most: what is unlocked by its age and what expires is then not settled by one batch."""
AUDIENCES = ("partner", "public", "staff")

SHOP = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "40000", delta: "9/10", period: 120s}
ladders:
  three: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]
  others: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "3"}, {level: fine, epsilon: "5"}]
audiences:
  partner: coarse
  public: {level: coarse, unlock: [{level: middle, after: 20s}, {level: fine, after: 45s}]}
  staff: {level: middle, unlock: [{level: fine, after: 30s}]}
views:
  tumbling:
    {source: visits, item: page, kind: histogram, items_per_user: 1, delta: "1/1000", ledger: visitors, ladder: three,
     window: {size: 10s, start: 1970-01-01T00:00:00Z, grace: 0s}, retention: 60s, buckets: 2,
     sharpen: {audience: staff, level: fine, every: 40s}}
  streamed:
    {source: visits, item: page, kind: topk, k: 2, kbar: 3, selection: {epsilon: "1", delta: "1/1000"},
     items_per_user: 1, ledger: visitors, ladder: three, buckets: 1, retention: 50s,
     window: {size: 10s, start: 1970-01-01T00:00:00Z, grace: 0s, clock: event}}
  hopping:
    {source: visits, item: page, kind: catalogue, catalogue: [cart, help, home, rare], items_per_user: 1,
     ledger: visitors, ladder: three, buckets: 1, retention: 70s, audiences: [partner, staff],
     window: {size: 20s, step: 10s, start: 1970-01-01T00:00:00Z, grace: 0s},
     sharpen: {audience: partner, level: middle, every: 30s}}
  paned:
    {source: visits, item: page, kind: catalogue, catalogue: [cart, help, home, rare], items_per_user: 1,
     ledger: visitors, ladder: three, buckets: 1, retention: 60s,
     window: {size: 30s, step: 10s, pane: 10s, start: 1970-01-01T00:00:00Z, grace: 0s}}
  running:
    {source: visits, item: page, kind: running, catalogue: [cart, help, home, rare], items_per_user: 1,
     ledger: visitors, ladder: three, buckets: 1, retention: 60s, audiences: [partner, staff],
     window: {size: 40s, pane: 10s, start: 1970-01-01T00:00:00Z, grace: 0s}}
"""
VIEWS = ("tumbling", "streamed", "hopping", "paned", "running")
LIST = ("cart", "help", "home", "rare")
Act = tuple[Any, ...]
"""`give` windows, by state and start, their buckets in an order; `grant`; `tell`; `learn` settings; `restart`."""


@cache
def shop(views: tuple[str, ...] = VIEWS, epsilon: str = "40000") -> Plan:
    """The plan of the file of some of the views."""
    raw = deepcopy(dict(plan_of(SHOP.replace('"40000"', f'"{epsilon}"')).raw))
    raw["views"] = {name: raw["views"][name] for name in views}
    return build_plan(raw)


def counts_of(start: int) -> Mapping[str, int]:
    """What is counted in a window or pane."""
    number = start // STEP
    return {"home": 40 - number % 7, "cart": 12 + number % 5, "help": number % 3, "rare": 1, f"only {number}": 30}


@dataclass
class Story:
    """What happens, one act after another, and the settings that were posted in it."""

    acts: list[Act] = field(default_factory=list)
    known: list[Posted] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    """What holds behind each of them."""
    late: set[str] = field(default_factory=set)
    """The views of which windows behind a boundary were released before it was learned."""


@dataclass
class Author:
    """Makes up a story: what operators and the clock do is chance, what counting does follows from it."""

    chance: random.Random
    views: tuple[str, ...]
    epsilon: str
    story: Story = field(default_factory=Story)
    now_ms: int = 0
    given: dict[str, int] = field(default_factory=dict)
    """By state, start of the next window that is handed on."""
    number: int = 0

    def write(self, length: int) -> Story:
        self.story.known.append(first_record(shop(self.views, self.epsilon), 0))
        self._learn()
        self.story.acts.clear()
        kinds = [(self._give, 6), (self._grant, 2), (self._go_on, 6), (self._post, 2.5), (self._restart, 0.5)]
        for _ in range(length):
            (act,) = self.chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
            act()
        self._post()
        for _ in range(6):
            self._go_on()
            self._give()
        self._give(100)
        self.story.acts.append(("tell", self.now_ms))
        return self.story

    @property
    def plan(self) -> Plan:
        return self.story.plans[-1]

    def _go_on(self, seconds: int | None = None) -> None:
        self.now_ms += SECOND * (seconds or self.chance.choice([1, 4, 7, 10, 15]))
        if any(self._is_ready(name, LATEST_MS) for name in self.plan.views):
            self._give(100)
        if self.chance.random() < 0.7:
            self.story.acts.append(("tell", self.now_ms))

    def _give(self, most: int | None = None) -> None:
        """Windows that are over, of one definition in their order, of several in any; some are left for later."""
        windows = []
        late = [name for name in self.plan.views if most is None and self.chance.random() < 0.4]
        for _ in range(most or self.chance.randrange(1, 6)):
            ready = [name for name in self.plan.views if self._is_ready(name) and name not in late]
            if not ready:
                break
            name = self.chance.choice(ready)
            windows.append((name, self.given[name]))
            self.given[name] = self.plan.views[name].window.shape.next(self.given[name])
        if windows:
            self.story.acts.append(("give", windows, self.chance.randrange(1 << 30)))

    def _is_ready(self, name: str, late_ms: int = 0) -> bool:
        view, start = self.plan.views[name], self.given[name]
        is_own = view.until_ms is None or start < view.until_ms
        return is_own and view.window.shape.end(start) + late_ms <= self.now_ms

    def _grant(self) -> None:
        chance = self.chance
        self.number += 1
        at = STEP * chance.randrange(self.now_ms // STEP + 2)
        scope = chance.choice(
            [
                Scope(),
                Scope(windows="retained"),
                Scope(windows="future"),
                Scope(tuple(sorted(chance.sample(self.views, chance.randrange(1, len(self.views) + 1))))),
                Scope((chance.choice(self.views),), "future"),
                Scope(from_ms=at, until_ms=at + STEP * chance.randrange(1, 5)),
                Scope(from_ms=at),
                Scope(until_ms=at),
            ]
        )
        level = chance.choice(["coarse", "middle", "fine", "fine"])
        at_ms = chance.choice([None, None, self.now_ms + STEP * chance.randrange(1, 4)])
        self.story.acts.append(("grant", self.number, chance.choice(AUDIENCES), level, self.now_ms, scope, at_ms))
        if at_ms is not None and chance.random() < 0.3:
            _, _, audience, *_ = self.story.acts[-1]
            self.number += 1
            self.story.acts.append(("grant", self.number, audience, None, self.now_ms, scope, at_ms))

    def _restart(self) -> None:
        self.story.acts.append(("restart",))

    def _learn(self) -> None:
        self.story.plans.append(plan_holding(self.story.known, shop(self.views, self.epsilon)))
        for name, view in self.plan.views.items():
            earlier = [self.given[one.name] for one in self.plan.views.values() if self._has_windows(one, view)]
            if name not in self.given:
                self.given[name] = view.window.shape.first_from(max([view.begins_ms, *earlier]))
        self.story.acts.append(("learn", len(self.story.plans) - 1))

    def _has_windows(self, one: ViewPlan, view: ViewPlan) -> bool:
        """Whether some of another definition of a view were handed on."""
        return one.view == view.view and self.given.get(one.name, one.begins_ms) > one.begins_ms

    def _post(self) -> None:
        """Settings are applied; workers learn of them long before they hold, or in one case out of a few too late."""
        known, first = self.story.known, shop(self.views, self.epsilon)
        before = plan_of_record(known[-1], first)
        if self.chance.random() < 0.2:
            after = plan_of_record(self.chance.choice(known), first)
            plain: set[str] = set()
        else:
            raw, plain = self._changed(dict(before.raw))
            after = build_plan(raw)
        situation = Situation(self.now_ms, self.plan, clocks=dict.fromkeys(self.views, self.now_ms))
        from_ms = self.now_ms + STEP * self.chance.randrange(2, 5) if self.chance.random() < 0.3 else None
        try:
            proposal = propose(before, after, situation, from_ms=from_ms)
            proposal.check()
        except ConfigError:
            return
        begins, ends = proposal.begins, proposal.ends
        if not begins and not ends:
            return
        may_be_late = begins.keys() <= plain and not ends and all(map(self._has_released, begins))
        if may_be_late and self.chance.random() < 0.5:  # learned when it holds already
            begins = {name: max(0, at_ms - STEP * self.chance.randrange(2, 5)) for name, at_ms in begins.items()}
            begins = {name: max(at_ms, self._latest(name).begins_ms) for name, at_ms in begins.items()}
            self.story.late.update(begins)
        known.append(next_record(known, after, begins, ends, self.now_ms))
        self._learn()

    def _latest(self, view: str) -> ViewPlan:
        """The newest definition of a view."""
        return [one for one in self.plan.views.values() if one.view == view][-1]

    def _has_released(self, view: str) -> bool:
        """Whether a window of the newest definition of a view was released, so all of those before it."""
        newest = self._latest(view)
        before = [one for one in self.plan.views.values() if one.view == view and one is not newest]
        is_over = all(one.until_ms is not None and self.given[one.name] >= one.until_ms for one in before)
        return is_over and self.given[newest.name] > newest.begins_ms

    def _changed(self, raw: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """Some settings changed; and the views of which that is surely another definition, of windows that tumble."""
        raw, plain = deepcopy(raw), set[str]()
        names = [name for name in self.views if name in raw["views"]]
        for name in self.chance.sample(names, self.chance.randrange(1, 3) if len(names) > 1 else len(names)):
            change, is_definition = self.chance.choice(CHANGES[name] + ANY)
            change(self.chance, name, raw)
            if is_definition and name in ("tumbling", "streamed"):
                plain.add(name)
        return raw, plain


# -- what is changed of a view ------------------------------------------------------------------------------------

Change = Callable[[random.Random, str, dict[str, Any]], None]


def _ladder(_chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    view = raw["views"][name]
    view["ladder"] = "others" if view["ladder"] == "three" else "three"


def _audiences(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    """Staff always reads; what the public came later than may cost more than staff has of it."""
    others = [one for one in ("partner", "public") if chance.random() < 0.5]
    by_age = {"level": "coarse", "unlock": [{"level": "middle", "after": "20s"}, {"level": "fine", "after": "45s"}]}
    raw["audiences"]["public"] = chance.choice([by_age, "fine"])
    raw["views"][name]["audiences"] = [*others, "staff"]
    raw["views"][name].pop("unlock", None)
    if raw["views"][name].get("sharpen", {}).get("audience") not in (None, *others, "staff"):
        del raw["views"][name]["sharpen"]


def _unlocks(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    raw["views"][name]["unlock"] = {"staff": [{"level": "fine", "after": f"{chance.choice([5, 15, 25, 40])}s"}]}
    if chance.random() < 0.3:
        raw["views"][name]["unlock"] = {"staff": []}


def _everybody(chance: random.Random, _name: str, raw: dict[str, Any]) -> None:
    """Where staff begins: with all views."""
    raw["audiences"]["staff"] = chance.choice(
        ["coarse", "middle", {"level": "coarse", "unlock": [{"level": "middle", "after": "20s"}]}]
    )
    for view in raw["views"].values():
        view.pop("unlock", None)


def _sharpen(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    if name in ("paned", "running") or raw["views"][name].pop("sharpen", None) is not None:
        return
    raw["views"][name]["sharpen"] = {"audience": "staff", "level": "fine", "every": f"{chance.choice([20, 40])}s"}


def _taken_out(_chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    if len(raw["views"]) > 1:
        del raw["views"][name]


def _kind(_chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    """From a histogram to a top-k and back."""
    view = raw["views"][name]
    if view["kind"] == "histogram":
        selection = {"epsilon": "1", "delta": "1/1000"}
        raw["views"][name] = view = {**view, "kind": "topk", "k": 2, "kbar": 3, "selection": selection}
        del view["delta"]
    else:
        for key in ("k", "kbar", "selection"):
            del view[key]
        view.update(kind="histogram", delta="1/1000")


def _bounds(_chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    view = raw["views"][name]
    view["items_per_user"] = 3 - view["items_per_user"]


def _hops(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    raw["views"][name]["window"]["size"] = chance.choice(["20s", "30s", "40s"])


def _panes(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    size, step = chance.choice([(10, 10), (20, 10), (30, 20), (30, 10), (40, 20)])
    raw["views"][name]["window"].update(size=f"{size}s", step=f"{step}s")


def _lengths(chance: random.Random, name: str, raw: dict[str, Any]) -> None:
    raw["views"][name]["window"]["size"] = chance.choice(["20s", "40s", "60s"])


ANY: list[tuple[Change, bool]] = [
    (_ladder, True),
    *3 * [(_audiences, False)],
    (_unlocks, False),
    (_everybody, False),
    (_sharpen, False),
    (_taken_out, False),
]
CHANGES: Mapping[str, list[tuple[Change, bool]]] = {
    "tumbling": [(_kind, True), (_bounds, True)],
    "streamed": [(_kind, True), (_bounds, True)],
    "hopping": [(_hops, False), (_bounds, False)],
    "paned": [(_panes, False), (_panes, False), (_bounds, False)],
    "running": [(_lengths, False), (_bounds, False)],
}


def acts(seed: int, *, views: tuple[str, ...] = (), epsilon: str = "40000") -> Story:
    """A run by chance.

    Args:
        seed: which.
        views: of which views; of those that chance has, if none are named.
        epsilon: the budget of a period; what it begins with pays for everything.
    """
    chance = random.Random(seed)
    some = tuple(name for name in VIEWS if chance.random() < 0.6) or VIEWS[:2]
    return Author(chance, views or some, epsilon).write(30)


# -- playing it ---------------------------------------------------------------------------------------------------


def messages_of(plan: Plan, windows: Sequence[tuple[str, int]], seed: int) -> list[Message]:
    """The buckets of some windows: of each bucket in the order of its windows, else in any."""
    waiting: dict[tuple[str, int], list[Message]] = {}
    for name, start in windows:
        for at, message in enumerate(buckets_of(plan.views[name], start, counts_of(start))):
            waiting.setdefault((name, at), []).append(message)
    chance, found = random.Random(seed), list[Message]()
    while waiting:
        bucket = chance.choice([*waiting])
        found.append(waiting[bucket].pop(0))
        if not waiting[bucket]:
            del waiting[bucket]
    return found


def play(story: Story, *, check: Callable[[Desk, Replay], None] | None = None, **options: Any) -> tuple[Desk, Replay]:
    """Let a desk do all of it, and end it by a restart; and the oracle.

    Args:
        story: what happens.
        check: is shown both behind every act.
        options: of the desk.
    """
    desk, replay = Desk(story.plans[0], **options), Replay(story.plans[0])
    desk.reader.load()
    for act, *what in [*story.acts, ("restart",)]:
        if act == "give":
            windows, seed = what
            desk.reader.write(messages_of(desk.plan, windows, seed))
            replay.give(windows)
        elif act == "grant":
            desk.grant(*what)
            replay.grant(*what)
        elif act == "tell":
            desk.tell(*what)
            replay.tell(*what)
        elif act == "learn":
            desk.change(story.plans[what[0]])
            replay.learn(story.plans[what[0]])
        else:
            desk.machine.cut_after = desk.machine.cut_after if check else None
            desk.reader.restart()
            replay.load()
        if check is not None:
            check(desk, replay)
    return desk, replay
