"""Pure top-k: parameters and their certificate, the draw, its bits, keys that nobody has, and the pruning level."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product
from math import comb, factorial, log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.finite.sparse import distinct_sample
from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.histograms.counting_queries import Base, GeometricTable
from stream_dp.histograms.order import largest_values, rounding_units
from stream_dp.histograms.pure_top_k import PureTopK, distinct_absent, scaled, strictly_above_next
from tests.support.chosen import examples

HUGE = 1 << 64


def huge(k: int = 10, h: int = 10, g: int = 104, universe: int = HUGE, fallback_bits: int = 40) -> PureTopK:
    return PureTopK(GeometricTable(h, Base.dyadic(1), g), k, universe, 1, fallback_bits)


class Counting:
    """A source that notes how many bits it gave."""

    def __init__(self, source: BitSource) -> None:
        self.source, self.given = source, 0

    def bits(self, n: int) -> int:
        self.given += n
        return self.source.bits(n)


class Zeros:
    def bits(self, n: int) -> int:
        return 0


class Chosen:
    """Gives listed numbers for the first draws, then zeros."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.left = list(numbers)

    def bits(self, n: int) -> int:
        number = self.left.pop(0) if self.left else 0
        assert number < 1 << n
        return number


# Parameters.


@pytest.mark.parametrize("name", ["k", "universe", "items_per_user", "fallback_bits"])
@pytest.mark.parametrize("value", [0, -1, True, Fraction(3)])
def test_a_parameter_that_is_no_whole_number_of_at_least_1_is_refused_by_name(name: str, value: Any) -> None:
    words = {"k": 2, "universe": HUGE, "items_per_user": 1, "fallback_bits": 20} | {name: value}

    with pytest.raises(ParameterError) as refused:
        PureTopK(GeometricTable(4, Base.dyadic(1), 80), **words)

    assert [fault.path for fault in refused.value.faults] == [name]


@pytest.mark.parametrize("universe", [1, 9, 10])
def test_a_universe_without_a_key_beyond_the_k_released_is_refused(universe: int) -> None:
    with pytest.raises(ParameterError, match=f"k: must be below the number of possible keys, {universe}, not 10"):
        huge(universe=universe)
    assert huge(universe=11).k == 10


@pytest.mark.parametrize(("universe", "least"), [(HUGE, 72), (HUGE + 1, 73), (1 << 20, 28), (11, 12)])
def test_uniform_noise_that_floods_the_release_is_refused(universe: int, least: int) -> None:
    with pytest.raises(
        ParameterError, match=f"query: g must be at least {least}, not {least - 1}: uniform noise floods"
    ):
        huge(universe=universe, g=least - 1)
    assert Fraction(universe, 1 << huge(universe=universe, g=least).query.g) <= Fraction(1, 256)


