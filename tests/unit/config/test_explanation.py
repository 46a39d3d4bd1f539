from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.explanation import describe, odds_factor
from stream_dp.config.plan import Plan
from stream_dp.config.shares import reach_ms
from tests.support.releasing import SHOP, plan_of

Planner = Callable[..., Plan]
DAY_MS = 86_400_000


def test_levels_say_noise_cost_and_readers(planned: Planner) -> None:
    """Histogram: 5 counts of one user, so scale 5/epsilon; budget 100 pays for 25 windows of 4, or 100 of 1 (delta)."""
    view = describe(planned()).views[0]
    assert [level.noise_scale.exact for level in view.levels] == ["20", "5", "5/4"]
    assert [level.expected_error for level in view.levels] == ["20", "4.97", "1.13"]
    assert [level.noise_interval_95 for level in view.levels] == [60, 15, 4]
    assert [level.cost.epsilon.exact for level in view.levels] == ["1/4", "1", "4"]
    assert [level.windows_afforded for level in view.levels] == [100, 100, 25]
    assert [level.audiences for level in view.levels] == [["public"], ["partner"], ["internal"]]


def test_words_name_the_protected_and_what_they_could_change(planned: Planner) -> None:
    view = describe(planned()).views[0]
    assert view.protection == (
        "Protects aircraft by tail number: each is a user. Adding or removing all events of one user "
        "changes at most 5 published counts of a window, each by one, because a user adds at most 5 "
        "distinct values of dest to a window, each once."
    )
    assert view.coalition == (
        "A reader of all topics of this view learns no more than a reader of level detailed alone. One window "
        "costs a user at most epsilon 4 and delta 1e-6, so it changes the odds that the user "
        "took part by a factor of at most 54.6."
    )


def test_coalition_below_the_finest_level_is_told_what_grants_can_add(planned: Planner) -> None:
    busiest = describe(planned()).views[1]
    assert "learns no more than a reader of level standard alone" in busiest.coalition
    assert busiest.coalition.endswith(" Grants can raise that to level detailed, epsilon 4.30001.")


def test_ledger_counts_the_windows_of_all_its_views(planned: Planner) -> None:
    """53 windows of 4 + 1.3000003 do not fit into 100: 18 of each do, which is 126 days, and one more of the first."""
    ledger = describe(planned()).ledgers[0]
    assert [share.windows_asked for share in ledger.shares] == [53, 53]
    assert [share.level for share in ledger.shares] == ["detailed", "standard"]
    assert Fraction(ledger.asked.epsilon.exact) == 53 * (4 + 1 + Fraction(3_000_003, 10_000_000))
    assert Fraction(ledger.asked.delta.exact) == 53 * Fraction(11, 10_000_000)
    assert not ledger.affords_schedule
    assert [share.windows_afforded for share in ledger.shares] == [19, 18]
    assert ledger.lasts == "126d"


def test_ledger_that_affords_its_schedule_says_so_and_warns_of_nothing(planned: Planner) -> None:
    described = describe(planned(('epsilon: "100"', 'epsilon: "281"')))
    assert described.ledgers[0].affords_schedule
    assert described.ledgers[0].lasts == "371d"
    assert described.warnings == []


def test_budget_reaches_to_the_last_moment_before_a_window_it_cannot_pay(planned: Planner) -> None:
    """Windows of 7 and 3 days at 4 and 1.3000003: up to day 49 there are 7 and 17, for 50.1; 3.9 pay for 2 more."""
    plan = planned(
        ('epsilon: "100"', 'epsilon: "54"'),
        ("period: 371d", "period: 378d"),
        ("size: 7d, start: 2013-01-01T00:00:00Z, clock", "size: 3d, start: 2013-01-01T00:00:00Z, clock"),
    )
    ledger, views = plan.ledgers["aircraft"], list(plan.views.values())
    assert reach_ms(ledger.budget, ledger.periods.longest, views) == 49 * DAY_MS
    described = describe(plan).ledgers[0]
    assert [(share.windows_afforded, share.lasts) for share in described.shares] == [(7, "49d"), (19, "57d")]
    assert described.lasts == "49d"


SHARED = {
    "destinations": ("kind: histogram\n", 'kind: histogram\n    share: "{}"\n'),
    "busiest": ("kind: topk\n", 'kind: topk\n    share: "{}"\n'),
}


def shared(epsilon: str, **shares: str) -> list[tuple[str, str]]:
    """A budget, and the shares of it that are given."""
    given = [(SHARED[view][0], SHARED[view][1].format(part)) for view, part in shares.items()]
    return [('epsilon: "100"', f'epsilon: "{epsilon}"'), *given]


