"""The numbers of docs/promise.md are those of the definition and of the mechanisms."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp import mechanisms
from stream_dp.accounting import Cost
from stream_dp.accounting.composition import rho_within
from stream_dp.errors import ConfigError
from stream_dp.kinds.noise_levels import noise_levels
from stream_dp.lossless.discrete_laplace import sum_tail
from stream_dp.lossless.levels import WORD
from stream_dp.windows.count_rows import REPEATS
from tests.support.counting import Entry, counter, event, handed_on, letters, partials, totals, view, watermark
from tests.support.machine import Machine
from tests.support.releasing import COARSE, FINE, POOL, SHOP, plan, plan_of

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "promise.md").read_text(encoding="utf-8")
THREAT_MODEL = (DOCS / "threat-model.md").read_text(encoding="utf-8")
BUDGETS = (DOCS / "budgets.md").read_text(encoding="utf-8")
GAUSSIAN = ("    kind: histogram\n", "    kind: histogram\n    noise: discrete-gaussian\n")
SMALL_LADDER = (
    '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
    '[{level: coarse, epsilon: "1/4"}, {level: middle, epsilon: "1/2"}, {level: fine, epsilon: "1"}]',
)


def test_the_guesses_after_are_the_odds_before_times_e_to_the_epsilon() -> None:
    heading, rows = re.findall(r"(?m)^\| guess before \|(.*)\|\n\|.*\n((?:\|.*\n)+)", TEXT)[0]
    epsilons = [float(number) for number in re.findall(r"epsilon ([\d.]+)", heading)]
    guesses = [[float(number) for number in re.findall(r"([\d.]+) %", row)] for row in rows.splitlines()]

    assert len(epsilons) == len(guesses) == 3
    for before, *after in guesses:
        odds = [before / (100 - before) * math.exp(epsilon) for epsilon in epsilons]
        assert after == [float(f"{100 * one / (1 + one):.2g}") for one in odds]


@pytest.mark.parametrize("row", re.findall(r"(?m)^\| \**(?:public|partner|internal|all of them together).*$", TEXT))
def test_the_noise_of_a_level_is_that_of_the_demo(row: str) -> None:
    """Its aircraft count for three destinations in a window."""
    epsilon, half = re.findall(r"(\d/\d)\** \| \**±(\d+)", row)[0]

    assert mechanisms.discrete_laplace_counts({"ORD": 400}, epsilon=epsilon, items_per_user=3).interval_95 == int(half)


def exceeded(epsilon: str, delta: str) -> float:
    """Over delta, the chance that the loss exceeds epsilon where Gaussian noise spends a pool: it is normal, with mean
    rho and variance 2 rho. (Epsilon, delta) holds, since the chance less what e^epsilon allows is below delta."""
    rho = float(rho_within(Fraction(epsilon), Fraction(delta)))

    def above(deviations: float) -> float:
        return math.erfc(deviations / math.sqrt(2)) / 2

    width = math.sqrt(2 * rho)
    chance = above((float(epsilon) - rho) / width)
    assert chance - math.exp(float(epsilon)) * above((float(epsilon) + rho) / width) < float(delta)
    return chance / float(delta)


def test_a_pool_exceeds_epsilon_more_often_than_delta() -> None:
    worked, small = re.findall(r"([\d.]+)\s+times delta", TEXT)
    epsilon, slack = re.findall(r'zcdp: \{epsilon: "([\d.]+)", slack: "([\de-]+)"\}', BUDGETS)[0]

    assert f"{exceeded(epsilon, slack):.1f}" == worked
    assert "for epsilon 0.5 and delta 1e-6" in TEXT
    assert f"{exceeded('0.5', '1e-6'):.1f}" == small
    assert f"({worked} times delta" in THREAT_MODEL


def test_delta_of_three_people_grows_with_epsilon() -> None:
    """P(D3) <= e^eps P(D2) + delta, and so on: the factors of delta are 1, e^eps and e^(2 eps)."""
    (factor,) = re.findall(r"([\d.]+) times for epsilon 1", TEXT)

    assert f"{1 + math.e + math.e**2:.1f}" == factor
    found, delta = Fraction(1, 10), Fraction(1, 10**6)
    bound = found
    for _ in range(3):
        bound = bound * 2 + delta
    assert bound == 8 * found + (1 + 2 + 4) * delta


def test_a_view_of_a_public_list_needs_delta_in_a_pool() -> None:
    listed = SHOP.partition("  tops:\n")[0].replace("    kind: histogram", "    kind: catalogue\n    catalogue: [a]")
    listed = listed.replace('    delta: "1/100"\n', "")
    without = listed.replace('delta: "1/5", ', 'delta: "0", ')
    assert plan_of(without).ledgers["visitors"].total.delta == 0
    pool = 'period: 4s, zcdp: {epsilon: "39", slack: "1/100"}}'
    with pytest.raises(ConfigError, match="delta"):
        plan_of(without.replace("period: 4s}", pool))
    pooled = plan_of(listed.replace("period: 4s}", pool))
    assert pooled.views["pages"].cost(0).rho > 0


def test_sharpening_in_a_pool_costs_more_than_the_difference() -> None:
    plain, pooled, gaussian = plan(), plan(POOL), plan(POOL, SMALL_LADDER, GAUSSIAN)
    for planned in (plain, pooled, gaussian):
        view = planned.views["pages"]
        step, difference = view.counts(FINE, COARSE), view.counts(FINE) - view.counts(COARSE)
        assert view.counts(COARSE, FINE) == view.counts(FINE, FINE) == Cost.ZERO
        if planned is plain:
            assert step == difference
        elif planned is pooled:
            assert step.rho > view.counts(FINE).rho > difference.rho
        else:
            assert step == Cost.ZERO


def test_an_item_of_one_person_is_shown_with_delta_at_most() -> None:
    """The numbers of the page are those of the example: the smallest count, the noise, and delta."""
    assert "at least 30 in that\n  example" in TEXT
    assert "at most 6 in 95 %" in TEXT
    found = mechanisms.histogram({"tea": 133}, epsilon=1, delta="1e-6", items_per_user=2)

    assert (found.minimum_count, found.interval_95) == (30, 6)
    level = noise_levels([("standard", Fraction(1))], 2)[0]
    tail = sum_tail(Fraction(level.threshold, WORD), 1, 30 - 1)
    assert tail <= Fraction(1, 2 * 10**6)


INVALID = Entry(1, b"v", b'{"page": {}, "at": 5}')


def test_late_and_invalid_records_do_not_refuse_a_window() -> None:
    machine, one = Machine(), counter(view(clock="event"))
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 5), INVALID, watermark(2, 13)], 100))
    machine.carry_out(one.chunk([event(3, "w", "a", 5)], 100))

    assert letters(machine.sent) == {(1, "wrong_type"): 1, (3, "late"): 1}
    assert handed_on(machine.sent)["pages"][0] == {"a": 1}
    assert not any(one.lost for one in partials(machine.sent))


def test_what_is_shown_at_once_of_an_open_window() -> None:
    """Repeats of users are held back until the window has closed; what is refused, and dead letters, are not."""
    machine, one = Machine(), counter(view())
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", 5), INVALID, event(2, "u", "a", 5), event(3, "w", "a", -9)], 6))

    def shown() -> dict[tuple[str, tuple[tuple[str, str], ...]], int]:
        return {at: amount for at, amount in totals(machine).items() if at[0] in {"events_refused", "contributions"}}

    reasons = {labels[0][1] for _, labels in shown()}
    assert letters(machine.sent) == {(1, "wrong_type"): 1, (3, "before_start"): 1}
    assert {"wrong_type", "before_start"} <= reasons
    assert "duplicate" not in reasons
    machine.carry_out(one.ticks([23]))
    assert "duplicate" in {labels[0][1] for _, labels in shown()}
    named = re.findall(
        r"`(\w+)`", THREAT_MODEL.partition("Other counters are added at once")[2].partition("records read")[0]
    )
    assert {"wrong_type", "before_start"} <= {*named}
    assert not {*named} & {*REPEATS}
