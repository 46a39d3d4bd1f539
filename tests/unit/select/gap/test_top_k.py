"""The selection as it is called: tables, keys that nobody counted, numbers of any size, and what is refused."""

from __future__ import annotations

import os
import tracemalloc
from collections import Counter
from fractions import Fraction
from functools import partial
from math import exp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.aes import UniformWords
from stream_dp.exact.bits import BitSource, KeyedBits, SystemBits
from stream_dp.select import exponential, top_k_with_gaps
from stream_dp.select.candidates import Neighbours, Unseen
from stream_dp.select.exponential import (
    Contenders,
    Randomness,
    contenders,
    finish,
    first_of,
    hit,
    powers_of_e,
    start_level,
    zero_contenders,
)
from stream_dp.select.top_k_with_gaps import GapParameters, floored, gap_top_k, one_shot_top_k
from tests.support.chance import pooled_p_value
from tests.support.gap_oracle import QuickBits, law, permute_and_flip, ratio_of
from tests.support.gap_shipped import gap_top_k_of_array

FALSE_ALARM = 1e-6
SHARP = GapParameters(3, Fraction(10_000), 10)
"""Noise of 1/1667 of a count: what comes out is foreseeable."""


def bits(name: str) -> QuickBits:
    return QuickBits(KeyedBits(b"top k", name.encode()))


