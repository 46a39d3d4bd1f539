"""Which keys exist, without counts: exact laws of a user's keys, weights, thresholds, and their mutants; records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import exp, isqrt, log, prod
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.cli.tail_command import record_line
from stream_dp.config.explanation import describe
from stream_dp.errors import ConfigError
from stream_dp.gateway.api import _entry
from stream_dp.kinds.noise_levels import GaussianLevel, NoiseLevel, gaussian_levels, noise_levels, table_rho
from stream_dp.kinds.votes import KeysPlan, minimum_parts
from stream_dp.lossless.levels import noise_parameter
from stream_dp.records.by_kind import KeysRelease
from stream_dp.records.codec import encode
from stream_dp.records.history import History, Seen
from stream_dp.records.table import rows
from tests.kinds.cases import VIEW
from tests.kinds.one_level import ONE_LEVEL
from tests.support.releasing import Desk, plan_of

PARTS, MOST, DELTA = 12, 3, Fraction(1, 50)
SMALL = Fraction(1, 2)
"""Epsilon: below 1 it is a user with several keys who needs the largest threshold."""
Law = Mapping[tuple[bool, ...], float]
"""Of some keys, the chances of which of them are shown."""


def shared(parts: int, most: int) -> tuple[int, ...]:
    return tuple(parts // d for d in range(1, most + 1))


def rooted(parts: int, most: int) -> tuple[int, ...]:
    return tuple(isqrt(parts**2 // d) for d in range(1, most + 1))


def reaches(level: NoiseLevel, t: int) -> float:
    """The chance that noise is at least t."""
    if isinstance(level, GaussianLevel):
        tails = [float(one) / 2 for one in level.tails]
        upper = tails[min(abs(t) + (t <= 0), len(tails) - 1)]
        return upper if t > 0 else 1 - upper
    a = float(noise_parameter(level.threshold))
    return a**t / (1 + a) if t > 0 else 1 - a ** (1 - t) / (1 + a)


def law(chances: Sequence[float]) -> Law:
    """Which of some keys are shown; noise is independent."""
    return {
        seen: prod(p if one else 1 - p for one, p in zip(seen, chances, strict=True))
        for seen in product((True, False), repeat=len(chances))
    }


def neighbours(level: NoiseLevel, weights: Sequence[int], least: int) -> Iterator[tuple[Law, Law]]:
    """Laws with and without a user: some of their keys are nobody else's, the others have any sum near the least."""
    for d, weight in enumerate(weights, start=1):
        for new in range(d + 1):
            for others in range(max(1, least - 2 * PARTS), least + PARTS, 2):
                sums = [0] * new + [others] * (d - new)
                yield (
                    law([reaches(level, least - weight - one) for one in sums]),
                    law([0.0 if one == 0 else reaches(level, least - one) for one in sums]),
                )


def excess(p: Law, q: Law, epsilon: float) -> float:
    return sum(max(0.0, chance - exp(epsilon) * q[seen]) for seen, chance in p.items())


def worst(level: NoiseLevel, weights: Sequence[int], least: int, epsilon: Fraction) -> float:
    """The least delta at epsilon."""
    pairs = neighbours(level, weights, least)
    return max(max(excess(p, q, float(epsilon)), excess(q, p, float(epsilon))) for p, q in pairs)


@pytest.mark.parametrize("epsilon", [SMALL, Fraction(1), Fraction(3)])
def test_a_user_costs_epsilon_and_delta_however_many_keys_they_have(epsilon: Fraction) -> None:
    (level,), weights = noise_levels([("only", epsilon)], PARTS), shared(PARTS, MOST)
    found = worst(level, weights, minimum_parts(level, weights, DELTA), epsilon)
    assert float(DELTA) / 20 < found <= float(DELTA) + 1e-12


