"""What is proposed: blocks, the envelopes of their cells, and members drawn from a pool."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import comb, exp, log, log1p
from random import Random
from typing import Any

import numpy as np
import pytest

from stream_dp.errors import StateError
from stream_dp.exact import reals
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.select import lipschitz
from stream_dp.select.lipschitz import (
    Cell,
    Envelope,
    Pool,
    ProposedSubset,
    SubsetParameters,
    Variant,
    depth_of,
    distinct,
    lay_out,
)
from stream_dp.select.logarithms import (
    LOG_BITS,
    _table,
    log2_above,
    log2_below,
    log_subsets,
    power_above,
    shift_for,
)
from tests.support import subset_oracle as oracle
from tests.support.tapes import RecordedBits

CLOSE = Fraction("1e-12")


def every_outcome(
    run: Callable[[Any], frozenset[int]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[frozenset[int], Fraction]]:
    """What a run gives for each sequence of the uniform numbers it asks for, and the chance of the sequence."""
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        script = waiting.pop()
        asked: list[int] = []

        def scripted(n: int, _bits: Any, script: tuple[int, ...] = script, asked: list[int] = asked) -> int:
            asked.append(n)
            return script[len(asked) - 1] if len(asked) <= len(script) else 0

        monkeypatch.setattr(lipschitz, "uniform", scripted)
        found = run(RecordedBits(b""))
        script += (0,) * (len(asked) - len(script))
        chance = Fraction(1)
        for n in asked:
            chance /= n
        yield found, chance
        for i in reversed(range(len(script))):
            if script[i] + 1 < asked[i]:
                waiting.append((*script[:i], script[i] + 1))
                break


def test_classes_have_the_sizes_listed_and_together_all_subsets(subset_vectors: dict[str, Any]) -> None:
    for row in subset_vectors["class_sizes"]:
        d, k = row["d"], row["k"]
        listed = {f"{h},{t}": 1 if t == k else oracle.class_size(h, t, k) for h, t in oracle.classes(d, k)}
        assert listed == row["sizes"]
        assert sum(listed.values()) == row["total"] == comb(d, k)
    for d in range(2, 10):
        for k in range(1, d):
            found = Counter(oracle.class_of(y, range(d), k) for y in combinations(range(d), k))
            assert found == {(h, t): oracle.class_size(h, t, k) if t > k else 1 for h, t in oracle.classes(d, k)}
            for t in range(k + 1, d + 1):
                assert sum(found[h, t] for h in range(k)) == comb(t - 1, k - 1)
    (row,) = subset_vectors["class_sizes_gamma1"]
    assert row["sizes_by_t"] == {str(t): comb(t - 1, row["k"] - 1) for t in range(row["k"], row["d"] + 1)}
    (row,) = subset_vectors["class_sizes_gamma0"]
    assert row["sizes_by_h"] == {str(h): comb(row["d"] - h - 1, row["k"] - h) for h in range(row["k"] + 1)}


def test_logarithms_of_binomials(subset_vectors: dict[str, Any]) -> None:
    for row in subset_vectors["log_binom"]:
        if row["r"] > 10**5:
            continue
        lower, upper = log_subsets(row["n"], row["r"], 80)
        assert upper - lower <= 2
        assert abs(Fraction(lower, 1 << 80) / row["log"] - 1) < CLOSE
    for row in subset_vectors["log_class"]:
        lower, _ = log_subsets(row["t"] - row["h"] - 2, row["k"] - 1 - row["h"], 80)
        assert abs(Fraction(lower, 1 << 80) - row["log_size"]) <= CLOSE * row["log_size"]


@pytest.mark.slow
def test_the_logarithm_of_a_binomial_of_a_million_bits(subset_vectors: dict[str, Any]) -> None:
    (row,) = (row for row in subset_vectors["log_binom"] if row["r"] > 10**5)
    lower, upper = log_subsets(row["n"], row["r"], 80)
    assert upper - lower <= 2
    assert abs(Fraction(lower, 1 << 80) / row["log"] - 1) < CLOSE


def test_a_cell_has_as_many_members_as_listed_and_its_pool_less_than_e_over_e_less_1_times_that(
    subset_vectors: dict[str, Any],
) -> None:
    for row in subset_vectors["log_group"]:
        k, h, low, high = row["k"], row["h"], row["t_lo"], row["t_hi"]
        above, inside, need = low - h - 2, high - low + 1, k - h
        members = comb(above + inside, need) - comb(above, need)
        lower, _ = reals.log(Fraction(members), 80)
        assert abs(Fraction(lower, 1 << 80) - row["log_sum_size"]) <= CLOSE * max(row["log_sum_size"], 1)
        pool = Pool(above, inside, need, inside * need <= above + inside)
        assert members <= pool.outcomes
        assert Fraction(pool.outcomes, members) < Fraction(15820, 10000)
        other = Pool(above, inside, need, not pool.pinned)
        assert pool.outcomes <= other.outcomes


@pytest.mark.parametrize("pinned", [True, False])
def test_every_member_of_a_cell_comes_in_its_number_of_ways_of_all_outcomes(
    monkeypatch: pytest.MonkeyPatch, subset_vectors: dict[str, Any], *, pinned: bool
) -> None:
    rows = [row for row in subset_vectors["truncated_hypergeometric"] if row["above"] < 10]
    assert len(rows) == 3
    for row in rows:
        pool = Pool(row["above"], row["group_size"], row["need"], pinned)
        law: dict[frozenset[int], Fraction] = defaultdict(Fraction)
        for things, chance in every_outcome(pool.draw, monkeypatch):
            assert len(things) == row["need"]
            law[things] += chance
        assert sum(law.values()) == 1
        kept: dict[int, Fraction] = defaultdict(Fraction)
        for things in map(frozenset, combinations(range(pool.above + pool.inside), pool.need)):
            assert law[things] == Fraction(pool.ways(things), pool.outcomes) or not pool.ways(things)
            if pool.ways(things):
                kept[sum(thing >= pool.above for thing in things)] += law[things] / pool.ways(things)
        total = sum(kept.values(), Fraction(0))
        assert total * pool.outcomes == row["total"]
        assert {str(m) for m in kept} == row["pmf"].keys()
        for m, q in row["pmf"].items():
            assert abs(kept[int(m)] / total - Fraction(q)) < CLOSE


def _distinct(n: int, size: int, bits: BitSource) -> frozenset[int]:
    return frozenset(distinct(n, size, bits))


def test_every_subset_of_a_range_is_as_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    for n, size in ((5, 0), (5, 2), (4, 4), (6, 5)):
        law: dict[frozenset[int], Fraction] = defaultdict(Fraction)
        for found, chance in every_outcome(partial(_distinct, n, size), monkeypatch):
            law[found] += chance
        assert law == dict.fromkeys(map(frozenset, combinations(range(n), size)), Fraction(1, comb(n, size)))


def bounded(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    above = log2_above(array, shift_for(array))
    for number, least, most in zip(numbers, log2_below(array).tolist(), above.tolist(), strict=True):
        (lower, upper), (two_lower, two_upper) = reals.log(Fraction(number), 96), reals.log(Fraction(2), 96)
        assert least * two_lower <= upper << LOG_BITS, number
        assert most * two_upper >= lower << LOG_BITS, number
        width = 4 if number <= 1 << 16 else 1 << LOG_BITS - 13
        assert most - least <= width, number


def test_logarithms_in_fixed_point_are_bounds_and_close() -> None:
    random = Random(6)
    bounded([1, 2, 3, 255, 256, 257, 65535, 65536, 65537, 2**40, 2**40 + 1, 2**61 - 1, 10**12])
    bounded([random.randint(1, 1 << random.randint(1, 61)) for _ in range(300)])


@pytest.mark.slow
def test_every_entry_of_the_table_of_logarithms_is_a_bound_and_close() -> None:
    bounded(list(range(1, (1 << 16) + 1)))


def test_the_table_of_logarithms_rises_and_is_exact_at_powers_of_two() -> None:
    table = _table()
    assert (np.diff(table[1:]) > 0).all()
    assert [int(table[1 << i]) for i in range(17)] == [i << LOG_BITS for i in range(17)]


def test_powers_in_fixed_point_are_bounds_and_close() -> None:
    random = Random(7)
    exponents = [0, 1, -1, 1 << LOG_BITS, (44 << LOG_BITS) - 1, 44 << LOG_BITS, -(1 << 60)]
    exponents += [random.randint(0, 44 << LOG_BITS) for _ in range(2000)]
    for exponent, power in zip(exponents, power_above(np.array(exponents, np.int64)).tolist(), strict=True):
        true = 2.0 ** (exponent / (1 << LOG_BITS))
        assert power >= max(true, 1)
        assert power <= 2 + max(true, 1) * (1 + 2**-11)


def test_there_are_never_more_blocks_than_the_bound(subset_vectors: dict[str, Any]) -> None:
    random = np.random.default_rng(8)
    for row in subset_vectors["cells_bound"]:
        assert depth_of(row["d"], row["k"]) + 1 <= row["max_blocks_width1_slack20"]
    for k, epsilon in ((3, "0.001"), (3, "0.1"), (20, "1"), (20, "1000"), (5, "0")):
        for high in (3, 10**4, 2**61):
            counts = random.integers(0, high, 5000)
            p = SubsetParameters(k, Fraction(epsilon))
            layout = lay_out(counts, 7, p, rate=p.rate_in, depth=depth_of(5007, k))
            bound = log(comb(5007, k)) + 22
            assert len(layout.sizes) <= min(bound, len(np.unique(counts)) + 1)
            assert layout.sizes.sum() + k == 5007
            kth = int(np.sort(counts)[-k])
            for block in range(len(layout.sizes)):
                inside = layout.counts[layout.inside(block)]
                assert kth - layout.distances[block] == inside.max()
                if block < len(layout.sizes) - 1:  # a block weighs e at most: half of what is proposed is near
                    assert p.rate_in * int(inside.max() - inside.min()) <= Fraction(11, 10)


def efficiency(counts: list[int], p: SubsetParameters, layout: Any) -> float:
    """How much of what is proposed is accepted: the weight of all subsets over their envelopes, with floats."""
    x = sorted(counts, reverse=True)
    measure = x[p.k] if p.variant is Variant.SIGNED else x[p.k - 1]
    a, b = float(p.rate_out), float(p.rate_in)
    total, logs = 1.0, np.zeros(len(x) - p.k)
    behind = np.arange(len(x) - p.k)
    for j in range(p.k):
        if j:
            logs = logs + np.array([log1p(n / j) for n in behind.tolist()])
        weights = np.exp(logs - b * (x[p.k - 1] - np.array(x[p.k :])) - a * (x[p.k - 1 - j] - measure))
        total += float(weights.sum())
    return total / float(Envelope(layout, p).total)


def test_more_than_a_fifth_of_what_is_proposed_is_accepted_at_any_epsilon() -> None:
    """Blocks keep at least 1 / e, pools 1 - 1 / e, and the rounding of whole numbers almost all."""
    counts = [100_000 // (i + 20) for i in range(400)]
    for epsilon in ("0.00001", "0.001", "0.01", "0.1", "1"):
        for variant in Variant:
            p = SubsetParameters(12, Fraction(epsilon), variant=variant)
            layout = lay_out(np.array(counts), 0, p, rate=p.rate_in, depth=depth_of(400, 12))
            assert efficiency(counts, p, layout) > (1 - exp(-1)) * exp(-1) * 0.99
            fine = lay_out(np.array(counts), 0, p, rate=8 * p.rate_in, depth=8 * depth_of(400, 12))
            assert efficiency(counts, p, fine) > (1 - exp(-1)) * exp(-1 / 8) * 0.99


def test_rows_that_do_not_fit_at_once_propose_what_they_do_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([50_000 // (i + 3) for i in range(300)])
    p = SubsetParameters(40, Fraction(1, 50))
    layout = lay_out(counts, 10**12, p, rate=p.rate_in, depth=depth_of(300 + 10**12, 40))
    whole = Envelope(layout, p)
    monkeypatch.setattr("stream_dp.select.lipschitz._CELLS_AT_ONCE", 3 * len(layout.sizes))
    pieces = Envelope(layout, p)
    assert pieces.units == whole.units
    bits = KeyedBits(b"k", b"rows")
    for _ in range(200):
        number = bits.bits(80) * whole.units >> 80
        assert pieces.at(number) == whole.at(number)


def test_an_envelope_that_is_none_is_refused_before_anything_comes_out() -> None:
    cell = Cell(0, 0, 1, 0)
    assert ProposedSubset([0], Fraction(0), 1, 1, cell).share(64) == (1 << 64, 1 << 64)
    with pytest.raises(StateError, match="envelope"):
        ProposedSubset([0], Fraction(0), 2, 1, cell).share(64)
    assert ProposedSubset([0], Fraction(10**12), 2, 1, cell).share(64) == (0, 1)
    lower, upper = ProposedSubset([0], Fraction(7, 3), 3, 2, Cell(0, 0, 5, -2)).share(100)
    assert lower <= 2**100 * 12 / 10 * exp(-7 / 3) * (1 + 1e-12)
    assert lower >= 2**100 * 12 / 10 * exp(-7 / 3) * (1 - 1e-12)
    assert upper - lower <= 2
