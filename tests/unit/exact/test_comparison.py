from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.errors import StateError
from stream_dp.exact.coins import exceeds, happens
from tests.support.tapes import RecordedBits

THIRD = Fraction(1, 3)


class Narrowing:
    """A number enclosed no closer than a precision tells; counts how often it was asked."""

    def __init__(self, value: Fraction) -> None:
        self.value = value
        self.asked: list[int] = []

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        self.asked.append(precision)
        width = Fraction(1, 1 << precision)
        return self.value - width, self.value + width


def third(precision: int) -> tuple[int, int]:
    return (1 << precision) // 3, (1 << precision) // 3 + 1


def tape(value: int, bits: int) -> RecordedBits:
    return RecordedBits(value.to_bytes(bits // 8))


def test_a_word_on_either_side_decides_at_once() -> None:
    word = (1 << 64) // 3
    assert happens(third, tape(word - 1, 64))
    assert not happens(third, tape(word + 1, 64))


def test_a_tie_in_the_leading_word_is_decided_by_the_words_that_follow() -> None:
    assert happens(third, tape((1 << 128) // 3 - 1, 128))
    assert not happens(third, tape((1 << 128) // 3 + 1, 128))
    assert happens(third, tape((1 << 256) // 3 - 1, 256))
    assert not happens(third, tape((1 << 256) // 3 + 1, 256))
    with pytest.raises(StateError, match="0 bits left"):
        happens(third, tape((1 << 128) // 3, 128))


def test_a_rough_enclosure_decides_what_it_can_and_no_more() -> None:
    rough = 1 << 61, 1 << 63

    def unasked(_precision: int) -> tuple[int, int]:
        raise AssertionError

    assert happens(unasked, tape((1 << 61) - 1, 64), rough)
    assert not happens(unasked, tape(1 << 63, 64), rough)
    assert happens(third, tape(1 << 61, 64), rough)
    assert not happens(third, tape((1 << 63) - 1, 64), rough)


@pytest.mark.parametrize(("gap", "asked"), [(60, [64]), (100, [64, 128]), (200, [64, 128, 256])])
def test_close_numbers_are_enclosed_until_they_part(gap: int, asked: list[int]) -> None:
    low, high = Narrowing(THIRD), Narrowing(THIRD + Fraction(1, 1 << gap))
    assert exceeds(high, low)
    assert not exceeds(low, high)
    assert low.asked == high.asked == 2 * asked


def test_neither_of_two_equal_points_exceeds_the_other() -> None:
    class Point:
        def enclose(self, _precision: int) -> tuple[Fraction, Fraction]:
            return THIRD, THIRD

    assert not exceeds(Point(), Point())
