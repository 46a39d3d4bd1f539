"""Times drawn as far as they are asked for, and what is left of a rate at a time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import exp, expm1

import numpy as np
import pytest

from stream_dp.errors import StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.reals import log
from stream_dp.select import top_k_subset
from stream_dp.select.lipschitz import Envelope, ScoreNoise, SubsetParameters, depth_of, lay_out
from stream_dp.select.one_shot import Exact
from stream_dp.select.top_k_subset import ArrivalClock, still_open
from tests.support.tapes import RecordedBits


def test_a_time_is_the_sum_of_as_many_exponential_times_as_the_clock_has_ticked() -> None:
    rate = Fraction(7, 3)
    tape = bytes.fromhex("8000000000000000" + "4000000000000000" + "00" * 40)
    clock = ArrivalClock(rate, RecordedBits(tape))
    assert clock.enclose(64) == (Fraction(0), Fraction(0))
    clock.tick()
    clock.tick()
    low, high = clock.enclose(63)
    two, _ = log(Fraction(2), 200)
    expected = 3 * Fraction(two, 1 << 200) / rate  # ln 2 and ln 4
    assert low <= expected <= high
    assert high - low < Fraction(1, 1 << 60)


def test_a_closer_look_at_a_time_draws_more_bits_of_the_same_number() -> None:
    clock = ArrivalClock(Fraction(1), KeyedBits(b"k", b"time"))
    clock.tick()
    bounds = [clock.enclose(precision) for precision in (4, 64, 128, 512, 64)]
    for (low, high), (lower, higher) in pairwise(bounds[:4]):
        assert low <= lower <= higher <= high
    assert bounds[3][1] - bounds[3][0] < Fraction(1, 1 << 500)
    assert bounds[3][0] <= bounds[4][1]


def test_the_bits_that_are_not_drawn_yet_are_in_the_bounds() -> None:
    clock = ArrivalClock(Fraction(1), RecordedBits(bytes.fromhex("8000000000000000") + b"\xff" * 80))
    clock.tick()
    low, _ = clock.enclose(63)
    assert low <= clock.enclose(500)[1]


def test_a_time_has_no_largest_value_and_is_never_rounded() -> None:
    clock = ArrivalClock(Fraction(1), RecordedBits(bytes(40) + b"\xff" * 40))
    clock.tick()
    assert clock.enclose(64)[0] > 220
    clock.tick()
    with pytest.raises(StateError, match="bits left"):
        clock.enclose(512)


@pytest.mark.parametrize("time", [Fraction(0), Fraction(1, 1000), Fraction(2), Fraction(90)])
@pytest.mark.parametrize("energy", [Fraction(0), Fraction(1, 10**9), Fraction(1), Fraction(50), Fraction(10**9)])
def test_what_is_left_of_a_rate_is_enclosed(time: Fraction, energy: Fraction) -> None:
    low, high = still_open(Exact(time), energy, 400)
    chance = exp(-energy) if energy < 700 else 0.0
    rest = -expm1(-energy) + chance * exp(-time) if energy else exp(-time)
    assert 0 <= low <= high <= 1 << 400
    assert Fraction(low, 1 << 400) <= Fraction(exp(-time) / rest) * (1 + Fraction("1e-12"))
    assert Fraction(high, 1 << 400) >= Fraction(exp(-time) / rest) * (1 - Fraction("1e-12"))
    assert high - low < 1 << 200
    if not energy or not time:
        assert high == 1 << 400


def test_where_nothing_is_known_of_a_late_time_all_is_possible() -> None:
    assert still_open(Exact(Fraction(1000)), Fraction(0), 64) == (0, 1 << 64)
    assert still_open(Exact(Fraction(1000)), Fraction(0), 2000) == (1 << 2000, 1 << 2000)


class Between:
    """A number of which no more is ever known."""

    def enclose(self, _precision: int) -> tuple[Fraction, Fraction]:
        return Fraction(1), Fraction(2)


def test_what_is_left_of_a_rate_falls_with_the_time() -> None:
    (early, _), (late, _) = (still_open(Exact(Fraction(time)), Fraction(1), 200) for time in (1, 2))
    low, high = still_open(Between(), Fraction(1), 200)
    assert abs(low - late) <= 1 << 10
    assert abs(high - early) <= 1 << 10
    assert late < early


def test_time_goes_on_where_a_proposal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([3, 3, 2, 2, 2, 2, 2, 1, 1, 1])
    p = SubsetParameters(2, Fraction(1, 3), noise=ScoreNoise.EXPONENTIAL)
    layout = lay_out(counts, 0, p, rate=p.rate_in, depth=depth_of(10, 2))
    times: list[tuple[Fraction, Fraction]] = []

    def refused(_proposed: object, clock: ArrivalClock, _noise: ScoreNoise) -> Callable[[int], tuple[int, int]]:
        times.append(clock.enclose(64))
        return lambda _precision: (0, 0)

    monkeypatch.setattr(top_k_subset, "chance", refused)
    drawn = top_k_subset.draw(layout, Envelope(layout, p), p, KeyedBits(b"k", b"refused"))
    assert drawn == layout.top.tolist()
    assert len(times) > 3
    assert all(high < low for (_, high), (low, _) in pairwise(times))


class Scripted:
    """Some numbers, whatever is asked for, and keyed bits behind them."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)
        self._rest = KeyedBits(b"k", b"scripted")

    def bits(self, n: int) -> int:
        return self._numbers.pop(0) if self._numbers else self._rest.bits(n)


def test_a_top_k_that_is_proposed_too_often_stands_only_as_often_as_it_weighs() -> None:
    p = SubsetParameters(3, Fraction(1, 16))
    layout = lay_out(np.array([5, 4, 3]), 10**12, p, rate=p.rate_in, depth=depth_of(3 + 10**12, 3))
    envelope = Envelope(layout, p)
    assert envelope.excess > 0
    assert envelope.at(0) is None
    assert top_k_subset.draw(layout, envelope, p, Scripted(0, 0)) == layout.top.tolist()
    assert top_k_subset.draw(layout, envelope, p, Scripted(0, 1)) != layout.top.tolist()
