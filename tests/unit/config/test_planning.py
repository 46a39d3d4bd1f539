from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from math import tanh
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config import crosschecks
from stream_dp.config.plan import FINGERPRINT_BYTES, Plan, Unlock, ViewPlan, WindowPlan
from stream_dp.config.planner import fingerprint
from stream_dp.errors import ConfigError
from stream_dp.kinds.topk import by_draws
from stream_dp.lossless.levels import WORD, discovery_delta
from stream_dp.select.gumbel import TopKParameters
from stream_dp.windows.durations import Slots
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.sealing import minimum_counts, selection_of

Planner = Callable[..., Plan]

VECTORS = {
    v["id"]: v for v in json.loads((Path(__file__).parents[2] / "vectors" / "lossless.json").read_text())["tests"]
}
D12 = {row["eps_per_unit"]: int(row["A"]) for row in VECTORS["D12"]["expected"]["rows"]}
"""Nominal epsilon of one count to threshold A."""

TALL_LADDER = 'epsilon: "4"}\n    - {level: fourth, epsilon: "5"}'


def test_threshold_is_that_of_epsilon_over_the_items_of_one_user(planned: Planner) -> None:
    """Five items: 0.25 / 5 = 0.05; with one item the level's epsilon is the count's (D12)."""
    five = planned().views["destinations"]
    one = planned(("items_per_user: 5", "items_per_user: 1")).views["destinations"]
    assert five.kind.sensitivity == 5
    assert five.levels[0].threshold == D12["0.05"]
    assert one.kind.sensitivity == 1
    assert [level.threshold for level in one.levels[:2]] == [D12["0.25"], D12["1"]]


def test_topk_measures_at_most_k_counts_of_one_user(planned: Planner) -> None:
    """k = 3 of 5 items: 3/20 / 3 = 0.05. With k above the bound, the bound counts: 1/4 / 5 = 0.05."""
    few = planned(('overview, epsilon: "0.25"', 'overview, epsilon: "3/20"')).views["busiest"]
    many = planned(("k: 3\n", "k: 9\n")).views["busiest"]
    assert (few.kind.sensitivity, few.levels[0].threshold) == (3, D12["0.05"])
    assert (many.kind.sensitivity, many.levels[0].threshold) == (5, D12["0.05"])


def test_noise_numbers_are_those_of_the_discrete_laplace_law(planned: Planner) -> None:
    """specs/lossless 7: E|Z| = 2a / (1 - a^2), Pr[|Z| <= t] = 1 - 2 a^(t+1) / (1 + a); t is the least for 95 %."""
    for view in planned().views.values():
        for level in view.levels:
            a = Fraction(level.threshold, WORD)
            inside = [1 - 2 * a ** (t + 1) / (1 + a) for t in (level.noise_interval - 1, level.noise_interval)]
            assert inside[0] < Fraction(95, 100) <= inside[1]
            assert level.expected_error == 2 * a / (1 - a * a)


def test_minimum_count_is_the_smallest_that_keeps_each_levels_share_of_delta(planned: Planner) -> None:
    """specs/lossless 2.9.5: Pr[1 + Z >= tau] = a^(tau-1) / (1+a) <= delta / (levels items) = 1e-6 / 15."""
    view = planned().views["destinations"]
    share = Fraction(1, 15_000_000)
    for level, least in zip(view.levels, minimum_counts(view), strict=True):
        a = Fraction(level.threshold, WORD)
        shown = [a ** (tau - 1) / (1 + a) for tau in (least, least - 1)]
        assert shown[0] <= share < shown[1]


def test_delta_of_the_ladder_is_at_most_what_was_configured(planned: Planner) -> None:
    view = planned().views["destinations"]
    shown = [(level.threshold, least) for level, least in zip(view.levels, minimum_counts(view), strict=True)]
    assert (
        Fraction(1, 2_000_000)
        < discovery_delta(shown, view.items_per_user)
        <= view.keys_at_worst.delta
        == Fraction(1, 1_000_000)
    )


