"""The kind `gap`: what it shows of a list, what it says of leads, what it costs, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.gap import GapPlan
from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.by_kind import GapRelease
from stream_dp.records.models import Amount
from stream_dp.select.top_k_with_gaps import combine, gap_top_k, gaps_between, margin, variance_ratio, wrong_chance
from tests.support.sealing import Reading, read_window, seal_window

Planner = Callable[..., Plan]
KEY = bytes(range(32))
HISTOGRAM = "    kind: histogram\n    items_per_user: 5\n"
COUNTS = {"ATL": 900, "BOS": 400, "LAX": 90, "XXX": 70_000}
LISTED = "[ATL, BOS, JFK, LAX, SFO]"


def keyed(context: bytes) -> KeyedBits:
    return KeyedBits(KEY, context)


@pytest.fixture
def view(planned: Planner) -> Callable[..., ViewPlan]:
    """The destinations as a gap view."""

    def of(listed: str = LISTED, k: int = 3, selection: str = '{epsilon: "1"}', items_per_user: int = 5) -> ViewPlan:
        kind = (
            f"    kind: gap\n    catalogue: {listed}\n    k: {k}\n    selection: {selection}\n"
            f"    items_per_user: {items_per_user}\n"
        )
        return planned((HISTOGRAM, kind), ('    delta: "1e-6"\n', "")).views["destinations"]

    return of


def read(view: ViewPlan, counts: dict[str, int], lists: dict[str, KeyList] | None = None) -> list[Reading]:
    table = seal_window(view, 0, counts, prf_key=KEY, entropy=keyed, lists=lists)
    return read_window(view, 0, table, range(3), KEY)


def kind_of(view: ViewPlan) -> GapPlan:
    assert isinstance(view.kind, GapPlan)
    return view.kind


def test_keys_and_gaps_are_those_of_the_selection_and_the_same_for_every_audience(
    view: Callable[..., ViewPlan],
) -> None:
    """What is drawn is drawn from the counts of the list alone, in its order; each key that nobody had is counted 0."""
    plan = view()
    bits = keyed(b"selection" + plan.noise_name(0))
    listed = {key: COUNTS[key] for key in ("ATL", "BOS", "LAX")}
    chosen = gap_top_k(listed, 2, kind_of(plan).parameters, bits)
    assert chosen.items[:2] == ("ATL", "BOS"), "they lead by far"
    for reading in read(plan, COUNTS):
        entries = reading.fields["items"]
        assert [entry.item for entry in entries] == [str(item) for item in chosen.items]
        assert [entry.rank for entry in entries] == [1, 2, 3]
        assert [entry.gap.value for entry in entries] == [Fraction(gap, 10) for gap in chosen.gaps]


def test_leads_say_what_they_certify(view: Callable[..., ViewPlan]) -> None:
    plan, p = view(), kind_of(view()).parameters
    for reading in read(plan, COUNTS):
        entries = reading.fields["items"]
        for entry in entries:
            gap = int(entry.gap.value * 10)
            chance, least = Fraction(entry.wrong_at_most), margin(gap, Fraction(1, 20), p)
            assert wrong_chance(gap, p) <= chance <= wrong_chance(gap, p) * Fraction(101, 100)
            assert (entry.margin_95 is None) == (least is None)
            if least is not None:
                assert least - Fraction(1, 10) < entry.margin_95.value <= least
        assert entries[0].margin_95 is not None, "ATL is 500 ahead"


def test_counts_are_combined_with_the_gaps_at_each_level(view: Callable[..., ViewPlan]) -> None:
    plan = view()
    p = kind_of(plan).parameters
    for level, reading in zip(plan.levels, read(plan, COUNTS), strict=True):
        entries = reading.fields["items"]
        lam = variance_ratio(p, level.variance)
        gaps = gaps_between([int(entry.gap.value * 10) for entry in entries], p)
        best = combine([entry.count for entry in entries], gaps, lam)
        for entry, value in zip(entries, best, strict=True):
            assert abs(Fraction(entry.combined) - value) <= Fraction(1, 200)
        share = Fraction(reading.fields["combined_error"])
        assert abs(share - (1 + lam * 3) / (3 + lam * 3)) < Fraction(1, 100)


def test_a_record_has_no_number_that_is_a_noisy_value_of_the_selection() -> None:
    """Noise of one sign: a value, or the key behind the last rank, would tell apart what must not be (specs/gap 6)."""
    of_item = {"rank", "item", "count", "gap", "wrong_at_most", "margin_95", "combined"}
    schema = GapRelease.model_json_schema()
    assert set(schema["$defs"]["LeadingCount"]["properties"]) == of_item
    own = GapRelease.model_fields.keys() - GapRelease.__base__.model_fields.keys()  # type: ignore[union-attr]
    assert own == {"catalogue", "k", "scale", "resolution", "combined_error"}


def test_a_window_of_nobody_has_k_keys_of_the_list(view: Callable[..., ViewPlan]) -> None:
    shown = {item for reading in read(view(k=4), {"XXX": 5}) for item, _ in reading.items}
    assert len(shown) == 4
    assert shown <= {"ATL", "BOS", "JFK", "LAX", "SFO"}


def test_a_billion_numbers_are_a_list(view: Callable[..., ViewPlan]) -> None:
    plan = view("{numbers: {from: 1, to: 1000000000}}", k=3, selection='{epsilon: "40"}')
    counts = {"17": 900, "999999999": 500, "0017": 10_000, "2000000000": 10_000}
    (first, second, third), *_ = ([item for item, _ in reading.items] for reading in read(plan, counts))
    assert (first, second) == ("17", "999999999")
    assert 1 <= int(third) <= 10**9


def test_it_costs_the_selection_once_and_its_level(view: Callable[..., ViewPlan]) -> None:
    plan = view()
    for pooled in (False, True):
        assert plan.kind.keys_at_worst(pooled=pooled) == Cost(Fraction(1), Fraction(0))
    assert [plan.cost(level) for level in range(3)] == [
        Cost(1 + epsilon, Fraction(0)) for epsilon in (Fraction(1, 4), Fraction(1), Fraction(4))
    ]
    assert plan.kind.sensitivity == 3
    assert view(items_per_user=2).kind.sensitivity == 2


def test_noise_of_half_the_scale_is_a_choice_that_is_written_down(view: Callable[..., ViewPlan]) -> None:
    general, monotone = (view(selection=f'{{epsilon: "1", scale: {scale}}}') for scale in ("general", "monotone"))
    assert kind_of(view()).parameters == kind_of(general).parameters
    assert kind_of(general).parameters.scale == 6
    assert kind_of(monotone).parameters.scale == 3
    assert general.fingerprint != monotone.fingerprint


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"k": 5}, "views.destinations.catalogue: must have at least 6 keys, not 5"),
        ({"k": 0}, "views.destinations.k: must be at least 1, not 0"),
        ({"selection": '{epsilon: "0"}'}, "views.destinations.selection.epsilon: must be above 0"),
        (
            {"selection": '{epsilon: "1", resolution: "3/10"}'},
            "views.destinations.selection.resolution: must be 1 or a part of it that a decimal can say",
        ),
        (
            {"selection": '{epsilon: "1", resolution: "1/3"}'},
            "views.destinations.selection.resolution: must be 1 or a part of it that a decimal can say",
        ),
        ({"selection": '{epsilon: "1", scale: half}'}, "views.destinations.selection.scale: "),
        (
            {"listed": "{numbers: {from: 1, to: 1000000001}}"},
            "views.destinations.catalogue: the range must have at most 1000000000 numbers, not 1000000001",
        ),
    ],
)
def test_what_cannot_be_is_a_fault(view: Callable[..., ViewPlan], changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        view(**changes)
    assert [str(one)[: len(fault)] for one in caught.value.faults] == [fault]


def test_a_list_in_a_topic_needs_a_key_more_than_are_shown(view: Callable[..., ViewPlan]) -> None:
    plan = view("{topic: places}")
    plan.kind.check_lists({"places": KeyList.of(["A", "B", "C", "D"])})
    with pytest.raises(ConfigError, match="the list must have between 4 and 1000000 keys, not 3"):
        plan.kind.check_lists({"places": KeyList.of(["A", "B", "C"])})


def test_the_plan_says_what_a_lead_is_worth_and_what_the_gaps_save(view: Callable[..., ViewPlan]) -> None:
    explanation = view().kind.explain("epsilon 1")
    details = json.loads(explanation.model_dump_json())["details"]
    assert details["scale"]["exact"] == "6"
    assert 6 * 2.9957 < float(details["certain_95"]) < 18.1  # 6 ln 20
    assert 6 * 3.6888 < float(details["shortfall"]) < 22.3  # 6 ln 40: two keys are not shown
    assert f"If a key is {details['certain_95']} users ahead of the next, it is in its place" in explanation.keys
    (shares,) = explanation.columns.values()
    assert [float(share) for share in shares] == sorted(map(float, shares)), "gaps are worth less beside finer counts"
    in_a_topic = view("{topic: places}").kind.explain("epsilon 1")
    assert json.loads(in_a_topic.model_dump_json())["details"]["shortfall"] is None


@pytest.mark.parametrize(
    ("rank", "gap", "wrong", "words"),
    [
        (1, "31.2", "0.0055", "ahead by 31.2, first with 99 %"),
        (1, "31.2", "1.2e-70", "ahead by 31.2, first with 99 %"),
        (2, "7", "0.311", "ahead by 7, first 2 right with 68 %"),
        (3, "0", "1", "ahead by 0, first 3 right or not"),
    ],
)
def test_a_reader_is_told_the_lead_in_words(
    view: Callable[..., ViewPlan], rank: int, gap: str, wrong: str, words: str
) -> None:
    plan = view()
    entry = (
        read(plan, COUNTS)[0]
        .fields["items"][rank - 1]
        .model_copy(update={"gap": Amount.down(Fraction(gap)), "wrong_at_most": wrong})
    )
    release = GapRelease.model_construct()  # type: ignore[call-arg]
    assert release.remark(entry) == words