def test_mutants_of_weights_and_thresholds_are_found_out() -> None:
    (level,), weights = noise_levels([("only", SMALL)], PARTS), shared(PARTS, MOST)
    least = minimum_parts(level, weights, DELTA)
    whole = (PARTS,) * MOST
    assert worst(level, whole, minimum_parts(level, whole, DELTA), SMALL) > 2 * float(DELTA), "above the whole vote"
    first = minimum_parts(level, weights[:1], DELTA)
    assert first < least
    assert worst(level, weights, first, SMALL) > 1.2 * float(DELTA), "the threshold of a user with one key"
    unsplit = max(weight - 1 + level.minimum_count(DELTA) for weight in weights)
    assert worst(level, weights, unsplit, SMALL) > 1.2 * float(DELTA), "delta for each key"
    few = shared(3, MOST)  # users with two and with three keys have one weight
    (small,) = noise_levels([("only", SMALL)], 3)
    assert worst(small, few, minimum_parts(small, few, DELTA), SMALL) <= float(DELTA) + 1e-12
    smallest = max(few[d - 1] - 1 + small.minimum_count(DELTA / d) for d in (1, 2))
    assert worst(small, few, smallest, SMALL) > 1.2 * float(DELTA), "the smallest number of keys of a weight"
    beyond = (*weights, weights[-1], weights[-1])  # of a user with more keys than may count, all do
    assert worst(level, beyond, least, SMALL) > 1.2 * float(DELTA)


@pytest.mark.parametrize("parts", [1, 7, PARTS, 100, 840])
def test_a_vote_is_never_more_than_whole(parts: int) -> None:
    most = min(parts, 300)
    for d in range(1, most + 1):
        assert d * shared(parts, most)[d - 1] <= parts < d * (shared(parts, most)[d - 1] + 1)
        assert d * rooted(parts, most)[d - 1] ** 2 <= parts**2 < d * (rooted(parts, most)[d - 1] + 1) ** 2


def renyi(p: Law, q: Law, order: float) -> float:
    """Of what is published where none of a user's own keys is shown."""
    total = sum(chance**order * q[seen] ** (1 - order) for seen, chance in p.items() if chance and q[seen])
    return log(total) / (order - 1)


ORDERS = (1.1, 2.0, 5.0, 20.0)


def dearest(level: NoiseLevel, weights: Sequence[int], least: int) -> float:
    """The least rho for all pairs and orders."""
    found = 0.0
    for p, q in neighbours(level, weights, least):
        hidden = {seen for seen, chance in q.items() if chance}
        left = {seen: chance for seen, chance in p.items() if seen in hidden}
        one = {seen: q[seen] for seen in left}
        found = max([found, *(max(renyi(left, one, a), renyi(one, left, a)) / a for a in ORDERS)])
    return found


@pytest.mark.parametrize(("noise", "made"), [("gaussian", gaussian_levels), ("laplace", noise_levels)])
def test_in_a_pool_a_user_costs_half_of_epsilon_squared(noise: str, made: type) -> None:
    (level,) = made([("only", Fraction(1))], PARTS)
    weights = rooted(PARTS, MOST) if noise == "gaussian" else shared(PARTS, MOST)
    least, delta = minimum_parts(level, weights, DELTA), float(DELTA)
    found = dearest(level, weights, least)
    assert float(level.rho) < 0.1 < found <= float(table_rho(Fraction(1))), (
        "the price of counts moved by one is no bound"
    )
    pairs = [(p, q) for p, q in neighbours(level, weights, least)]
    assert max(sum(chance for seen, chance in p.items() if not q[seen]) for p, q in pairs) <= delta
    whole = (PARTS,) * MOST
    assert dearest(level, whole, minimum_parts(level, whole, DELTA)) > float(table_rho(Fraction(1)))


# -- the view ---------------------------------------------------------------------------------------------------------

CASE = ONE_LEVEL["keys"]


def keys_plan(*changes: tuple[str, str]) -> KeysPlan:
    text = CASE.text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    plan = plan_of(text).views[VIEW].kind
    assert isinstance(plan, KeysPlan)
    return plan


POOL = ("period: 100s", 'period: 100s, zcdp: {epsilon: "300", slack: "1/100"}')


def test_the_plan_has_the_weights_of_its_noise_and_the_price_of_its_epsilon() -> None:
    laplace, gaussian = (
        ("items_per_user: 1", "items_per_user: 50"),
        ("    kind: keys", "    noise: discrete-gaussian\n    kind: keys"),
    )
    plan = keys_plan(laplace)
    assert (plan.weights, plan.sensitivity) == (shared(840, 50), 1)
    assert Fraction(plan.levels[0].epsilon) == 2
    rooted_plan = keys_plan(laplace, POOL, gaussian)
    assert rooted_plan.weights == rooted(840, 50)
    for one in (keys_plan(laplace, POOL), rooted_plan):
        assert [one.levels[0].rho, one.levels[0].step_rho] == [2, 2]
    assert rooted_plan.minimum < 0.6 * plan.minimum
    view = plan_of(CASE.text().replace(*POOL)).views[VIEW]
    assert view.cost(0) == Cost(Fraction(0), Fraction(1, 100), rho=Fraction(2))