def test_minimum_counts_of_vector_h03_come_out_of_its_levels_and_a_delta_just_above_theirs(planned: Planner) -> None:
    """Ladder a = 9/10, 4/5, 3/5, written as epsilons ln(1/a); a level's share 8.1e-8 is above 8.005e-8, the largest."""
    vector = VECTORS["H03"]
    plan = planned(
        ("items_per_user: 5", "items_per_user: 1"),
        ('epsilon: "0.25"', 'epsilon: "0.10536051565782628"'),
        ('standard, epsilon: "1"', 'standard, epsilon: "0.22314355131420976"'),
        ('epsilon: "4"', 'epsilon: "0.5108256237659907"'),
        ('delta: "1e-6"', 'delta: "2.43e-7"'),
    )
    view = plan.views["destinations"]
    levels = view.levels
    for level, a in zip(levels, vector["inputs"]["ladder_a"], strict=True):
        assert abs(Fraction(level.threshold, WORD) - Fraction(a)) < Fraction(1, 10**15)
    assert list(minimum_counts(view)) == vector["inputs"]["thresholds_ge"]


def test_longer_ladder_asks_for_larger_minimum_counts(planned: Planner) -> None:
    """Delta adds over levels (H03): a fourth level takes its share from the three."""
    three = planned().views["destinations"]
    four = planned(('epsilon: "4"}', TALL_LADDER)).views["destinations"]
    assert [level.threshold for level in four.levels[:3]] == [level.threshold for level in three.levels]
    assert minimum_counts(three) == (319, 81, 22)
    assert minimum_counts(four)[:3] == (324, 83, 22)


def test_histogram_costs_its_level_and_its_delta_once(planned: Planner) -> None:
    view = planned().views["destinations"]
    delta = Fraction(1, 1_000_000)
    assert view.keys_at_worst == Cost(Fraction(0), delta)
    assert [view.cost(index) for index in range(3)] == [
        Cost(Fraction(1, 4), delta),
        Cost(Fraction(1), delta),
        Cost(Fraction(4), delta),
    ]


def test_topk_costs_its_level_and_k_hardened_draws(planned: Planner) -> None:
    """specs/topk 3.4 with ln(1 + delta) <= delta: 3 (1/10 + 1e-7) + level; delta of selection (specs/lossless A02)."""
    view = planned().views["busiest"]
    draws = Fraction(3_000_003, 10_000_000)
    assert selection_of(view) == by_draws("gumbel", TopKParameters(3, 40, Fraction(1, 10), Fraction(1, 10_000_000), 5))
    assert view.keys_at_worst == Cost(draws, Fraction(1, 10_000_000))
    assert [view.cost(index).epsilon - draws for index in range(3)] == [Fraction(1, 4), 1, 4]
    assert {view.cost(index).delta for index in range(3)} == {Fraction(1, 10_000_000)}


def test_sharpening_costs_the_difference_and_no_delta(planned: Planner) -> None:
    for view in planned().views.values():
        assert view.cost(2) - view.cost(1) == Cost(Fraction(3), Fraction(0))
        assert (view.cost(1) - view.cost(0)) + (view.cost(2) - view.cost(1)) + view.cost(0) == view.cost(2)


POOL = (
    "period: 371d",
    'period: 371d, zcdp: {epsilon: "80", slack: "1e-6"}',
)


def test_with_a_pool_a_window_costs_rho_for_draws_and_for_counts(planned: Planner) -> None:
    """3 draws at 1/10, and per count e tanh(e / 2) at the first level, e^2 / 2 for a step to a finer one."""
    histogram, topk = planned(POOL).views.values()
    nothing, delta = Fraction(0), Fraction(1, 10**7)
    assert topk.keys_at_worst == Cost(3 * delta, delta, rho=Fraction(3, 800))
    assert topk.cost(1) == topk.keys_at_worst + Cost(nothing, nothing, rho=topk.levels[1].rho)
    assert histogram.cost(2) == Cost(nothing, Fraction(1, 10**6), rho=histogram.levels[2].rho)
    for view, moved in ((histogram, 5), (topk, 3)):
        epsilons = [float(level.epsilon) / moved for level in view.levels]
        for epsilon, level in zip(epsilons, view.levels, strict=True):
            assert float(level.rho) == pytest.approx(moved * epsilon * tanh(epsilon / 2), rel=1e-9, abs=0)
            assert float(level.step_rho) == pytest.approx(moved * epsilon**2 / 2, rel=1e-9, abs=0)


