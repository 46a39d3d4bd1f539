from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from stream_dp.accounting import Cost, Ledger
from stream_dp.cli.ledger_command import burn_down, page, verdict
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import load_plan
from stream_dp.operations.budgets import as_json, outlook
from stream_dp.records.codec import encode, entry_key
from stream_dp.records.models import AudienceCharge, LedgerEntry
from stream_dp.records.statement import LedgerStatement, Period, read_statements
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import Outcome, audience_charge, entry_record
from stream_dp.runtime.embedded import MemoryLog
from tests.support.views import balance

Make = Callable[..., Any]
Golden = Callable[[str, str], None]
DAY_MS = 86_400_000
ACCOUNTS = "visits-accounts"
POOL = (
    'epsilon: "30", delta: "1/1000", period: 10d}',
    'epsilon: "30", delta: "1/1000", period: 10d, zcdp: {epsilon: "20", slack: "1e-6"}}',
)


def keys_of(view: ViewPlan, draws: int) -> Cost:
    """What so many draws cost; for a histogram its delta."""
    return view.kind.keys_spent(msgspec.msgpack.encode([True, draws]), pooled=view.ledger.pool is not None)


class Office:
    """Charges windows as the engine would, and writes down the entries in the order of their publication."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.left: dict[int, Cost] = {}
        self.entries: list[LedgerEntry] = []

    def release(self, view: str, day: int, draws: int = 2) -> None:
        """A window at the starting clearances."""
        planned = self.plan.views[view]
        ledger = planned.ledger
        period = ledger.periods.start_of(day * DAY_MS)
        before, cost = self.left.get(period, ledger.budget), planned.counts(1) + keys_of(planned, draws)
        if not planned.cost(1) <= before:
            refused = [
                audience_charge(planned, name, at, 1, Cost.ZERO, Cost.ZERO) for name, at in planned.audiences.items()
            ]
            self._write(planned, day, "refusal", refused, before)
            return
        self.left[period] = before - cost
        paid, readers = Cost.ZERO, []
        for audience, level in planned.audiences.items():
            held = planned.counts(level) + keys_of(planned, draws)
            readers.append(audience_charge(planned, audience, level, 1, held - paid, held))
            paid = held
        self._write(planned, day, "charge", readers, self.left[period])

    def sharpen(self, view: str, day: int, audience: str, before: int, level: int) -> None:
        """A window of an audience once more, at a level that nobody has."""
        planned = self.plan.views[view]
        difference = planned.counts(level) - planned.counts(before)
        self.left[0] -= difference
        self._write(
            planned, day, "charge", [audience_charge(planned, audience, level, 2, difference, difference)], self.left[0]
        )

    def _write(self, view: ViewPlan, day: int, outcome: Outcome, readers: list[AudienceCharge], left: Cost) -> None:
        booking = Booking(Ledger(left), balance(view, left, self.plan.views.values()), view.cost(1))
        self.entries.append(entry_record(view, day * DAY_MS, outcome, readers, booking))

    def publish(self, log: MemoryLog) -> None:
        log.create(ACCOUNTS, 1)
        for entry in self.entries:
            log.append(ACCOUNTS, 0, entry_key(entry), encode(entry))

    def timed(self) -> Iterator[tuple[int, LedgerEntry]]:
        return iter(enumerate(self.entries))

    def statement(self, day: int = 0) -> LedgerStatement:
        period = self.plan.ledgers["visitors"].periods.interval(day * DAY_MS)
        return read_statements(self.timed())[Period("visitors", period.start_ms, period.end_ms)]


@pytest.fixture
def pooled(visits_file: Path) -> Plan:
    """The application with a ledger that has a pool."""
    text = visits_file.read_text()
    assert POOL[0] in text
    visits_file.write_text(text.replace(*POOL))
    return load_plan(visits_file)


def three_days(plan: Plan) -> Office:
    office = Office(plan)
    for day in range(3):
        office.release("pages", day)
        office.release("searches", day, draws=1 + day)
    return office


@pytest.fixture(params=["visits", "pooled"])
def either(request: pytest.FixtureRequest) -> Plan:
    plan: Plan = request.getfixturevalue(request.param)
    return plan


def test_what_the_entries_charged_is_what_the_newest_says_was_spent(either: Plan) -> None:
    office = three_days(either)
    statement = office.statement()
    assert statement.left == office.left[0]
    assert statement.spent == statement.seen == either.ledgers["visitors"].budget - office.left[0]
    assert statement.older == Cost.ZERO
    assert {key: share.windows for key, share in statement.shares.items()} == {
        (view, audience): 3 for view in ("pages", "searches") for audience in ("public", "staff")
    }
    pages = either.views["pages"]
    assert statement.shares["pages", "public"].charged == pages.cost(0) * 3
    assert statement.shares["pages", "staff"].charged == (pages.counts(1) - pages.counts(0)) * 3
    assert statement.shares["pages", "staff"].loss == pages.cost(1) * 3


def test_spending_of_entries_that_are_gone_is_one_line_and_what_is_left_stays(either: Plan) -> None:
    office = three_days(either)
    whole = office.statement()
    gone = sum((one.charged.cost for entry in office.entries[:4] for one in entry.audiences), Cost.ZERO)
    office.entries = office.entries[4:]
    statement = office.statement()
    assert (statement.left, statement.spent) == (whole.left, whole.spent)
    assert statement.older == gone
    assert statement.seen + statement.older == statement.spent
    assert "not recorded" in shown(either, statement)
    assert "not recorded" not in shown(either, whole)


def test_entries_are_taken_by_the_time_they_were_published_and_by_what_they_left(visits: Plan) -> None:
    office = three_days(visits)
    at_once = read_statements((0, entry) for entry in reversed(office.entries))
    (statement,) = at_once.values()
    assert statement.left == office.left[0]
    assert statement.history == [(end, left) for end, left in office.statement().history]


def test_each_entry_bears_the_end_of_its_own_window_however_far_another_view_is(visits: Plan) -> None:
    office = Office(visits)
    for view, day in (("pages", 0), ("pages", 1), ("pages", 2), ("searches", 0), ("searches", 1)):
        office.release(view, day)
    (statement,) = read_statements(enumerate(office.entries)).values()
    assert [end // DAY_MS for end, _ in statement.history] == [1, 2, 3, 1, 2]
    assert statement.reached_ms == 3 * DAY_MS
    told = as_json(visits, statement)["history"]
    assert [one["window_end_ms"] // DAY_MS for one in told] == [1, 2, 3, 1, 2]


def test_entries_that_come_again_after_a_crash_change_nothing(either: Plan) -> None:
    office = three_days(either)
    once = office.statement()
    office.entries.append(office.entries[-1])
    again = office.statement()
    assert (again.shares, again.history, again.seen) == (once.shares, once.history, once.seen)


def test_forecast_counts_windows_at_the_present_level_up_to_the_end_of_the_period(visits: Plan) -> None:
    """A window of pages costs 1, one of searches 1/5 and at worst 3 draws of 1/10; seven days are to come.

    Of 30, 10 are kept for pages, which has spent 3, and 5.000003 for searches, which has spent 1.200006.
    """
    office = three_days(visits)
    views, lasts = forecast(visits, office.statement())
    for name in ("pages", "searches"):
        assert views[name].cost == visits.views[name].cost(1)
        assert views[name].kept == views[name].cost * 10
        assert views[name].level == "fine"
        assert (views[name].to_come, views[name].until_ms) == (7, 10 * DAY_MS)
    assert [views[name].spent.epsilon for name in ("pages", "searches")] == [3, Fraction("1.2000006")]
    free = 30 - 10 - 10 * views["searches"].cost.epsilon
    assert views["pages"].left.epsilon == 7 + free
    assert views["searches"].left.epsilon == 30 - 10 - Fraction("1.2000006")
    assert [views[name].windows for name in ("pages", "searches")] == [21, 37]
    assert lasts == 10 * DAY_MS


def test_forecast_leaves_out_a_view_that_was_taken_out(visits: Plan) -> None:
    """It has no audience any more, and its entries are still among those of the ledger."""
    statement = three_days(visits).statement()
    removed = replace(visits.views["pages"], audiences={}, unlocks={}, is_removed=True)
    views, lasts = forecast(replace(visits, views={**visits.views, "pages": removed}), statement)

    assert views.keys() == {"searches"}
    assert (views["searches"].to_come, lasts) == (7, 10 * DAY_MS)


def test_forecast_without_a_view_lasts_to_the_end_of_the_period(visits: Plan) -> None:
    statement = three_days(visits).statement()
    removed = {name: replace(view, audiences={}, unlocks={}, is_removed=True) for name, view in visits.views.items()}

    assert forecast(replace(visits, views=removed), statement) == ({}, 10 * DAY_MS)


def test_a_view_reaches_as_far_as_what_is_left_for_it(visits_file: Path, golden: Golden) -> None:
    """Five of 30 are for pages: 3 are spent, 2 windows are to come; 25 for searches."""
    visits_file.write_text(visits_file.read_text().replace("kind: histogram", 'kind: histogram, share: "1/6"'))
    plan = load_plan(visits_file)
    statement = three_days(plan).statement()
    views, lasts = forecast(plan, statement)
    pages, searches = views["pages"], views["searches"]
    assert [cost.epsilon for cost in (pages.kept, pages.spent, pages.left)] == [5, 3, 2]
    assert (pages.windows, pages.until_ms) == (2, 5 * DAY_MS)
    assert searches.left.epsilon == 25 - searches.spent.epsilon
    assert (searches.until_ms, lasts) == (10 * DAY_MS, 5 * DAY_MS)
    golden("ledger-share", shown(plan, statement))
    assert as_json(plan, statement)["affords"]["state"] == "short"
    each = as_json(plan, statement)["affords"]["views"]["pages"]
    assert (each["kept"]["epsilon"]["exact"], each["spent"]["epsilon"]["exact"]) == ("5", "3")
    assert (each["left"]["epsilon"]["exact"], each["windows_afforded"], each["until"]) == ("2", 2, "1970-01-06")


def test_forecast_ends_where_the_first_window_cannot_be_paid_for(visits_file: Path) -> None:
    visits_file.write_text(visits_file.read_text().replace('epsilon: "30"', 'epsilon: "8"'))
    plan = load_plan(visits_file)
    office = three_days(plan)
    _, lasts = forecast(plan, office.statement())
    both = sum((plan.views[name].cost(1) for name in ("pages", "searches")), Cost.ZERO)
    assert lasts == (3 + office.left[0].fits(both)) * DAY_MS
    assert outlook(plan, office.statement()).state == "short"


def test_forecast_says_so_where_the_next_windows_are_not_paid_for(visits_file: Path, golden: Golden) -> None:
    visits_file.write_text(visits_file.read_text().replace('epsilon: "30"', 'epsilon: "5"'))
    plan = load_plan(visits_file)
    statement = three_days(plan).statement()
    assert {name: (view.windows, view.paid) for name, view in forecast(plan, statement)[0].items()} == {
        "pages": (0, 0),
        "searches": (1, 0),
    }
    assert outlook(plan, statement).state == "exhausted"
    golden("ledger-exhausted", shown(plan, statement))


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        (
            "6",
            "Budget short: view pages can pay for windows until 1970-01-05. View searches can pay for windows until "
            "1970-01-05. Their later windows may be refused until 1970-01-11. Ledger visitors has 29 % of epsilon "
            "left. A larger budget counts from the next period on.",
        ),
        (
            "8",
            "Budget short: view pages can pay for windows until 1970-01-06. Its later windows may be refused until "
            "1970-01-11. View searches can pay for 3 more at most. Ledger visitors has 47 % of epsilon left. A larger "
            "budget counts from the next period on.",
        ),
        (
            "14",
            "Budget short: view pages can pay for windows until 1970-01-10. Its later windows may be refused until "
            "1970-01-11. View searches can pay to the end of the period. Ledger visitors has 69 % of epsilon left. A "
            "larger budget counts from the next period on.",
        ),
    ],
)
def test_a_short_budget_names_the_views_that_it_stops_first(visits_file: Path, epsilon: str, words: str) -> None:
    visits_file.write_text(visits_file.read_text().replace('epsilon: "30"', f'epsilon: "{epsilon}"'))
    plan = load_plan(visits_file)
    assert verdict(plan, three_days(plan).statement()).plain == words


def test_a_view_of_which_nothing_is_charged_begins_with_its_first_window_not_with_the_period(
    visits: Plan,
) -> None:
    office = Office(visits)
    for day in range(6, 9):
        office.release("pages", day)
    began = {**visits.views, "searches": visits.views["searches"].begun(8 * DAY_MS)}
    assert forecast(visits, office.statement())[0]["searches"].to_come == 10
    assert forecast(replace(visits, views=began), office.statement())[0]["searches"].to_come == 2


def test_what_unlocks_ask_for_released_windows_is_not_left_for_others(visits_file: Path) -> None:
    """One window of pages is younger than a day, and all three are than 5; for each of them epsilon 1 more is asked."""
    fine = '    - {level: fine, epsilon: "1/5"}\n'
    text = visits_file.read_text().replace(fine, fine + fine.replace("fine", "finest").replace("1/5", "2/5"))
    found = []
    for after in ("", "1d", "5d"):
        unlock = f"{{level: coarse, unlock: [{{level: finest, after: {after}}}]}}" if after else "coarse"
        visits_file.write_text(text.replace("audiences: {public: coarse", f"audiences: {{public: {unlock}"))
        plan = load_plan(visits_file)
        found.append(forecast(plan, three_days(plan).statement())[0]["pages"])
    none, soon, late = found
    assert [one.cost.epsilon for one in found] == [1, 2, 2]
    assert none.windows == none.left.epsilon // 1
    assert soon.windows == (soon.left.epsilon - 1) // 2
    assert late.windows == (late.left.epsilon - 3) // 2


def test_a_grant_makes_the_windows_to_come_dearer_and_counts_its_window_once(visits: Plan) -> None:
    office = three_days(visits)
    office.sharpen("pages", 2, "staff", 1, 2)
    statement, pages = office.statement(), visits.views["pages"]
    views, _ = forecast(visits, statement)
    share = statement.shares["pages", "staff"]
    assert (share.windows, share.loss) == (3, pages.cost(1) * 2 + pages.cost(2))
    assert statement.spent == statement.seen
    assert (views["pages"].level, views["pages"].cost) == ("finest", visits.views["pages"].cost(2))
    assert views["searches"].level == "fine"


def test_refusals_are_counted_and_leave_what_is_left(visits_file: Path) -> None:
    visits_file.write_text(visits_file.read_text().replace('epsilon: "30"', 'epsilon: "7/2"'))
    office = three_days(load_plan(visits_file))
    statement = office.statement()
    assert statement.shares["pages", "public"].refused == 1
    assert statement.left == office.left[0]
    assert statement.spent == statement.seen


def shown(plan: Plan, statement: LedgerStatement, width: int = 100) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(verdict(plan, statement))
        console.print(page(plan, statement, width))
    return capture.get()


def test_page_has_every_part_and_fits_its_terminal(pooled: Plan, golden: Golden) -> None:
    statement = three_days(pooled).statement()
    text = shown(pooled, statement, 80)
    assert max(map(len, text.splitlines())) <= 80
    golden("ledger-pool", text)


def test_picture_burns_down_from_full_to_what_is_left(visits: Plan) -> None:
    office = three_days(visits)
    epsilon, delta, axis = burn_down(office.statement(), 40).plain.splitlines()
    percent = 100 * office.left[0].epsilon / 30
    assert (epsilon[:8], delta[:8]) == ("epsilon ", "  delta ")
    assert epsilon[48:] == f" {percent // 1} %", "as in the table"
    bars = epsilon[8:48].rstrip("·")
    assert len(bars) == 12, "three of ten days"
    assert list(bars) == sorted(bars, reverse=True)
    assert bars[:3] == "███", "nothing is spent until the first window ends"
    assert bars[-1] == "▁▂▃▄▅▆▇█"[int(percent * 7 // 100)]
    assert axis.strip() == "1970-01-01                    1970-01-11"


def test_picture_of_a_spent_budget_ends_at_the_lowest_bar_and_takes_late_windows_in(visits: Plan) -> None:
    office = three_days(visits)
    statement = office.statement()
    end_ms = statement.account.period.end_ms
    statement.history = [(end_ms, Cost(Fraction(15), Fraction(1, 1000))), (end_ms + DAY_MS, Cost.ZERO)]
    epsilon, delta, _ = burn_down(statement, 10).plain.splitlines()
    assert epsilon[8:18] == delta[8:18] == "█████████▁"


def test_picture_of_a_budget_that_grew_stays_within_its_bars(visits: Plan) -> None:
    statement = three_days(visits).statement()
    start_ms = statement.account.period.start_ms
    lefts = [(3, Cost(Fraction(3), Fraction(0))), (1, Cost(Fraction(45), Fraction(0)))]
    statement.history = [(start_ms + day * DAY_MS, left) for day, left in lefts]
    epsilon, delta, _ = burn_down(statement, 10).plain.splitlines()
    assert (epsilon[8:18], delta[8:18]) == ("███·······", "██▁·······")


def test_command_shows_the_newest_period_and_names_the_others(
    call: Make, visits_file: Path, log: MemoryLog, visits: Plan, golden: Golden
) -> None:
    office = three_days(visits)
    office.release("pages", 12)
    office.publish(log)
    said = call("ledger", visits_file)
    assert (said.code, said.err) == (0, "")
    golden("ledger", said.out)
    past = call("ledger", visits_file, "--ledger", "visitors", "--period", "1970-01-04")
    assert "ledger visitors, 1970-01-01 to 1970-01-11" in past.out
    none = call("ledger", visits_file, "--period", "1980-01-01")
    assert none.code == 1
    assert "no period with an entry includes 1980-01-01; periods: visitors from 1970-01-01" in none.err


def test_machine_reads_every_period_exactly(call: Make, visits_file: Path, log: MemoryLog, pooled: Plan) -> None:
    office = three_days(pooled)
    office.release("pages", 12)
    office.publish(log)
    said = call("ledger", visits_file, "--json")
    first, second = json.loads(said.out)["ledgers"]
    assert (first["period"]["start"], second["period"]["start"]) == ("1970-01-01T00:00:00Z", "1970-01-11T00:00:00Z")
    assert first["promise"]["epsilon"]["exact"] == "30"
    assert Fraction(first["left"]["rho"]["exact"]) == office.left[0].rho
    spent = sum(Fraction(row["charged"].get("rho", {"exact": 0})["exact"]) for row in first["spent_by"])
    assert spent == Fraction(first["spent"]["rho"]["exact"])
    assert first["spent_without_entry"]["epsilon"]["exact"] == "0"
    assert first["affords"]["views"]["searches"]["windows_to_come"] == 7
    assert first["history"][-1]["left"]["rho"] == first["left"]["rho"]


def test_views_that_have_no_window_yet_are_told_of(call: Make, visits_file: Path, log: MemoryLog, visits: Plan) -> None:
    office = Office(visits)
    office.release("pages", 0)
    office.publish(log)
    said = call("ledger", visits_file)
    assert said.code == 0
    assert "searches" in said.out, "what it will cost is known before it is there"


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (False, "memory:// has no topic visits-accounts. Start a worker to create it: `stream-dp worker FILE`"),
        (True, "visits-accounts has no entry yet. The first window is charged when it is released"),
    ],
)
def test_nothing_to_read_says_why(call: Make, visits_file: Path, log: MemoryLog, made: bool, message: str) -> None:
    if made:
        log.create(ACCOUNTS, 1)
    said = call("ledger", visits_file)
    assert (said.code, said.out, said.err.strip()) == (1, "", f"error: {message}")


def test_broker_that_does_not_answer_is_a_failure(
    call: Make, visits_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:1")
    said = call("ledger", visits_file)
    assert said.code == 1
    assert said.err.startswith("error: no Kafka answers at 127.0.0.1:1")


def test_unknown_ledger_is_wrong_usage(call: Make, visits_file: Path, log: MemoryLog) -> None:
    said = call("ledger", visits_file, "--ledger", "visitor")
    assert (said.code, said.err.strip()) == (2, "error: ledger: no ledger is named 'visitor'; did you mean 'visitors'?")


def test_help_teaches(call: Make) -> None:
    said = call("ledger", "--help")
    assert said.code == 0
    for words in ("charged at worst", "--period 2024-03-05", "needs READ on it", "Exit codes"):
        assert words in said.out