def test_a_small_epsilon_has_a_coarse_vote_and_takes_no_more_items_than_it_has_parts() -> None:
    small = ('epsilon: "2"', 'epsilon: "1/50"')
    tiny = ('delta: "1/100"', 'delta: "1e-6"')
    assert keys_plan(small, tiny, ("items_per_user: 1", "items_per_user: 20")).weights[0] == 20
    with pytest.raises(ConfigError, match="a vote has 20 parts, too few for 21 items"):
        keys_plan(small, tiny, ("items_per_user: 1", "items_per_user: 21"))
    with pytest.raises(ConfigError, match="delta: is too large beside epsilon 1/50"):
        keys_plan(small, ('delta: "1/100"', 'delta: "1/40"'))
    assert keys_plan(small, ('delta: "1/100"', 'delta: "1/60"')).delta < Fraction(1, 50), "what hiding a key costs"


@pytest.mark.parametrize("noise", ["", "    noise: discrete-gaussian\n"])
def test_a_share_of_a_pool_buys_the_epsilon_that_it_pays_for(noise: str) -> None:
    text = CASE.text("40").replace(*POOL).replace('"300"', '"39"').replace('epsilon: "2"', 'share: "1"')
    view = plan_of(text.replace('delta: "1/100"', 'delta: "1e-6"') + noise).views[VIEW]
    assert view.affords is not None
    assert 100 * view.planned.rho <= view.ledger.budget.rho < 101 * view.planned.rho


@pytest.mark.parametrize("window", ["size: 2s, pane: 1s", "size: 2s, step: 1s, pane: 1s"])
def test_windows_of_panes_are_refused(window: str) -> None:
    with pytest.raises(ConfigError, match="windows of a keys are not made of panes: a user's keys of a whole window"):
        plan_of(CASE.text().replace("size: 1s", window))


def released() -> KeysRelease:
    desk = Desk(CASE.plan())  # noise is keyed: a run repeats
    desk.give(VIEW, 0, CASE.of({"home": 90, "cart": 80, "rare": 1}))
    record = desk.record(VIEW, "public", 0)
    assert isinstance(record, KeysRelease)
    return record


def test_a_record_has_keys_and_no_number_of_anybody() -> None:
    record = released()
    assert json.loads(encode(record))["items"] == [{"item": "cart"}, {"item": "home"}]
    assert (record.vote_parts, record.noise_interval_95) == (840, 2), "of votes"
    assert "; cart, home; " in record_line(record)
    assert record.count_of("home") is None
    assert (record.shows("home"), record.shows("rare")) == (True, False)
    desk = Desk(CASE.plan())
    desk.give(VIEW, 0, CASE.of({"home": 90}))
    stored = desk.table(VIEW, 0)
    assert (stored.items, stored.values, stored.payload) == (["home"], [0], b""), "no sum is stored"


def test_tables_say_which_keys_are_shown() -> None:
    history = History()
    history.take(released())
    windows: list[Seen] = [*history.windows(VIEW, "public").values()]
    assert [row[4:] for row in rows(windows)] == [
        ("cart", None, None, None, "released"),
        ("home", None, None, None, "released"),
    ]
    assert [row[4:] for row in rows(windows, ["home", "rare"])] == [
        ("home", None, None, None, "released"),
        ("rare", None, None, None, "hidden"),
    ]


def test_a_series_of_the_gateway_says_released_or_hidden() -> None:
    cell: Any = SimpleNamespace(window=(0, 1000), state="released", refused=None)
    for item, state in (("home", "released"), ("rare", "hidden")):
        entry = _entry(cell, released(), item)
        assert (entry["state"], "count" in entry, "interval" in entry) == (state, False, False)


def test_the_protection_is_told_in_votes() -> None:
    (view,) = describe(CASE.plan()).views
    assert "changes the sums of votes by at most one vote" in view.protection
    assert view.levels[0].noise_interval_95 == 2
