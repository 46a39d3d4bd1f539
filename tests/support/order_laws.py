"""The law of the shipped order statistics, from the uniform numbers at which their values change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from stream_dp.histograms.counting_queries import CountingQuery
from stream_dp.histograms.order import largest_values


def runs(
    query: CountingQuery, values: int, before: list[int], places: int, precision: int
) -> Iterator[tuple[list[int], int]]:
    """What the values are after one more step, and the last uniform number that leads there, for all of them.

    The first step that `before` does not decide is looked at; what it gives has to rise with its uniform number.
    """
    known = _after(query, values, before, places, precision, len(before))
    last, most = 0, 1 << precision
    while last < most:
        here = _after(query, values, [*before, last + 1], places, precision, len(before) + 1)
        first = [here[len(known)], len(here)]

        def is_other(u: int, first: list[int] = first) -> bool:
            there = _after(query, values, [*before, u], places, precision, len(before) + 1)
            return [there[len(known)], len(there)] > first

        last = first_true(is_other, last + 1, most + 1) - 1
        yield here, last


def first_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number of low..high - 1 from which something holds, or high; `bisect` ends at 2^63."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def law_of_largest(query: CountingQuery, values: int, places: int, precision: int) -> dict[tuple[int, ...], Fraction]:
    """The law of `largest_values` for uniform numbers."""
    law: dict[tuple[int, ...], Fraction] = {}

    def extend(before: list[int], chance: Fraction) -> None:
        last = 0
        for reached, u in runs(query, values, before, places, precision):
            share = chance * Fraction(u - last, 1 << precision)
            last = u
            if len(reached) == places:
                law[tuple(reached)] = law.get(tuple(reached), Fraction(0)) + share
            else:
                extend([*before, u], share)

    if places == 0:
        return {(): Fraction(1)}
    extend([], Fraction(1))
    return law


def _after(
    query: CountingQuery, values: int, uniforms: list[int], places: int, precision: int, steps: int
) -> list[int]:
    """The values that the first steps decide: a step takes one level, or level 0 and all that is left."""
    found = largest_values(query, values, [*uniforms, *[1] * (places - len(uniforms))], precision)
    levels = sorted(set(found), reverse=True)[:steps]
    return [value for value in found if value in levels]
