"""What comes out: names and unseen keys, and what is refused."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from fractions import Fraction
from inspect import signature
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits, SystemBits
from stream_dp.select.candidates import Unseen
from stream_dp.select.lipschitz import Envelope, Pool, ScoreNoise, SubsetParameters, proposal
from stream_dp.select.top_k_subset import canonical_positions, canonical_top_k
from tests.support.chosen import ordinarily
from tests.support.tapes import RecordedBits

PRECISION = 160


def test_the_whole_domain_is_returned_without_a_single_bit() -> None:
    p = SubsetParameters(4, Fraction(1))
    assert canonical_top_k({b"b": 3, b"a": 0}, 2, p, RecordedBits(b"")) == (b"a", b"b", Unseen(0), Unseen(1))
    assert canonical_top_k({}, 1, SubsetParameters(1, Fraction(1)), RecordedBits(b"")) == (Unseen(0),)


@pytest.mark.parametrize("noise", list(ScoreNoise))
def test_what_stands_out_is_found_and_sorted_by_name_whatever_its_counts(noise: ScoreNoise) -> None:
    counts = {"d": 4, "c": 900, "a": 5, "b": 1000, "e": 950}
    p = SubsetParameters(3, Fraction(1), noise=noise)
    for run in range(20):
        assert canonical_top_k(counts, 10**12, p, KeyedBits(b"k", b"%d" % run)) == ("b", "c", "e")


@pytest.mark.parametrize("noise", ordinarily(1, ScoreNoise))
def test_a_window_without_a_single_count_gives_any_keys_of_the_domain(noise: ScoreNoise) -> None:
    p = SubsetParameters(2, Fraction(3), noise=noise)
    found = Counter(canonical_top_k({}, 4, p, KeyedBits(b"k", b"%d" % run)) for run in range(600))
    assert found.keys() == {(Unseen(i), Unseen(j)) for i, j in combinations(range(4), 2)}
    assert min(found.values()) > 60  # 100 each, give or take 9
    (some,) = {len(set(canonical_top_k({}, 10**12, p, KeyedBits(b"k", b"%d" % run)))) for run in range(5)}
    assert some == 2


def test_fewer_keys_with_users_than_wanted_are_filled_up_from_the_unseen_ones() -> None:
    p = SubsetParameters(4, Fraction(5))
    found = set[Unseen]()
    for run in range(40):
        output = canonical_top_k({b"y": 90, b"x": 70}, 30, p, KeyedBits(b"k", b"%d" % run))
        assert output[:2] == (b"x", b"y")
        unseen = [key for key in output[2:] if isinstance(key, Unseen)]
        assert len(unseen) == 2
        assert unseen == sorted(unseen)
        found.update(unseen)
    assert len(found) > 20


@pytest.mark.parametrize("noise", list(ScoreNoise))
def test_places_of_an_array_and_names_of_a_mapping_are_one_selection(noise: ScoreNoise) -> None:
    counts = {b"%03d" % (i * 37 % 100): 300 // (i + 1) for i in range(100)}
    names, array = list(counts), np.array(list(counts.values()), np.int64)
    for run in range(30):
        p = SubsetParameters(run % 7 + 1, Fraction(1, 4), noise=noise)
        places = sorted(canonical_positions(array, 50, p, KeyedBits(b"k", b"%d" % run)))
        output = canonical_top_k(counts, 50, p, KeyedBits(b"k", b"%d" % run))
        named = sorted(names[place] for place in places if place < 100)
        assert output == (*named, *(Unseen(place - 100) for place in places if place >= 100))


def test_the_counts_given_are_left_as_they_are() -> None:
    array = np.array([5, 9, 1, 7, 7], np.int64)
    canonical_positions(array, 0, SubsetParameters(2, Fraction(1)), SystemBits())
    assert array.tolist() == [5, 9, 1, 7, 7]


@pytest.mark.parametrize(
    ("counts", "zeros", "k", "path"),
    [({b"a": 1}, 0, 2, "k"), ({}, 0, 1, "k"), ({b"a": 1}, -1, 1, "zeros"), ({b"a": 1}, True, 1, "zeros")],
)
def test_a_domain_that_is_too_small_or_no_number_is_refused(counts: Any, zeros: Any, k: int, path: str) -> None:
    with pytest.raises(ParameterError) as raised:
        canonical_top_k(counts, zeros, SubsetParameters(k, Fraction(1)), RecordedBits(b""))
    assert [fault.path for fault in raised.value.faults] == [path]


@pytest.mark.parametrize("count", [-1, 1 << 62, 1.5, float("nan"), None])
def test_a_count_that_is_none_is_refused_before_anything_is_drawn(count: Any) -> None:
    with pytest.raises(StateError, match="whole number"):
        canonical_top_k({b"a": count, b"b": 1}, 3, SubsetParameters(1, Fraction(1)), RecordedBits(b""))


def test_nothing_but_the_set_comes_out(caplog: pytest.LogCaptureFixture) -> None:
    """No class, no block, no number of proposals: neither returned nor logged (specs/subset P1)."""
    with caplog.at_level(logging.DEBUG):
        output = canonical_top_k({b"a": 9, b"b": 7, b"c": 1}, 5, SubsetParameters(2, Fraction(1, 9)), SystemBits())
    assert isinstance(output, tuple)
    assert all(isinstance(key, bytes | Unseen) for key in output)
    assert not caplog.records
    assert list(signature(Unseen).parameters) == ["number"]


def test_the_number_of_unseen_keys_in_the_set_is_as_listed_for_up_to_10_to_the_12_of_them(
    subset_vectors: dict[str, Any], subset_laws: Any
) -> None:
    """Cells and outcomes enumerated by how many items of the block an outcome has; the rest is a count of them."""
    rows = subset_vectors["implicit_domain"]["rows"]
    assert max(row["implicit_zero_items"] for row in rows) == 10**12
    for row in rows:
        p = subset_laws.parameters(row)
        layout = subset_laws.laid_out(row["observed"], row["implicit_zero_items"], p)
        unseen: dict[int, Fraction] = defaultdict(Fraction)
        envelope = Envelope(layout, p)
        for cell, mass in subset_laws.cells(envelope):
            if cell is None:
                unseen[0] += mass / (1 << envelope.excess)
                continue
            pool = Pool.of(layout, cell, p.k)
            for hits in range(max(1, pool.need - pool.above), min(pool.need, pool.inside) + 1):
                things = frozenset([*range(pool.need - hits), *range(pool.above, pool.above + hits)])
                proposed = proposal(layout, cell, p, things)
                assert proposed is not None
                alike = comb(pool.inside, hits) * comb(pool.above, pool.need - hits) * proposed.ways
                low, _ = proposed.share(PRECISION)
                zeros = sum(position >= len(row["observed"]) for position in proposed.positions)
                unseen[zeros] += mass * alike / pool.outcomes * low / (1 << PRECISION)
        total = sum(unseen.values(), Fraction(0))
        for zeros, q in row["P_number_of_zero_items"].items():
            assert abs(unseen[int(zeros)] / total - Fraction(q)) < Fraction("1e-10")
        assert abs(1 / total - Fraction(row["P_top"])) < Fraction("1e-10")
