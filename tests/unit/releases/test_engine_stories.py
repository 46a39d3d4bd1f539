"""Windows of every shape, grants, unlocks, what is left, and settings that change: all in one run, through any crash.

What readers have is what a computation at once makes of every window at the finest level that each may see, and what
was charged is what the finest level of every window costs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.control.editions import Held, editions
from stream_dp.kinds.sealing import SealedTable, Sealing, own_secret
from stream_dp.kinds.topk import TopKPlan
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.codec import AnyRecord, decode, encode, entry_key
from stream_dp.records.models import Release
from stream_dp.releases.accounts import ledger_key, read_ledgers
from stream_dp.releases.publication import Revision, account
from stream_dp.releases.rows import BLOCK, BUCKET, OUTBOX, TABLE, WINDOW
from stream_dp.windows.encoding import text, window_start
from stream_dp.windows.merging import summed
from tests.support.acts import AUDIENCES, VIEWS, Story, acts, counts_of, play
from tests.support.machine import newest
from tests.support.oracle import blocks_of, handed_on, panes_before
from tests.support.releasing import KEY, Desk, keyed, shown_cost
from tests.support.rising import Definition, Replay
from tests.support.sealing import found as found_in

Part = tuple[SealedTable, WindowNoise]
SEALED: dict[bytes, Part] = {}
"""By the name of the noise, which all runs share."""


def check_now(desk: Desk, replay: Replay) -> None:
    """Everybody has what they may see by now, and nothing finer; what has expired is gone, and nothing else."""
    assert desk.auditor.windows == replay.windows()
    kept = {(view.name, start) for view in desk.plan.views.values() for start in replay.definitions[view.name].stored}
    assert stored(desk, WINDOW) == kept
    assert desk.auditor.standing.windows() == {
        (name, definition.last[window])
        for name, definition in replay.definitions.items()
        for window, levels in definition.shown.items()
        if levels and definition.last[window] in definition.stored
    }


def stored(desk: Desk, kind: bytes) -> set[tuple[str, int]]:
    """By definition and start, of what there are rows of a kind."""
    found = set()
    for name in desk.plan.views:
        prefix = kind + text(name)
        found |= {(name, window_start(kind, name, key)) for key in desk.machine.rows if key.startswith(prefix)}
    return found


def check_end(story: Story, desk: Desk, replay: Replay) -> None:
    """And it is what a computation at once makes of it, for what that costs."""
    check_now(desk, replay)
    desk.auditor.settled()
    assert not [key for key in desk.machine.rows if key.startswith((BUCKET, OUTBOX))]
    assert stored(desk, TABLE) == stored(desk, WINDOW), "nothing is refused"
    assert stored(desk, BLOCK) <= stored(desk, WINDOW)
    check_records(story, desk, replay)
    check_charges(desk, replay)


def check_records(story: Story, desk: Desk, replay: Replay) -> None:
    held = editions(story.known)
    for view, audience in product({definition.plan.view for definition in replay.definitions.values()}, AUDIENCES):
        records: dict[tuple[int, int], list[AnyRecord]] = {}
        for record in desk.records(view, audience):
            records.setdefault((record.window.start_ms, record.window.end_ms), []).append(record)
        for window, revisions in records.items():
            told = {(record.revision, record.level.name) for record in revisions}
            assert sorted(number for number, _ in told) == [*range(1, len(told) + 1)], "each revision is told once"
            assert len({level for _, level in told}) == len(told), "and is finer than the one before"
            (definition,) = (
                one for one in replay.definitions.values() if one.plan.view == view and window in one.shown
            )
            newest_one = revisions[-1]
            assert isinstance(newest_one, Release)
            assert newest_one == expected(definition, window, audience, newest_one)
            start = definition.last[window]
            if view not in story.late:
                (edition,) = (one.edition for one in held if one.view == view and holds(one, start))
                assert {record.edition for record in revisions} == {edition}


def holds(edition: Held, start: int) -> bool:
    return edition.from_ms <= start and (edition.until_ms is None or start < edition.until_ms)


def expected(definition: Definition, window: tuple[int, int], audience: str, record: Release) -> AnyRecord:
    """The record of a window at the level that an audience has of it, from the exact counts and the keyed entropy."""
    last, level = definition.last[window], definition.shown[window][audience]
    view = definition.plan.at(last)
    paned, panes = view.window.shape.is_sum, [last]
    if paned:
        panes = [*definition.panes(window)]
    elif view.window.shape.tells_totals:
        panes = [start for _, start in blocks_of(view, last)]
    parts = [sealed(definition, start) for start in panes]
    if len(parts) == 1 and not paned:
        (fields,) = view.kind.read(parts[0][0], [level], parts[0][1])
    else:
        columns = [view.kind.summand(table, level, noise) for table, noise in parts]
        fields = view.kind.total(parts[-1][0], [*map(sum, zip(*columns, strict=True))])
    units = panes if paned else [definition.unit(last)]
    costs = [view.spent(sealed(definition, unit)[0], definition.levels[unit][audience]) for unit in units]
    held = sum(costs, Cost.ZERO)
    if record.privacy.window.cost <= held:  # a pane may have become finer behind the window
        held = record.privacy.window.cost
    made = Revision(
        view,
        audience=audience,
        level=level,
        start_ms=window[0] if paned else last,
        number=record.revision,
        period_loss=record.privacy.period.cost,
        ledger=account(view.ledger, last),
        panes=len(panes) if paned else None,
    ).release(fields=fields, window_loss=held)
    return decode(encode(made))


def sealed(definition: Definition, start: int) -> Part:
    """The sealed table of a window, a pane or a block of panes."""
    view = definition.plan
    name = view.noise_name(start)
    if name not in SEALED:
        noise = WindowNoise.of(name, KEY, own_secret(name, keyed))
        counts = summed([counts_of(start), *map(counts_of, panes_before(view, start))])
        SEALED[name] = view.kind.seal(handed_on(view, counts), Sealing(noise, keyed, {})), noise
    return SEALED[name]


def check_charges(desk: Desk, replay: Replay) -> None:
    """Each window, pane or window of totals is charged by its finest level, in as many steps as that came in."""
    charged: dict[tuple[str, int], Cost] = {}
    for entry in {entry_key(entry): entry for entry in desk.entries()}.values():
        assert entry.type == "charge"
        place = entry.view, entry.window.start_ms
        charged[place] = sum((reader.charged.cost for reader in entry.audiences), charged.get(place, Cost.ZERO))
    costs: dict[tuple[str, int], Cost] = {}
    periods: dict[bytes, Cost] = {}
    readers: dict[tuple[bytes, str], Cost] = {}
    for definition in replay.definitions.values():
        view = definition.plan
        for unit, levels in definition.levels.items():
            draws = found_in(sealed(definition, unit)[0])[1] if isinstance(view.kind, TopKPlan) else 0
            cost, key = shown_cost(view, [max(levels.values())], draws), ledger_key(view, unit)
            costs[view.view, unit] = cost
            periods[key] = periods.get(key, Cost.ZERO) + cost
            for audience, level in levels.items():
                share = shown_cost(view, [level], draws)
                readers[key, audience] = readers.get((key, audience), Cost.ZERO) + share
    assert charged == costs
    of = {key: {name: cost for (of, name), cost in readers.items() if of == key} for key in periods}
    assert ledgers(desk) == {key: (spent, of[key]) for key, spent in periods.items()}


# -- stories --------------------------------------------------------------------------------------------------------

FEW = [0, 3]
FEW_AND_MANY = [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100) if seed not in FEW)]
"""In 51 a sharper release waits while all windows of its edition are marked as expired."""


@pytest.mark.parametrize("seed", FEW_AND_MANY)
def test_behind_every_act_of_any_story_all_have_what_they_may_see_and_it_costs_what_it_should(seed: int) -> None:
    story = acts(seed)
    check_end(story, *play(story, check=check_now))


@pytest.mark.parametrize("seed", FEW_AND_MANY)
def test_a_story_ends_as_it_should_through_any_crashes(seed: int) -> None:
    """One crash at any point, or one after another as soon as something goes on; records come again, rows are lost."""
    chance, story = random.Random(seed), acts(seed)
    cuts = [chance.randrange(3000)] if seed % 2 else [chance.randrange(120) for _ in range(20)]
    check_end(story, *play(story, cuts=cuts, back=seed % 4, compacts=seed % 5 > 2))


@pytest.mark.parametrize("seed", FEW_AND_MANY)
def test_a_story_that_the_budget_does_not_pay_for_keeps_within_it_wherever_a_crash_cuts(seed: int) -> None:
    """Of one view it follows from the story which windows are refused; of several, from the turns that they take too.

    For a refused one nothing is charged, and every window is told of.
    """
    chance = random.Random(seed)
    views, epsilon = (VIEWS[seed // 2 % len(VIEWS)],) if seed % 2 else (), chance.choice(["8", "30", "90"])
    story = acts(seed, views=views, epsilon=epsilon)
    whole, _ = play(story)
    whole.auditor.settled()
    desk, _ = play(story, cuts=[chance.randrange(whole.machine.points)], back=seed % 4)
    desk.auditor.settled()
    if views:
        assert (said(desk), ledgers(desk)) == (said(whole), ledgers(whole))
    assert windows(desk) == windows(whole)


def windows(desk: Desk) -> set[bytes]:
    """What of the windows that are retained, and of whom, there is a release or a refusal."""
    return {key.removesuffix(b"/refusal") for key in said(desk)}


def said(desk: Desk) -> dict[bytes, Any]:
    """Return what is in the public topics, without the loss in the period."""
    found = {key: value for (_, _, key), value in newest(desk.published()).items() if key and value}
    bodies = {key: json.loads(value) for key, value in found.items()}
    return {key: {**body, "privacy": body["privacy"] | {"period": None}} for key, body in bodies.items()}


def ledgers(desk: Desk) -> dict[bytes, tuple[Cost, Mapping[str, Cost]]]:
    """By period, what was spent, and on whom."""
    found = read_ledgers(desk.machine.rows.items())
    return {key: (ledger.spent, ledger.readers) for key, ledger in found.items()}
