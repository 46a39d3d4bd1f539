"""The law of what is published: exactly, by enumeration of the shipped rule, and by samples of every path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.exact.bits import KeyedBits
from stream_dp.select import exponential
from stream_dp.select.exponential import Contenders, Randomness, WholeClock, contenders, finish, first_of
from stream_dp.select.top_k_with_gaps import GridNoise
from tests.support.chance import pooled_p_value
from tests.support.chosen import every, kept_ordinary, ordinarily
from tests.support.gap_oracle import (
    Cell,
    QuickBits,
    algorithm_4,
    algorithm_l,
    algorithm_p,
    decided,
    enumerated,
    law,
    permute_and_flip,
)
from tests.support.gap_shipped import decision, listed_law, published, sample

FALSE_ALARM = 1e-6
"""Of each test of fit; the samples are fixed, so it has been met or not once and for all."""
HALF_CLOCK = WholeClock(lambda v, precision: (1 << precision >> v, (1 << precision >> v) + (v > precision)))
"""A clock of 1/2 in place of e^-1: with t = 1 the noise has a rational law."""


@every(3)
def test_the_shipped_rule_on_all_noise_and_all_orders_gives_the_listed_laws_exactly(
    vectors: dict[str, Any], step: int
) -> None:
    for row in vectors["exact_rational_laws"][::step]:
        k, rho = row["k"], Fraction(row["rho"])
        found = enumerated(row["a"], rho, k, row["m_max"], decision(k))
        listed = listed_law(row)
        assert found == {cell: chance for cell, chance in listed.items() if chance}
        assert sum(found.values()) == Fraction(row["prob_listed"]) == 1 - Fraction(row["prob_unlisted"])


def test_the_integral_over_real_noise_gives_the_listed_laws_exactly(vectors: dict[str, Any]) -> None:
    for row in vectors["exact_rational_laws"]:
        if len(row["cells"]) < 300:
            assert law(row["a"], Fraction(row["rho"]), row["k"], row["m_max"]) == listed_law(row)


def test_the_first_has_the_law_of_permute_and_flip_exactly(vectors: dict[str, Any]) -> None:
    for row in vectors["exact_rational_laws"]:
        rho = Fraction(row["rho"])
        assert permute_and_flip(row["a"], rho) == [Fraction(chance) for chance in row["first_place_law"]]
        if row["k"] == 1:
            # With gaps of every size together: listed ones, and the rest from the last on, which shrinks as rho^m.
            found = enumerated(row["a"], rho, 1, row["m_max"], decision(1))
            for i, chance in enumerate(row["first_place_law"]):
                shares = [found.get(((i,), (m,)), Fraction(0)) for m in range(row["m_max"] + 1)]
                assert sum(shares) + shares[-1] * rho / (1 - rho) == Fraction(chance)


def test_the_cells_that_are_told_by_hand() -> None:
    half = Fraction(1, 2)
    two = enumerated([0, 0], half, 1, 8, decision(1))
    assert all(two[(0,), (m,)] == half ** (m + 2) for m in range(9))
    alike = enumerated([0, 0, 0, 0], half, 2, 2, decision(2))
    for order in permutations(range(4), 2):
        for one, two_ in ((0, 0), (1, 0), (0, 2), (2, 1)):
            geometric = half**one * (1 - half) * half ** (2 * two_) * (1 - half**2)
            assert alike[order, (one, two_)] == Fraction(2, 24) * geometric


def test_a_selection_of_two_begins_as_one_of_one_and_a_constant_changes_nothing() -> None:
    half, a = Fraction(1, 2), [1, 0, 2, 1]
    both = law(a, half, 2, 3)
    shifted = law([value + 7 for value in a], half, 2, 3)
    assert both == shifted
    one = law(a, half, 1, 3)
    again = enumerated(a, half, 1, 3, decision(1))
    assert again == one
    # Summed over second places, whose gap has a tail that is not listed: below, and by no more than that tail.
    for (first,), (gap,) in one:
        part = sum(chance for (order, gaps), chance in both.items() if order[0] == first and gaps[0] == gap)
        assert part <= one[(first,), (gap,)] <= part + Fraction(1, 2**3)


def test_another_name_for_a_key_is_another_name_in_the_law() -> None:
    half, a = Fraction(1, 2), [2, 0, 1]
    there = enumerated(a, half, 1, 5, decision(1))
    turned = enumerated([a[2], a[0], a[1]], half, 1, 5, decision(1))
    assert {(((key + 1) % 3,), gaps): chance for ((key,), gaps), chance in there.items()} == turned


def test_one_order_of_the_contenders_serves_all_gaps_and_independent_coins_are_flagged(vectors: dict[str, Any]) -> None:
    joint = Counter[tuple[int, int]]()
    for order in permutations(range(3)):
        _, gaps = first_of(np.arange(3), np.array([30, 20, 10])[list(order)], 3)
        joint[tuple((10 - gaps).tolist())] += 1
    listed = {(1, 1): 0, (1, 0): 1, (0, 1): 2, (0, 0): 3}
    rows = list(vectors["permutation_joint"].values())
    assert {taken: Fraction(rows[i]) for taken, i in listed.items()} == {t: Fraction(n, 6) for t, n in joint.items()}
    coins = {taken: Fraction(1, 4) for taken in listed}
    assert coins != {t: Fraction(n, 6) for t, n in joint.items()}


def test_rules_that_round_otherwise_have_another_law(vectors: dict[str, Any]) -> None:
    """Pitfalls 9 and 10: the wrong sign, no correction, the nearest step."""
    (row,) = (row for row in vectors["exact_rational_laws"] if (row["a"], row["k"]) == ([3, 1], 1))

    def mutant(correct: Callable[[int, bool], int]) -> Callable[[list[int], list[int]], Cell]:
        def decide(keys: list[int], noisy: list[int]) -> Cell:
            ranks = sorted(range(len(keys)), key=lambda i: (-noisy[i], -i))
            gap = noisy[ranks[0]] - noisy[ranks[1]]
            return (keys[ranks[0]],), (correct(gap, ranks[0] < ranks[1]),)

        return decide

    half, listed = Fraction(1, 2), listed_law(row)
    assert enumerated([3, 1], half, 1, 8, mutant(lambda gap, less: gap - less)) == listed
    for wrong in (lambda gap, less: gap + less, lambda gap, _: gap, lambda gap, less: gap - (not less)):
        assert enumerated([3, 1], half, 1, 8, mutant(wrong)) != listed


values = st.integers(-40, 40)


@given(st.lists(values, min_size=2, max_size=9), st.data())
def test_the_shipped_rule_is_the_one_written_down(noisy: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(noisy) - 1))
    order = data.draw(st.permutations(range(len(noisy))))
    cut = sorted(noisy, reverse=True)[k]
    close = [i for i in order if noisy[i] >= cut]
    ranks = {key: rank for rank, key in enumerate(close)}
    keys, gaps = decision(k)(close, [noisy[i] for i in close])
    assert list(zip(keys, gaps, strict=True)) == decided(noisy, k, lambda _: [ranks[i] for i in sorted(close)])
    assert all(gap >= 0 for gap in gaps)


def test_leaving_keys_out_by_their_clocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule on all keys, with the draws of the shipped one and the largest remainder for whoever it left out."""
    rng = np.random.default_rng(5)
    seen: dict[str, Any] = {}

    def recorded(name: str) -> None:
        original = getattr(exponential, name)

        def record(*args: Any) -> Any:
            seen[name] = original(*args)
            return seen[name]

        monkeypatch.setattr(exponential, name, record)

    for name in ("raised", "remainders", "shuffled"):
        recorded(name)
    left_out = 0
    for seed in range(2000):
        size = int(rng.integers(2, 80))
        a = rng.integers(0, int(rng.choice([1, 10, 300])), size)
        a = np.sort(a) if seed % 3 == 0 else a
        k = size - 1 if seed % 5 == 0 else int(rng.integers(1, min(size, 6)))
        t, randomness = int(rng.integers(1, 30)), Randomness(KeyedBits(b"lazy", b"%d" % seed))
        part = contenders(a, 0, k + 1, t, randomness)
        keys, gaps = finish([part], k + 1, t, randomness)
        close = part.reaching(part.floor(k + 1), t).keys
        noisy = seen["raised"] + t - 1
        noisy[close] = seen["raised"][close] + seen["remainders"]
        cut = np.partition(noisy, size - k - 1)[size - k - 1]
        kept = np.flatnonzero(noisy >= cut)
        ranks = np.empty(len(kept), np.int64)
        ranks[seen["shuffled"]] = np.arange(len(kept))
        expected = decided(noisy.tolist(), k, lambda n, ranks=ranks: ranks.tolist())  # type: ignore[misc]
        assert list(zip(keys[:-1].tolist(), gaps.tolist(), strict=True)) == expected
        left_out += size - len(close)
    assert left_out > 13_000


