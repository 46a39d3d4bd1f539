"""The composition bounds against exact laws: worst-case steps, adaptive trees, and mutants that must be caught.

The worst epsilon-bounded-range step has two outcomes whose losses are t and t - epsilon, as an item against bottom:
with r = e^t > 1 > s = e^(t - epsilon) rational, P = r (1 - s) / (r - s) and Q = (1 - s) / (r - s) are rational too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import pytest

from experiments.topk.composition import NO_STEPS, compose
from experiments.topk.pay_what_you_get import pay_what_you_get
from stream_dp.accounting import selection_cost
from stream_dp.accounting.composition import discrete_laplace_rho, rho_within, zcdp_epsilon
from stream_dp.accounting.rounding import down, exp_down, exp_up, log_up, root_up, up

ROUNDING = Fraction(1, 2**200)


@dataclass(frozen=True)
class Step:
    """A two-outcome mechanism: e^loss of the likelier and of the less likely outcome, both ways around."""

    r: Fraction
    s: Fraction

    @property
    def epsilon(self) -> Fraction:
        """The range of its loss, rounded up."""
        return log_up(self.r / self.s)

    @property
    def outcomes(self) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
        """(P, Q) of each outcome."""
        q = (1 - self.s) / (self.r - self.s)
        return (self.r * q, q), (self.s * (1 - q), 1 - q)

    @property
    def mean(self) -> Fraction:
        """The mean of its loss, rounded up."""
        return sum((p * log_up(p / q) for p, q in self.outcomes), Fraction(0))


def step(ratio: str, share: str) -> Step:
    """A step of range ln(ratio) whose upper loss is about this share of it."""
    r = 1 + (Fraction(ratio) - 1) * Fraction(share)
    return Step(r, r / Fraction(ratio))


def excess(law: list[tuple[Fraction, Fraction]], epsilon: Fraction) -> Fraction:
    """The least delta at epsilon, in the worse direction, rounded up."""
    factor = exp_down(epsilon)
    return max(
        sum((max(Fraction(0), p - factor * q) for p, q in law), Fraction(0)),
        sum((max(Fraction(0), q - factor * p) for p, q in law), Fraction(0)),
    )


def repeated(one: Step, k: int) -> list[tuple[Fraction, Fraction]]:
    """The law of the number of likelier outcomes among k steps."""
    (p, q), (p_rest, q_rest) = one.outcomes
    return [(comb(k, j) * p**j * p_rest ** (k - j), comb(k, j) * q**j * q_rest ** (k - j)) for j in range(k + 1)]


SHARES = ["0.02", "0.3", "0.5", "0.7", "0.98"]


@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("slack", ["1e-2", "1e-6", "1e-9"])
@pytest.mark.parametrize(
    ("ratio", "k"), [("1.1", 1), ("1.1", 3), ("1.1", 100), pytest.param("1.02", 200, marks=pytest.mark.slow), ("2", 40)]
)
def test_repeated_worst_steps_stay_within_slack(ratio: str, k: int, slack: str, *, tight: bool) -> None:
    delta = Fraction(slack)
    for share in SHARES:
        one = step(ratio, share)
        bounds = compose({one.epsilon: k}, NO_STEPS, delta, tight_mean=tight)
        assert bounds.bounded_range is not None
        law = repeated(one, k)
        assert excess(law, bounds.bounded_range) <= delta
        assert excess(law, bounds.epsilon) <= delta
        assert excess(law, zcdp_epsilon(k * one.epsilon**2 / 8, delta)) <= delta
        assert excess(law, bounds.basic) <= ROUNDING


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(lambda c, log_slack: c / 8 + root_up(c * log_slack / 8), id="half the range"),
        pytest.param(lambda c, log_slack: c / 8 + root_up(c * log_slack / 2) / 2, id="half the deviation"),
        pytest.param(lambda c, _: c / 2, id="mean only"),
        pytest.param(lambda c, log_slack: c / 8 + root_up(c / 2) * (log_slack / 10), id="a tenth of the logarithm"),
    ],
)
def test_a_smaller_deviation_is_flagged(mutant: Callable[[Fraction, Fraction], Fraction]) -> None:
    slack = Fraction("1e-6")
    one = step("1.1", "0.5")
    bound = compose({one.epsilon: 100}, NO_STEPS, slack, tight_mean=True).bounded_range
    law = repeated(one, 100)

    assert bound is not None
    assert excess(law, mutant(100 * one.epsilon**2, log_up(1 / slack))) > slack
    assert excess(law, bound) < slack


@pytest.mark.parametrize("ratio", ["1.0001", "1.1", "2", "50"])
def test_the_mean_loss_of_a_step_is_an_eighth_of_its_squared_range_and_no_less(ratio: str) -> None:
    worst = max(step(ratio, str(Fraction(n, 100))).mean / step(ratio, "1/2").epsilon ** 2 for n in range(1, 100))

    assert worst <= Fraction(1, 8)
    if ratio in {"1.0001", "1.1"}:
        assert worst > Fraction(1, 9)


Price = Callable[[Step], Fraction]


def filtered(
    choose: Callable[[Fraction, Fraction], Step],
    price: Price,
    limit: Fraction,
    *,
    free_bottoms: int = 0,
) -> list[tuple[Fraction, Fraction]]:
    """The law of all outputs of steps that are chosen by what was lost so far, until the filter admits none.

    Args:
        choose: the next step, by e^loss and by what was charged so far.
        price: of a step, which is known before it is made.
        limit: of the sum of the prices.
        free_bottoms: with so many steps at most, a less likely outcome goes free; 0: all are charged.
    """
    law: list[tuple[Fraction, Fraction]] = []
    states: dict[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]
    states = {(Fraction(0), Fraction(1)): (Fraction(1), Fraction(1))}  # (used, e^loss): (P, Q)
    made = 0
    while states:
        after: dict[tuple[Fraction, Fraction], tuple[Fraction, Fraction]] = {}
        for (used, loss), (p, q) in states.items():
            chosen = choose(loss, used)
            if used + price(chosen) > limit or (free_bottoms and made == free_bottoms):
                law.append((p, q))
                continue
            for bottom, (p_step, q_step) in enumerate(chosen.outcomes):
                charged = Fraction(0) if free_bottoms and bottom else price(chosen)
                state = used + charged, loss * p_step / q_step
                p_sum, q_sum = after.get(state, (Fraction(0), Fraction(0)))
                after[state] = p_sum + p * p_step, q_sum + q * q_step
        states, made = after, made + 1
    return law


BOLD, TIMID = step("3/2", "1/2"), step("11/10", "1/2")
"""Draws of unlike epsilons."""
COUNT = step("1.44", str(Fraction(2, 10) / Fraction(44, 100)))
"""A count with discrete Laplace noise, a = 1/1.2, that one user moves by one: its loss is ln 1.2 either way."""


def rho(chosen: Step) -> Fraction:
    """What a ledger with a pool charges, rounded up."""
    if chosen is COUNT:
        return up(discrete_laplace_rho(1 / chosen.r))
    return selection_cost(1, up(chosen.epsilon), Fraction(0), pooled=True).rho


def test_a_count_is_the_discrete_laplace_noise_that_it_stands_for() -> None:
    assert (COUNT.r, COUNT.s) == (Fraction("1.2"), 1 / Fraction("1.2"))
    (p, q), _ = COUNT.outcomes
    assert (p, q) == (1 / (1 + COUNT.s), COUNT.s / (1 + COUNT.s))  # P[noise <= 0], and of noise around 1


ADAPTIVE = [
    pytest.param(lambda loss, _: BOLD if loss >= 1 else TIMID, id="bold when it pays"),
    pytest.param(lambda loss, _: TIMID if loss >= 1 else BOLD, id="bold when it does not"),
    pytest.param(lambda loss, _: step("3/2", "9/10") if loss < 2 else step("11/10", "1/10"), id="to a goal"),
    pytest.param(lambda loss, _: BOLD if loss >= 1 else COUNT, id="draws ahead, counts behind"),
    pytest.param(lambda loss, _: COUNT if loss >= 1 else BOLD, id="counts ahead, draws behind"),
    pytest.param(lambda loss, used: (TIMID, COUNT)[int(1000 * used) % 2] if loss >= 1 else BOLD, id="by turns"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "slack"), [(Fraction(1, 2), Fraction("0.1")), (Fraction(1), Fraction("1e-3"))])
@pytest.mark.parametrize("choose", ADAPTIVE)
def test_one_pool_holds_with_draws_and_counts_chosen_by_the_outputs(
    choose: Callable[[Fraction, Fraction], Step], target: Fraction, slack: Fraction
) -> None:
    law = filtered(choose, rho, rho_within(target, slack))

    assert sum(p for p, _ in law) == sum(q for _, q in law) == 1
    assert excess(law, target) <= slack


def half(chosen: Step) -> Fraction:
    return rho(chosen) if chosen is COUNT else rho(chosen) / 2


def cheapest(_chosen: Step) -> Fraction:
    return rho(TIMID)


@pytest.mark.parametrize(
    ("choose", "price", "free_bottoms"),
    [
        pytest.param(
            lambda *_: TIMID, half, 0, id="a draw costs a sixteenth of its squared epsilon", marks=pytest.mark.slow
        ),
        pytest.param(
            lambda loss, _: BOLD if loss >= 1 else COUNT,
            cheapest,
            0,
            id="all cost what the cheapest does",
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda *_: step("3/2", "4/5"), rho, 60, id="a bottom goes free"),
    ],
)
def test_a_pool_that_charges_too_little_is_flagged(
    choose: Callable[[Fraction, Fraction], Step], price: Price, free_bottoms: int
) -> None:
    slack, target = Fraction("1e-3"), Fraction(1)
    limit = rho_within(target, slack)

    assert excess(filtered(choose, price, limit, free_bottoms=free_bottoms), target) > slack
    assert excess(filtered(choose, rho, limit), target) < slack


def test_measured_counts_are_charged_with_twice_the_range_of_a_draw() -> None:
    """A pure mechanism may be randomized response, of loss epsilon or -epsilon; the mutant takes it for a draw."""
    response = step("1.21", "10/21")  # losses of ln 1.1 both ways
    assert (response.r, response.s) == (Fraction("1.1"), 1 / Fraction("1.1"))
    epsilon, slack, k = log_up(Fraction("1.1")), Fraction("1e-6"), 100
    law = repeated(response, k)
    pure = compose(NO_STEPS, {epsilon: k}, slack)

    assert excess(law, pure.epsilon) < slack
    assert excess(law, compose({epsilon: k}, NO_STEPS, slack, tight_mean=True).epsilon) > slack


def test_draws_and_counts_together_stay_within_slack() -> None:
    slack = Fraction("1e-4")
    draw, response = step("1.1", "1/2"), step("1.21", "10/21")
    law = [
        (up(p * p_count), down(q * q_count))
        for p, q in repeated(draw, 50)
        for p_count, q_count in repeated(response, 20)
    ]
    bounds = compose({draw.epsilon: 50}, {log_up(Fraction("1.1")): 20}, slack)
    factor = exp_down(bounds.epsilon)

    assert bounds.epsilon == bounds.bounded_range
    assert sum(max(Fraction(0), p - factor * q) for p, q in law) <= slack


# Bottom is an outcome: whoever lets it go free draws until an item comes.


def free_bottom(ratio: Fraction, epsilon: Fraction, draws: int, calls: int, at: Fraction) -> Fraction:
    """The least delta at an epsilon of up to `calls` draws of one item against bottom, ended by the `draws`-th item."""
    item = ratio / (1 + ratio), ratio * exp_up(epsilon) / (1 + ratio * exp_up(epsilon))

    def ended(t: int, p: Fraction) -> Fraction:
        return comb(t - 1, draws - 1) * down(p**draws) * down((1 - p) ** (t - draws))

    def unended(items: int, p: Fraction) -> Fraction:
        return comb(calls, items) * down(p**items) * down((1 - p) ** (calls - items))

    pairs = [(ended(t, item[0]), ended(t, item[1])) for t in range(draws, calls + 1)]
    pairs += [(unended(items, item[0]), unended(items, item[1])) for items in range(draws)]
    return sum((max(Fraction(0), p - exp_up(at) * q) for p, q in pairs), Fraction(0))


def test_a_ledger_that_lets_bottom_go_free_breaks_its_statement(topk_vectors: dict[str, Any]) -> None:
    for row in topk_vectors["uncharged_bottom_violation"]:
        epsilon, draws, calls = row["eps"], row["k_star"], row["max_calls"]
        ratio = row["item_to_bottom_weight_ratio"]
        leak = free_bottom(ratio, epsilon, draws, calls, draws * epsilon)
        assert abs(leak / row["delta_leak_at_kstar_eps"] - 1) < Fraction(1, 10**9)
        statement = pay_what_you_get(draws, calls, epsilon, Fraction("1e-9"), Fraction("1e-6"))
        for promised in (statement.hardened, statement.printed):
            assert free_bottom(ratio, epsilon, draws, calls, promised.epsilon) > 100 * promised.delta
