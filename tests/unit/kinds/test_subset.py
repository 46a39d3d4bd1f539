"""The kind `subset`: what it shows of a list, how its set is chosen, what it costs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.subset import SubsetPlan
from stream_dp.records.by_kind import SubsetRelease
from stream_dp.select.candidates import Neighbours
from stream_dp.select.lipschitz import ScoreNoise, SubsetParameters, Variant
from stream_dp.select.top_k_subset import canonical_top_k, critical_epsilon, worst_miss
from stream_dp.select.top_k_with_gaps import GapParameters, one_shot_top_k
from tests.support.sealing import Reading, read_window, seal_window

Planner = Callable[..., Plan]
KEY = bytes(range(32))
HISTOGRAM = "    kind: histogram\n    items_per_user: 5\n"
COUNTS = {"SFO": 900, "BOS": 400, "LAX": 90, "XXX": 70_000}
LISTED = "[ATL, BOS, JFK, LAX, SFO]"
PROFILE = "{1: 900, 3: 200, 4: 10}"


def keyed(context: bytes) -> KeyedBits:
    return KeyedBits(KEY, context)


@pytest.fixture
def view(planned: Planner) -> Callable[..., ViewPlan]:
    """The destinations as a subset view."""

    def of(selection: str = '{epsilon: "1"}', listed: str = LISTED, k: int = 3, items_per_user: int = 5) -> ViewPlan:
        kind = (
            f"    kind: subset\n    catalogue: {listed}\n    k: {k}\n    selection: {selection}\n"
            f"    items_per_user: {items_per_user}\n"
        )
        return planned((HISTOGRAM, kind), ('    delta: "1e-6"\n', "")).views["destinations"]

    return of


def read(view: ViewPlan, counts: dict[str, int], lists: dict[str, KeyList] | None = None) -> list[Reading]:
    table = seal_window(view, 0, counts, prf_key=KEY, entropy=keyed, lists=lists)
    return read_window(view, 0, table, range(3), KEY)


def kind_of(view: ViewPlan) -> SubsetPlan:
    assert isinstance(view.kind, SubsetPlan)
    return view.kind


LISTED_COUNTS = {"BOS": 400, "LAX": 90, "SFO": 900}
UNSEEN = ["ATL", "JFK"]


def names(chosen: tuple[object, ...]) -> list[str]:
    return sorted(item if isinstance(item, str) else UNSEEN[item.number] for item in chosen)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("written", "parameters"),
    [
        ('{epsilon: "1/100"}', SubsetParameters(3, Fraction(1, 100))),
        (
            '{epsilon: "1/50", gamma: "1/2", loss: paper, noise: exponential}',
            SubsetParameters(3, Fraction(1, 50), Fraction(1, 2), Variant.PAPER, ScoreNoise.EXPONENTIAL),
        ),
        ('{epsilon: "1/50", gamma: "1", mechanism: canonical}', SubsetParameters(3, Fraction(1, 50), Fraction(1))),
    ],
)
def test_the_set_is_that_of_the_canonical_selection(
    view: Callable[..., ViewPlan], written: str, parameters: SubsetParameters
) -> None:
    plan = view(written)
    chosen = canonical_top_k(LISTED_COUNTS, 2, parameters, keyed(b"selection" + plan.noise_name(0)))
    for reading in read(plan, COUNTS):
        assert [item for item, _ in reading.items] == names(chosen)
        assert reading.fields["selection"] == "canonical"


def test_the_set_is_that_of_one_noise_for_each_key_where_that_is_asked_for(view: Callable[..., ViewPlan]) -> None:
    plan = view('{epsilon: "1/10", mechanism: one-shot}')
    bits = keyed(b"selection" + plan.noise_name(0))
    p = GapParameters(3, Fraction(1, 10), 1, monotone=True, neighbours=Neighbours.ADD_OR_REMOVE)
    chosen = one_shot_top_k(LISTED_COUNTS, 2, p, bits)
    for reading in read(plan, COUNTS):
        assert [item for item, _ in reading.items] == names(chosen)
        assert reading.fields["selection"] == "one-shot"


@pytest.mark.parametrize("mechanism", ["canonical", "one-shot"])
def test_the_order_of_a_record_is_that_of_the_keys(view: Callable[..., ViewPlan], mechanism: str) -> None:
    """Not that of the counts, nor seen keys first: either would tell what the set does not (specs/subset P1)."""
    plan = view(f'{{epsilon: "40", mechanism: {mechanism}}}')
    shown = [item for item, _ in read(plan, COUNTS)[0].items]
    assert shown == ["BOS", "LAX", "SFO"]
    shown = [item for item, _ in read(plan, {"SFO": 900, "BOS": 400})[0].items]
    assert shown in (["ATL", "BOS", "SFO"], ["BOS", "JFK", "SFO"], ["BOS", "LAX", "SFO"])


def test_a_record_tells_the_set_and_its_counts_and_nothing_of_how_it_was_found() -> None:
    assert set(SubsetRelease.model_json_schema()["$defs"]["ItemCount"]["properties"]) == {"item", "count"}
    own = SubsetRelease.model_fields.keys() - SubsetRelease.__base__.model_fields.keys()  # type: ignore[union-attr]
    assert own == {"catalogue", "k", "selection"}


def test_a_trillion_numbers_are_a_list(view: Callable[..., ViewPlan]) -> None:
    plan = view('{epsilon: "4"}', "{numbers: {from: 1, to: 1000000000000}}", k=3)
    counts = {"17": 900, "999999999": 500, "0017": 10_000}
    shown = [item for item, _ in read(plan, counts)[0].items]
    assert {"17", "999999999"} <= set(shown)
    assert all(1 <= int(item) <= 10**12 for item in shown)


def test_it_costs_the_selection_once_and_its_level(view: Callable[..., ViewPlan]) -> None:
    """One draw of an exponential mechanism, which a pool adds up as rho; other noise adds up purely."""
    gumbel, exponential = view(), view('{epsilon: "1", noise: exponential}')
    one_shot = view('{epsilon: "1", mechanism: one-shot}')
    pure = Cost(Fraction(1), Fraction(0))
    for plan in (gumbel, exponential, one_shot):
        assert plan.kind.keys_at_worst(pooled=False) == pure
    assert gumbel.kind.keys_at_worst(pooled=True) == Cost(Fraction(0), Fraction(0), rho=Fraction(1, 8))
    assert exponential.kind.keys_at_worst(pooled=True) == one_shot.kind.keys_at_worst(pooled=True) == pure
    assert gumbel.cost(0) == Cost(Fraction(5, 4), Fraction(0))
    assert view(items_per_user=2).kind.sensitivity == 2


def test_every_part_of_the_selection_is_part_of_the_definition(view: Callable[..., ViewPlan]) -> None:
    written = [
        '{epsilon: "1"}',
        '{epsilon: "2"}',
        '{epsilon: "1", gamma: "1/2"}',
        '{epsilon: "1", loss: paper}',
        '{epsilon: "1", noise: exponential}',
        '{epsilon: "1", mechanism: one-shot}',
    ]
    assert len({view(one).fingerprint for one in written}) == len(written)
    same = f'{{epsilon: "1", mechanism: auto, gamma: "3/4", loss: signed, noise: gumbel, profile: {PROFILE}}}'
    assert view(same).fingerprint == view().fingerprint


def test_the_rule_chooses_by_public_numbers_alone(view: Callable[..., ViewPlan]) -> None:
    profile = [(1, 900), (3, 200), (4, 10)]
    critical = critical_epsilon(profile, 5, SubsetParameters(3, Fraction(1)))
    assert critical > 0
    for epsilon, one_shot in ((critical * Fraction(129, 100), True), (critical * Fraction(131, 100), False)):
        plan = view(f'{{epsilon: "{epsilon.limit_denominator(10**9)}", mechanism: auto, profile: {PROFILE}}}')
        assert kind_of(plan).one_shot is one_shot
        assert json.loads(plan.kind.explain("epsilon").model_dump_json())["details"]["feasible"] is not one_shot


@pytest.mark.parametrize(
    ("selection", "fault"),
    [
        ('{epsilon: "0"}', "views.destinations.selection.epsilon: must be above 0"),
        ('{epsilon: "1", gamma: "5/4"}', "views.destinations.selection.gamma: must be from 0 to 1"),
        ('{epsilon: "1", mechanism: auto}', "views.destinations.selection.profile: is required by auto"),
        (
            '{epsilon: "1", mechanism: one-shot, gamma: "1/2"}',
            "views.destinations.selection.gamma: has no meaning for one-shot; leave it out",
        ),
        (
            '{epsilon: "1", profile: {1: 3, 2: 9}}',
            "views.destinations.selection.profile: must have counts that fall from rank to rank",
        ),
        ('{epsilon: "1", profile: {2: 3}}', "views.destinations.selection.profile: must begin with rank 1"),
        (
            '{epsilon: "1", profile: {1: 3, 9: 2}}',
            "views.destinations.selection.profile: must have rising ranks",
        ),
        ('{epsilon: "1", profile: [3]}', "views.destinations.selection.profile: write counts by rank, {1: 5000,"),
    ],
)
def test_what_cannot_be_is_a_fault(view: Callable[..., ViewPlan], selection: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        view(selection)
    assert [str(one)[: len(fault)] for one in caught.value.faults] == [fault]


def test_a_list_must_have_more_keys_than_are_shown(view: Callable[..., ViewPlan]) -> None:
    with pytest.raises(ConfigError, match="must have at least 6 keys, not 5"):
        view(k=5)
    with pytest.raises(ConfigError, match="must have at most 1000000000000 numbers"):
        view(listed="{numbers: {from: 0, to: 1000000000000}}")
    with pytest.raises(ConfigError, match="needs a list that is written down"):
        view(f'{{epsilon: "1", profile: {PROFILE}}}', "{topic: places}")
    plan = view(listed="{topic: places}")
    with pytest.raises(ConfigError, match="the list must have between 4 and 1000000 keys, not 3"):
        plan.kind.check_lists({"places": KeyList.of(["A", "B", "C"])})


def test_the_plan_says_what_may_be_missed(view: Callable[..., ViewPlan]) -> None:
    plan = view(f'{{epsilon: "1/10", profile: {PROFILE}}}')
    explanation = plan.kind.explain("epsilon 1/10")
    details = json.loads(explanation.model_dump_json())["details"]
    missed = worst_miss(5, kind_of(plan).parameters, Fraction(1, 20))
    assert missed <= Fraction(details["missed"]) <= missed * Fraction(101, 100)
    assert "no key is shown that lies" in explanation.keys
    assert "By the profile a canonical choice needs 1.3 times an epsilon of" in explanation.keys
    one_shot = view('{epsilon: "1/10", mechanism: one-shot}').kind.explain("epsilon 1/10")
    bound = json.loads(one_shot.model_dump_json())["details"]["missed"]
    assert 110.6 < float(bound) <= 111  # 30 ln 40: two keys are not shown
