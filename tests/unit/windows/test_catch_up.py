"""The clock that catches up after a silence, against a naive computation from the list of all ticks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows import open_windows
from stream_dp.windows.catch_up import CatchUp, CatchUpRule, ClockStep, step_clock
from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Step as Effects
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.rekeying import RekeyedBatch
from stream_dp.windows.views import CountedView
from tests.support.counting import Entry, counter, event, handed_on, letters, loaded, partials, view, watermark
from tests.support.machine import Machine, deliver
from tests.unit.windows.test_rekeying import users_counter

SECOND = 1000
RULE = CatchUpRule(grace_ms=0, catch_up_ms=30 * SECOND)
Step = Callable[[CatchUpRule, CatchUp | None, int, int], ClockStep]


class Shown(NamedTuple):
    """Time that a clock shows from a tick on, and whether it got there before the partition had caught up."""

    time_ms: int
    is_cut_short: bool = False


def naive(rule: CatchUpRule, ticks: Sequence[int]) -> list[Shown]:
    """Return what the clock shows after each tick, computed without state."""
    rising = [time for at, time in enumerate(ticks) if time > max([-1, *ticks[:at]])]
    silence = {
        time: time - before
        for before, time in pairwise(rising)
        if rule.catch_up_ms and 2 * (time - before) > max(2 * 5000, rule.grace_ms)
    }
    shown: dict[int, Shown] = {}
    for at, time in enumerate(rising):
        if time in shown:
            continue
        if time not in silence:
            shown[time] = Shown(time)
            continue
        for later in rising[at:]:
            ends = [end for end in silence if time <= end <= later]
            wanted = max(end + min(rule.catch_up_ms, silence[end]) for end in ends)
            if later >= wanted or later >= time + 10 * rule.catch_up_ms:
                shown[later] = Shown(later, is_cut_short=later < wanted)
                break
            shown[later] = Shown(rising[at - 1])
    out: list[Shown] = []
    for at in range(len(ticks)):
        highest = max(ticks[: at + 1])
        out.append(shown[highest])
    return out


def stepped(rule: CatchUpRule, ticks: Sequence[int], step: Step = step_clock) -> list[Shown]:
    """Return what the state machine shows after each tick."""
    catch_up: CatchUp | None = None
    before = -1
    out: list[Shown] = []
    for time in ticks:
        if time > before:
            found = step(rule, catch_up, before, time)
            catch_up = found.catch_up
            shown = Shown(time, found.is_cut_short) if catch_up is None else Shown(catch_up.stood_ms)
            if out:
                assert found.before_ms == out[-1].time_ms
            before = time
            out.append(shown)
        else:
            out.append(out[-1])
    return out


def some_ticks(chance: random.Random, number: int) -> list[int]:
    """Ticks a second apart and silences, also around every limit; a few come again or go back."""
    now, found = chance.randrange(100) * SECOND, list[int]()
    for _ in range(number):
        kind = chance.random()
        if kind < 0.6:
            now += chance.choice((1, 1, 2, 5)) * SECOND
        elif kind < 0.9:
            now += chance.choice((5001, 6000, 15_000, 29_999, 30_000, 60_000, 400_000))
        found.append(now if kind < 0.95 else max(0, now - chance.randrange(20) * SECOND))
    return found


RULES = st.builds(
    CatchUpRule,
    grace_ms=st.sampled_from([0, 3000, 10_000, 10_002, 60_000]),
    catch_up_ms=st.sampled_from([0, 1, 7000, 30_000, 120_000]),
)


@given(RULES, st.randoms(use_true_random=False), st.integers(1, 60))
def test_clock_agrees_with_the_list_of_all_ticks(rule: CatchUpRule, chance: random.Random, number: int) -> None:
    ticks = some_ticks(chance, number)
    assert stepped(rule, ticks) == naive(rule, ticks)


def never_begins_again(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    return step_clock(rule, catch_up, before_ms if catch_up is None else now_ms - 1, now_ms)


def has_no_limit(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    step = step_clock(rule, catch_up, before_ms, now_ms)
    if not step.is_cut_short or catch_up is None:
        return step
    return ClockStep(CatchUp(catch_up.stood_ms, catch_up.began_ms, now_ms + 1), step.before_ms)


def is_never_marked(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    return step_clock(rule, catch_up, before_ms, now_ms)._replace(is_cut_short=False)


def outlasts_the_silence(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    step = step_clock(rule, catch_up, before_ms, now_ms)
    if catch_up is None and step.catch_up is not None:
        return step._replace(catch_up=CatchUp(before_ms, now_ms, now_ms + rule.catch_up_ms))
    return step


def begins_the_limit_again(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    if catch_up is not None and now_ms - before_ms > rule.longest_distance_ms:
        catch_up = CatchUp(catch_up.stood_ms, now_ms, catch_up.until_ms)
    return step_clock(rule, catch_up, before_ms, now_ms)


def ends_early(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    step = step_clock(rule, catch_up, before_ms, now_ms)
    if catch_up is not None and step.catch_up is not None and now_ms - before_ms > rule.longest_distance_ms:
        until_ms = now_ms + min(rule.catch_up_ms, now_ms - before_ms)
        return step._replace(catch_up=CatchUp(catch_up.stood_ms, catch_up.began_ms, until_ms))
    return step


@pytest.mark.parametrize(
    "mutant",
    [
        never_begins_again,
        has_no_limit,
        is_never_marked,
        outlasts_the_silence,
        begins_the_limit_again,
        ends_early,
    ],
)
def test_mutant_of_the_clock_is_found(mutant: Step) -> None:
    def differs(seed: int) -> bool:
        ticks = some_ticks(random.Random(seed), 60)
        return any(
            mine[0] != other[0] or mine[1] != other[1]
            for mine, other in zip(lenient(ticks, mutant), naive(RULE, ticks), strict=True)
        )

    assert any(differs(seed) for seed in range(300))


def lenient(ticks: Sequence[int], mutant: Step) -> list[Shown]:
    """Return what a mutant shows; empty if it loses track."""
    try:
        return stepped(RULE, ticks, mutant)
    except AssertionError:
        return [Shown(-1)] * len(ticks)


# -- in the counter of a partition --------------------------------------------------------------------------------


def by_the_wall(grace_ms: int = 0, catch_up_ms: int = 30 * SECOND) -> CountedView:
    return view(length_ms=10 * SECOND, grace_ms=grace_ms, catch_up_ms=catch_up_ms, max_ahead_ms=3600 * SECOND)


def closings(machine: Machine) -> dict[int, tuple[int, bool]]:
    """Return, by start of a window, when it was closed and whether that interrupted a catch-up; repeats must agree."""
    found: dict[int, tuple[int, bool]] = {}
    for one in partials(machine.sent):
        assert found.setdefault(one.start_ms, (one.closed_ms, one.interrupted)) == (one.closed_ms, one.interrupted)
    return found


def expected(one: CountedView, ticks: Sequence[int]) -> dict[int, tuple[int, bool]]:
    found: dict[int, tuple[int, bool]] = {}
    shown = naive(one.catch_up_rule, ticks)
    for tick, clock in zip(ticks, shown, strict=True):
        start = len(found) * 10 * SECOND
        while start + 10 * SECOND + one.grace_ms <= clock.time_ms:
            found[start] = tick, clock.is_cut_short
            start += 10 * SECOND
    return found


def delivered(one: CountedView, ticks: Sequence[int], cuts: Iterable[int]) -> Machine:
    """The ticks one by one, with restarts; after each, the last two come again."""
    machine = Machine()

    def step(tick: int) -> Callable[[PartitionCounter], Effects]:
        return lambda running: running.ticks([tick])

    deliver(machine, lambda: counter(one), [step(tick) for tick in ticks], cuts=cuts, again=2)
    return machine


@pytest.mark.parametrize("seed", range(4))
def test_windows_close_the_same_after_a_crash_at_every_place(seed: int) -> None:
    one, ticks = by_the_wall(), some_ticks(random.Random(seed), 25)
    whole = delivered(one, ticks, ())
    assert closings(whole) == expected(one, ticks)
    for cut in range(0, whole.points, 1 + whole.points // 40):
        assert closings(delivered(one, ticks, [cut])) == expected(one, ticks), cut
    assert closings(delivered(one, ticks, range(1, 60))) == expected(one, ticks)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 40))
def test_windows_close_the_same_after_crashes_in_many_more_cases(seed: int) -> None:
    chance = random.Random(seed)
    one, ticks = by_the_wall(chance.choice((0, 10_000, 60_000))), some_ticks(chance, 40)
    whole = delivered(one, ticks, ())
    assert closings(whole) == expected(one, ticks)
    for cut in range(whole.points):
        assert closings(delivered(one, ticks, [cut])) == expected(one, ticks), cut


def test_mutant_that_forgets_a_catch_up_at_a_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, ticks = by_the_wall(), [0, 60_000, 61_000, 75_000, 95_000]
    assert closings(delivered(one, ticks, [3])) == expected(one, ticks)
    machine = Machine()
    running = loaded(machine, one)
    machine.carry_out(running.ticks(ticks[:3]))
    for key, value in machine.rows.items():
        marker = decode(Marker, value)
        assert key == MARKER + text("visits")
        assert marker.views["pages"].catch_up == CatchUp(0, 60_000, 90_000)
    monkeypatch.setattr(open_windows, "step_clock", lambda rule, _, before, now: step_clock(rule, None, before, now))
    assert closings(delivered(one, ticks, [3])) != expected(one, ticks)


def tick_each_second(machine: Machine, one: PartitionCounter, first_ms: int, last_ms: int) -> None:
    for now_ms in range(first_ms, last_ms + 1, 1000):
        machine.carry_out(one.ticks([now_ms]))


def test_events_that_were_held_back_are_in_time() -> None:
    machine = Machine()
    one = loaded(machine, by_the_wall())
    machine.carry_out(one.ticks([1000, 2000]))
    machine.carry_out(one.ticks([62_000, 63_000]))  # the broker is back, the producer not yet
    machine.carry_out(one.chunk([event(0, "u", "a", 2500), event(1, "v", "a", 61_000)], 64_000))
    tick_each_second(machine, one, 64_000, 91_000)
    assert letters(machine.sent) == {}
    assert handed_on(machine.sent) == {}
    machine.carry_out(one.ticks([92_000]))
    machine.carry_out(one.chunk([event(2, "w", "a", 61_500)], 93_000))
    assert handed_on(machine.sent)["pages"] == {
        start * 10_000: {"a": 1} if start in (0, 6) else {} for start in range(9)
    }
    assert letters(machine.sent) == {(2, "late"): 1}


def test_events_too_far_ahead_are_judged_by_the_tick() -> None:
    """`max_ahead` keeps the real tick while the clock stands still."""
    machine = Machine()
    one = loaded(machine, replace(by_the_wall(), max_ahead_ms=5000))
    machine.carry_out(one.ticks([1000, 62_000]))
    machine.carry_out(one.chunk([event(0, "u", "a", 68_000), event(1, "v", "a", 68_001)], 63_000))
    assert letters(machine.sent) == {(1, "future"): 1}


def test_limit_marks_the_windows_that_it_closes() -> None:
    machine = Machine()
    one = loaded(machine, by_the_wall())
    ticks = [1000, *range(61_000, 400_000, 20_000)]  # the broker comes and goes
    for tick in ticks:
        machine.carry_out(one.ticks([tick]))
    found = closings(machine)
    assert set(found.values()) == {(361_000, True)}
    assert list(found) == list(range(0, 360_000, 10_000))
    tick_each_second(machine, one, 382_000, 400_000)
    assert closings(machine) == found
    tick_each_second(machine, one, 401_000, 401_000)
    later = {start: closed for start, closed in closings(machine).items() if start >= 360_000}
    assert later == dict.fromkeys(range(360_000, 400_000, 10_000), (401_000, False))


def test_idle_clock_stands_still_and_watermarks_move_it() -> None:
    machine = Machine()
    once = view(length_ms=10_000, grace_ms=0, clock="event", idle_ms=20_000, catch_up_ms=30_000, max_ahead_ms=10**6)
    one = loaded(machine, once)

    def clock() -> int:
        return decode(Marker, machine.rows[MARKER + text("visits")]).views["pages"].clock_ms

    machine.carry_out(one.chunk([watermark(0, 1000)], 1000))
    machine.carry_out(one.ticks([1000, 2000, 21_000, 26_000]))
    assert clock() == 1000  # the silence of 19 s holds it up
    machine.carry_out(one.ticks([31_000, 35_000, 39_999]))
    assert clock() == 1000
    machine.carry_out(one.ticks([40_000]))
    assert clock() == 40_000  # idle since 1000
    machine.carry_out(one.ticks([50_000]))
    machine.carry_out(one.chunk([watermark(1, 45_000)], 51_000))
    assert clock() == 45_000
    machine.carry_out(one.ticks([51_000, 60_000, 69_000, 70_999]))
    assert clock() == 45_000


def test_views_with_other_catch_ups_share_no_windows() -> None:
    machine = Machine()
    one = loaded(machine, by_the_wall(), replace(by_the_wall(catch_up_ms=0), name="other", fingerprint=b"other   "))
    machine.carry_out(one.ticks([1000, 62_000]))
    machine.carry_out(one.chunk([event(0, "u", "a", 2500)], 63_000))
    tick_each_second(machine, one, 63_000, 92_000)
    found = handed_on(machine.sent)
    assert found["pages"][0] == {"a": 1}
    assert found["other"][0] == {}


def test_window_is_interrupted_if_it_was_in_one_source_partition() -> None:
    """The source is not keyed by user, and the clock of each source partition catches up separately."""
    machine = Machine()
    one = users_counter(0, views=[by_the_wall()], source_partitions=2)
    machine.carry_out(one.load(machine))
    offset = 0

    def tick(source_partition: int, now_ms: int) -> None:
        nonlocal offset
        batch = RekeyedBatch(source_partition, now_ms, [], [], [now_ms])
        machine.carry_out(one.chunk([Entry(offset, None, encode(batch))], 0))
        offset += 1

    for now_ms in [1000, *range(61_000, 362_000, 20_000)]:
        tick(0, now_ms)
    for now_ms in range(1000, 71_000, 1000):
        tick(1, now_ms)
    for now_ms in range(362_000, 380_000, 1000):
        tick(0, now_ms)
    assert {start for start, (_, interrupted) in closings(machine).items() if interrupted} == {
        *range(0, 70_000, 10_000)
    }
    for now_ms in range(71_000, 379_000, 1000):
        tick(1, now_ms)
    found = {start: interrupted for start, (_, interrupted) in closings(machine).items()}
    assert found == {start: start < 360_000 for start in range(0, 370_000, 10_000)}


def test_new_definition_of_a_view_goes_on_with_the_catch_up() -> None:
    """Records that producers held back may belong to its windows, too."""
    machine, whole = Machine(), by_the_wall()
    one = loaded(machine, whole)
    machine.carry_out(one.ticks([1000, 61_000]))
    former = replace(whole, until_ms=70_000)
    latter = replace(whole, name="pages@2", first_ms=70_000, origin_ms=0)
    again = loaded(machine, former, latter)
    tick_each_second(machine, again, 62_000, 85_000)
    machine.carry_out(again.chunk([event(0, "u", "a", 75_000)], 86_000))
    tick_each_second(machine, again, 86_000, 91_000)
    assert letters(machine.sent) == {}
    assert closings(machine) == dict.fromkeys(range(0, 90000, 10000), (91000, False))
    assert handed_on(machine.sent)["pages@2"] == {70_000: {"a": 1}, 80_000: {}}


def test_windows_left_to_a_new_definition_stay_interrupted() -> None:
    """A source partition may have closed them before the definition began."""
    machine, whole = Machine(), by_the_wall()
    offset = 0

    def counting(*views: CountedView) -> PartitionCounter:
        found = users_counter(0, views=views, source_partitions=2)
        machine.carry_out(found.load(machine))
        return found

    def tick(running: PartitionCounter, source_partition: int, now_ms: int) -> None:
        nonlocal offset
        batch = RekeyedBatch(source_partition, now_ms, [], [], [now_ms])
        machine.carry_out(running.chunk([Entry(offset, None, encode(batch))], 0))
        offset += 1

    one = counting(whole)
    tick(one, 1, 1000)
    for now_ms in [1000, *range(61_000, 362_000, 20_000)]:
        tick(one, 0, now_ms)
    latter = replace(whole, name="pages@2", first_ms=20_000, origin_ms=0)
    again = counting(replace(whole, until_ms=20_000), latter)
    for now_ms in range(2000, 31_000, 1000):
        tick(again, 1, now_ms)
    found = {(part.view, part.start_ms, part.interrupted) for part in partials(machine.sent)}
    assert found == {("pages", 0, True), ("pages", 10_000, True), ("pages@2", 20_000, True)}
