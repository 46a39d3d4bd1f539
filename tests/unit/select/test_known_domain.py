from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.select.candidates import Domain, candidates
from stream_dp.select.gumbel import known_domain_top_k
from stream_dp.select.peeling import Peeling
from tests.support.tapes import RecordedBits


def test_every_draw_follows_the_exponential_mechanism_over_the_catalogue(laws: Any) -> None:
    counts, epsilon = {b"a": 5, b"b": 4, b"c": 4, b"d": 0}, Fraction(1, 2)
    rows, _ = candidates(counts, 4, Domain.WHOLE)
    for first in range(4):
        peeling = Peeling(rows, epsilon, None, RecordedBits(b""))
        found = laws.proposed(peeling, [])
        weights = [exp(0.5 * count) for _, count in rows]
        total = sum(mass.lower for mass, _ in found.values())
        assert found.keys() == {0, 1, 2, 3}
        for place, (mass, _) in found.items():
            assert float(mass.lower / total) == pytest.approx(weights[place] / sum(weights), rel=1e-12, abs=0)
        peeling.take(first, found[first][1])
        assert laws.proposed(peeling, [first]).keys() == {0, 1, 2, 3} - {first}


def test_k_items_come_whatever_their_counts_and_bottom_never() -> None:
    counts = {b"a": 10**9, b"b": 3, b"c": 0, b"d": 0}
    for k in range(1, 5):
        output = known_domain_top_k(counts, k, Fraction(1), KeyedBits(b"k", b"%d" % k))
        assert len(set(output.items)) == k == output.draws
        assert not output.bottom
        assert output.items[0] == b"a"


@pytest.mark.parametrize(("k", "epsilon", "path"), [(0, 1, "k"), (3, 1, "k"), (True, 1, "k"), (1, 0, "epsilon")])
def test_what_is_out_of_range_is_refused_by_name(k: int, epsilon: int, path: str) -> None:
    with pytest.raises(ParameterError) as raised:
        known_domain_top_k({b"a": 1, b"b": 0}, k, Fraction(epsilon), RecordedBits(b""))
    assert [fault.path for fault in raised.value.faults] == [path]


def test_a_count_that_is_none_is_refused() -> None:
    with pytest.raises(StateError, match="whole number"):
        known_domain_top_k({b"a": -1}, 1, Fraction(1), RecordedBits(b""))
