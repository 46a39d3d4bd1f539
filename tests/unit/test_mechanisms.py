"""The front door for programs: each function has the law of the mechanism behind it, and pays what it states."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import stream_dp
from stream_dp import mechanisms as dp
from stream_dp.accounting import Cost, selection_cost
from stream_dp.errors import BudgetError, ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.histograms.basic import basic_histogram, stability_histogram, stability_threshold
from stream_dp.histograms.counting_queries import Base, GeometricTable, interval
from stream_dp.lossless.discrete_laplace import coarsen, draw_noise
from stream_dp.lossless.levels import minimum_count, noise_parameter, threshold_for
from stream_dp.select.candidates import Neighbours, candidates
from stream_dp.select.gumbel import TopKParameters, known_domain_top_k, limited_domain_top_k
from stream_dp.select.lipschitz import SubsetParameters
from stream_dp.select.top_k_subset import canonical_top_k
from stream_dp.select.top_k_with_gaps import GapParameters, gap_top_k

COUNTS = {"pear": 40, "apple": 90, "fig": 0, "plum": 61, "quince": 1}
KEYS = ["apple", "fig", "pear", "plum", "quince", "lime"]
LISTED = {key: COUNTS.get(key, 0) for key in sorted(KEYS)}
E, D = Fraction(1, 2), Fraction(1, 10**6)


def bits(number: int = 0) -> KeyedBits:
    return KeyedBits(number.to_bytes(32, "big"), b"")


def keyed(number: int = 0) -> dp.Budget:
    """A large budget with known bits."""
    return dp.Budget(1000, 1, bits=bits(number))


def level(epsilon: Fraction, items: int = 1) -> Fraction:
    return noise_parameter(threshold_for(epsilon / items))


@pytest.mark.parametrize("items", [1, 3])
def test_counts_get_the_noise_of_epsilon_shared_by_what_one_user_moves(items: int) -> None:
    found = dp.discrete_laplace_counts(COUNTS, "0.5", items_per_user=items, budget=keyed())

    same = bits()
    assert found.counts == {key: COUNTS[key] + draw_noise(level(E, items), same) for key in sorted(COUNTS)}
    assert found.cost == Cost(E, Fraction(0))


def test_a_histogram_shows_noisy_counts_from_the_minimum_on_and_no_key_that_nobody_has() -> None:
    least = minimum_count(threshold_for(E / 3), D / 3)
    counts = {f"key{number}": number for number in range(2 * least)}
    found = dp.histogram(counts, E, "1e-6", items_per_user=3, budget=keyed())

    same = bits()
    noisy = {key: counts[key] + draw_noise(level(E, 3), same) for key in sorted(counts) if counts[key]}
    assert found.minimum_count == least
    assert dict(found.counts) == {key: count for key, count in noisy.items() if count >= least}
    assert list(found.counts.values()) == sorted(found.counts.values(), reverse=True)
    assert found.cost == Cost(E, D)


def test_the_order_of_the_keys_decides_nothing() -> None:
    there, back = dict(sorted(COUNTS.items())), dict(sorted(COUNTS.items(), reverse=True))

    assert dp.discrete_laplace_counts(there, 1, budget=keyed()) == dp.discrete_laplace_counts(back, 1, budget=keyed())


def test_lossless_counts_are_read_at_every_level_of_one_path_and_cost_what_the_finest_does() -> None:
    budget = dp.Budget(2, bits=bits(7))
    counts = dp.LosslessCounts(COUNTS, ["0.5", 1, 2], budget=budget)
    same = bits(7)
    half, one, two = level(E), level(Fraction(1)), level(Fraction(2))
    finest = {key: count + draw_noise(two, same) for key, count in sorted(COUNTS.items())}
    middle = {key: coarsen(noisy, two, one, same) for key, noisy in finest.items()}
    coarsest = {key: coarsen(noisy, one, half, same) for key, noisy in middle.items()}
    path = {Fraction(2): finest, Fraction(1): middle, E: coarsest}

    assert counts.cost == Cost.ZERO
    for epsilon, paid in ((1, 1), ("1/2", 1), (2, 2), (1, 2)):
        found = counts.read(epsilon)
        assert found.counts == path[Fraction(epsilon)]
        assert found.cost == counts.cost == budget.spent == Cost(Fraction(paid), Fraction(0))


def test_levels_that_come_to_the_same_noise_are_refused() -> None:
    with pytest.raises(ParameterError, match="epsilons: are too close"):
        dp.LosslessCounts({}, [1, "1.0000000000000000000000001"])


def test_a_level_that_the_budget_does_not_cover_is_not_read() -> None:
    budget = dp.Budget(1, bits=bits())
    counts = dp.LosslessCounts(COUNTS, [E, 1, 2], budget=budget)
    counts.read(E)
    with pytest.raises(BudgetError, match="epsilon 3/2"):
        counts.read(2)
    counts.read(1)

    assert budget.spent == counts.cost == Cost(Fraction(1), Fraction(0))


def test_running_counts_are_exact_but_for_the_noise_of_a_few_blocks() -> None:
    budget = dp.Budget(200, bits=bits())
    stream = dp.RunningCounts(["a", "b"], 5, 120, budget=budget)  # so much that the noise is 0
    totals = [stream.close_pane({"a": number, "b": 1}).counts for number in range(5)]

    assert totals == [{"a": sum(range(number + 1)), "b": number + 1} for number in range(5)]
    assert budget.spent == stream.cost == Cost(Fraction(120), Fraction(0))
    with pytest.raises(StateError, match="5 panes"):
        stream.close_pane({})


def test_running_counts_scale_their_noise_to_the_blocks_that_one_count_is_in() -> None:
    (narrow,) = [dp.RunningCounts(["a"], 1, 1, budget=keyed()).close_pane({}).interval_95]
    (wide,) = [dp.RunningCounts(["a"], 8, 1, budget=keyed()).close_pane({}).interval_95]

    assert (narrow, wide) == (
        dp.discrete_laplace_counts({"a": 0}, 1).interval_95,
        dp.discrete_laplace_counts({"a": 0}, Fraction(1, 4)).interval_95,
    )


def test_a_total_has_the_noise_of_one_block_for_each_one_of_its_number_of_panes() -> None:
    """Block by block from the same bits: that which ends with a pane is drawn when the pane is closed."""
    stream, same, a = dp.RunningCounts(["a"], 6, 1, budget=keyed()), bits(), level(Fraction(1, 3))
    noise = {end: draw_noise(a, same) for end in range(1, 7)}
    for closed, ends in enumerate(([1], [2], [2, 3], [4], [4, 5], [4, 6]), 1):
        found = stream.close_pane({"a": closed})
        assert found.counts == {"a": sum(range(closed + 1)) + sum(noise[end] for end in ends)}


def test_selections_are_those_of_their_mechanisms() -> None:
    p = TopKParameters(2, 20, E, D)
    drawn = limited_domain_top_k(*candidates(dict(sorted(COUNTS.items())), 20, p.domain), p, bits(1))
    found = dp.top_k(COUNTS, 2, E, D, budget=keyed(1))
    assert (found.keys, found.complete) == (drawn.items, not drawn.bottom)
    assert found.cost == selection_cost(drawn.draws, E, D)

    of_list = dp.top_k_of_list(COUNTS, KEYS, 3, E, budget=keyed(2))
    assert of_list.keys == known_domain_top_k(LISTED, 3, E, bits(2)).items
    assert of_list.cost == Cost(3 * E, Fraction(0))

    gaps = dp.top_k_with_gaps(COUNTS, KEYS, 3, E, budget=keyed(3))
    behind = GapParameters(3, E, 1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    same = gap_top_k(LISTED, 0, behind, bits(3))
    assert (gaps.keys, gaps.gaps, gaps.cost) == (same.items, same.gaps, Cost(E, Fraction(0)))

    subset = dp.top_k_subset(COUNTS, KEYS, 3, E, budget=keyed(4))
    assert subset == set(canonical_top_k(LISTED, 0, SubsetParameters(3, E), bits(4)))


def test_what_is_not_returned_is_not_paid_for() -> None:
    budget = dp.Budget(10, "1e-3", bits=bits())
    found = dp.top_k({"only": 10_000}, 5, 1, D, budget=budget)

    assert (found.keys, found.complete) == (("only",), False)
    assert budget.spent == found.cost == selection_cost(2, Fraction(1), D)


def test_strict_counts_are_those_of_their_table() -> None:
    counts = {"b": 7, "a": 0, "c": 2_000_000}
    found = dp.strict_counts(counts, E, items_per_user=3, budget=keyed())
    query = GeometricTable(20, Base.within(E / 3), 64)
    assert list(found.counts.values()) == basic_histogram(query, [0, 7, query.bound], bits())
    assert query.base.ratio**3 < Fraction(16488, 10000)  # e^(1/2), rounded up
    assert found.interval_95 == interval(query, Fraction(95, 100))


def test_a_strict_histogram_shows_what_is_above_the_threshold_for_one_item_of_a_user() -> None:
    counts = {f"key {n}": 20 * n + 1 for n in range(40)}
    found = dp.strict_histogram(counts, E, "1e-6", items_per_user=3, budget=keyed())
    query = GeometricTable(20, Base.within(E / 3), 64)
    least = stability_threshold(query, Fraction(1, 3 * 10**6), sharp=True) + 1
    shown = stability_histogram(query, least - 1, counts, bits())
    assert found.minimum_count == least
    assert list(found.counts.items()) == sorted(shown, key=lambda row: (-row[1], row[0]))
    assert 0 < len(shown) < len(counts)


def test_a_pure_top_k_shows_texts_alone_and_leaves_long_ones_out() -> None:
    counts = {"apple": 500, "pear": 300, "a name that is too long": 900, "plum": 3}
    found = dp.pure_top_k(counts, 3, 1, key_bytes=8, budget=keyed())
    assert list(found.counts) == ["apple", "pear"]
    assert all(abs(found.counts[key] - counts[key]) <= found.interval_95 for key in found.counts)
    assert 3 < found.minimum_count < 300
    assert found.cost == Cost(Fraction(1), Fraction(0))


def test_a_lookup_table_answers_for_every_key_and_is_of_one_size() -> None:
    one, other = (dp.lookup_table(counts, 50, 8, budget=keyed()) for counts in ({"apple": 30, "pear": 20}, {}))
    assert len(one.table.to_bytes()) == len(other.table.to_bytes())
    assert all(abs(one.table.lookup(key) - count) <= 10 for key, count in {"apple": 30, "pear": 20, "plum": 0}.items())
    assert dp.CompactHistogram.from_bytes(one.table.to_bytes()).lookup("apple") == one.table.lookup("apple")


CALLS: dict[str, Callable[..., Any]] = {
    "discrete_laplace_counts": lambda epsilon, **more: dp.discrete_laplace_counts(COUNTS, epsilon, **more),
    "histogram": lambda epsilon, **more: dp.histogram(COUNTS, epsilon, D, **more),
    "top_k": lambda epsilon, **more: dp.top_k(COUNTS, 1, epsilon, D, **more),
    "top_k_of_list": lambda epsilon, **more: dp.top_k_of_list(COUNTS, KEYS, 1, epsilon, **more),
    "top_k_with_gaps": lambda epsilon, **more: dp.top_k_with_gaps(COUNTS, KEYS, 1, epsilon, **more),
    "top_k_subset": lambda epsilon, **more: dp.top_k_subset(COUNTS, KEYS, 1, epsilon, **more),
    "strict_counts": lambda epsilon, **more: dp.strict_counts(COUNTS, epsilon, **more),
    "strict_histogram": lambda epsilon, **more: dp.strict_histogram(COUNTS, epsilon, D, **more),
    "pure_top_k": lambda epsilon, **more: dp.pure_top_k(COUNTS, 1, epsilon, key_bytes=2, **more),
    "lookup_table": lambda epsilon, **more: dp.lookup_table(COUNTS, 10, epsilon, **more),
    "LosslessCounts": lambda epsilon, **more: dp.LosslessCounts(COUNTS, [D, epsilon], **more).read(epsilon),
    "RunningCounts": lambda epsilon, **more: dp.RunningCounts(KEYS, 3, epsilon, **more).close_pane({}),
}


def test_every_mechanism_is_called_below() -> None:
    results = {"Budget", "CompactHistogram", "Cost", "GapTopK", "LookupTable", "NoisyCounts", "NoisyHistogram", "TopK"}
    assert CALLS.keys() == set(dp.__all__) - results


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_is_not_covered_draws_nothing(call: Callable[..., Any]) -> None:
    class Unused:
        def bits(self, n: int) -> int:
            raise AssertionError(f"{n} bits were drawn")

    source = bits() if call is CALLS["LosslessCounts"] else Unused()  # it draws when it is made, and shows nothing
    budget = dp.Budget(1, "1e-9", bits=source)
    with pytest.raises(BudgetError):
        call(2, budget=budget)
    assert budget.spent == Cost.ZERO
    assert budget.left == Cost(Fraction(1), Fraction(1, 10**9))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("epsilon", [0.5, True, None, "0,5", "nan", 0, -1, "-1"])
def test_an_epsilon_that_is_not_exact_or_not_above_0_is_refused(call: Callable[..., Any], epsilon: Any) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        call(epsilon)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_without_bits_the_noise_is_fresh(call: Callable[..., Any]) -> None:
    assert call(1) is not None
    parameters = inspect.signature(dp.Budget).parameters
    assert parameters["bits"].default is None
    first, second = (dp.discrete_laplace_counts(dict.fromkeys(map(str, range(200)), 0), "0.1") for _ in range(2))
    assert first.counts != second.counts  # equal with a chance below 2^-400


@pytest.mark.parametrize(
    ("counts", "call"),
    [
        ({"a": 0.5}, lambda counts: dp.discrete_laplace_counts(counts, 1)),
        ({"a": True}, lambda counts: dp.discrete_laplace_counts(counts, 1)),
        ({"a": -1}, lambda counts: dp.histogram(counts, 1, D)),
        ({"a": -1}, lambda counts: dp.top_k(counts, 1, 1, D)),
        ({"a": -1}, lambda counts: dp.top_k_of_list(counts, ["a"], 1, 1)),
    ],
)
def test_what_is_no_count_is_refused_without_being_told(counts: Any, call: Callable[[Any], Any]) -> None:
    with pytest.raises(ParameterError) as refused:
        call(counts)
    assert str(next(iter(counts.values()))) not in str(refused.value)


def test_a_list_must_be_long_enough() -> None:
    for call in (dp.top_k_of_list, dp.top_k_subset):
        assert call(COUNTS, ["apple"], 1, 1) is not None
        with pytest.raises(ParameterError, match="keys: must be at least 2"):
            call(COUNTS, ["apple"], 2, 1)
    with pytest.raises(ParameterError, match="keys: must be at least 2"):
        dp.top_k_with_gaps(COUNTS, ["apple"], 1, 1)


def test_a_failed_draw_gives_back_what_was_reserved() -> None:
    budget = dp.Budget(1)
    with pytest.raises(KeyError), budget.pay(Cost(Fraction(1), Fraction(0))):
        raise KeyError
    assert budget.left == Cost(Fraction(1), Fraction(0))


def test_the_package_offers_its_doors() -> None:
    assert stream_dp.mechanisms is dp
    assert stream_dp.records.__name__ == "stream_dp.records"
    with pytest.raises(AttributeError, match="nothing"):
        stream_dp.nothing  # noqa: B018


def test_the_examples_of_the_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "mechanisms.md"
    results = doctest.testfile(str(page), module_relative=False)

    assert (results.failed, results.attempted) == (0, 17)


# -- NumPy and pandas --------------------------------------------------------------------------------------------

EQUAL_CALLS: dict[str, Callable[[Any, Callable[[int], Any]], object]] = {
    "discrete_laplace_counts": lambda c, n: dp.discrete_laplace_counts(c, n(1), items_per_user=n(2), budget=keyed()),
    "histogram": lambda c, n: dp.histogram(c, n(2), "1e-2", items_per_user=n(2), budget=keyed()),
    "LosslessCounts": lambda c, n: dp.LosslessCounts(c, [n(1), n(2)], items_per_user=n(2), budget=keyed()).read(n(2)),
    "RunningCounts": lambda c, n: dp.RunningCounts(list(COUNTS), n(3), n(1), budget=keyed()).close_pane(c),
    "strict_counts": lambda c, n: dp.strict_counts(c, n(1), largest_count=n(1000), budget=keyed()),
    "strict_histogram": lambda c, n: dp.strict_histogram(c, n(1), "1e-2", items_per_user=n(2), budget=keyed()),
    "pure_top_k": lambda c, n: dp.pure_top_k(c, n(2), n(2), key_bytes=n(4), budget=keyed()),
    "lookup_table": lambda c, n: dp.lookup_table(c, n(200), n(2), budget=keyed()).table.to_bytes(),
    "top_k": lambda c, n: dp.top_k(c, n(2), n(1), "1e-3", candidates_at_most=n(4), items_per_user=n(2), budget=keyed()),
    "top_k_of_list": lambda c, n: dp.top_k_of_list(c, KEYS, n(2), n(1), budget=keyed()),
    "top_k_with_gaps": lambda c, n: dp.top_k_with_gaps(c, KEYS, n(2), n(1), budget=keyed()),
    "top_k_subset": lambda c, n: dp.top_k_subset(c, KEYS, n(2), n(1), budget=keyed()),
}


@pytest.mark.parametrize("name", EQUAL_CALLS)
def test_numpy_and_pandas_give_the_same_result(name: str) -> None:
    """NumPy numbers must not reach exact arithmetic, where they would overflow."""
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    expected = EQUAL_CALLS[name](COUNTS, int)
    assert EQUAL_CALLS[name]({key: numpy.int64(count) for key, count in COUNTS.items()}, numpy.int64) == expected
    assert EQUAL_CALLS[name](pandas.Series(COUNTS), numpy.int32) == expected


def test_numpy_fraction_becomes_one_of_python() -> None:
    numpy = pytest.importorskip("numpy")
    budget = dp.Budget(Fraction(numpy.int64(1), numpy.int64(3)))
    left = budget.left.epsilon
    assert (type(left.numerator), type(left.denominator)) == (int, int)


def test_whole_numbers_as_keys_become_text() -> None:
    pandas = pytest.importorskip("pandas")
    ids = pandas.Series([7, 7, 8]).value_counts()
    assert set(dp.discrete_laplace_counts(ids, 1).counts) == {"7", "8"}


def test_series_without_counts_is_refused() -> None:
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    wrong = (
        pandas.Series({"a": 1.5}),
        pandas.Series({"a": True}),
        {"a": numpy.True_},
        pandas.Series([1, 2], index=["a", "a"]),
        {("a", "b"): 1},
    )
    for counts in wrong:
        with pytest.raises(ParameterError):
            dp.discrete_laplace_counts(counts, 1)
    with pytest.raises(ParameterError):
        dp.discrete_laplace_counts(COUNTS, numpy.float64(0.5))
