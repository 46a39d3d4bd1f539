"""Every setting of a view that may change is changed while a worker runs, one after another.

What windows before and behind each boundary show, and what they cost, is what a computation at once makes of the
events under the settings that hold for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.operations.assignments import tuned
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Event, Watermark
from tests.support.changing import MINUTE, Changing, Make

SLOW_ON_KAFKA = True

RICH = ('epsilon: "100", delta: "1/100"', 'epsilon: "10000", delta: "9/10"')
HISTOGRAM = ("kind=histogram", "catalogue=null", "k=null", "kbar=null", "selection=null", "delta=1e-4")
CATALOGUE = ("kind=catalogue", "catalogue=[/0, /1, /2, /3, /none]", "k=null", "kbar=null", "selection=null")
TUMBLING = ("window.size=1m", "window.step=null", "window.pane=null")


@dataclass(frozen=True)
class Tune:
    """What changes of a view, and for how many minutes that holds.

    Attributes:
        minutes: how many.
        settings: what `stream-dp tune` would be told.
        levels: what its ladder becomes, if that changes.
        goes_on: nothing of what is counted or noised differs.
    """

    minutes: int
    settings: tuple[str, ...]
    levels: dict[str, str] | None = None
    goes_on: bool = False


TUNES = {
    "bounds": Tune(2, ("items_per_user=1",)),
    "an epsilon of the ladder": Tune(2, ("items_per_user=2",), {"overview": "1", "standard": "3", "detailed": "6"}),
    "a level more": Tune(2, (), {"overview": "1", "middle": "2", "standard": "3", "detailed": "6"}),
    "delta": Tune(2, ("delta=1e-3",)),
    "grace": Tune(2, ("window.grace=30s",)),
    "how far ahead": Tune(2, ("window.grace=10s", "window.max_ahead=2m")),
    "an audience less": Tune(2, ("audiences=[internal, public]",), goes_on=True),
    "an audience more, and a level": Tune(2, ("audiences=null", "audiences.public=standard", "buckets=3")),
    "size": Tune(4, ("window.size=2m", "window.max_ahead=1h")),
    "step": Tune(5, ("window.size=3m", "window.step=1m")),
    "kind": Tune(2, (*TUMBLING, "kind=topk", "k=3", "kbar=4", "selection={epsilon: 1/2, delta: 1e-7}", "delta=null")),
    "k": Tune(2, ("k=2",)),
    "kbar": Tune(2, ("kbar=5",)),
    "epsilon of the selection": Tune(2, ("selection.epsilon=1",)),
    "panes": Tune(5, (*CATALOGUE, "window.size=2m", "window.step=1m", "window.pane=1m")),
    "windows of more panes": Tune(4, ("window.size=3m",), goes_on=True),
    "totals": Tune(8, ("kind=running", "window.size=4m", "window.step=null")),
    "totals of other panes": Tune(4, ("window.pane=2m",)),
    "retention, and a histogram again": Tune(2, (*HISTOGRAM, *TUMBLING, "retention=2d")),
    "share": Tune(2, ("share=1/2",), goes_on=True),
}


def changed(made: Changing, holds: Plan, tune: Tune) -> Plan:
    """The plan with what a tune changes."""
    raw = dict(holds.raw)
    if tune.levels is not None:
        raw["ladders"] = {"standard": [{"level": name, "epsilon": one} for name, one in tune.levels.items()]}
    return tuned(build_plan(raw, holds.folder), made.view.name, tune.settings)


def alike(one: ViewPlan, other: ViewPlan) -> bool:
    """Whether two definitions accept the same contributions."""
    accepts = [
        (v.window.shape.counted, v.window.shape.bounds, v.items_per_user, v.item_field, v.has_lists, v.kind.domain({}))
        for v in (one, other)
    ]
    return accepts[0] == accepts[1]


class Tuned:
    """A view that is fed and tuned in turns."""

    def __init__(self, made: Changing) -> None:
        self.made = made
        self.fed = 0
        """Minutes."""
        self.script: list[Event | Watermark] = []
        self.known: dict[Event, tuple[int, int]] = {}
        """Of an event, how many definitions there were when it was counted, and what the wall clock showed."""

    async def feed(self, until: int) -> None:
        """Publish visits up to a minute, some of them too late, some ahead of time; all are counted."""
        made, known = self.made, (len(self.made.definitions()), self.made.at(until) + 30_000)
        script: list[Event | Watermark] = []
        for minute in range(self.fed, until):
            at = made.at(minute)
            script += [Watermark(at + 20_000), Event(f"late {minute}", "/0", at - 1)] if minute else []
            script += [
                Event(f"u{n}", f"/{(n * n + minute + m) % 5}", at + 1000 * n + m) for n in range(40) for m in (0, 1, 2)
            ]
        for name, ahead in (("soon", 1), ("far", 5)):
            at = made.at(until + ahead)
            script += [Event(f"{name} {n} {until}", f"/{m}", at + n) for n in range(8) for m in range(3)]
        self.known |= {event: known for event in script if isinstance(event, Event)}
        self.script += script
        self.fed, made.clock.now_ms = until, known[1]
        await made.app.publish(script)
        marks = sum(isinstance(one, Watermark) for one in self.script)
        await made.consumed(len(self.script) - marks + marks * made.view.source.partitions)

    def seen(self, asked: ViewPlan, event: Event) -> Event | None:
        """An event, if a definition has it: one that came ahead of it is handed on by those that accept the same."""
        definitions = self.made.definitions()
        (number, now_ms), at = self.known[event], definitions.index(asked)
        judge = definitions[min(number - 1, at)]
        way = pairwise(definitions[number - 1 : at + 1])
        has = event.time_ms <= now_ms + judge.window.max_ahead_ms and all(alike(*pair) for pair in way)
        return event if has else None


@pytest.mark.parametrize("tunes", [9, pytest.param(len(TUNES), marks=pytest.mark.slow)])
async def test_each_setting_that_is_tuned_holds_for_the_windows_behind_its_boundary(changing: Make, tunes: int) -> None:
    made = await changing(RICH)
    tuning, holds = Tuned(made), made.app.plan
    await made.app.start(clock_ms=made.clock, tick_seconds=0.03)
    await tuning.feed(2)
    made_of = {1: (MINUTE, {"internal", "partner", "public"})}
    for number, (what, tune) in enumerate(islice(TUNES.items(), tunes), 2):
        holds, definitions = changed(made, holds, tune), len(made.definitions())
        view = holds.views[made.view.name]
        made_of[number] = view.window.shape.released.shortest_ms, set(made.view.audiences)  # late ones get it as well
        begins = await made.tune(holds, tuning.fed)
        await made.learned(number)
        assert (len(made.definitions()) == definitions) == tune.goes_on, what
        await tuning.feed(begins + tune.minutes)
    last = [Watermark(made.at(tuning.fed) + 30_000)]
    await made.app.publish(last)
    tuning.script += last
    await made.assert_released(tuning.script, tuning.fed, tuning.seen)
    for audience in made.view.audiences:
        published = await made.app.read(Topics.of(made.app.plan).release(made.view.name, audience))
        assert len(set(published)) == len(published), "settings that are adopted repeat nothing"
    found = [record for records in (await made.app.releases(made.view.name)).values() for record in records]
    shown = {
        number: (max(one.window.end_ms - one.window.start_ms for one in those), {one.audience for one in those})
        for number in made_of
        if (those := [record for record in found if record.edition == number])
    }
    assert shown == made_of, "each of them had windows, of its length, and for its readers"
