"""Readers of many windows who sharpen because of what they saw, under one filter: exact laws, and mutants of the price.

A user moves one count, from 0 to 1. Of what was read of a window only its loss matters, which is that of the finest
reading, up or down (`test_ladder`), and a reader who knows more than that draws no more from it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import exp, log

import pytest

from stream_dp.accounting.composition import ladder_rho, rho_within
from stream_dp.accounting.rounding import exp_down
from tests.support.chosen import ordinarily

Ladder = list[Fraction]
Reading = tuple[int, bool]
"""Finest level that was read of the window, and whether the loss is up."""
Choose = Callable[[Reading | None, Fraction], tuple[bool, int]]
"""What is read next, by the newest window and e^loss of all: whether a new window, and at which level."""
Price = Callable[[int, int], Fraction]
"""Of a level behind the finest one that was read before, -1 for none."""
Law = list[tuple[Fraction, Fraction]]

THREE: Ladder = [Fraction(4, 5), Fraction(3, 5), Fraction(3, 10)]
TWO: Ladder = [Fraction(3, 8), Fraction(1, 7)]
SLACK = Fraction("1e-3")
ORDERS = [1.0001, 1.1, 1.5, 2.0, 4.0, 10.0]


def outcomes(ladder: Ladder, before: Reading | None, level: int) -> list[tuple[Fraction, Fraction, Reading]]:
    """P and Q of what a level shows behind a coarser one."""
    a = ladder[level]
    had = Fraction(1)  # e^loss of the coarser reading
    if before is not None:
        had = 1 / ladder[before[0]] if before[1] else ladder[before[0]]
    up = (had / a - 1) / (had / a - had * a) if before is not None else 1 / (1 + a)
    return [(up, up * had * a, (level, True)), (1 - up, (1 - up) * had / a, (level, False))]


def played(ladder: Ladder, choose: Choose, price: Price, limit: Fraction) -> Law:
    """The law of all that a reader sees until the filter refuses a reading."""
    law: Law = []
    states: dict[tuple[Fraction, Fraction, Reading | None], tuple[Fraction, Fraction]]
    states = {(Fraction(0), Fraction(1), None): (Fraction(1), Fraction(1))}  # (used, e^loss, newest window): (P, Q)
    while states:
        after: dict[tuple[Fraction, Fraction, Reading | None], tuple[Fraction, Fraction]] = {}
        for (used, loss, newest), (p, q) in states.items():
            is_new, level = choose(newest, loss)
            before = None if is_new else newest
            paid = used + price(-1 if before is None else before[0], level)
            if paid > limit:
                law.append((p, q))
                continue
            for p_step, q_step, reading in outcomes(ladder, before, level):
                state = paid, loss * p_step / q_step, reading
                p_sum, q_sum = after.get(state, (Fraction(0), Fraction(0)))
                after[state] = p_sum + p * p_step, q_sum + q * q_step
        states = after
    return law


def excess(law: Law, epsilon: Fraction) -> Fraction:
    """The least delta at epsilon, in the worse direction, rounded up."""
    factor = exp_down(epsilon)
    return max(sum((max(Fraction(0), x[at] - factor * x[1 - at]) for x in law), Fraction(0)) for at in (0, 1))


def rho(law: Law) -> float:
    """The least rho of zCDP at `ORDERS`, in the worse direction."""

    def divergence(order: float, at: int) -> float:
        losses = [(float(x[at]), log(x[at]) - log(x[1 - at])) for x in law]
        return log(sum(p * exp((order - 1) * loss) for p, loss in losses)) / (order * (order - 1))

    return max(divergence(order, at) for order in ORDERS for at in (0, 1))


def charged(ladder: Ladder) -> Price:
    """What a ledger with a pool charges."""
    costs = ladder_rho(ladder, 1, Fraction(0))
    return lambda before, level: costs[level][0 if before < 0 else 1]


def skips(*, up: bool) -> Choose:
    """Every window coarse; the finest level next, if the loss is up, or down."""
    return lambda newest, _: (False, 2) if newest == (0, up) else (True, 0)


def climbs(newest: Reading | None, _: Fraction) -> tuple[bool, int]:
    """Level by level while the loss is down; else the next window."""
    return (True, 0) if newest is None or newest[0] == 2 or newest[1] else (False, newest[0] + 1)


def wavers(newest: Reading | None, loss: Fraction) -> tuple[bool, int]:
    """Middle and then fine while it is ahead; coarse, and fine where it is up, while it is not."""
    if newest is None or newest[0] == 2 or (newest == (0, False)):
        return True, 1 if loss >= 1 else 0
    return False, 2


READERS = [
    pytest.param(skips(up=True), id="skips a level where it is up"),
    pytest.param(skips(up=False), id="skips a level where it is down"),
    pytest.param(climbs, id="climbs"),
    pytest.param(wavers, id="wavers"),
    pytest.param(lambda *_: (True, 2), id="finest first"),
    pytest.param(lambda _, loss: (True, 2 if loss >= 1 else 1), id="finest while it is ahead"),
]


@pytest.mark.parametrize("choose", READERS)
@pytest.mark.parametrize("target", ordinarily(1, [Fraction(4), Fraction(6)]))
def test_steps_that_are_taken_because_of_what_was_seen_stay_within_the_filter(choose: Choose, target: Fraction) -> None:
    limit = rho_within(target, SLACK)
    law = played(THREE, choose, charged(THREE), limit)

    assert sum(p for p, _ in law) == sum(q for _, q in law) == 1
    assert excess(law, target) <= SLACK
    assert rho(law) <= float(limit)


def halved(ladder: Ladder) -> Price:
    price = charged(ladder)
    return lambda before, level: price(before, level) / (1 if before < 0 else 2)


def as_coarse(ladder: Ladder) -> Price:
    price = charged(ladder)
    return lambda before, level: price(before, 0 if before < 0 else level)


def difference(ladder: Ladder) -> Price:
    price = charged(ladder)
    return lambda before, level: price(-1, level) - (price(-1, before) if before >= 0 else 0)


@pytest.mark.parametrize(
    ("ladder", "choose", "mutant", "limit"),
    [
        pytest.param(
            THREE,
            skips(up=True),
            halved,
            Fraction(3),
            id="a step costs a quarter of its squared epsilon",
            marks=pytest.mark.slow,
        ),
        pytest.param(TWO, lambda *_: (True, 1), as_coarse, Fraction(2), id="a first release costs the coarsest level"),
        pytest.param(
            TWO,
            lambda newest, _: (False, 1) if newest == (0, False) else (True, 0),
            difference,
            Fraction(12),
            id="a step costs the difference of the first releases",
        ),
    ],
)
def test_a_price_that_is_too_low_is_flagged(
    ladder: Ladder, choose: Choose, mutant: Callable[[Ladder], Price], limit: Fraction
) -> None:
    assert rho(played(ladder, choose, mutant(ladder), limit)) > 1.1 * float(limit)
    assert rho(played(ladder, choose, charged(ladder), limit)) <= float(limit)
