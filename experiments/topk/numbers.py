"""The numbers of `python -m experiments topk`: how much bounded range saves, and what a month of windows needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from experiments.topk.composition import NO_STEPS, compose
from experiments.topk.optimal import OptimalPoint, optimal_composition
from experiments.topk.pay_what_you_get import epsilon_per_draw
from stream_dp.accounting import Cost
from stream_dp.accounting.composition import rho_within
from stream_dp.accounting.rounding import down, largest
from stream_dp.accounting.selection import laplace_selection_delta
from stream_dp.select.gumbel import TopKParameters, threshold

FIGURE_DELTA = Fraction(1, 10**6)
DRAWS: Sequence[int] = range(10, 501)
RATIOS = {
    Fraction("0.01"): {10: "1.000", 20: "1.313", 50: "1.435", 100: "1.470", 200: "1.503", 500: "1.531"},
    Fraction("0.05"): {10: "1.000", 20: "1.381", 50: "1.497", 100: "1.550", 200: "1.554", 500: "1.556"},
    Fraction("0.1"): {10: "1.000", 20: "1.376", 50: "1.498", 100: "1.524", 200: "1.523", 500: "1.496"},
    Fraction("0.5"): {10: "1.000", 20: "1.000", 50: "1.301", 100: "1.301", 200: "1.270", 500: "1.206"},
    Fraction("1"): {10: "1.000", 20: "1.000", 50: "1.070", 100: "1.089", 200: "1.073", 500: "1.040"},
}
"""Ratios of Figure 1 by the epsilon of a draw and the number of draws, computed in floating point beforehand."""

TOTAL = Cost(Fraction(3), Fraction(1, 10**6))
SLACK = Fraction(1, 2 * 10**6)
K, KBAR = 10, 1000
SCHEDULES = {"daily": 30, "hourly": 720, "5 min": 8640}
"""Windows of 30 days."""
SIZES = {
    "daily": ("0.0547", "467", "341"),
    "hourly": ("0.01116", "2571", "1952"),
    "5 min": ("0.00322", "9674", "7531"),
}
"""Epsilon of a draw and the lead with any number of items and with one per user, computed beforehand."""
_EXPECTED_OUTPUTS = 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """A point of Figure 1.

    Attributes:
        draws: k.
        optimal: the best that holds for k mechanisms of which only epsilon-DP is known, at a delta of at most 1e-6.
        bounded_range: epsilon by Lemma 4.4 at that same delta.
    """

    draws: int
    optimal: OptimalPoint
    bounded_range: Fraction

    @property
    def value(self) -> Fraction:
        """Factor saved by the knowledge that the steps are draws."""
        return self.optimal.epsilon / self.bounded_range


def figure_1(epsilon: Fraction, progress: Callable[[int], None]) -> list[Ratio]:
    """One curve of Figure 1, for every k of `DRAWS`.

    Source: specs/topk 4 (Durfee and Rogers 2019, Appendix A).
    """
    curve = []
    for draws in DRAWS:
        optimal = optimal_composition(epsilon, draws, FIGURE_DELTA)
        curve.append(Ratio(draws, optimal, compose({epsilon: draws}, NO_STEPS, optimal.delta).epsilon))
        progress(1)
    return curve


@dataclass(frozen=True, slots=True)
class Sizing:
    """Parameters of the selections that a ledger pays for.

    Attributes:
        epsilon: price of one draw.
        delta: of one call.
    """

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True, slots=True)
class Month:
    """Parameters that a schedule needs to stay within (3, 1e-6) for 30 days, k = 10 and kbar = 1000.

    Attributes:
        schedule: how often a window ends, in words.
        windows: l*.
        draws: k*; None for Laplace noise, which pays for calls.
        parameters: epsilon of a draw (with Laplace noise of a call) and delta of a call.
        lead: the count above that of rank kbar + 1 at which an item is returned in half of the windows, by the number
            of items that bound a user, None for no bound.
    """

    schedule: str
    windows: int
    draws: int | None
    parameters: Sizing
    lead: dict[int | None, Fraction]


def printed_months() -> list[Month]:
    """As Theorem 2 is printed, every window paid for as if it returned k items."""
    months = []
    for schedule, windows in SCHEDULES.items():
        epsilon = epsilon_per_draw(TOTAL.epsilon, K * windows, SLACK)
        parameters = Sizing(epsilon, Fraction(TOTAL.delta - SLACK, 2 * windows))
        months.append(Month(schedule, windows, K * windows, parameters, _leads(parameters)))
    return months


def pooled_months(*, pay_what_you_get: bool) -> list[Month]:
    """In a ledger with a pool, for k outputs a window, or for 2 and once k more for the last window."""
    return [
        month(windows, _EXPECTED_OUTPUTS * windows + K if pay_what_you_get else K * windows, schedule)
        for schedule, windows in SCHEDULES.items()
    ]


def month(windows: int, draws: int, schedule: str = "") -> Month:
    """A number of windows and of outputs, paid for by a ledger with a pool (`stream_dp.accounting.ledger`)."""
    delta = down(Fraction(TOTAL.delta - SLACK, windows))
    rho = rho_within(TOTAL.epsilon - draws * delta, SLACK)
    epsilon = largest(lambda e: draws * e**2 <= 8 * rho)
    parameters = Sizing(epsilon, delta)
    return Month(schedule, windows, draws, parameters, _leads(parameters))


def laplace_months() -> list[Month]:
    """With Laplace noise and one item per user: calls, whose epsilons and deltas add up."""
    return [laplace_month(windows, schedule) for schedule, windows in SCHEDULES.items()]


def laplace_month(windows: int, schedule: str = "") -> Month:
    """A number of windows with Laplace noise, one item per user, paid for by a ledger."""
    epsilon = TOTAL.epsilon * Fraction(1, windows)
    delta = laplace_selection_delta(TOTAL.delta * Fraction(1, windows), 1, epsilon)
    parameters = Sizing(epsilon, delta)
    return Month(schedule, windows, None, parameters, {1: _lead(parameters, 1)})


def agrees(value: Fraction, printed: str) -> bool:
    """Return true if a number rounds to the printed digits."""
    return abs(value - Fraction(printed)) * 2 <= last_digit(printed)


def last_digit(printed: str) -> Fraction:
    """One unit of the last digit."""
    return Fraction(1, 10 ** len(printed.partition(".")[2]))


def agreements(figure: Mapping[Fraction, Sequence[Ratio]], months: Sequence[Month]) -> list[bool]:
    """Return, for each number that was computed beforehand, whether it comes out again."""
    ratios = [
        agrees(ratio.value, RATIOS[epsilon][ratio.draws])
        for epsilon, curve in figure.items()
        for ratio in curve
        if ratio.draws in RATIOS[epsilon]
    ]
    sizes = [
        agrees(value, printed)
        for month in months
        for value, printed in zip(
            (month.parameters.epsilon, month.lead[None], month.lead[1]), SIZES[month.schedule], strict=True
        )
    ]
    return [*ratios, *sizes]


def _leads(parameters: Sizing) -> dict[int | None, Fraction]:
    return {items: _lead(parameters, items) for items in (None, 1)}


def _lead(parameters: Sizing, items_per_user: int | None) -> Fraction:
    return threshold(0, TopKParameters(K, KBAR, parameters.epsilon, parameters.delta, items_per_user))[1]
