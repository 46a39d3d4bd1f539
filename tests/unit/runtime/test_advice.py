"""What a running worker advises, how often, and how coarsely."""

from __future__ import annotations

import logging
from collections.abc import Callable
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.records.codec import encode, entry_key
from stream_dp.records.models import LedgerEntry
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import audience_charge, entry_record
from stream_dp.runtime.faust.delivery import Balances, Counters
from stream_dp.runtime.worker.advice import Advice
from stream_dp.windows.effects import Increment, Message
from tests.support.views import balance

START = 1_356_998_400_000
WEEK = 7 * 86_400_000


class Watched:
    """An advice whose counters, balances and clock a test moves."""

    def __init__(self, plan: Plan, log: pytest.LogCaptureFixture) -> None:
        self.plan = plan
        self.now = 0.0
        self.counters = Counters()
        self.balances = Balances("flights-accounts")
        self._advice = Advice(plan, self.counters, self.balances, lambda: self.now)
        self._log = log
        log.set_level(logging.INFO)

    async def look(self, after_s: float = 10) -> list[str]:
        """What is said when it looks again some seconds later."""
        self.now += after_s
        self._log.clear()
        await self._advice.look()
        return self._log.messages

    def count(self, name: str, amount: int, **labels: str) -> None:
        self.counters.add(Increment(name, amount, tuple(labels.items())))

    def counted(self, amount: int, **refused: int) -> None:
        """What both views make of events."""
        for view in self.plan.views:
            self.count("events_counted", amount, view=view)
            for reason, number in refused.items():
                self.count("events_refused", number, reason=reason, view=view)

    def left(
        self,
        view: ViewPlan,
        start_ms: int,
        share: Fraction,
        kind: str = "charge",
        revision: int = 1,
        requested: Cost | None = None,
    ) -> None:
        """An entry of a window leaves, behind which so much of the budget is left."""
        total = view.ledger.total
        left = Cost(total.epsilon * share, total.delta * share)
        asked = view.cost(0) if requested is None else requested
        booking = Booking(Ledger(left), balance(view, left, self.plan.views.values()), asked)
        readers = [audience_charge(view, "public", 0, revision, Cost.ZERO, Cost.ZERO)]
        made: LedgerEntry = entry_record(view, start_ms, kind, readers, booking)  # type: ignore[arg-type]
        self.balances.take([Message("flights-accounts", entry_key(made), encode(made))])