@given(
    h=st.integers(1, 20),
    rate=st.integers(1, 8),
    k=st.integers(1, 100),
    more=st.integers(1, 1 << 256),
    items=st.integers(1, 12),
    fallback_bits=st.integers(1, 80),
)
@settings(max_examples=60, deadline=None)
def test_the_certificate_holds_in_integers(
    h: int, rate: int, k: int, more: int, items: int, fallback_bits: int
) -> None:
    universe = k + more
    p = PureTopK(GeometricTable(h, Base.dyadic(rate), 300), k, universe, items, fallback_bits)
    w, u = ((1 << rate) + 1) ** items, (1 << rate) ** items
    least = Fraction((1 << p.key_bits) // universe, 1 << p.key_bits) / (1 << h)

    assert p.ratio == Fraction(w, u)
    assert p.fallback_minimum == factorial(k) * least**k
    assert p.fallback_minimum >= Fraction(factorial(k), 2 * (universe << h) ** k)
    # Inequality (1): error (r + 1) (1 - gamma) <= (r - 1) gamma q.
    left = p.error * (w + u) * ((1 << p.fallback_bits) - 1)
    assert left <= (w - u) * p.fallback_minimum
    units = rounding_units((1 << h) - 1, universe, k + 1)
    assert p.error >= Fraction(units, 1 << p.order_bits) + Fraction((k + 1) * universe, 4 << p.choice_bits)
    assert units >= ((1 << h) - 1) * universe * (k + 1) * (k + 3)
    assert 16 * p.error > p.delta  # no bits are wasted


def test_two_bits_less_for_the_order_statistics_would_break_the_inequality() -> None:
    for k, h in ((1, 4), (10, 10), (50, 14)):
        p = huge(k, h)
        coarser = Fraction(rounding_units(p.query.bound, HUGE, k + 1), 1 << p.order_bits - 2)
        assert p.error <= p.delta < coarser


def test_sizes_of_the_largest_case() -> None:
    p = huge(50, 14)

    assert (p.order_bits, p.choice_bits, p.key_bits) == (3823, 3798, 71)
    assert p.bits(1000) == 40 + 50 * (71 + 14) + 1000 * p.query.bits + 51 * (3823 + 3798)


# The cut.


def test_keys_strictly_above_the_next_are_kept_by_key_and_ties_are_dropped_together() -> None:
    cells = [(5, 9), (1, 7), (4, 7), (2, 3), (3, 8)]

    kept = [[key for key, _ in strictly_above_next(cells, k)] for k in range(1, 5)]
    assert kept == [[5], [3, 5], [3, 5], [1, 3, 4, 5]]
    assert strictly_above_next([(1, 2), (2, 2), (3, 2)], 2) == []


# Keys that nobody has.


def test_distinct_keys_are_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    assert len(vectors["distinct_sample"]) == 4
    for row in vectors["distinct_sample"]:
        assert distinct_absent(row["A"], row["z"]) == row["out"]


@pytest.mark.parametrize("held", [(), (1,), (6,), (2, 5), (1, 2, 3), (4, 5, 6)])
def test_each_sequence_of_distinct_keys_comes_once(held: tuple[int, ...]) -> None:
    left = [key for key in range(1, 7) if key not in held]
    drawn = product(*(range(1, len(left) + 1 - i) for i in range(3)))

    assert sorted(tuple(distinct_absent(held, z)) for z in drawn) == sorted(permutations(left, 3))


@examples(30, 100, given(st.data()))
def test_distinct_keys_are_those_of_the_published_search(data: st.DataObject) -> None:
    held = sorted(data.draw(st.sets(st.integers(1, 60), max_size=50)))
    number = data.draw(st.integers(0, 60 - len(held)))
    z = [data.draw(st.integers(1, 60 - len(held) - i)) for i in range(number)]
    tape = iter(z)

    assert distinct_absent(held, z) == distinct_sample(60, held, number, lambda _: next(tape))


def test_keys_by_rejection_or_with_repetition_would_not_be_those_of_the_vectors(vectors: dict[str, Any]) -> None:
    rows = vectors["distinct_sample"]

    assert any(row["z"] != row["out"] for row in rows)  # drawn from all keys
    assert any([distinct_absent(row["A"], [z])[0] for z in row["z"]] != row["out"] for row in rows)  # each anew


@pytest.mark.parametrize(("bits", "n"), [(4, 3), (6, 5), (7, 8), (10, 1000), (5, 1)])
def test_a_scaled_number_is_uniform_within_the_distance_that_is_charged(bits: int, n: int) -> None:
    law = [0] * (n + 1)
    for r in range(1 << bits):
        law[scaled(r, bits, n)] += 1
    off = sum(abs(Fraction(count, 1 << bits) - Fraction(1, n)) for count in law[1:]) / 2

    assert law[0] == 0
    assert off <= Fraction(n, 4 << bits)
    assert min(law[1:]) >= (1 << bits) // n


# The draw.


COUNTS = {7: 900, 1 << 40: 700, HUGE: 500, 12: 3, 13: 1}


def test_heavy_keys_come_out_near_their_counts_by_key() -> None:
    p = huge()
    release = p.draw(COUNTS, KeyedBits(b"pure", b"heavy"))

    assert release == sorted(release)
    assert len(release) <= p.k
    found = dict(release)
    assert all(abs(found[key] - COUNTS[key]) < 60 for key in (7, 1 << 40, HUGE))
    assert all(1 <= count <= p.query.bound for count in found.values())


def test_the_order_of_the_table_changes_nothing() -> None:
    p = huge()
    releases = [p.draw(dict(rows), KeyedBits(b"pure", b"order")) for rows in permutations(COUNTS.items())]

    assert releases == [releases[0]] * 120


def test_a_count_above_the_bound_is_as_good_as_the_bound() -> None:
    p = huge()
    one, other = ({7: count} for count in (p.query.bound, 10**9))

    assert p.draw(one, KeyedBits(b"pure", b"clamp")) == p.draw(other, KeyedBits(b"pure", b"clamp"))


@pytest.mark.parametrize("slots", [5, 6, 20])
def test_a_draw_takes_the_declared_bits_whatever_the_counts_are(slots: int) -> None:
    p = huge(k=3)
    for run, counts in enumerate(({}, {1: 1000}, COUNTS, dict.fromkeys(range(1, 6), 1023))):
        for source in (KeyedBits(b"pure", b"%d" % run), Zeros()):
            counted = Counting(source)
            p.draw(counts, counted, slots)
            assert counted.given == p.bits(slots)


def test_without_slots_the_bits_are_those_of_the_observed_keys() -> None:
    p, counted = huge(k=3), Counting(KeyedBits(b"pure", b"slots"))
    p.draw(COUNTS, counted)

    assert counted.given == p.bits(len(COUNTS))


@pytest.mark.parametrize(
    ("counts", "slots", "words"),
    [
        ({0: 1}, None, "a key lies outside"),
        ({HUGE + 1: 1}, None, "a key lies outside"),
        ({1: 5, 2: -1}, None, "a count must be"),
        ({1: 5, 2: 1}, 1, "2 keys were observed, there are 1 slots"),
    ],
)
def test_tables_out_of_range_are_refused_before_anything_is_drawn(
    counts: dict[int, int], slots: int | None, words: str
) -> None:
    counted = Counting(Zeros())
    with pytest.raises(StateError, match=words):
        huge().draw(counts, counted, slots)
    assert counted.given == 0


def test_the_fallback_does_not_look_at_the_data() -> None:
    p = huge(k=3)
    drawn = [0, *[(key << p.key_bits) // HUGE for key in (40, 7, 40)], 5, 0, 9]

    releases = [p.draw(counts, Chosen(drawn)) for counts in ({}, COUNTS)]

    # Of the key that came twice the last count is kept; the count 0 is left out.
    assert releases == [[(41, 9)]] * 2
    assert p.draw(COUNTS, Chosen([1, *drawn[1:]])) != releases[1]


@pytest.mark.parametrize("empties", [0, 1, 2, 3])
def test_nearly_all_keys_may_be_observed(empties: int) -> None:
    p = PureTopK(GeometricTable(8, Base.dyadic(1), 40), 2, 1000, 1, 40)
    counts = dict.fromkeys(range(1 + empties, 1001), 1) | {500: 200, 501: 150}

    assert [key for key, _ in p.draw(counts, KeyedBits(b"pure", b"full"))] == [500, 501]


# Utility.


def test_a_weight_of_uniform_noise_that_ignores_the_universe_floods_the_top() -> None:
    flooded, right = GeometricTable(10, Base.dyadic(1), 20), GeometricTable(10, Base.dyadic(1), 72)
    precision = 200
    tails = [(1 << precision) * share // 100 for share in (1, 99)]

    assert [largest_values(flooded, HUGE, [u], precision) for u in tails] == [[1023], [1023]]
    low, high = (largest_values(right, HUGE, [u], precision)[0] for u in tails)
    assert 100 <= low < high <= 125


@pytest.mark.parametrize("row", range(12))
def test_the_pruning_level_is_that_of_the_vectors(vectors: dict[str, Any], row: int) -> None:
    listed = vectors["derived_prune_tau"][row]
    rate, universe = listed["k"], 1 << listed["log2_X"]
    table = GeometricTable(16, Base.dyadic(rate), listed["log2_X"] + 64)
    p = PureTopK(table, 1, universe, 1, 64)
    beta = Fraction(listed["beta"])

    tau = p.least_spurious(beta)

    assert tau == listed["tau"]
    tail = [universe * Fraction(table.draws - table.cdf(0, z), table.draws) for z in (tau - 1, tau)]
    assert tail[1] + Fraction(1, 1 << 64) + p.delta <= beta < tail[0] + Fraction(1, 1 << 64) + p.delta


def test_a_chance_below_the_weight_of_the_fallback_is_refused() -> None:
    p = huge(fallback_bits=4)
    for beta in (Fraction(1, 16), Fraction(1, 100)):
        with pytest.raises(ParameterError, match="beta: must be above the weight of the fallback, 2\\^-4"):
            p.least_spurious(beta)
    with pytest.raises(ParameterError, match="beta"):
        p.least_spurious(Fraction(1))
    assert p.least_spurious(Fraction(1, 8)) > 100


DRAWS = 400


@pytest.mark.statistical
def test_few_releases_name_a_key_that_nobody_has_above_the_pruning_level() -> None:
    """At most 1 of 20 on average, so 46 of 400 or more with probability below 10^-6; four counts lower it fails."""
    p, source = huge(k=2), KeyedBits(b"pure", b"spurious")
    tau = p.least_spurious(Fraction(1, 20))
    most = [max((count for _, count in p.draw({}, source)), default=0) for _ in range(DRAWS)]

    assert sum(count > tau for count in most) < 46
    assert sum(count > tau - 4 for count in most) >= 46


@pytest.mark.parametrize("rate", [1, 3, 5])
def test_small_counts_are_lost_as_often_as_every_sparse_release_has_to_lose_them(rate: int) -> None:
    """No sparse pure release is better than Theorem 7.2; were ours, its noise would be wrong.

    A key of a + 1 users is released with an error of at most a only if it is released at all, above the cut. The
    least level that k + 1 of the others pass almost always bounds the cut from below.
    """
    k, beta = 10, Fraction(1, 20)
    table = GeometricTable(11, Base.dyadic(rate), 104)
    epsilon = 2 * log(1 + 2.0**-rate)
    bound = (log(HUGE / (16 * float(beta) * k)) / (2 * epsilon) - 1) / 2
    a = int(bound)
    with localcontext() as context:
        context.prec = 60

        def chance_of_fewer(z: int) -> Decimal:
            """At most k of the others lie above z."""
            tail = Decimal(table.draws - table.cdf(0, z)) / table.draws
            others = HUGE - 1
            return sum((comb(others, i) * tail**i * (1 - tail) ** (others - i) for i in range(k + 1)), Decimal(0))

        cut = bisect_left(range(table.bound), True, key=lambda z: chance_of_fewer(z) > Decimal("0.001")) - 1
        released = float(chance_of_fewer(cut)) + (table.draws - table.cdf(a + 1, cut)) / table.draws

    assert a < cut
    assert released < 1 - beta