def about(gaps: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether they are the true gaps, of which what is below a step may have taken one."""
    return all(gap in (true - 1, true) for gap, true in zip(gaps, expected, strict=True))


def test_the_largest_counts_come_first_with_what_they_are_ahead_by() -> None:
    counts = {b"a": 5, b"b": 90, b"c": 60, b"d": 7}
    output = gap_top_k(counts, 0, SHARP, bits("first"))
    assert output.items == (b"b", b"c", b"d")
    assert about(output.gaps, (300, 530, 20))
    places, gaps = gap_top_k_of_array(np.array(list(counts.values())), 0, SHARP, bits("first"))
    assert (places.tolist(), gaps) == ([1, 2, 3], output.gaps)
    assert one_shot_top_k(counts, 0, GapParameters(4, Fraction(10_000), 1), bits("first")) == (b"b", b"c", b"d", b"a")


def test_keys_of_count_zero_are_told_by_their_numbers() -> None:
    for zeros in (5, 10**9):
        output = gap_top_k({"x": 4, "y": -8}, zeros, SHARP, bits(f"{zeros}"))
        assert output.items[0] == "x"
        first, second = output.items[1:]
        assert isinstance(first, Unseen)
        assert isinstance(second, Unseen)
        assert first != second
        assert 0 <= first.number < zeros
        assert gap_top_k({}, zeros, SHARP, bits("none")).items[0] != "x"
    places, _ = gap_top_k_of_array(np.array([4, -8]), 5, SHARP, bits("5"))
    assert places[0] == 0
    assert all(2 <= place < 7 for place in places[1:])


@pytest.mark.parametrize("shift", [0, 1 << 61, -(1 << 61), 1 << 80, -(10**40)])
def test_counts_of_any_size_are_reckoned_exactly(shift: int) -> None:
    near = {b"a": shift + 5, b"b": shift + 90, b"c": shift + 60, b"d": shift + 7}
    output = gap_top_k(near, 0, SHARP, bits("first"))
    assert output.items == (b"b", b"c", b"d")
    assert about(output.gaps, (300, 530, 20))
    far = gap_top_k({b"a": -(10**30), b"b": 10**30, b"c": 0, b"d": 1}, 0, SHARP, bits("far"))
    assert far.items == (b"b", b"d", b"c")
    assert about(far.gaps, (10**31 - 10, 10, 10**31))


def test_a_constant_more_leaves_every_output_of_the_same_bits() -> None:
    p = GapParameters(2, Fraction(1, 3), 7)
    counts = {b"%d" % i: i * i % 17 for i in range(40)}
    for run in range(50):
        there = gap_top_k(counts, 0, p, bits(f"run {run}"))
        for more in (1, 10**6, 1 << 70):
            moved = {key: count + more for key, count in counts.items()}
            assert gap_top_k(moved, 0, p, bits(f"run {run}")) == there


def test_a_parameter_whose_noise_does_not_fit_64_bits_is_reckoned_exactly() -> None:
    p = GapParameters(1, Fraction(10**20 + 1, 10**20), 10**12)
    assert p.noise.mean > 1 << 62
    output = gap_top_k({b"a": 10**9, b"b": 0}, 0, p, bits("wide"))
    assert output.items == (b"a",)
    assert abs(output.gaps[0] - 10**21) < 100 * 10**12
    assert gap_top_k({b"a": 10**9}, 10**9, p, bits("wide")).items == (b"a",)


def test_weights_are_rounded_down_to_the_grid(vectors: dict[str, Any]) -> None:
    for row in vectors["rounding"]["floor_to_grid"]:
        resolution = int(1 / Fraction(row["gamma"]))
        assert Fraction(floored(Fraction(row["x"]), resolution), resolution) == Fraction(row["floor"])
    weights = {b"a": Fraction(237, 100), b"b": Fraction(-1, 20), b"c": Fraction(-7, 3), b"d": Fraction(5)}
    p = GapParameters(3, Fraction(10**6), 10)
    output = gap_top_k(weights, 0, p, bits("weights"))
    assert output.items == (b"d", b"a", b"b")
    assert about(output.gaps, (50 - 23, 23 + 1, 24 - 1))


@given(st.fractions(0, 9), st.fractions(0, 9), st.integers(1, 50))
def test_a_difference_rounded_down_is_one_of_roundings_and_a_comparison_of_rests(
    x: Fraction, y: Fraction, resolution: int
) -> None:
    one, other = floored(x, resolution), floored(y, resolution)
    less = x * resolution - one < y * resolution - other
    assert floored(x - y, resolution) == one - other - less
    # The rule takes the comparison from the order in which the two stand.
    noisy = np.array([one, other] if less else [other, one])
    keys, gaps = first_of(np.array([0, 1] if less else [1, 0]), noisy, 2)
    if one > other:
        assert (keys[0], gaps[0]) == (0, floored(x - y, resolution))


def test_listed_roundings_of_a_difference(vectors: dict[str, Any]) -> None:
    for row in vectors["rounding"]["lemma11"]:
        x, y, step = Fraction(row["x1"]), Fraction(row["x2"]), Fraction(row["gamma"])
        resolution = int(1 / step)
        floors = [floored(value, resolution) * step for value in (x, y)]
        assert floors == [Fraction(value) for value in row["floors"]]
        assert (x - floors[0] < y - floors[1]) == row["delta"]
        assert floored(x - y, resolution) * step == Fraction(row["lhs"]) == floors[0] - floors[1] - row["delta"] * step


def test_what_is_no_exact_count_is_refused() -> None:
    for wrong in (1.5, "3", None):
        counts: dict[bytes, Any] = {b"a": 1, b"b": wrong, b"c": 2, b"d": 3}
        with pytest.raises(StateError, match="whole number or an exact fraction"):
            gap_top_k(counts, 0, SHARP, bits("wrong"))


def test_a_domain_without_a_key_to_leave_untold_is_refused_before_anything_is_drawn() -> None:
    class Untouched:
        def bits(self, n: int) -> int:
            raise AssertionError

    untouched: BitSource = Untouched()
    for counts, zeros, calls in (({b"a": 1}, 2, 1), ({}, 3, 1), ({b"a": 1, b"b": 2, b"c": 3}, 0, 1)):
        for _ in range(calls):
            with pytest.raises(ParameterError, match="a domain of 4 keys at least; it has 3"):
                gap_top_k(counts, zeros, SHARP, untouched)
    with pytest.raises(ParameterError, match="number of keys"):
        gap_top_k({b"a": 1}, -1, SHARP, untouched)
    with pytest.raises(ParameterError, match="at least; it has 2"):
        one_shot_top_k({b"a": 1}, 1, GapParameters(3, Fraction(1), 1), untouched)
    with pytest.raises(ParameterError, match="add or remove"):
        GapParameters(1, Fraction(1), 1, monotone=True)


@pytest.mark.statistical
def test_one_shot_with_one_item_is_permute_and_flip_and_with_all_keys_an_order_of_them() -> None:
    """False alarm: 1e-6."""
    source, a = bits("one shot"), [2, 1, 1, 0]
    counts = dict(enumerate(map(str, range(4))))
    table = {counts[i]: value for i, value in enumerate(a[:3])}
    p = GapParameters(1, Fraction(1), 1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    found = Counter[Any](one_shot_top_k(table, 1, p, source)[0] for _ in range(2000))
    expected = permute_and_flip(a, Fraction(exp(-1)).limit_denominator(10**9))
    names: list[Any] = ["0", "1", "2", Unseen(0)]
    assert pooled_p_value(found, dict(zip(names, map(float, expected), strict=True))) > FALSE_ALARM
    assert set(one_shot_top_k(table, 2, GapParameters(5, Fraction(1), 1), source)) == {
        "0",
        "1",
        "2",
        Unseen(0),
        Unseen(1),
    }


def test_a_table_in_pieces_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k_with_gaps, "PIECE", 7)
    counts = {b"%02d" % i: i * 7 % 50 for i in range(50)}
    p = GapParameters(3, Fraction(10**6), 10)
    found = gap_top_k(counts, 0, p, bits("pieces"))
    assert [counts[item] for item in found.items if isinstance(item, bytes)] == [49, 48, 47]
    assert about(found.gaps, (10, 10, 10))


@pytest.mark.statistical
def test_parts_that_draw_for_themselves_and_meet_have_the_law_of_the_whole() -> None:
    """False alarm: 1e-6. Every part has a key of its own, and only its contenders are handed on."""
    a, k, t = [4, 2, 3, 0], 1, 2
    found = Counter[Any]()
    source = bits("parts")
    for _ in range(1500):
        parts = []
        for first in (0, 2):
            of_part = contenders(np.array(a[first : first + 2]), first, k + 1, t, Randomness(source))
            parts.append(of_part.reaching(of_part.floor(k + 1), t))
        keys, gaps = finish(parts, k + 1, t, Randomness(source))
        found[tuple(keys[:-1].tolist()), tuple(gaps.tolist())] += 1
    exact = {cell: float(chance) for cell, chance in law(a, ratio_of(1, t), k, 14).items()}
    assert pooled_p_value(found, exact) > FALSE_ALARM


# Keys that nobody counted.


@pytest.mark.statistical
def test_how_many_keys_reach_a_clock_is_binomial_as_listed(vectors: dict[str, Any]) -> None:
    """False alarm: 1e-6 each. And which they are is uniform."""
    for row in vectors["binomial_exp"]:
        source = bits(f"binomial {row['N']}")
        found = [hit(row["N"], partial(powers_of_e, row["v"]), source).tolist() for _ in range(4000)]
        assert all(numbers == sorted(set(numbers)) for numbers in found)
        listed = {count: float(chance) for count, chance in enumerate(row["pmf"])}
        assert pooled_p_value(Counter(map(len, found)), listed) > FALSE_ALARM
        numbers = Counter(number for one in found for number in one)
        assert pooled_p_value(numbers, dict.fromkeys(range(row["N"]), 1 / row["N"])) > FALSE_ALARM


def test_a_billion_keys_take_no_memory_of_their_own() -> None:
    p = GapParameters(100, Fraction(1), 10)
    source = SystemBits()
    gap_top_k({}, 10**9, p, source)
    tracemalloc.start()
    output = gap_top_k({}, 10**9, p, source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
    assert len(set(output.items)) == 100


@pytest.mark.statistical
def test_the_first_of_a_million_equal_keys_is_ahead_as_among_few() -> None:
    """False alarm: 1e-6. P(gap m) = rho^m (1 - rho) for equal keys, however many; and their numbers are spread."""
    source, p = bits("equal"), GapParameters(1, Fraction(1), 1)
    outputs = [gap_top_k({}, 1_000_000, p, source) for _ in range(600)]
    rho = 0.6065306597126334
    law_ = {m: rho**m * (1 - rho) for m in range(12)}
    assert pooled_p_value(Counter(output.gaps[0] for output in outputs), law_) > FALSE_ALARM
    tenths = Counter(output.items[0].number // 100_000 for output in outputs if isinstance(output.items[0], Unseen))
    assert pooled_p_value(tenths, dict.fromkeys(range(10), 0.1)) > FALSE_ALARM


def test_only_keys_that_reach_the_floor_of_the_others_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    randomness, t = Randomness(bits("floor")), 10
    others = Contenders(np.arange(2), np.array([100 * t, 90 * t]))
    asked: list[int] = []
    original = exponential.hit

    def recorded(keys: int, chance: Any, source: BitSource) -> Any:
        asked.append(keys)
        return original(keys, chance, source)

    monkeypatch.setattr(exponential, "hit", recorded)
    found = zero_contenders(10**9, 2, 2, t, randomness, others)
    assert len(found.keys) == 0  # a clock of 90 is one in 10^39
    assert asked == [10**9]
    assert start_level(10**9, 2) == 16


# Fresh noise in every process (pitfall 12).


def in_child(work: Any) -> bytes:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        os.close(read_end)
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(work())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def test_children_forked_after_a_selection_draw_noise_of_their_own() -> None:
    source, p = SystemBits(), GapParameters(1, Fraction(1, 10**6), 10**6)
    gap_top_k({b"a": 1, b"b": 2}, 0, p, source)

    def gap() -> bytes:
        return b"%d" % gap_top_k({b"a": 1, b"b": 2}, 0, p, source).gaps[0]

    assert len({in_child(gap), in_child(gap), gap()}) == 3


def test_a_million_words_of_eight_processes_do_not_repeat() -> None:
    source = SystemBits()
    source.bits(64)
    told = [in_child(lambda: UniformWords(source).draw(125_000).tobytes()) for _ in range(8)]
    words = np.frombuffer(b"".join(told), np.uint64)
    assert len(words) == len(np.unique(words)) == 1_000_000