@pytest.fixture
def watched(planned: Callable[..., Plan], caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(planned(), caplog)


async def test_nothing_is_said_where_all_is_well(watched: Watched) -> None:
    watched.counted(10_000, duplicate=10_000)
    assert await watched.look() == []


async def test_records_that_are_no_event_are_told_of_at_the_next_look_with_share_and_remedy(watched: Watched) -> None:
    watched.counted(60)
    watched.count("events_refused", 40, reason="null_key", view="")
    assert await watched.look() == [
        "sources.flights: null_key (about 40 % of the records): they have no key, but the key must be the user; "
        "let the producers write it, or set sources.flights.key: tailnum and leave sources.flights.user out "
        "(`stream-dp check FILE --sample` shows what they look like)"
    ]


async def test_few_refused_watermarks_are_reported(watched: Watched) -> None:
    watched.counted(1_000_000)
    watched.count("watermarks_read", 5)
    watched.count("events_refused", 5, reason="bad_watermark", view="")
    (said,) = await watched.look()
    assert "sources.flights: bad_watermark (about 50 % of the watermarks): the watermark header must be" in said


async def test_a_reason_is_told_of_once_in_ten_minutes_with_its_share_since(watched: Watched) -> None:
    watched.count("events_refused", 100, reason="null_key", view="")
    assert len(await watched.look()) == 1
    for _ in range(59):
        watched.counted(10)
        watched.count("events_refused", 10, reason="null_key", view="")
        assert await watched.look() == []
    (said,) = await watched.look()
    assert "(about 50 % of the records)" in said
    assert await watched.look(600) == []
    watched.count("events_refused", 1, reason="null_key", view="")
    assert "(nearly all of the records)" in (await watched.look())[0]


async def test_a_fault_that_begins_late_is_not_lost_in_what_was_right_before(watched: Watched) -> None:
    watched.counted(1_000_000)
    watched.count("events_refused", 1, reason="null_key", view="")
    assert await watched.look() == []
    assert await watched.look(600) == []
    watched.counted(1000)
    watched.count("events_refused", 1000, reason="null_key", view="")
    assert "(about 50 % of the records)" in (await watched.look())[0]


async def test_less_than_one_in_a_hundred_stands_in_the_metrics_only(watched: Watched) -> None:
    watched.counted(991)
    watched.count("events_refused", 9, reason="malformed_json", view="")
    assert await watched.look() == []
    watched.count("events_refused", 2, reason="malformed_json", view="")
    assert "(some of the records)" in (await watched.look())[0]


async def test_what_a_view_refuses_names_the_view_and_what_all_do_the_source(watched: Watched) -> None:
    watched.count("events_counted", 70, view="busiest")
    watched.count("events_refused", 30, reason="late", view="busiest")
    watched.count("events_counted", 70, view="destinations")
    watched.count("events_refused", 30, reason="before_start", view="destinations")
    for view in watched.plan.views:
        watched.count("events_refused", 25, reason="wrong_partition", view=view)
    late, before, stray = sorted(await watched.look(), key=lambda said: ("partition" in said, "before" in said))
    assert late.startswith("views.busiest: late (about 20 % of the records): ")
    assert "views.busiest.window.grace (5m)" in late
    assert before.startswith("views.destinations: before_start (about 20 % of the records): ")
    assert stray.startswith("sources.flights: wrong_partition (about 20 % of the records): ")


async def test_clipped_contributions_are_told_of_above_a_fifth(watched: Watched) -> None:
    watched.counted(800, clipped=200)
    assert await watched.look() == []
    watched.count("events_refused", 60, reason="clipped", view="busiest")
    (said,) = await watched.look()
    assert said.startswith("views.busiest: clipped (about 20 % of the contributions): ")
    assert "raise" not in said, "a log does not know what raising it would hide"
    assert said.endswith("drops less and adds noise to every count; `stream-dp check FILE --sample` compares both")


async def test_of_few_contributions_nothing_is_told(watched: Watched) -> None:
    watched.counted(9, clipped=90)
    assert await watched.look() == []


async def test_the_first_refused_window_of_a_period_is_told_of_with_what_it_needs(watched: Watched) -> None:
    view = watched.plan.views["destinations"]
    watched.left(view, START, Fraction(1, 1000), "refusal")
    first, *_ = await watched.look()
    assert first == (
        "ledger aircraft: budget exhausted: windows of view destinations are refused from 2013-01-01T00:00:00Z on. A "
        "window costs epsilon 0.25 and delta 1e-6; epsilon 0.1 and delta 1e-7 is left until 2014-01-07T00:00:00Z. For "
        "the next period, raise the budget (ledgers.aircraft), make windows longer or levels coarser. `stream-dp "
        "ledger FILE` shows who spent it"
    )
    watched.left(view, START + WEEK, Fraction(1, 1000), "refusal")
    assert not [said for said in await watched.look() if "budget exhausted" in said]


async def test_a_window_that_was_lost_is_none_that_a_budget_refused(lasting: Watched) -> None:
    lasting.left(lasting.plan.views["destinations"], START, Fraction(1), "refusal", requested=Cost.ZERO)
    assert await lasting.look() == []


@pytest.fixture
def lasting(planned: Callable[..., Plan], caplog: pytest.LogCaptureFixture) -> Watched:
    """A ledger whose budget lasts."""
    return Watched(planned(('epsilon: "100"', 'epsilon: "1000"')), caplog)


async def test_a_refused_sharpening_is_no_refused_window(lasting: Watched) -> None:
    lasting.left(lasting.plan.views["destinations"], START, Fraction(1), "refusal", revision=2)
    assert await lasting.look() == []


async def test_a_budget_that_ends_before_its_period_is_told_of_when_its_end_moves(lasting: Watched) -> None:
    view, level = lasting.plan.views["destinations"], "ledger aircraft: at the present levels the budget lasts until "
    lasting.left(view, START, Fraction(1))
    assert await lasting.look() == []
    lasting.left(view, START + WEEK, Fraction(1, 10))
    (said,) = await lasting.look()
    assert said.startswith(f"{level}2013-0")
    assert ", but the period until 2014-01-07T00:00:00Z. Later windows are refused. For the next" in said
    lasting.left(view, START + 2 * WEEK, Fraction(1, 12))
    assert await lasting.look(600) == [], "it has moved by a week or two"
    lasting.left(view, START + 3 * WEEK, Fraction(1, 40))
    (again,) = await lasting.look()
    assert again.startswith(f"{level}2013-0")
    assert again < said
    lasting.left(view, START + 4 * WEEK, Fraction(1))
    assert await lasting.look(590) == [], "no ten minutes have passed"
    assert await lasting.look() == ["ledger aircraft: the budget lasts until the period ends, 2014-01-07T00:00:00Z"]


async def test_every_hour_sums_up_what_became_of_windows(
    planned: Callable[..., Plan], caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(planned(), caplog)
    watched.count("windows_released", 3, view="destinations")
    watched.count("windows_refused", 1, view="destinations")
    assert await watched.look(3590) == []
    assert await watched.look() == ["windows of the last hour: view destinations 3 released, 1 refused"]
    watched.count("windows_released", 2, view="busiest")
    assert await watched.look(3600) == ["windows of the last hour: view busiest 2 released"]
    assert await watched.look(3600) == []
