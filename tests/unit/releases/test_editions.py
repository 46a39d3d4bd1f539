"""Windows of former and of newer questions are released in order, each once, and paid for by one ledger.

Grants come in between, crashes hit anywhere, and the settings are learned before or after windows behind their
boundary were released; what readers have in the end is what a computation at once makes of every window.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.settings import Posted, next_record, plan_holding
from stream_dp.records.models import ItemCount, Price, Refusal, Release
from stream_dp.releases.rows import BUCKET, OUTBOX, RESERVATION
from tests.support.releasing import Desk, plan

RICH = ('epsilon: "40", delta: "1/5", period: 4s', 'epsilon: "4000", delta: "9/10", period: 100s')
FIRST = plan(RICH)
SECOND = plan(RICH, ('fine, epsilon: "4"', 'fine, epsilon: "5"'))
THIRD = plan(RICH, ("items_per_user: 1", "items_per_user: 2"), ("buckets: 2", "buckets: 3"))
SECONDS = 7
COUNTS = [{"home": 40, "cart": 12 + number, "rare": 1} for number in range(SECONDS)]


def holding(*begun: tuple[int, Plan]) -> Plan:
    """The plan that holds when views begin anew at seconds."""
    known: list[Posted] = []
    for second, wanted in begun:
        known.append(next_record(known, wanted, dict.fromkeys(wanted.views, 1000 * second), {}, 0))
    return plan_holding(known, FIRST)


KNOWN = [holding((0, FIRST)), holding((0, FIRST), (3, SECOND)), holding((0, FIRST), (3, SECOND), (5, THIRD))]
Act = Callable[[Desk], None]


def given(state: str, second: int) -> Act:
    return lambda desk: desk.give(state, 1000 * second, COUNTS[second])


def learned(number: int) -> Act:
    return lambda desk: desk.change(KNOWN[number])


def granted(number: int, audience: str, level: str) -> Act:
    return lambda desk: desk.grant(number, audience, level)


def acts(seed: int, *, late: bool = False) -> list[Act]:
    """The windows of both views in some order, changes that are learned in between, and grants.

    Args:
        seed: which.
        late: the second change is learned when a window behind its boundary was released already.
    """
    chance = random.Random(seed)
    streams: list[list[Act]] = []
    for view in ("pages", "tops"):
        made: list[tuple[int, Act]] = []
        for second in range(SECONDS):
            number = 1 if second < 3 else 2 if second < 5 + late else 3
            state = view if number == 1 else f"{view}@{number}"
            made.append((number, given(state, second)))
        streams.append([act for _, act in made])
    first = [chance.randrange(4), chance.randrange(4)]
    order: list[Act] = [one for stream, at in zip(streams, first, strict=True) for one in stream[:at]]
    second = 5 + late
    order += [learned(1), *_merged(chance, [stream[at:second] for stream, at in zip(streams, first, strict=True)])]
    order += [learned(2), *_merged(chance, [stream[second:] for stream in streams])]
    for number, (audience, level) in enumerate([("partner", "middle"), ("public", "fine"), ("staff", "fine")], 5):
        order.insert(chance.randrange(len(order) + 1), granted(number, audience, level))
    return order


def _merged(chance: random.Random, streams: Sequence[Sequence[Act]]) -> list[Act]:
    left = [list(stream) for stream in streams]
    found = []
    while any(left):
        found.append(chance.choice([stream for stream in left if stream]).pop(0))
    return found


def play(order: Sequence[Act], **options: object) -> Desk:
    desk = Desk(KNOWN[0], **options)  # type: ignore[arg-type]
    for act in order:
        act(desk)
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


def shown(desk: Desk) -> dict[tuple[str, str, int], tuple[int, str, tuple[ItemCount, ...], Price]]:
    """By view, audience and window what holds: edition, level, items and what the audience was told of it."""
    found: dict[tuple[str, str, int], tuple[int, str, tuple[ItemCount, ...], Price]] = {}
    for view in ("pages", "tops"):
        for audience in ("partner", "public", "staff"):
            for record in desk.records(view, audience):
                assert not isinstance(record, Refusal)
                assert isinstance(record, Release)
                found[view, audience, record.window.start_ms] = (
                    record.edition,
                    record.level.name,
                    record.items,
                    record.held,
                )
    return found


def at_once(late: bool) -> Desk:
    """Every window released at the levels that audiences come to have."""
    grants = [granted(5, "partner", "middle"), granted(6, "public", "fine"), granted(7, "staff", "fine")]
    order = acts(0, late=late)
    windows = [act for act in order if act.__qualname__.startswith("given") or act.__qualname__.startswith("learned")]
    return play([*grants, *windows])


WHOLE = {late: at_once(late) for late in (False, True)}


@pytest.mark.parametrize("late", [False, True])
def test_every_window_is_released_by_one_edition_and_charged_once(late: bool) -> None:
    desk = WHOLE[late]
    desk.auditor.settled()
    editions = [1, 1, 1, 2, 2, 2 if late else 3, 3]
    found = {place: value[0] for place, value in shown(desk).items()}
    assert found == {
        (view, audience, 1000 * second): editions[second]
        for view in ("pages", "tops")
        for audience in ("partner", "public", "staff")
        for second in range(SECONDS)
    }
    finest = {1: 4, 2: 5, 3: 4}
    ledger = desk.ledger()
    pages = sum(finest[edition] for edition in editions)
    assert ledger.views["pages"].epsilon == pages
    assert set(ledger.views) == {"pages", "tops"}
    assert not [key for key in desk.machine.rows if key.startswith((BUCKET, OUTBOX, RESERVATION))]


FEW_AND_MANY = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]


@pytest.mark.parametrize("seed", FEW_AND_MANY)
def test_any_order_of_windows_grants_and_editions_comes_to_the_same(seed: int) -> None:
    late = bool(seed % 3 == 0)
    desk = play(acts(seed, late=late))
    desk.auditor.settled()
    assert shown(desk) == shown(WHOLE[late])
    assert desk.ledger().spent == WHOLE[late].ledger().spent


@pytest.mark.parametrize(
    ("seed", "every"), [(0, 331), *(pytest.param(n, 23, marks=pytest.mark.slow) for n in range(6))]
)
def test_a_crash_anywhere_changes_nothing(seed: int, every: int) -> None:
    order = acts(seed, late=seed % 2 == 0)
    points = play(order).machine.points
    for cut in range(every // 2, points, every):
        desk = play(order, cuts=[cut], back=seed % 3)
        desk.auditor.settled()
        assert shown(desk) == shown(WHOLE[seed % 2 == 0])


@pytest.mark.parametrize("seed", FEW_AND_MANY[1:12])
def test_many_crashes_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    desk = play(acts(seed), cuts=[chance.randrange(90) for _ in range(10)], back=2)
    desk.auditor.settled()
    assert shown(desk) == shown(WHOLE[False])


def test_windows_leave_in_their_order_whichever_question_is_complete_first() -> None:
    desk = Desk(KNOWN[1])
    desk.give("pages@2", 3000, COUNTS[3])
    assert desk.records("pages", "public") == []
    for second in range(3):
        desk.give("pages", 1000 * second, COUNTS[second])
    assert [record.window.start_ms for record in desk.records("pages", "public")] == [0, 1000, 2000, 3000]
    assert [record.edition for record in desk.records("pages", "public")] == [1, 1, 1, 2]


def test_a_question_that_released_no_window_leaves_those_before_it_to_one_that_was_decided_later() -> None:
    to_come = (0, FIRST), (5, SECOND)
    desk = Desk(KNOWN[0])
    desk.change(holding(*to_come))
    for second in range(3):
        desk.give("pages", 1000 * second, COUNTS[second])
    desk.change(holding(*to_come, (3, THIRD)))
    for second in range(3, SECONDS):
        desk.give("pages@3", 1000 * second, COUNTS[second])
    desk.auditor.settled()
    found = [(record.window.start_ms, record.edition) for record in desk.records("pages", "public")]
    assert found == [(1000 * second, 1 if second < 3 else 3) for second in range(SECONDS)]


def test_counts_of_a_former_question_behind_its_end_are_nobodys() -> None:
    desk = Desk(KNOWN[0])
    desk.machine.watch = lambda: None
    desk.give("pages", 3000, COUNTS[3])
    desk.change(KNOWN[1])
    for second in range(3):
        desk.give("pages", 1000 * second, COUNTS[second])
    desk.give("pages", 4000, COUNTS[4])
    assert [record.window.start_ms for record in desk.records("pages", "public")] == [0, 1000, 2000]
    assert not [key for key in desk.machine.rows if key.startswith(BUCKET)]
