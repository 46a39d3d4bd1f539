"""An unlock, what is left, an audience or a view is taken out behind another edition: nothing finer leaves any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from stream_dp.config.planning import build_plan
from stream_dp.records.codec import AnyRecord
from stream_dp.testing import Event, Watermark
from tests.support.changing import Changing, Make

SLOW_ON_KAFKA = True
ONE_ITEM = ("items_per_user: 2", "items_per_user: 1")
AUDIENCES = "audiences: {public: overview, partner: standard, internal: standard}"
UNLOCK = ("public: overview", "public: {level: overview, unlock: [{level: standard, after: 10m}]}")
SPEND = (
    "    retention: 1d\n",
    '    retention: 1d\n    sharpen: {audience: internal, level: detailed, reserve: "1/4", every: 30m}\n',
)
SHORT = ("period: 366d", "period: 30m")
MORE = (
    "views:\n",
    "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event}, "
    'delta: "1e-5", ledger: visitors, ladder: standard, retention: 1d, unlock: {public: []}}\n',
)
LAST = 45
"""Minutes of the stream: a window is unlocked with the tenth behind it, and minute 30 spends what is left."""


async def stream_to(made: Changing, first: int, minute: int) -> None:
    """The visits from a minute on up to another one, with their watermarks."""
    for at in range(first, minute):
        visits = [Event(f"u{n}", f"/{n % 3}", made.at(at) + 100 * n) for n in range(60)]
        await made.app.publish([*visits, Watermark(made.at(at + 1) + 10_000)])


async def records(made: Changing, view: str) -> Mapping[str, list[AnyRecord]]:
    return await made.app.releases(view)


async def released(made: Changing, view: str, audience: str, minute: int) -> None:
    """Wait until readers of an audience have the window of a minute."""

    async def is_there() -> bool:
        found = (await made.app.releases(view))[audience]
        return any(one.window.start_ms == made.at(minute) for one in found)

    await made.app.eventually(is_there, within_s=60)


@pytest.mark.parametrize("broker", ["memory"], indirect=True)
@pytest.mark.parametrize("ends", ["a worker ends", "the worker goes on"])
@pytest.mark.parametrize("what", ["unlock", "sharpen", "audience", "view"])
async def test_nothing_finer_leaves_of_a_former_edition_when_it_is_taken_out(
    changing: Make, what: str, ends: str
) -> None:
    made = await changing(UNLOCK, SPEND, SHORT)
    view = made.view.name
    made.clock.now_ms = made.at(60)
    await made.app.start(clock_ms=made.clock)
    await stream_to(made, 0, 3)
    await released(made, view, "public", 2)

    both = made.plan(ONE_ITEM, MORE)
    (more,) = both.views.keys() - {view}
    await made.app.apply(both, dict.fromkeys((view, more), made.at(5)))
    await made.learned(2)
    made.app.plan = replace(made.app.plan, views=both.views)
    await stream_to(made, 3, 7)
    await released(made, view, "public", 6)
    if ends == "a worker ends":
        await made.app.stop()
    begins, last = {view: made.at(9)}, both
    if what == "unlock":
        last = made.plan(ONE_ITEM, MORE, (UNLOCK[1], UNLOCK[0]))
    elif what == "sharpen":
        last = made.plan(ONE_ITEM, MORE, (SPEND[1], SPEND[0]))
    elif what == "audience":
        last = made.plan(ONE_ITEM, MORE, (f"{UNLOCK[1]}, ", ""), (", unlock: {public: []}", ""))
        begins[more] = made.at(9)
    else:
        raw = dict(last.raw)
        last = build_plan({**raw, "views": {more: raw["views"][more]}}, last.folder)
    await made.app.apply(last, {} if what == "view" else begins, {view: made.at(9)} if what == "view" else {})
    if ends == "a worker ends":
        await made.app.start(clock_ms=made.clock)
    await made.learned(3)
    await stream_to(made, 7, LAST)
    await released(made, more, "partner", LAST - 1)
    await made.app.stop()
    await made.app.start(clock_ms=made.clock)
    await stream_to(made, LAST, LAST + 1)
    await released(made, more, "partner", LAST)

    found = await records(made, view)
    finer = {name: [one.window.start_ms for one in those if one.revision > 1] for name, those in found.items()}
    unlocked, left_over = "public", "internal"
    assert not finer["partner"]
    if what in ("unlock", "audience", "view"):
        assert finer[unlocked] == []
    else:
        assert {made.at(minute) for minute in range(LAST - 10)} <= {*finer[unlocked]}
    if what in ("sharpen", "view"):
        assert finer[left_over] == []
    else:
        assert {made.at(minute) for minute in range(7)} <= {*finer[left_over]}
    newest = {name: max(one.window.start_ms for one in those) for name, those in found.items()}
    assert newest["partner"] == made.at(8 if what == "view" else LAST)
    assert newest["public"] == made.at({"view": 8, "audience": 6}.get(what, LAST))
