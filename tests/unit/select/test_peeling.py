"""The shipped draws: proposals, coins, and what happens when the first word of a coin leaves a doubt."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.exact.reals import exp_neg
from stream_dp.select.candidates import Candidates, Domain, candidates
from stream_dp.select.gumbel import TopKParameters, limited_domain_top_k
from stream_dp.select.peeling import BOTTOM, Bottom, Peeling, _rough
from tests.support.chosen import ordinarily

EPSILONS = [Fraction(1, 10**6), Fraction(1, 1000), Fraction(1, 10), Fraction(7, 10), Fraction(3), Fraction(50)]
SHAPES: dict[str, list[int]] = {
    "distinct": list(range(1, 40)),
    "flat": [7] * 12,
    "one far leader": [10**12, 9, 8, 8, 1],
    "leaders in steps": [10**15, 10**12, 10**9, 10**6, 10**3, 5],
    "zipf": [10**5 // i for i in range(1, 30)],
    "largest counts": [(1 << 62) - 1, (1 << 62) - 2, 1],
    "none": [],
}


def rows(counts: list[int]) -> Candidates:
    return Candidates.of([(b"%03d" % i, count) for i, count in enumerate(sorted(counts, reverse=True))])


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "odds", ordinarily(1, [Fraction(1, 3), Fraction(7 * 10**30, 3), Fraction(20), Fraction(10**11)])
)
def test_whatever_has_been_drawn_mass_times_coin_is_the_exponential_weight(
    laws: Any, shape: str, epsilon: Fraction, odds: Fraction
) -> None:
    given, random = rows(SHAPES[shape]), Random(7)
    peeling = Peeling(given, epsilon, Bottom(3, odds), KeyedBits(b"", b""))
    taken = list[int]()
    while True:
        found = laws.proposed(peeling, taken)
        assert found.keys() == {BOTTOM, *range(len(given))} - set(taken)
        unit = peeling.proposal.units << peeling.proposal.top
        counts = {place: 3 if place == BOTTOM else int(given.counts[place]) for place in found}
        for place, (mass, _) in found.items():
            # Everything is measured against e^(epsilon R), the weight of one place at level 0.
            distance = epsilon * (peeling.proposal.reference - counts[place])
            precision = 160 + peeling.proposal.top
            lower, upper = (Fraction(bound, 1 << precision) for bound in exp_neg(distance, precision))
            factor = unit * (odds if place == BOTTOM else 1)
            assert mass.lower <= upper * factor
            assert lower * factor <= mass.upper
            assert mass.upper - mass.lower <= Fraction(factor, 1 << 100)
        # Of what is proposed anew at least a good part is accepted: at least a quarter, unless ties are drawn.
        if not taken:
            assert 4 * sum(mass.lower for mass, _ in found.values()) > peeling.proposal.total
        left = sorted(found.keys() - {BOTTOM})
        if not left:
            break
        place = left[0] if random.random() < 0.7 else random.choice(left)
        peeling.take(place, found[place][1])
        taken.append(place)


def test_what_is_left_far_below_the_drawn_becomes_the_new_measure() -> None:
    given = rows([10**9, 500, 499])
    peeling = Peeling(given, Fraction(1), Bottom(1, Fraction(60)), KeyedBits(b"", b""))
    assert peeling.proposal.reference == 10**9
    peeling.take(0, 0)
    assert peeling.proposal.reference == 500
    for place in (1, 2):
        peeling.take(place, 0)
    assert peeling.proposal.reference == 1


def test_a_list_longer_than_the_table_ends_with_bottom_however_far_below_it_is() -> None:
    given, h_next = candidates({b"a": 10**9, b"b": 10**8}, 5)
    p = TopKParameters(4, 5, Fraction(1), Fraction(1, 20))
    output = limited_domain_top_k(given, h_next, p, KeyedBits(b"k", b"far"))
    assert (output.items, output.bottom) == ((b"a", b"b"), True)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_rough_coin_encloses_the_exact_one(epsilon: Fraction) -> None:
    random = Random(3)
    for _ in range(300):
        level = random.randint(0, 80)
        distance = -(-level * 693147180559945309417233 // (10**24 * epsilon)) + random.choice([0, 1, 2, 10, 10**6])
        rough_lower, rough_upper = _rough(epsilon, int(distance) + 1, level)
        lower, upper = exp_neg(epsilon * (int(distance) + 1), 64 + level)
        assert rough_lower <= lower <= upper <= rough_upper + 1


class Tape:
    """Recorded words, which answer requests of whatever size."""

    def __init__(self, words: list[tuple[int, int]]) -> None:
        self._words = words

    def bits(self, n: int) -> int:
        size, word = self._words.pop(0)
        assert size == n
        return word


@pytest.mark.parametrize(("beyond", "kept"), [(-1, True), (1, False)])
def test_a_coin_that_ties_in_its_leading_word_is_decided_by_the_next(beyond: int, kept: bool) -> None:
    given = rows([9, 8])
    p = TopKParameters(1, 2, Fraction(1, 3), Fraction(1, 20), 1, Domain.POSITIVE)
    peeling = Peeling(given, p.epsilon, Bottom(1, p.odds), KeyedBits(b"", b""))
    size = (peeling.proposal.total - 1).bit_length()
    number = next(n for n in range(peeling.proposal.total) if peeling.proposal.at(n)[0] == 1)
    _, level = peeling.proposal.at(number)
    lower, _ = peeling.coin(1, level, 128)
    uniform = lower + 3 * beyond
    tied, rest = divmod(uniform, 1 << 64)
    assert peeling.coin(1, level, 64)[0] <= tied < peeling.coin(1, level, 64)[1]
    # The first proposal is place 1; where it is refused the next, place 0 at level 0 with a coin of one, is not.
    tape: BitSource = Tape([(size, number), (64, tied), (64, rest), (size, 0), (64, 5)])
    assert Peeling(given, p.epsilon, Bottom(1, p.odds), tape).draw() == (1 if kept else 0)


def test_a_hundred_thousand_candidates_cost_no_more_looks_than_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Fraction] = []

    def noted(x: Fraction, precision: int) -> tuple[int, int]:
        calls.append(x)
        return exp_neg(x, precision)

    monkeypatch.setattr("stream_dp.select.peeling.exp_neg", noted)
    given, h_next = candidates({b"%d" % rank: 10**7 // rank for rank in range(1, 100_001)}, 100_000)
    p = TopKParameters(100, 100_000, Fraction(1, 100), Fraction("1e-8"))
    assert len(limited_domain_top_k(given, h_next, p, KeyedBits(b"k", b"zipf")).items) == 100
    assert len(calls) < 100