@pytest.mark.parametrize("parts", [2, 3])
def test_cutting_the_steps_into_parts_changes_no_law(parts: int) -> None:
    half = Fraction(1, 2)

    def rounded(keys: list[int], noisy: list[int]) -> Cell:
        first, gaps = decision(1)(keys, noisy)
        return first, (gaps[0] // parts,)

    for a in ([2, 0], [1, 1, 0]):
        fine = enumerated([parts * value for value in a], half, 1, 3 * parts - 1, decision(1))
        merged = Counter[Cell]()
        for (order, (gap,)), chance in fine.items():
            merged[order, (gap // parts,)] += chance  # type: ignore[assignment]
        assert merged == law(a, half**parts, 1, 2)


PATHS: dict[str, dict[str, Any]] = {
    "arrays": {},
    "pieces": {"pieces": 3},
    "large numbers": {"dtype": object},
    "keys of count zero": {"zeros": True},
}
ORACLES: dict[str, Callable[..., Any]] = {
    "P": algorithm_p,
    "L": algorithm_l,
    "4": lambda *args: algorithm_4(*args)[0],
    "4 without pruning": lambda bits, a, k, s, t: algorithm_4(bits, a, k, s, t, 2, prune=False)[0],
}


def drawn(
    path: str, row: dict[str, Any], noise: GridNoise, clock: WholeClock | None, runs: int, seed: bytes
) -> Counter[Cell]:
    a, how = row["a"], dict(PATHS.get(path, {}))
    bits = QuickBits(KeyedBits(b"laws", seed))
    if path in ORACLES:
        outputs = (ORACLES[path](bits, a, row["k"], noise.parts, noise.mean) for _ in range(runs))
        return Counter((tuple(key for key, _ in output), tuple(gap for _, gap in output)) for output in outputs)
    if how.get("zeros"):
        how["zeros"] = len(a) - max((i + 1 for i, value in enumerate(a) if value), default=0)
    if clock is not None:
        how["clock"] = clock
    return sample(lambda: published(a, row["k"], noise, bits, **how), runs)


def check_real_laws(rows: list[dict[str, Any]], path: str, runs: int) -> None:
    for i, row in enumerate(rows):
        if path == "keys of count zero" and row["a"][-1]:
            continue
        found = drawn(path, row, GridNoise(row["s"], row["t"]), None, runs, b"%s %d" % (path.encode(), i))
        listed = {cell: float(chance) for cell, chance in listed_law(row).items()}
        assert pooled_p_value(found, listed) > FALSE_ALARM, (path, row["a"])


@pytest.fixture
def unlisted_zeros(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sends few keys of count zero on the path of many, from a level that is too high for them."""

    def start(level: int) -> None:
        monkeypatch.setattr(exponential, "_MOST_LISTED", 0)
        monkeypatch.setattr(exponential, "start_level", lambda zeros, wanted: level)

    return start


@pytest.mark.statistical
@pytest.mark.parametrize("path", kept_ordinary(["arrays", "keys of count zero", *ORACLES], [*PATHS, *ORACLES]))
def test_every_path_samples_the_listed_laws(
    vectors: dict[str, Any], path: str, unlisted_zeros: Callable[[int], None]
) -> None:
    """False alarm: 1e-6 each."""
    unlisted_zeros(2)
    few_cells = [row for row in vectors["real_laws"] if len(row["cells"]) < 300]
    check_real_laws(few_cells, path, 700)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("path", [*PATHS, *ORACLES])
def test_every_path_samples_the_listed_laws_in_a_large_sample(
    vectors: dict[str, Any], path: str, unlisted_zeros: Callable[[int], None]
) -> None:
    unlisted_zeros(3)
    check_real_laws(vectors["real_laws"], path, 30_000)


@pytest.mark.statistical
@pytest.mark.parametrize("path", kept_ordinary(["pieces", "keys of count zero"], PATHS))
@pytest.mark.parametrize("parts", ordinarily(1, [1, 2]))
def test_every_path_samples_the_rational_laws_of_a_fair_clock(
    vectors: dict[str, Any], path: str, parts: int, unlisted_zeros: Callable[[int], None]
) -> None:
    """False alarm: 1e-6 each. A step of two parts has the ratio 1/4."""
    unlisted_zeros(4)
    for i, row in enumerate(vectors["exact_rational_laws"][6:9:2]):
        a, k, seed = row["a"], row["k"], b"%s %d" % (path.encode(), i)
        exact = {c: float(p) for c, p in law(a, Fraction(1, 2**parts), k, row["m_max"]).items()}
        found = drawn(path, row, GridNoise(parts, 1), HALF_CLOCK, 500, seed)
        assert pooled_p_value(found, exact) > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("level", ordinarily(2, [0, 1, 2, 5]))
def test_wherever_they_begin_all_keys_of_count_zero_that_matter_are_drawn_by_their_law(
    level: int, unlisted_zeros: Callable[[int], None]
) -> None:
    """False alarm: 1e-6 each. Three keys beside one that surely has 2: those that reach the second largest of all."""
    unlisted_zeros(level)
    half, exact = Fraction(1, 2), Counter[Any]()
    for clocks in product(range(14), repeat=3):
        exact[reaching(enumerate(clocks))] += float((1 - half) ** 3 * half ** sum(clocks))  # type: ignore[assignment]
    randomness = Randomness(QuickBits(KeyedBits(b"zeros", b"%d" % level)), HALF_CLOCK)
    others, found = Contenders(np.array([7]), np.array([2])), Counter[Any]()
    for _ in range(3000):
        drawn_ = exponential.zero_contenders(3, 0, 2, 1, randomness, others)
        found[reaching(zip(drawn_.keys.tolist(), drawn_.lower.tolist(), strict=True))] += 1
    assert pooled_p_value(found, exact) > FALSE_ALARM


def reaching(clocks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    rows = sorted(clocks)
    floor = sorted([2, *(clock for _, clock in rows)])[-2] if rows else 0
    return tuple(row for row in rows if row[1] >= floor)


def test_noise_that_is_a_third_too_large_is_flagged_by_the_same_sample(vectors: dict[str, Any]) -> None:
    for i, row in enumerate(vectors["real_laws"][:2]):
        found = drawn("arrays", row, GridNoise(3 * row["s"], 4 * row["t"]), None, 1500, b"%d" % i)
        listed = {cell: float(chance) for cell, chance in listed_law(row).items()}
        assert pooled_p_value(found, listed) < FALSE_ALARM


def test_a_wrong_winner_is_ahead_by_noise_alone_exactly() -> None:
    """P(the first is no largest count, and it is ahead by x) = rho^x P(it is none) (specs/gap 5.3)."""
    half, a = Fraction(1, 2), [3, 5, 0, 4]
    cells = law(a, half, 1, 12)
    wrong = [sum((p for ((i,), (m,)), p in cells.items() if i != 1 and m == gap), Fraction(0)) for gap in range(13)]
    # A tail that is not listed shrinks as the listed end of it does.
    at_least = [sum(wrong[x:], Fraction(0)) + wrong[-1] for x in range(6)]
    assert at_least == [half**x * at_least[0] for x in range(6)]


def test_a_wrong_set_is_ahead_by_no_more_than_noise() -> None:
    rho, a = Fraction(2, 5), [3, 1, 2, 0]
    cells = law(a, rho, 2, 7)
    by_gap = [
        sum((p for (order, gaps), p in cells.items() if set(order) != {0, 2} and gaps[1] == m), Fraction(0))
        for m in range(8)
    ]
    total = sum(by_gap)
    for x in range(1, 6):
        assert sum(by_gap[x:]) <= rho**x * total
    assert sum(by_gap[3:]) / total < Fraction("0.0068") < rho**3


def test_pairs_of_contenders_are_ordered_fairly_where_they_tie() -> None:
    orders = Counter[Cell]()
    for order in permutations(range(4)):
        keys, _ = decision(2)(list(order), [5, 5, 5, 5])
        orders[keys, ()] += 1
    assert {cell[0] for cell in orders} == {pair for two in combinations(range(4), 2) for pair in permutations(two)}
    assert set(orders.values()) == {2}