def test_with_a_pool_a_schedule_costs_the_first_level_and_each_unlock_whatever_it_skips(planned: Planner) -> None:
    def unlocked(*levels: int) -> ViewPlan:
        unlocks = {"public": tuple(Unlock(level, 1 + at) for at, level in enumerate(levels))}
        return replace(planned(POOL).views["destinations"], audiences={"public": 0}, unlocks=unlocks)

    view, pure = unlocked(1, 2), planned().views["destinations"]
    coarse, middle, fine = view.levels
    assert view.planned.rho == coarse.rho + middle.step_rho + fine.step_rho == view.at_worst.rho
    assert unlocked(2).planned.rho == coarse.rho + fine.step_rho
    assert unlocked().planned == view.cost(0)
    assert fine.rho == view.counts(2).rho < view.counts(2, 0).rho == view.counts(2, 1).rho == fine.step_rho
    assert view.counts(2, 2) == view.counts(1, 2) == Cost.ZERO
    assert view.request(2, -1) == view.counts(2, 0), "another audience may have the window"
    assert pure.request(2, -1) == pure.counts(2) == pure.counts(1) + pure.counts(2, 1)


def test_a_pool_is_in_the_fingerprint_and_its_size_is_not(planned: Planner) -> None:
    def prints(*changes: tuple[str, str]) -> list[bytes]:
        return [view.fingerprint for view in planned(*changes).views.values()]

    larger = (POOL[0], POOL[1].replace('"80"', '"81"'))
    assert prints(POOL) == prints(larger)
    assert not set(prints()) & set(prints(POOL))


def test_audiences_start_at_their_level_and_views_name_theirs(planned: Planner) -> None:
    plan = planned()
    assert plan.audiences == ("public", "partner", "internal")
    assert plan.views["destinations"].audiences == {"public": 0, "partner": 1, "internal": 2}
    assert plan.views["busiest"].audiences == {"public": 0, "partner": 1}


def test_defaults_are_those_of_the_documentation(planned: Planner) -> None:
    plan = planned()
    assert plan.erase_within_ms == 15 * 60_000
    assert plan.window_memory_bytes == 256 << 20
    assert plan.block_cache_bytes == 128 << 20
    assert plan.slots == Slots(every_ms=1000, offset_ms=2000)
    assert plan.views["busiest"].window == WindowPlan(
        shape=Tiling(7 * 86_400_000, 1_356_998_400_000),
        first_ms=1_356_998_400_000,
        grace_ms=5 * 60_000,
        clock="event",
        max_ahead_ms=7 * 86_400_000,
        idle_ms=60_000,
        retention_ms=30 * 86_400_000,
        catch_up_ms=30_000,
    )
    short = planned(("size: 7d", "size: 1h"), (", clock: event", "")).views["busiest"].window
    assert (short.max_ahead_ms, short.clock) == (86_400_000, "wall")
    source = plan.views["busiest"].source
    assert (source.dead_letter_topic, source.partitioner) == ("flights.dead-letters.flights", "murmur2")


def test_folders_are_relative_to_the_file(planned: Planner, tmp_path: Path) -> None:
    plan = planned(("key_file: ./flights.key", "key_file: /secret/flights.key"))
    assert plan.data_dir == tmp_path / "state"
    assert plan.key_file == Path("/secret/flights.key")


IDENTITY = [
    ("topic: flights,", "topic: planes,"),
    ("partitions: 4", "partitions: 5"),
    ("user: tailnum, ", ""),
    ("field: time_hour", "field: time"),
    ("unit: ms", "unit: s"),
    ("unit: ms", "unit: ms, zone: Europe/Berlin"),
    ("partitions: 4", "partitions: 4, partitioner: crc32"),
    ("item: dest", "item: origin"),
    ("size: 7d", "size: 1d"),
    ("start: 2013-01-01T00:00:00Z", "start: 2013-01-02T00:00:00Z"),
    ("items_per_user: 5", "items_per_user: 6"),
    ("ladder: standard", "ladder: standard\n    buckets: 8"),
    ('overview, epsilon: "0.25"', 'overview, epsilon: "0.26"'),
    ('epsilon: "4"}', TALL_LADDER),
    ("ledger: aircraft", "ledger: other"),
    ("aircraft by tail number", "aircraft"),
    ("name: flights", "name: planes"),
    ("sources:\n", "topics: {prefix: acme.}\nsources:\n"),
]
OTHER_LEDGER = (
    "ledgers:\n",
    'ledgers:\n  other: {population: x, epsilon: "100", delta: "1/10000", period: 371d, start: 2013-01-01T00:00:00Z}\n',
)


