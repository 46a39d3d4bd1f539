from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import KeyedBits
from stream_dp.exact.coins import choose
from stream_dp.exact.reals import exp_neg
from tests.support.tapes import RecordedBits

Weights = Callable[[int], Sequence[tuple[int, int]]]


def rational(*weights: Fraction) -> Weights:
    return lambda p: [((w.numerator << p) // w.denominator, -((-w.numerator << p) // w.denominator)) for w in weights]


def exponential(*exponents: Fraction) -> Weights:
    return lambda p: [exp_neg(x, p) for x in exponents]


def loose(*weights: Fraction) -> Weights:
    """Valid enclosures that are wide on purpose: eight units on either side."""
    return lambda p: [(max(low - 8, 0), high + 8) for low, high in rational(*weights)(p)]


def distribution_function(weights: Weights) -> list[tuple[Fraction, Fraction]]:
    """Enclosures of w_0 / W, (w_0 + w_1) / W, ... at 300 bits."""
    enclosed = weights(300)
    low, high = sum(low for low, _ in enclosed), sum(high for _, high in enclosed)
    below, above = accumulate(low for low, _ in enclosed), accumulate(high for _, high in enclosed)
    return [(Fraction(b, high), Fraction(a, low)) for b, a in zip(below, above, strict=True)]


@pytest.mark.parametrize(
    "weights",
    [
        rational(Fraction(1, 3), Fraction(1, 2), Fraction(1, 6)),
        rational(Fraction(1), Fraction(0), Fraction(5, 7), Fraction(0)),
        exponential(Fraction(0), Fraction(1, 2), Fraction(3), Fraction(7, 3)),
        exponential(Fraction(20), Fraction(20), Fraction(21)),  # at 12 bits nothing is known about them
        loose(Fraction(2, 3), Fraction(3, 4), Fraction(1)),
    ],
    ids=["rational", "with zeros", "exponential", "far below one", "wide enclosures"],
)
def test_every_recorded_tape_gives_the_index_of_the_whole_interval_it_stands_for(weights: Weights) -> None:
    """Exhaustive over 12-bit tapes read as 3, 3 and 6 bits; so the law is exact up to the undecided tapes."""
    boundaries = [(Fraction(0), Fraction(0)), *distribution_function(weights)]
    boundaries[-1] = (Fraction(1), Fraction(1))
    undecided = 0
    chosen: Counter[int] = Counter()
    for tape in range(2**12):
        try:
            index = choose(weights, RecordedBits((tape << 4).to_bytes(2, "big")), precision=3)
        except StateError:
            undecided += 1
            continue
        chosen[index] += 1
        assert boundaries[index][1] <= Fraction(tape, 2**12)
        assert Fraction(tape + 1, 2**12) <= boundaries[index + 1][0]
    assert sum(chosen.values()) + undecided == 2**12
    # A boundary stays in doubt as far as the enclosures at 12 bits are wide, plus the tape it falls on.
    total, widths = sum(low for low, _ in weights(12)), sum(high - low for low, high in weights(12))
    assert total == 0 or undecided <= (len(boundaries) - 2) * (2 + 2 * widths * 2**12 // total)


def test_a_recorded_boundary_case_is_refined_until_it_is_decided() -> None:
    asked = []
    third = rational(Fraction(1, 3), Fraction(2, 3))

    def weights(precision: int) -> Sequence[tuple[int, int]]:
        asked.append(precision)
        return third(precision)

    # 1/3 = 0.0101 0101 0101 0101 ...: in doubt at 4 and 8 bits, decided either way by the last 8.
    assert choose(weights, RecordedBits(bytes([0b0101_0101, 0b0000_0000])), precision=4) == 0
    assert choose(weights, RecordedBits(bytes([0b0101_0101, 0b1000_0000])), precision=4) == 1
    assert asked == [4, 8, 16, 4, 8, 16]


def test_weights_known_exactly_are_never_in_doubt() -> None:
    quarters = rational(Fraction(1, 4), Fraction(1, 2), Fraction(1, 4))

    drawn = [choose(quarters, RecordedBits(bytes([first << 6])), precision=2) for first in range(4)]

    assert drawn == [0, 1, 1, 2]


def test_the_start_precision_does_not_change_what_is_drawn() -> None:
    """The index is a function of the uniform real alone, however many of its bits were looked at."""
    weights = exponential(*(Fraction(i * i, 40) for i in range(30)))
    for draw in range(100):
        context = draw.to_bytes(2, "big")
        coarse, fine = (choose(weights, KeyedBits(b"key", context), precision=p) for p in (3, 200))
        assert coarse == fine


def test_a_single_index_is_certain() -> None:
    assert choose(rational(Fraction(1, 7)), RecordedBits(bytes(16))) == 0


@pytest.mark.parametrize("weights", [rational(), rational(Fraction(0), Fraction(0))], ids=["none", "all zero"])
def test_a_choice_without_a_positive_weight_is_refused(weights: Weights) -> None:
    with pytest.raises(ParameterError, match="positive weight"):
        choose(weights, KeyedBits(b"key", b""))
