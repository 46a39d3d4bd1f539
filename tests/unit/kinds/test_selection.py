"""How a top-k view chooses its keys: what each mechanism needs, returns and costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.accounting.selection import laplace_selection_cost
from stream_dp.config.explanation import describe
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import KeyedBits
from stream_dp.records.by_kind import RankedCount
from stream_dp.records.codec import decode, encode
from stream_dp.releases.publication import Revision, account
from tests.support.sealing import found, read_window, seal_window, selection_of

F = Fraction
Planner = Callable[..., Plan]
KEY = bytes(range(32))
GIVEN = 'selection: {epsilon: "1/10", delta: "1e-7"}'
SIZES = "k: 3\n    kbar: 40"
COUNTS = {f"item {number}": 1000 - 100 * number for number in range(8)} | {"rare": 1}
FIRST = ["item 0", "item 1", "item 2"]
DELTA = F(1, 10_000_000)
WRITTEN = {
    "strict": ('selection: {mechanism: strict, epsilon: "1/10", delta: "1e-7"}', SIZES),
    "chosen-kbar": ('selection: {mechanism: chosen-kbar, epsilon: "1/10", delta: "1e-7"}', SIZES),
    "laplace": ('selection: {mechanism: laplace, epsilon: "1/10", delta: "1e-7"}', SIZES),
    "fixed-threshold": ('selection: {mechanism: fixed-threshold, epsilon: "1/10", delta: "1e-7"}', "k: 3"),
    "known-domain": (
        'selection: {mechanism: known-domain, epsilon: "1/10"}',
        "k: 3\n    catalogue: [item 2, item 1, nobody, item 0]",
    ),
}


@pytest.fixture
def view(planned: Planner) -> Callable[..., ViewPlan]:
    """The view of a mechanism, with parts of its configuration replaced."""

    def of(mechanism: str = "gumbel", *changes: tuple[str, str]) -> ViewPlan:
        if mechanism != "gumbel":
            given, sizes = WRITTEN[mechanism]
            changes = ((GIVEN, given), (SIZES, sizes), *changes)
        return planned(*changes).views["busiest"]

    return of


def shown(view: ViewPlan, counts: dict[str, int]) -> tuple[list[str], bool, int]:
    """Keys, whether they are all, and draws."""
    table = seal_window(view, 0, counts, prf_key=KEY, entropy=lambda context: KeyedBits(b"selections", context))
    (reading,) = read_window(view, 0, table, [2], KEY)
    assert [key for key, _ in reading.items] == table.items
    return table.items, *found(table)


@pytest.mark.parametrize("mechanism", ["gumbel", *WRITTEN])
def test_keys_that_stand_out_are_shown_and_charged(view: Callable[..., ViewPlan], mechanism: str) -> None:
    draws = {"gumbel": 3, "strict": 3, "chosen-kbar": 4, "laplace": 0, "fixed-threshold": 0, "known-domain": 3}
    plan = view(mechanism, ('epsilon: "1/10"', 'epsilon: "1"'))
    counts = COUNTS if mechanism != "fixed-threshold" else {key: COUNTS[key] for key in FIRST}
    assert selection_of(plan).mechanism == mechanism
    assert shown(plan, counts) == (FIRST, True, draws[mechanism])
    assert selection_of(plan).most_draws == draws[mechanism]


def test_keys_are_chosen_from_a_range_of_numbers(view: Callable[..., ViewPlan]) -> None:
    plan = view("known-domain", ("[item 2, item 1, nobody, item 0]", "{numbers: {from: 7, to: 10}}"), ('"1/10"', '"1"'))
    counts = {"8": 900, "10": 800, "9": 700, "11": 600, "08": 500}
    assert shown(plan, counts) == (["8", "10", "9"], True, 3)
    assert plan.fingerprint != view("known-domain").fingerprint


@pytest.mark.parametrize("mechanism", ["gumbel", *WRITTEN])
def test_an_empty_window_shows_nothing_but_keys_of_a_catalogue(view: Callable[..., ViewPlan], mechanism: str) -> None:
    items, complete, draws = shown(view(mechanism), {})
    if mechanism == "known-domain":
        assert (len(items), complete, draws) == (3, True, 3)
        assert set(items) < {"item 0", "item 1", "item 2", "nobody"}
    else:
        assert (items, complete) == ([], False)
        assert draws == {"chosen-kbar": 2, "laplace": 0, "fixed-threshold": 0}.get(mechanism, 1)


def test_what_a_window_costs_at_worst(view: Callable[..., ViewPlan]) -> None:
    draw = F(1, 10) + DELTA
    assert view().keys_at_worst == view("strict").keys_at_worst == Cost(3 * draw, DELTA)
    assert view("chosen-kbar").keys_at_worst == Cost(4 * draw, DELTA)
    assert view("laplace").keys_at_worst == Cost(5 * F(1, 10), DELTA)
    assert view("fixed-threshold").keys_at_worst == Cost(3 * F(1, 10), DELTA)
    assert view("known-domain").keys_at_worst == Cost(F(3, 10), F(0))
    for mechanism in ("laplace", "fixed-threshold"):
        plan = view(mechanism)
        table = seal_window(plan, 0, {}, prf_key=KEY, entropy=lambda context: KeyedBits(b"refund", context))
        assert plan.spent(table, 0) == plan.cost(0), "there is no refund"


@pytest.mark.parametrize("mechanism", ["gumbel", *WRITTEN])
def test_a_record_names_the_mechanism_unless_it_is_the_usual_one(view: Callable[..., ViewPlan], mechanism: str) -> None:
    plan = view(mechanism)
    record = Revision(
        plan, audience="public", level=0, start_ms=0, number=1, period_loss=Cost.ZERO, ledger=account(plan.ledger, 0)
    ).release(
        fields={
            "k": selection_of(plan).k,
            "complete": False,
            "selection": None if mechanism == "gumbel" else mechanism,
            "items": (RankedCount(rank=1, item="a", count=5),),
        },
        window_loss=Cost.ZERO,
    )
    data = json.loads(encode(record))
    assert data.get("selection") == (None if mechanism == "gumbel" else mechanism)
    assert decode(encode(record)) == record


def test_draws_go_to_the_part_for_them_and_prices_of_calls_do_not(view: Callable[..., ViewPlan]) -> None:
    pool = ("period: 371d", 'period: 371d, zcdp: {epsilon: "50", slack: "1e-7"}')
    assert view("known-domain", pool).keys_at_worst == Cost(F(0), F(0), rho=F(3, 800))
    assert view("chosen-kbar", pool).keys_at_worst == Cost(4 * DELTA, DELTA, rho=F(4, 800))
    assert view("laplace", pool).keys_at_worst == view("laplace").keys_at_worst


def test_the_threshold_of_the_laplace_selection_is_made_with_less_than_its_window_adds(
    view: Callable[..., ViewPlan],
) -> None:
    """specs/topk P25: run with delta 1e-7 it would deliver ten times that."""
    assert laplace_selection_cost(5, F(1, 10), DELTA).delta > 9 * DELTA
    with_delta, odds = selection_of(view("laplace")), selection_of(view()).margin
    assert with_delta.delta == DELTA
    assert with_delta.margin is not None
    assert odds is not None
    assert with_delta.margin - odds > 20  # ln(9) / epsilon


def test_mechanisms_are_other_definitions(view: Callable[..., ViewPlan]) -> None:
    fingerprints = {view(mechanism).fingerprint for mechanism in ("gumbel", *WRITTEN)}
    assert len(fingerprints) == 6
    longer = ("catalogue: [", "catalogue: [other, ")
    assert view("known-domain", longer).fingerprint not in fingerprints
    assert view("known-domain", ("[item 2, item 1,", "[item 1, item 2,")).fingerprint in fingerprints


@pytest.mark.parametrize(
    ("mechanism", "change", "fault"),
    [
        ("gumbel", ("\n    kbar: 40", ""), "views.busiest.kbar: is required by gumbel"),
        ("gumbel", ("kbar: 40", "kbar: 40\n    catalogue: [a]"), "views.busiest.catalogue: has no meaning for gumbel"),
        ("gumbel", (', delta: "1e-7"', ""), "views.busiest.selection.delta: is required by gumbel"),
        ("gumbel", ("kbar: 40", "kbar: 2"), "views.busiest.kbar: must be at least k = 3, not 2"),
        ("chosen-kbar", ("kbar: 40", "kbar: 3"), "views.busiest.kbar: must be above k = 3, so that there is something"),
        ("laplace", ("kbar: 40", "kbar: 4"), "views.busiest.kbar: must be at least items_per_user = 5, not 4"),
        ("fixed-threshold", ("k: 3", "k: 3\n    kbar: 9"), "views.busiest.kbar: has no meaning for fixed-threshold"),
        ("known-domain", ("[item 2, item 1,", "[item 0, item 0,"), "views.busiest.catalogue: duplicate key 'item 0'"),
        ("known-domain", ("k: 3", "k: 5"), "views.busiest.k: must be at most the 4 items of the catalogue, not 5"),
        (
            "known-domain",
            ('epsilon: "1/10"}', 'epsilon: "1/10", delta: "1e-7"}'),
            "views.busiest.selection.delta: has no meaning for known-domain",
        ),
        ("strict", ("strict", "stict"), "views.busiest.selection.mechanism: must be 'gumbel', 'strict'"),
    ],
)
def test_what_a_mechanism_cannot_use_is_a_fault(
    view: Callable[..., ViewPlan], mechanism: str, change: tuple[str, str], fault: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        view(mechanism, change)
    assert str(caught.value).startswith(fault)
    assert len(caught.value.faults) == 1


def test_check_says_what_a_selection_can_be_expected_to_find(planned: Planner) -> None:
    """specs/topk 4: 1 + (ln(m / delta) + ln 9) / epsilon and Lemma 8.1, for m = 5, k = 3, kbar = 40, beta = 1/20."""
    (told,) = [view.explanation.details for view in describe(planned()).views if view.kind == "topk"]
    found = told["expectation"]
    assert told["margin"] == "179"
    assert [found[name] for name in ("usually", "all_found", "shortfall")] == ["201", "220", "77.9"]
    assert found["noise"].startswith("7.")