@pytest.mark.parametrize(
    "change", IDENTITY, ids=lambda change: change[1].strip()[:30] or "without " + change[0].strip()
)
@pytest.mark.parametrize("view", ["destinations", "busiest"])
def test_fingerprint_changes_with_what_may_not_change_under_state(
    planned: Planner, change: tuple[str, str], view: str
) -> None:
    before = planned().views[view]
    after = planned(OTHER_LEDGER, change).views[view]
    assert len(before.fingerprint) == len(after.fingerprint) == FINGERPRINT_BYTES
    assert before.fingerprint != after.fingerprint
    assert before.query_id != after.query_id


def test_fingerprint_has_the_rules_of_a_time_zone(planned: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other rules an event would be counted in another window. UTC is the default, with or without its name."""
    zoned = ("unit: ms", "unit: ms, zone: Europe/Berlin")
    before = planned(zoned).views["busiest"].fingerprint
    monkeypatch.setattr("stream_dp.config.planner.zone_digest", lambda _: "other rules")
    assert planned(zoned).views["busiest"].fingerprint != before
    named = planned(("unit: ms", "unit: ms, zone: UTC")).views["busiest"].fingerprint
    assert named == planned().views["busiest"].fingerprint


def test_zone_without_rules_is_refused(planned: Planner) -> None:
    with pytest.raises(ConfigError, match=r"sources\.flights\.time\.zone: no time zone has this name"):
        planned(("unit: ms", "unit: ms, zone: Europe/Atlantis"))


def test_fingerprint_changes_where_the_first_window_is_no_longer_configured(planned: Planner) -> None:
    """Windows of a day: they tile the periods from 2013 on without a start as well."""
    daily = ("size: 7d", "size: 1d")
    before = planned(daily).views["busiest"]
    after = planned(daily, ("size: 1d, start: 2013-01-01T00:00:00Z", "size: 1d")).views["busiest"]
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize(
    ("change", "view"),
    [
        (('delta: "1e-6"', 'delta: "1e-7"'), "destinations"),
        (("k: 3\n", "k: 4\n"), "busiest"),
        (("kbar: 40", "kbar: 41"), "busiest"),
        (('epsilon: "1/10"', 'epsilon: "1/11"'), "busiest"),
        (('delta: "1e-7"', 'delta: "1e-8"'), "busiest"),
    ],
)
def test_fingerprint_changes_with_what_a_kind_publishes(planned: Planner, change: tuple[str, str], view: str) -> None:
    assert planned().views[view].fingerprint != planned(change).views[view].fingerprint


@pytest.mark.parametrize(
    "change",
    [
        ("public: overview", "public: standard"),
        ("  internal: detailed\n", "  internal: detailed\n  staff: detailed\n"),
        ("grace: 1h", "grace: 2h"),
        ("clock: event", "clock: wall"),
        ("grace: 1h", "grace: 1h, catch_up: 1m, idle: 5m, max_ahead: 3d"),
        ("ladder: standard", "ladder: standard\n    retention: 90d"),
        ('epsilon: "100"', 'epsilon: "200"'),
        ("period: 371d", "period: 378d"),
        ("period: 371d, start: 2013-01-01", "period: 371d, start: 2012-12-25"),
        ("broker: kafka://127.0.0.1:9092", "broker: memory://"),
        ("topic: flights,", "topic: flights, dead_letter_topic: refused,"),
        ("sources:\n", "topics: {replication: 3, min_insync_replicas: 2}\nsources:\n"),
        ("data_dir: ./state", "data_dir: ./elsewhere"),
        ('epsilon: "0.25"', 'epsilon: "1/4"'),
    ],
    ids=lambda change: change[1].strip()[:30],
)
def test_fingerprint_stays_where_clearances_budgets_and_clocks_change(
    planned: Planner, change: tuple[str, str]
) -> None:
    before, after = planned().views, planned(change).views
    assert {name: view.fingerprint for name, view in before.items()} == {
        name: view.fingerprint for name, view in after.items()
    }


def test_the_name_of_a_ledger_is_in_no_fingerprint_and_the_words_for_its_population_are_in_both(
    planned: Planner,
) -> None:
    def prints(plan: Plan) -> list[bytes]:
        return [each.fingerprint for section in (plan.ledgers, plan.views) for each in section.values()]

    renamed = planned(("  aircraft: {", "  planes: {"), ("ledger: aircraft", "ledger: planes"))
    assert list(renamed.ledgers) == ["planes"]
    assert prints(renamed) == prints(planned())
    for words in ("aircraft", "Aircraft by tail number", "aircraft by  tail number"):
        reworded = planned(("aircraft by tail number", words))
        assert not set(prints(reworded)) & set(prints(planned()))


def test_nothing_but_the_words_for_its_population_is_in_the_fingerprint_of_a_ledger(planned: Planner) -> None:
    changed = planned(
        ('epsilon: "100", delta: "1/10000"', 'epsilon: "200", delta: "2/10000"'),
        (POOL[0] + ", start: 2013-01-01", POOL[1].replace("371d", "378d") + ", start: 2012-12-25"),
    )
    assert changed.ledgers["aircraft"].fingerprint == planned().ledgers["aircraft"].fingerprint


def test_fingerprint_is_the_same_on_every_machine_and_version(planned: Planner) -> None:
    """Golden: state that exists carries these bytes; whoever changes them orphans it."""
    plan = planned()
    assert {name: view.fingerprint.hex() for name, view in plan.views.items()} == GOLDEN
    assert plan.ledgers["aircraft"].fingerprint.hex() == GOLDEN_LEDGER


GOLDEN = {"destinations": "2e7eec158007f3e4", "busiest": "a936834f185812fb"}
GOLDEN_LEDGER = "68c26bb3730ef75a"


def test_applications_with_one_key_file_that_ask_the_same_draw_different_noise(planned: Planner) -> None:
    first, other = planned(), planned(("name: flights", "name: planes"))
    assert first.key_file == other.key_file
    for name, view in first.views.items():
        assert view.noise_name(0) != other.views[name].noise_name(0)


def test_fingerprint_looks_at_every_field_it_should(planned: Planner) -> None:
    """A field added to a view's plan has to be put on one of the two sides, here and in `fingerprint`."""
    view = planned().views["busiest"]
    outside = {"name", "audiences", "fingerprint", "share", "editions", "until_ms", "unlocks", "sharpen", "falls_back"}
    outside |= {"former", "named", "is_removed", "words", "affords", "later"}
    identity = {
        "source",
        "item_field",
        "has_lists",
        "window",
        "items_per_user",
        "windows_per_user",
        "pacing",
        "buckets",
        "ledger",
        "kind",
    }
    assert {field.name for field in fields(ViewPlan)} == outside | identity
    assert fingerprint(replace(view, name="other", audiences={}, fingerprint=b"x"), "flights") == view.fingerprint
    assert fingerprint(replace(view, kind=planned().views["destinations"].kind), "flights") != view.fingerprint


def test_more_audiences_or_release_topics_than_one_record_can_name_are_refused(
    planned: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = "".join(f"  reader-{number}: overview\n" for number in range(998))
    with pytest.raises(ConfigError) as caught:
        planned(("audiences:\n", "audiences:\n" + readers))
    assert [str(fault) for fault in caught.value.faults] == [
        "audiences: an application has at most 1000, not 1001; split it in two"
    ]
    monkeypatch.setattr(crosschecks, "MOST_RELEASE_TOPICS", 4)
    with pytest.raises(ConfigError, match=r"^views: one release topic .* at most 4, not 5; split"):
        planned()


def test_the_format_the_key_and_lists_are_each_in_the_fingerprint_of_a_view(planned: Planner) -> None:
    registry = ("sources:\n", "registry: https://registry\nsources:\n")
    changes = [
        ("partitions: 4", "partitions: 4, format: avro"),
        ("user: tailnum, ", "key: tailnum, "),
        ("item: dest", "items: dest"),
    ]
    some = [[change for bit, change in enumerate(changes) if chosen >> bit & 1] for chosen in range(8)]
    found = {planned(registry, *chosen).views["destinations"].fingerprint for chosen in some}
    assert len(found) == 8