@pytest.mark.parametrize(
    ("epsilon", "shares", "expected"),
    [
        (
            "300",
            {"destinations": "1/2"},
            "view destinations: its share of 1/2 in ledger aircraft pays for 37 of the 53 windows of a period; all "
            'views last with these shares: destinations "71/100"',
        ),
        (
            "300",
            {"destinations": "9/10"},
            "view busiest: what the shares of other views leave in ledger aircraft pays for 23 of the 53 windows of a "
            'period; all views last with these shares: destinations "71/100"',
        ),
        (
            "282",
            {"destinations": "1/2", "busiest": "1/4"},
            "view destinations: its share of 1/2 in ledger aircraft pays for 35 of the 53 windows of a period; leave "
            "out every share of the ledger, and the budget pays for all of it",
        ),
        (
            "100",
            {"busiest": "9/10"},
            "view destinations: what the shares of other views leave in ledger aircraft pays for 2 of the 53 windows "
            "of a period; the budget does not pay for all views, however it is shared out",
        ),
    ],
)
def test_shares_that_do_not_last_are_warned_of_with_shares_that_would(
    planned: Planner, epsilon: str, shares: dict[str, str], expected: str
) -> None:
    described = describe(planned(*shared(epsilon, **shares)))
    assert described.warnings[-1] == expected
    assert len(described.warnings) == 1 + (epsilon == "100")
    assert not described.ledgers[0].affords_schedule


def test_shares_say_what_is_kept_and_how_far_that_reaches(planned: Planner) -> None:
    destinations, busiest = describe(planned(*shared("300", destinations="3/4"))).ledgers[0].shares
    assert (destinations.share, destinations.kept.epsilon.exact) == ("3/4", "225")
    assert (destinations.windows_asked, destinations.windows_afforded, destinations.lasts) == (53, 53, "371d")
    assert (busiest.share, busiest.lasts) == (None, "371d")
    assert Fraction(busiest.kept.epsilon.exact) == 53 * (1 + Fraction(3_000_003, 10_000_000))


def test_delta_can_be_what_runs_out_first() -> None:
    budget = Cost(Fraction(10), Fraction(1, 1000))
    assert budget.fits(Cost(Fraction(1), Fraction(1, 3000))) == 3
    assert budget.fits(Cost(Fraction(3), Fraction(1, 10**6))) == 3
    assert budget.fits(Cost(Fraction(3), Fraction(0))) == 3


POOL = (
    "period: 371d,",
    'period: 371d,\n    zcdp: {epsilon: "80", slack: "1e-6"},',
)


def test_the_parts_of_a_ledger_with_a_pool_say_what_they_promise_what_is_asked_and_how_far_they_reach(
    planned: Planner,
) -> None:
    """53 windows of two views, three draws in one of them; the rhos of the levels are in `test_plan`."""
    plan = planned(POOL)
    ledger = describe(plan).ledgers[0]
    pure, zcdp = ledger.parts
    assert [part.name for part in ledger.parts] == ["pure", "zcdp"]
    assert [part.epsilon.exact for part in ledger.parts] == ["20", "80"]
    assert Fraction(pure.delta.exact) == Fraction(1, 10_000) - Fraction(1, 10**6)
    assert (pure.unit, zcdp.unit) == ("epsilon", "rho")
    caps = plan.ledgers["aircraft"].budget
    assert [Fraction(part.cap.exact) for part in ledger.parts] == [caps.epsilon, caps.rho]
    destinations, busiest = plan.views["destinations"], plan.views["busiest"]
    assert Fraction(zcdp.asked.exact) == 53 * (destinations.levels[2].rho + busiest.levels[1].rho + Fraction(3, 800))
    assert zcdp.windows_afforded["busiest"] == caps.rho // (busiest.levels[1].rho + Fraction(3, 800))
    assert zcdp.windows_afforded["destinations"] == caps.rho // destinations.levels[2].rho
    assert set(pure.windows_afforded) == {"destinations", "busiest"}
    assert pure.lasts == "371d"
    assert ledger.lasts == zcdp.lasts != "371d"
    assert not ledger.affords_schedule
    assert ledger.budget.epsilon.exact == "100"


