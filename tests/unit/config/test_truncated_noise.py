"""Views with noise that ends: what they need, what is said of them, and what is forecast of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from stream_dp.accounting import Cost
from stream_dp.config.explanation import alone, describe
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.kinds.noise_levels import TruncatedLevel
from stream_dp.lossless.levels import noise_parameter, threshold_for
from stream_dp.lossless.truncated import TruncatedLaplace
from stream_dp.operations.shown_keys import reaching, shown_at_least
from tests.support.given import there
from tests.support.releasing import ONLY_PAGES, POOL, SHOP, plan
from tests.support.truncated_laws import noise_of

F = Fraction
ONE = (
    '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
    '[{level: only, epsilon: "1/2"}]',
)
ALL = ("{partner: coarse, public: coarse, staff: middle}", "{partner: only, public: only, staff: only}")
TRUNCATED = ("kind: histogram\n", "kind: histogram\n    noise: truncated-laplace\n")
DELTA = '    delta: "1/100"\n'
TWO_ITEMS = ("    items_per_user: 1\n", "    items_per_user: 2\n")
ITEMS = pytest.mark.parametrize("items", [1, 2])


def pages(*changes: tuple[str, str]) -> ViewPlan:
    return plan(TRUNCATED, ONE, ALL, ONLY_PAGES, *changes).views["pages"]


def of_items(items: int) -> ViewPlan:
    return pages(*([TWO_ITEMS] if items == 2 else []))


def refused(*changes: tuple[str, str]) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        plan(*changes)
    (fault,) = caught.value.faults
    return fault.path, fault.message


@ITEMS
def test_the_noise_ends_where_each_item_has_its_part_of_delta(items: int) -> None:
    view = of_items(items)
    (level,) = view.levels
    assert isinstance(level, TruncatedLevel)
    assert level.law == TruncatedLaplace.within(threshold_for(F(1, 2 * items)), F(1, 100 * items))
    assert view.kind.limits(0)["minimum_count"] == level.law.largest + 1
    assert view.cost(0) == alone(view, 0) == Cost(F(1, 2), F(1, 100))


@ITEMS
def test_it_shows_keys_of_fewer_users_than_noise_without_an_end(items: int) -> None:
    changes = [TWO_ITEMS] if items == 2 else []
    plain, view = plan(ONE, ALL, ONLY_PAGES, *changes).views["pages"], of_items(items)
    assert there(view.kind.least_shown(0)) < there(plain.kind.least_shown(0))
    assert view.levels[0].noise_interval <= plain.levels[0].noise_interval
    assert view.levels[0].expected_error < plain.levels[0].expected_error
    assert view.fingerprint != plain.fingerprint


def test_the_law_is_what_records_and_pages_say() -> None:
    view = pages()
    (level,) = view.levels
    law, noise = level.noise, noise_of(noise_parameter(level.threshold), level.law.largest)  # type: ignore[attr-defined]
    a, t = there(law.ratio).value, there(law.largest)
    assert (law.distribution, t) == ("truncated discrete laplace", max(noise))
    assert all(noise[k + 1] == a * noise[k] for k in range(t))
    u = a ** (t + 1)
    beyond = [2 * (a ** (s + 1) - u) / (1 + a - 2 * u) for s in range(t + 1)]
    assert beyond == [sum(p for k, p in noise.items() if abs(k) > s) for s in range(t + 1)], "as the schema says it"
    (described,) = describe(plan(TRUNCATED, ONE, ALL, ONLY_PAGES)).views
    assert f"That also pays for noise that is never larger than {t}." in described.explanation.keys


def test_shares_leave_what_the_ledger_affords() -> None:
    view = pages((ONE[1], '[{level: only, share: "1"}]'))
    assert view.affords == view.levels[0].epsilon == 10, "40 in four windows"


def test_forecasts_have_the_law_that_is_drawn() -> None:
    (level,) = pages().levels
    noise = noise_of(noise_parameter(level.threshold), level.law.largest)  # type: ignore[attr-defined]
    least, counts = max(noise) + 1, np.arange(1, 3 * max(noise))
    found = shown_at_least(counts, reaching(level), least)
    expected = [float(sum(p for k, p in noise.items() if count + k >= least)) for count in counts.tolist()]
    assert found == pytest.approx(expected, abs=1e-12)
    assert (found[0], found[-1]) == (pytest.approx(float(noise[max(noise)])), 1)


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ([], "views.pages.ladder", "must have one level, not 3: later releases cannot make this noise finer"),
        (
            [ONE, ALL, POOL],
            "views.pages.noise",
            "truncated-laplace noise is for a ledger without a pool (zcdp); 'visitors' has one: take "
            "discrete-gaussian, which shows keys of fewer users there",
        ),
        (
            [ONE, ALL, (DELTA, f"{DELTA}    strict: {{rows: 100, largest_count: 100000}}\n")],
            "views.pages.noise",
            "the noise of a histogram with these settings comes from a table; leave it out",
        ),
        (
            [ONE, ALL, (DELTA, "    catalogue: [home, cart]\n"), ("kind: histogram", "kind: catalogue")],
            "views.pages.noise",
            "truncated-laplace noise is for a histogram, whose delta pays for its end",
        ),
        (
            [ONE, ALL, (DELTA, '    delta: "1/10"\n'), ('"1/2"}]', '"1/20"}]')],
            "views.pages.delta",
            "must be at most 1 - e^-1/20 for each item of a user with truncated-laplace noise; spend less of it",
        ),
        (
            [(ONE[0], ONE[1].replace("1/2", "1/2000")), ALL],
            "views.pages.ladder",
            "level 'only' has epsilon 1/2000 for the 1 counts that one user moves, 1/2000 for one; that must be "
            "between 1/1000 and 40",
        ),
    ],
)
def test_what_it_does_not_fit_is_refused(changes: list[tuple[str, str]], path: str, words: str) -> None:
    assert refused(TRUNCATED, ONLY_PAGES, *changes) == (path, words)


def test_a_topk_has_no_delta_for_it() -> None:
    only_tops = ("  pages:\n" + SHOP.partition("  pages:\n")[2].partition("  tops:\n")[0], "")
    tops = ("kind: topk\n", "kind: topk\n    noise: truncated-laplace\n")
    assert refused(only_tops, ONE, ALL, tops)[0] == "views.tops.noise"
