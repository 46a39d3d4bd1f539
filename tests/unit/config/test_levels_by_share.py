"""Ladders whose levels are shares: of what the ledger pays for in every window of a period."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.differences import differences
from stream_dp.config.plan import Plan
from stream_dp.config.shares import asked
from stream_dp.control.editions import first_record, next_record, plan_holding
from stream_dp.errors import ConfigError
from stream_dp.operations.assignments import tuned
from tests.support.releasing import ONLY_PAGES, POOL, SHOP, Desk, plan

SHARES = (
    '[{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]',
    '[{level: coarse, share: "1/4"}, {level: middle, share: "1/2"}, {level: fine, share: "1"}]',
)
FINE_READERS = (
    "audiences: {partner: coarse, public: coarse, staff: middle}",
    "audiences: {public: coarse, staff: fine}",
)
TEN = ("period: 4s", "period: 10s")
WRITTEN = (
    "  tops:\n",
    "  towns:\n    source: visits\n    item: town\n    kind: catalogue\n    catalogue: [Bern, Rome]\n"
    "    items_per_user: 1\n    window: {size: 1s, start: 1970-01-01T00:00:00Z}\n    ledger: visitors\n"
    "    ladder: plain\n  tops:\n",
)
PLAIN = ("audiences: {", '  plain: [{level: coarse, epsilon: "1/2"}, {level: fine, epsilon: "1"}]\naudiences: {')
HOME = {"home": 900, "cart": 800, "rare": 1}


def whole(planned: Plan) -> Cost:
    ledger = planned.ledgers["visitors"]
    views = [view for view in planned.views.values() if view.ledger == ledger]
    return sum((asked(view, ledger.periods.longest) for view in views), Cost.ZERO)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((ONLY_PAGES,), id="one view"),
        pytest.param((), id="a histogram and a top-k, whose draws come first"),
        pytest.param((WRITTEN, PLAIN), id="and a view whose epsilons are written down"),
        pytest.param((("items_per_user: 1\n", "items_per_user: 3\n"),), id="several items"),
        pytest.param(
            (
                (
                    "    ladder: three\n    retention: 1h\n    buckets: 2",
                    "    ladder: three\n    share: 1/3\n    buckets: 2",
                ),
            ),
            id="a share",
        ),
    ],
)
def test_the_whole_share_is_what_every_window_of_a_period_can_have_and_nearly_no_more_could(
    changes: tuple[tuple[str, str], ...],
) -> None:
    planned = plan(SHARES, FINE_READERS, TEN, ('"40", delta: "1/5"', '"100", delta: "2/5"'), *changes)
    budget, needed = planned.ledgers["visitors"].budget, whole(planned)
    views = [view for view in planned.views.values() if view.affords is not None]
    assert needed <= budget
    lost = sum(10 * view.affords * Fraction(1, 10**5) for view in views if view.affords is not None)
    if not any(view.share for view in views):
        assert budget.epsilon - needed.epsilon <= lost
    for view in views:
        assert view.affords is not None
        assert [level.epsilon for level in view.levels] == [view.affords / 4, view.affords / 2, view.affords]


def test_levels_do_not_depend_on_the_order_of_the_views_in_the_file() -> None:
    pages, tops, rest = SHOP.partition("  tops:\n")
    turned = plan((pages.partition("views:\n")[2] + tops + rest, tops + rest + pages.partition("views:\n")[2]), SHARES)
    straight = plan(SHARES)
    assert list(turned.views) == ["tops", "pages"]
    assert {name: view.affords for name, view in turned.views.items()} == {
        name: view.affords for name, view in straight.views.items()
    }


def test_a_share_of_the_ledger_counts_for_the_levels() -> None:
    half = ('    delta: "1/100"\n', '    delta: "1/100"\n    share: 1/2\n')
    view = plan(SHARES, ONLY_PAGES, half).views["pages"]
    assert (view.affords, plan(SHARES, ONLY_PAGES).views["pages"].affords) == (Fraction(5), Fraction(10))


def test_every_window_of_the_period_is_released_at_the_finest_level_and_then_nothing_is_left() -> None:
    desk = Desk(plan(SHARES, FINE_READERS, TEN, ('epsilon: "40"', 'epsilon: "97"')))
    for start in range(0, 10_000, 1000):
        desk.give("pages", start, HOME)
        desk.give("tops", start, HOME)
    for name in ("pages", "tops"):
        records = desk.records(name, "staff")
        assert [record.type for record in records] == ["release"] * 10
    left = desk.ledger().left.epsilon
    assert 0 <= left < Fraction(1, 1000)
    desk.auditor.settled()


def faults(*changes: tuple[str, str]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        plan(*changes)
    return [(fault.path, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("levels", "path", "words"),
    [
        ("{level: fine}", "ladders.three[1]", "write epsilon, or share"),
        ('{level: fine, epsilon: "1", share: "1"}', "ladders.three[1]", "write epsilon, or share"),
        ('{level: fine, epsilon: "1"}', "ladders.three[1]", "write share, as the levels before it"),
        ('{level: fine, share: "1/8"}', "ladders.three[1].share", "1/8 is not above the 1/4 before it"),
    ],
)
def test_a_ladder_has_epsilons_or_shares_and_rises(levels: str, path: str, words: str) -> None:
    ladder = f'[{{level: coarse, share: "1/4"}}, {levels}]'
    (fault,) = faults((SHARES[0], ladder), ("staff: middle", "staff: fine"))
    assert fault[0] == path
    assert words in fault[1]


def test_where_the_choice_of_keys_takes_everything_that_is_said() -> None:
    found = faults(SHARES, ('selection: {epsilon: "1"', 'selection: {epsilon: "9"'))
    assert [path for path, _ in found] == ["views.tops.ledger"]
    assert "showing the keys of one costs epsilon" in found[0][1]


def test_a_window_that_gets_too_little_is_a_fault_of_its_level() -> None:
    found = faults(SHARES, ONLY_PAGES, ("period: 4s", "period: 30000s"), ('delta: "1/100"', 'delta: "1e-9"'))
    assert {path for path, _ in found} == {"views.pages.ladder"}
    assert "must be between 1/1000 and 40" in found[0][1]


def test_shares_are_tuned_and_compared_by_their_names() -> None:
    before = plan(SHARES, ONLY_PAGES)
    after = tuned(before, "pages", ["levels.coarse.share=1/8", "ladders.three.finer=3/4"])
    assert [level.name for level in after.views["pages"].levels] == ["coarse", "middle", "finer", "fine"]
    assert after.views["pages"].levels[0].epsilon == Fraction(10, 8)
    with pytest.raises(ConfigError, match=r"levels\.LEVEL\.share=1/2"):
        tuned(before, "pages", ["levels.coarse.epsilon=1/8"])
    changed = {one.path: (one.before, one.after) for one in differences(before.raw, after.raw)}
    assert changed["ladders.three.coarse.share"] == ("1/4", "1/8")


STRICT = ('    delta: "1/100"\n', '    delta: "1/100"\n    strict: {rows: 100}\n')
ONE_LEVEL = (
    (SHARES[0], '[{level: fine, share: "1"}]'),
    (FINE_READERS[0], "audiences: {public: fine, staff: fine}"),
)
UNLOCKS = (
    FINE_READERS[0],
    "audiences:\n  public: {level: coarse, unlock: [{level: middle, after: 1m}, {level: fine, after: 2m}]}\n"
    "  staff: coarse",
)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((SHARES, FINE_READERS, ONLY_PAGES), id="a histogram"),
        pytest.param((SHARES, FINE_READERS), id="a histogram and draws", marks=pytest.mark.slow),
        pytest.param(
            (SHARES, UNLOCKS, ONLY_PAGES),
            id="two unlocks, which cost more than their last level alone",
            marks=pytest.mark.slow,
        ),
        pytest.param((*ONE_LEVEL, STRICT, ONLY_PAGES), id="strict noise, of which a user moves twice as much"),
    ],
)
def test_in_a_pool_every_window_is_paid_for_with_all_steps_of_its_schedule(
    changes: tuple[tuple[str, str], ...],
) -> None:
    planned = plan(*changes, POOL, TEN, ('"41", delta: "1/5"', '"44", delta: "2/5"'))
    budget, needed = planned.ledgers["visitors"].budget, whole(planned)
    assert needed <= budget
    assert needed.rho > budget.rho * Fraction(99_990, 100_000)


def test_settings_may_change_one_view_of_a_shared_budget_after_the_other() -> None:
    """Of former settings only the views that they began are planned, and those that share their budget."""
    changes: list[tuple[tuple[tuple[str, str], ...], dict[str, int]]] = [
        ((("kbar: 3", "kbar: 4"),), {"tops": 60_000}),
        ((("kbar: 3", "kbar: 4"), ("retention: 1h\n    buckets: 2", "retention: 2h\n    buckets: 2")), {}),
    ]
    local = plan(SHARES)
    known = [first_record(local, 0)]
    for at, (change, begins) in enumerate(changes):
        known.append(next_record(known, plan(SHARES, *change), begins, {}, at))
        held = plan_holding(known, local)
    affords = {name: view.affords for name, view in plan(SHARES, *changes[-1][0]).views.items()}
    assert {name: view.affords for name, view in held.newest.items()} == affords