def test_one_window_is_described_by_its_own_epsilon_whatever_the_pool(planned: Planner) -> None:
    whole, pooled = describe(planned()), describe(planned(POOL))
    assert [view.coalition for view in pooled.views] == [view.coalition for view in whole.views]


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (
            ("name: flights\n", "name: flights\n"),
            "ledger aircraft: budget too small. A period of 371d needs epsilon 281; the budget is epsilon 100. Windows "
            "are refused after the first 126d of each period. Lower epsilon, use longer windows, or raise the budget",
        ),
        (
            ("kafka://127.0.0.1:9092", "memory://"),
            "the embedded log keeps everything in memory: topics are gone when the process ends",
        ),
        (
            ("key_file: ./flights.key", "key_file: ./state/../state/flights.key"),
            "key_file is inside data_dir: a copy of the state has the key with it",
        ),
        (
            ("partitions: 4", "partitions: 4, partitioner: unchecked"),
            "topic flights: partitions are not checked (partitioner: unchecked). A user with events in "
            "several partitions is counted, and can change a window, several times",
        ),
    ],
)
def test_what_weakens_a_promise_is_warned_of(planned: Planner, change: tuple[str, str], warning: str) -> None:
    assert warning in describe(planned(change)).warnings


def test_short_wait_for_producers_is_warned_of(planned: Planner) -> None:
    """There is no warning for watermarks, whose writer knows what is delivered, or without a broker."""

    def short(*changes: tuple[str, str]) -> list[str]:
        return [words for words in describe(planned(*changes)).warnings if "delivery.timeout.ms" in words]

    def by_the_wall(grace: str) -> tuple[str, str]:
        return ", clock: event}\n    ledger: aircraft\n    ladder: standard\n    aud", (
            f", grace: {grace}}}\n    ledger: aircraft\n    ladder: standard\n    aud"
        )

    (found,) = short(by_the_wall("89s"))
    assert found.startswith("view busiest: window.grace and window.catch_up add up to 1m59s. ")
    assert short(("grace: 1h", "grace: 0s")) == []
    assert short(by_the_wall("90s")) == []
    assert len(short(by_the_wall("119s, catch_up: 0s"))) == 1
    assert short(by_the_wall("89s"), ("kafka://127.0.0.1:9092", "memory://")) == []


def test_a_bound_that_bounds_nothing_and_a_list_of_other_keys_are_warned_of() -> None:
    bound = ("    kind: histogram\n", "    kind: histogram\n    windows_per_user: {}\n")
    for most, warned in ((3, False), (4, True)):
        found = describe(plan_of(SHOP.replace(bound[0], bound[1].format(most)))).warnings
        said = f"windows_per_user {most} bounds nothing, since a period has 4 windows"
        assert any(said in words for words in found) is warned
    listed = """\
  listed:
    {source: visits, item: ITEM, kind: catalogue, catalogue: {from: pages, audience: public}, items_per_user: 1,
     ledger: visitors, ladder: three, window: {size: 1s, start: 1970-01-01T00:00:00Z}}
"""
    for item, warned in (("page", False), ("query", True)):
        found = describe(plan_of(SHOP + listed.replace("ITEM", item))).warnings
        assert (
            any(f"view listed counts '{item}', and its list has keys of 'page'" in words for words in found) is warned
        )


@pytest.mark.parametrize(("epsilon", "factor"), [("0", "1"), ("1", "2.72"), ("4", "54.6"), ("100", "2.69e43")])
def test_odds_are_rounded_up(epsilon: str, factor: str) -> None:
    """e = 2.71828, e^4 = 54.598, e^100 = 2.68812e43."""
    assert odds_factor(Fraction(epsilon)) == factor


def test_odds_of_an_absurd_epsilon_are_infinite() -> None:
    assert odds_factor(Fraction(10**30)) == "Infinity"


@pytest.mark.parametrize(
    ("change", "place", "field"),
    [
        (("item: dest", "item: to.airport"), "views.destinations.item", "to.airport"),
        (("user: tailnum", "user: plane.tail"), "sources.flights.user", "plane.tail"),
        (("field: time_hour", "field: times.dep"), "sources.flights.time.field", "times.dep"),
    ],
)
def test_a_name_with_a_dot_is_warned_of_with_the_path_that_may_be_meant(
    planned: Planner, change: tuple[str, str], place: str, field: str
) -> None:
    warning = next(words for words in describe(planned(change)).warnings if words not in describe(planned()).warnings)
    assert warning.startswith(f"{place}: {field!r} is the name of one field, with its dot. ")
    assert warning.endswith(f"write $.{field}")
    assert (
        describe(planned((change[0], change[1].replace(field, f"$.{field}")))).warnings == describe(planned()).warnings
    )


def test_the_memory_of_a_worker_is_summed_over_windows_block_cache_and_write_buffers(planned: Planner) -> None:
    """4 partitions of 2 views: 8 open windows of 256 MiB, one cache, and 24 MiB of buffers for each partition."""
    found = describe(planned())
    assert (found.block_cache, found.write_buffers, found.memory) == ("128MiB", "24MiB", f"{8 * 256 + 128 + 4 * 24}MiB")
