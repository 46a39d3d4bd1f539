"""An unlock, what is left, an audience or a view is taken out behind another edition: nothing finer leaves any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dp.config.planner import build_plan
from stream_dp.testing import Event
from tests.support.changing import Changing, Make

SLOW_ON_KAFKA = True
ONE_ITEM = ("items_per_user: 2", "items_per_user: 1")
WALL = ("clock: event", "clock: wall, catch_up: 0s")
UNLOCK = ("public: overview", "public: {level: overview, unlock: [{level: standard, after: 10m}]}")
SPEND = (
    "    retention: 1d\n",
    '    retention: 1d\n    sharpen: {audience: internal, level: detailed, reserve: "1/4", every: 30m}\n',
)
SHORT = ("period: 366d", "period: 30m")
RICH = ('epsilon: "100", delta: "1/100"', 'epsilon: "10000", delta: "9/10"')
MORE = (
    "views:\n",
    "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, catch_up: 0s}, "
    'delta: "1e-5", ledger: visitors, ladder: standard, retention: 1d, unlock: {public: []}}\n',
)
LATER = 45
"""The minute in which all is old enough to be unlocked, and what is left was spent."""


async def feed(made: Changing, first: int, minute: int) -> None:
    """The visits from a minute on up to another one."""
    visits = [Event(f"u{n}", f"/{n % 3}", made.at(at) + 100 * n) for at in range(first, minute) for n in range(60)]
    await made.app.publish(visits)
    await made.consumed(60 * minute)


async def pass_to(made: Changing, minute: int, view: str) -> None:
    """Let the clock pass a minute, and wait until partners have the window before it."""
    made.clock.now_ms = made.at(minute) + 30_000

    async def is_there() -> bool:
        found = (await made.app.releases(view))["partner"]
        return any(one.window.start_ms == made.at(minute - 1) for one in found)

    await made.app.eventually(is_there)


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("what", "ends"),
    [
        pytest.param(what, ends, marks=[] if (what, number) == ("audience", 1) else pytest.mark.slow)
        for what in ["unlock", "sharpen", "audience", "view"]
        for number, ends in enumerate(["a worker ends", "the worker goes on"])
    ],
)
async def test_nothing_finer_leaves_of_a_former_edition_when_it_is_taken_out(
    changing: Make, what: str, ends: str
) -> None:
    made = await changing(WALL, UNLOCK, SPEND, SHORT, RICH)
    view = made.view.name
    await made.app.start(clock_ms=made.clock)
    await feed(made, 0, 3)
    await pass_to(made, 2, view)
    both = made.plan(ONE_ITEM, MORE)
    (more,) = both.views.keys() - {view}
    await made.app.apply(both, dict.fromkeys((view, more), made.at(4)))
    await made.learned(2)
    made.app.plan = replace(made.app.plan, views=both.views)
    await feed(made, 3, 6)
    await pass_to(made, 6, view)

    if ends == "a worker ends":
        await made.app.stop()
    begins, last = {view: made.at(8)}, both
    if what == "unlock":
        last = made.plan(ONE_ITEM, MORE, (UNLOCK[1], UNLOCK[0]))
    elif what == "sharpen":
        last = made.plan(ONE_ITEM, MORE, (SPEND[1], SPEND[0]))
    elif what == "audience":
        last = made.plan(ONE_ITEM, MORE, (f"{UNLOCK[1]}, ", ""), (", unlock: {public: []}", ""))
        begins[more] = made.at(8)
    else:
        last = build_plan({**both.raw, "views": {more: both.raw["views"][more]}}, both.folder)
    await made.app.apply(last, {} if what == "view" else begins, begins if what == "view" else {})
    if ends == "a worker ends":
        await made.app.start(clock_ms=made.clock)
    await made.learned(3)
    await pass_to(made, LATER, more)
    await made.app.stop()
    await made.app.start(clock_ms=made.clock)
    await pass_to(made, LATER + 1, more)
    await pass_to(made, LATER + 2, more)
    if what != "view":
        await pass_to(made, LATER + 2, view)

    found = await made.app.releases(view)
    finer = {
        name: {made.minute(one.window.start_ms) for one in those if one.revision > 1} for name, those in found.items()
    }
    assert finer["partner"] == set()
    assert finer["public"] >= ({*range(30)} if what == "sharpen" else set())
    assert finer["internal"] >= ({*range(6)} if what in ("unlock", "audience") else set())
    assert what == "sharpen" or not finer["public"]
    assert what in ("unlock", "audience") or not finer["internal"]
    newest = {name: made.minute(max(one.window.start_ms for one in those)) for name, those in found.items()}
    assert newest["partner"] == (7 if what == "view" else LATER + 1)
    assert newest["public"] == {"view": 7, "audience": 5}.get(what, LATER + 1)
