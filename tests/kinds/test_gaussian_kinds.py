"""Every kind with discrete Gaussian noise: the law of its records at each level, and that of two levels together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import exp

import pytest

from stream_dp.config.plan import Plan, ViewPlan
from tests.kinds.cases import CASES, COARSE, FINE, MIDDLE, SHOP, VIEW, Case, outcomes_of
from tests.support.chance import pooled_p_value
from tests.support.chosen import kept_ordinary
from tests.support.releasing import Desk, plan_of
from tests.support.sealing import minimum_counts

LEVELS = (COARSE, MIDDLE, FINE)
WINDOWS = 2000
FALSE_ALARM = 1e-7
"""Of one p-value, were the key drawn anew; four are compared with it for each kind. Randomness is keyed, so a run
repeats. Mutants are off by a quarter in the standard deviation."""
REACH = 60
Seen = int | str
"""A count, or that the key is hidden."""


def plan_with_pool(case: Case) -> Plan:
    shop = SHOP.replace('epsilon: "1"}', 'epsilon: "1/4"}').replace('epsilon: "2"}', 'epsilon: "1/2"}')
    shop = shop.replace('epsilon: "4"}', 'epsilon: "1"}')
    text = case.text().replace(SHOP.replace("BUDGET", "400").replace("{size: 1s", f"{{size: 1s{case.window}"), "")
    pool = 'period: 100s, zcdp: {epsilon: "300", slack: "1/100"}'
    made = shop.replace("BUDGET", "400").replace("{size: 1s", f"{{size: 1s{case.window}").replace("period: 100s", pool)
    return plan_of(f"{made}    noise: discrete-gaussian\n{text}")


@cache
def outcomes(kind: str) -> Sequence[list[Seen]]:
    """What the records of many windows with the same counts say, level by level."""
    case = CASES[kind]
    found = outcomes_of(case, plan_with_pool(case).views[VIEW], WINDOWS)
    return [[seen for seen in level if isinstance(seen, int | str)] for level in found]


def gaussian(variance: Fraction) -> dict[Seen, float]:
    weights: dict[Seen, float] = {k: exp(-k * k / (2 * float(variance))) for k in range(-REACH, REACH + 1)}
    whole = sum(weights.values())
    return {k: weight / whole for k, weight in weights.items()}


def law(kind: str, view: ViewPlan, level: int, variance: Fraction) -> dict[Seen, float]:
    """Of the key "home": its count with noise, or that it is hidden."""
    home = CASES[kind].counts["home"]
    noisy: dict[Seen, float] = {home + int(k): p for k, p in gaussian(variance).items()}
    if kind != "histogram":
        return noisy
    shown: dict[Seen, float] = {n: p for n, p in noisy.items() if int(n) >= minimum_counts(view)[level]}
    return shown | {"hidden": 1 - sum(shown.values())}


def is_rejected(found: Counter[Seen], law: Mapping[Seen, float]) -> bool:
    """Whether a law is, by its cells or by far too many values where it has nearly none."""
    likely = {value for value, p in law.items() if WINDOWS * p >= 5}
    beyond = sum(count for value, count in found.items() if value not in likely)
    expected = WINDOWS * (1 - sum(law[value] for value in likely))
    return beyond > 5 * expected + 20 or pooled_p_value(found, law) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", kept_ordinary([], sorted(CASES)))
def test_a_record_follows_the_law_of_its_level_and_no_other(kind: str, level: int) -> None:
    view, found = plan_with_pool(CASES[kind]).views[VIEW], Counter(outcomes(kind)[level])
    variance = view.levels[level].variance
    assert pooled_p_value(found, law(kind, view, level, variance)) > FALSE_ALARM
    for off in (Fraction(9, 16), Fraction(16, 9)):
        assert is_rejected(found, law(kind, view, level, variance * off))


@pytest.mark.slow
@pytest.mark.statistical
def test_what_a_coarser_level_adds_does_not_depend_on_the_finer_noise() -> None:
    """Checked apart where the finest noise is below, at and above zero: that is what independence says."""
    view = plan_with_pool(CASES["catalogue"]).views[VIEW]
    coarse, fine = outcomes("catalogue")[COARSE], outcomes("catalogue")[FINE]
    step_variance = view.levels[COARSE].variance - view.levels[FINE].variance
    step = gaussian(step_variance)
    for sign in (-1, 0, 1):
        noise = [int(one) - 3 for one in fine]
        added = [int(a) - int(b) for a, b, z in zip(coarse, fine, noise, strict=True) if (z > 0) - (z < 0) == sign]
        assert pooled_p_value(Counter[Seen](added), step) > FALSE_ALARM
    together: Counter[Seen] = Counter(int(a) - int(b) for a, b in zip(coarse, fine, strict=True))
    assert is_rejected(together, gaussian(step_variance * Fraction(16, 9)))


@pytest.mark.parametrize("kind", kept_ordinary(["histogram", "gap", "topk"], sorted(CASES)))
def test_a_window_is_released_and_sharpened_and_crashes_change_nothing(kind: str) -> None:
    case = CASES[kind]
    desk = Desk(plan_with_pool(case), lists=case.lists)
    desk.give(VIEW, 0, case.counts)
    for number, level in enumerate(("middle", "fine")):
        desk.grant(number + 1, "public", level)
    records = desk.records(VIEW, "public")
    assert [record.level.name for record in records] == ["coarse", "middle", "fine"]
    view = desk.plan.views[VIEW]
    losses = [record.privacy.window.cost for record in records if record.type == "release"]
    assert len({loss.rho for loss in losses}) == 1, "steps are free"
    assert losses[0].rho >= view.levels[FINE].rho
    desk.auditor.settled()
