"""The clock of a worker: the broker's time, as its answers tell it, beside the wall clock of the machine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.runtime.clock import CLOCK_BOUND_MS, Clock, Difference, Tick, apart, read_tick
from stream_dp.windows.encoding import encode
from tests.support.counting import Entry

NOON = 1_800_000_000_000


@dataclass
class Machine:
    """A machine's clocks."""

    wall_ms: int = NOON
    steady_ms: int = 5_000

    def clock(self, bound_ms: int | None = CLOCK_BOUND_MS) -> Clock:
        return Clock(lambda: self.wall_ms, bound_ms, lambda: self.steady_ms)

    def wait(self, wait_ms: int) -> None:
        self.wall_ms += wait_ms
        self.steady_ms += wait_ms


def test_until_a_broker_has_answered_it_shows_its_own_time() -> None:
    machine = Machine()
    clock = machine.clock()
    assert (clock(), clock.log_ms(), clock.check(), clock.is_wrong) == (NOON, None, Difference(0, 0), False)
    clock.learn({}, machine.steady_ms)  # the topic keeps the times of senders
    assert (clock(), clock.log_ms()) == (NOON, None)


def test_afterwards_it_shows_the_brokers_time_and_goes_on_by_itself_though_the_wall_clock_is_set() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.learn({0: NOON - 40}, machine.steady_ms)
    machine.wait(1000)
    assert clock() == NOON + 960
    machine.wall_ms += 3_600_000
    assert (clock(), clock.earliest_ms()) == (NOON + 960, NOON + 960)
    assert clock.check() == Difference(3_600_040, 0)
    assert clock.is_wrong
    machine.wall_ms = NOON - 100_000
    assert (clock(), clock.earliest_ms()) == (NOON + 960, NOON - 100_000)
    assert clock.check() == Difference(-100_960, 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_clocks_are_apart_beyond_the_bound_and_agree_again_within_half_of_it(sign: int) -> None:
    machine = Machine()
    clock = machine.clock(1000)
    clock.learn({0: NOON}, machine.steady_ms)
    found = []
    for off_ms in (1000, 1001, 501, 500, 1000):
        machine.wall_ms = NOON + sign * off_ms
        clock.check()
        found.append(clock.is_wrong)
    assert found == [False, True, True, False, False]


def test_of_several_brokers_the_earliest_tells_the_time_and_the_furthest_whether_clocks_agree() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.learn({0: NOON, 1: NOON - 20_000, 2: NOON + 5_000}, machine.steady_ms)
    assert clock() == NOON - 20_000
    assert clock.check() == Difference(20_000, 1)
    assert clock.is_wrong
    clock.learn({0: NOON, 2: NOON + 5_000}, machine.steady_ms)  # it has that partition no more
    assert clock() == NOON
    assert clock.check() == Difference(-5_000, 2)
    assert not clock.is_wrong


def test_an_answer_that_took_long_says_no_more_than_it_can() -> None:
    """A worker that was held up, or waited for a broker that was gone, is not taken for one with a slow clock."""
    machine = Machine()
    clock = machine.clock()
    clock.learn({0: NOON}, machine.steady_ms)
    sent_ms = machine.steady_ms
    machine.wait(600_000)
    clock.learn({0: NOON + 10}, sent_ms)
    assert clock() == NOON + 600_000
    assert clock.check() == Difference(0, 0)


def test_a_broker_whose_clock_is_set_is_followed_at_once() -> None:
    machine = Machine()
    clock = machine.clock()
    for broker_ms in (NOON, NOON - 7_200_000, NOON + 7_200_000):
        clock.learn({0: broker_ms}, machine.steady_ms)
        assert clock() == broker_ms


def test_clocks_are_not_compared_where_a_test_has_its_own() -> None:
    machine = Machine()
    clock = machine.clock(None)
    clock.learn({0: 0}, machine.steady_ms)
    assert (clock(), clock.check(), clock.is_wrong) == (NOON, Difference(0, 0), False)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 2000)), min_size=1, max_size=20))
def test_it_is_never_ahead_of_the_broker_and_behind_by_no_more_than_the_quickest_answer_took(
    answers: list[tuple[int, int, int]],
) -> None:
    machine, quickest = Machine(), 500
    clock, ahead = machine.clock(), 777
    for there, back, pause in answers:
        sent_ms = machine.steady_ms
        machine.wait(there)
        appended_ms = machine.wall_ms + ahead
        machine.wait(back)
        clock.learn({0: appended_ms}, sent_ms)
        quickest = min(quickest, back)
        machine.wait(pause)
        assert -quickest <= clock() - (machine.wall_ms + ahead) <= 0


def test_a_difference_is_told_in_whole_seconds() -> None:
    place = "that of the broker which leads partition 3 of app-ticks"
    assert apart(Difference(3_599_996, 3), "app-ticks") == f"the clock of this machine is 1h ahead of {place}"
    assert apart(Difference(-12_400, 3), "app-ticks") == f"the clock of this machine is 12s behind {place}"


@pytest.mark.parametrize(
    ("now_ms", "time_ms", "is_about"),
    [
        (NOON - 600_000, NOON - 600_000, {"visits": 7}),  # it lay in a producer while the broker was gone
        (NOON, NOON, {"visits": 7}),
        (NOON + 1, NOON, {"visits": 7}),
        (NOON + CLOCK_BOUND_MS, NOON, {"visits": 7}),
        (NOON + CLOCK_BOUND_MS + 1, NOON, {}),
        (NOON + 3_600_000, NOON, {}),
    ],
)
def test_no_tick_is_later_than_its_append_time_and_one_far_ahead_is_about_no_source(
    now_ms: int, time_ms: int, is_about: dict[str, int]
) -> None:
    record = Entry(0, None, encode(Tick(now_ms, {"visits": 7}, None, 3, (1,))), NOON)
    assert read_tick(record, CLOCK_BOUND_MS) == Tick(time_ms, is_about, None, 3, (1,))
    assert read_tick(record, None) == Tick(now_ms, {"visits": 7}, None, 3, (1,))


def test_a_tick_of_a_version_that_knew_no_asking_is_read() -> None:
    record = Entry(0, None, encode([NOON, {"visits": 7}, None, 3]), NOON)
    assert read_tick(record, CLOCK_BOUND_MS) == Tick(NOON, {"visits": 7}, None, 3)
