from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal, cast

import pytest
from rich.console import Console, RenderableType

from stream_dp.accounting import Cost, Ledger
from stream_dp.cli.demo import Ending, last_words, summary
from stream_dp.cli.demo.runs import DAY_MS, DESTINATIONS, DemoState, Feed, Flight, Flights, Tuned, new_run
from stream_dp.cli.demo.walkthrough import (
    Choice,
    Walkthrough,
    grant_lines,
    ledger_table,
    say,
    unlock_line,
    year_line,
)
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import AudienceCharge, LedgerEntry
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import Denial, Revision, account, audience_charge, entry_record
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.localkafka.broker import LocalKafka
from stream_dp.windows.durations import parse_time
from tests.support.chosen import ordinarily
from tests.support.sealing import fields_of
from tests.support.views import balance

WINDOWS = 4
DAYS = 28
TUNED = Tuned(
    number=2,
    from_ms=parse_time("2013-07-16T00:00:00Z"),
    before=Cost(Fraction("0.2500005"), Fraction(0)),
    after=Cost(Fraction("0.3750005"), Fraction(0)),
)


class Writer:
    """Releases the windows of a run as the engine would, at the worst case, and keeps the accounts."""

    def __init__(self, state: DemoState) -> None:
        self._plan = state.plan
        budget = next(iter(self._plan.ledgers.values())).budget
        self.levels = dict(state.plan.views[DESTINATIONS].audiences)
        self._starts = state.starts
        self._left = dict.fromkeys(self._starts, budget)  # each window is a period of its own
        self._held = {(audience, start): Cost.ZERO for audience in self.levels for start in self._starts}

    def year(self) -> Iterator[AnyRecord | LedgerEntry]:
        for start in self._starts:
            for view in self._plan.views.values():
                self._left[start] -= view.cost(max(self.levels.values()))
                paid, readers = Cost.ZERO, []
                for audience, level in self.levels.items():
                    self._held[audience, start] += view.cost(level)
                    yield self._record(view.name, audience, level, start, 1)
                    readers.append(audience_charge(view, audience, level, 1, view.cost(level) - paid, view.cost(level)))
                    paid = view.cost(level)
                yield self._entry(view, start, readers)

    def sharper(self, audience: str, level: int) -> Iterator[AnyRecord | LedgerEntry]:
        finest = max(self.levels.values())
        for start in self._starts:
            for view in self._plan.views.values():
                charged = view.cost(max(finest, level)) - view.cost(finest)
                self._left[start] -= charged
                told = view.cost(level) - view.cost(self.levels[audience])
                self._held[audience, start] += told
                yield self._record(view.name, audience, level, start, 2)
                yield self._entry(view, start, [audience_charge(view, audience, level, 2, charged, told)])
        self.levels[audience] = level

    def unlocked(self, count: int, charged: Cost = Cost.ZERO) -> Iterator[AnyRecord | LedgerEntry]:
        """The first windows at the next level for the public."""
        for start in self._starts[:count]:
            for view in self._plan.views.values():
                self._left[start] -= charged
                told = view.cost(1) - view.cost(0)
                self._held["public", start] += told
                yield self._record(view.name, "public", 1, start, 2)
                yield self._entry(view, start, [audience_charge(view, "public", 1, 2, charged, told)])

    def refused(self, audience: str, level: int) -> Iterator[AnyRecord | LedgerEntry]:
        nothing = Cost.ZERO
        for start in self._starts:
            for view in self._plan.views.values():
                yield Revision(
                    view,
                    audience=audience,
                    level=level,
                    start_ms=start,
                    number=3,
                    period_loss=self._held[audience, start],
                    ledger=account(view.ledger, start),
                ).refusal(Denial.for_now(view.cost(level) - view.cost(self.levels[audience]), self.levels[audience]))
                yield self._entry(view, start, [audience_charge(view, audience, level, 3, nothing, nothing)], "refusal")

    def _entry(
        self,
        view: ViewPlan,
        start: int,
        readers: list[AudienceCharge],
        outcome: Literal["charge", "refusal"] = "charge",
    ) -> LedgerEntry:
        left = self._left[start]
        booking = Booking(Ledger(left), balance(view, left, self._plan.views.values()), view.cost(3))
        return entry_record(view, start, outcome, readers, booking)

    def _record(self, name: str, audience: str, level: int, start: int, revision: int) -> AnyRecord:
        view = self._plan.views[name]
        keys = 4 * (level + 1)
        return Revision(
            view,
            audience=audience,
            level=level,
            start_ms=start,
            number=revision,
            period_loss=self._held[audience, start],
            ledger=account(view.ledger, start),
        ).release(
            fields=fields_of(view, level, [(f"K{number:02d}", 210 - 10 * number) for number in range(keys)]),
            window_loss=view.cost(level),
        )


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoState:
    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path))
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    run = new_run("memory://")
    view = run.views[DESTINATIONS]
    first = view.window.first_ms or 0
    flights = [Flight(first + day * DAY_MS, "N1", "ATL", "DL") for day in range(DAYS * (WINDOWS - 1) + 1)]
    return DemoState(run, Feed(Flights(flights, 3), view.source, 0))


def drawn(page: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(page)
    return [line.rstrip() for line in capture.get().splitlines()]


def took(state: DemoState, records: Iterable[AnyRecord | LedgerEntry]) -> None:
    for record in records:
        if isinstance(record, LedgerEntry):
            state.take_entry(record)
        else:
            state.take(record)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_table_of_the_ledger_fits_a_terminal(state: DemoState, width: int) -> None:
    writer = Writer(state)
    took(state, writer.year())
    state.note("the year")
    took(state, writer.sharper("partner", 2))
    state.note("partner: detailed")
    lines = drawn(ledger_table(state), width)
    assert len(lines) == 4
    assert max(map(len, lines)) <= width


def test_window_is_complete_with_every_release_and_entry(state: DemoState) -> None:
    records = list(Writer(state).year())
    assert isinstance(records[-1], LedgerEntry)
    for missing in (2, 1):  # a release of the last window, then its entry
        took(state, records[:-missing])
        assert len(state.complete()) == WINDOWS - 1
    took(state, records[-1:])
    assert len(state.complete()) == len(state.starts) == WINDOWS
    assert state.newest_full_ms == state.starts[-2], "the data cut the last one short"
    assert year_line(state, state.starts[0]) == (
        "  1 Jan to 28 Jan 2013: public 4 places ±45, partner 8 places ±22, internal 12 places ±15; "
        "K00 ahead by 20, first with 73 %; 4 of the top 5 carriers"
    )


def test_window_stays_complete_while_a_later_revision_of_it_has_no_accounts_yet(state: DemoState) -> None:
    writer = Writer(state)
    took(state, writer.year())
    for record in [*writer.unlocked(2), *writer.sharper("partner", 2), *writer.refused("internal", 4)]:
        took(state, [record])
        assert state.complete() == list(state.starts)


@pytest.mark.parametrize("seed", ordinarily(5, range(20)))
def test_every_window_is_told_once_in_whatever_order_topics_are_read(state: DemoState, seed: int) -> None:
    """Each topic is read in order, and one may be far ahead of another."""
    writer, chance = Writer(state), random.Random(seed)
    topics = defaultdict(list)
    for record in [*writer.year(), *writer.unlocked(2)]:
        topics["accounts" if isinstance(record, LedgerEntry) else (record.view, record.audience)].append(record)
    walkthrough = Walkthrough(state, cast(Client, None), [], Console())
    said: list[str] = []
    while topics:
        name = chance.choice(list(topics))
        took(state, [topics[name].pop(0)])
        if not topics[name]:
            del topics[name]
        said += walkthrough.year_lines()
    assert len(set(said)) == len(said) == WINDOWS + 2


def test_unlocked_window_is_told_with_what_it_shows_now_and_what_the_ledger_paid(state: DemoState) -> None:
    writer = Writer(state)
    took(state, writer.year())
    assert not state.is_over()
    records = list(writer.unlocked(2))
    took(state, records[:-1])
    assert state.unlocked() == [state.starts[0]], "a window is unlocked when its accounts say so in every view"
    took(state, records[-1:])
    assert state.unlocked() == list(state.starts)[:2]
    assert state.is_over(), "of four windows the last two are not eight weeks old"
    assert unlock_line(state, state.starts[0]) == (
        "    unlocked: 1 Jan to 28 Jan 2013 is 56 days old, public sees it as partner now: "
        "4 places ±45 -> 8 places ±22; the ledger paid 0"
    )


def test_unlock_that_costs_says_so(state: DemoState) -> None:
    writer = Writer(state)
    took(state, writer.year())
    took(state, writer.unlocked(2, Cost(Fraction(1, 100), Fraction(0))))
    assert unlock_line(state, state.starts[0]).endswith("; the ledger paid 0.03")
    assert state.unlocks_charged(state.unlocked()) == Fraction(6, 100)


def test_tuned_view_is_told_by_its_command_and_its_price() -> None:
    assert TUNED.command == "stream-dp tune flights.yaml carriers selection.epsilon=3/40 --from 2013-07-16"
    assert TUNED.words == "From the window of 2013-07-16 on; choosing costs epsilon 0.251 -> 0.376 at worst"


def test_level_that_somebody_had_costs_nothing_and_one_that_nobody_had_the_difference(state: DemoState) -> None:
    writer = Writer(state)
    took(state, writer.year())
    state.note("the year")
    took(state, writer.sharper("partner", 2))
    state.note("partner: detailed")
    assert grant_lines(state, "partner") == [
        "12 windows published again. 26 Feb to 25 Mar 2013 for partner: 8 places ±22 -> 12 places ±15",
        "The privacy loss to partner alone grew by epsilon 0.3. Another audience had this level already, so the ledger "
        "paid nothing.",
    ]
    took(state, writer.sharper("internal", 3))
    state.note("internal: fine")
    assert "the ledger paid exactly this difference" in grant_lines(state, "internal")[1]

    year, partner, internal = (after for _, after in state.history)
    (ledger,) = state.plan.ledgers.values()
    assert partner.spent == year.spent
    assert partner.loss("partner") == partner.loss("internal") == year.loss("internal")
    gained = Cost.ZERO
    for view in state.plan.views.values():
        gained += view.cost(3) - view.cost(2)
    assert internal.spent == partner.spent + gained
    assert internal.left + internal.spent == ledger.budget
    rows = [line.rsplit(maxsplit=5) for line in drawn(ledger_table(state), 120)[2:]]
    assert [row[0] for row in rows] == ["the year", "partner: detailed", "internal: fine"]
    assert rows[0][4] == rows[1][4] < rows[2][4], "together"


def test_level_that_the_budget_does_not_pay_for_is_refused_and_costs_nothing(state: DemoState) -> None:
    writer = Writer(state)
    took(state, writer.year())
    state.note("the year")
    took(state, writer.refused("internal", 4))
    state.note("internal: finest")
    assert grant_lines(state, "internal") == [
        "12 windows refused. Level finest would cost epsilon 2.4 more than internal has, and the ledger has less left.",
        "Nothing was drawn and nothing paid: an aircraft is guaranteed epsilon 2 in four weeks.",
    ]
    (_, before), (_, now) = state.history
    assert (now.spent, now.left) == (before.spent, before.left)
    assert all(now.loss(audience) == before.loss(audience) for audience in state.plan.audiences)


@pytest.mark.parametrize(("started", "kept"), [(True, False), (True, True), (False, False)])
def test_ending_says_where_everything_is_and_what_to_try(state: DemoState, started: bool, kept: bool) -> None:
    took(state, Writer(state).year())
    state.note("the year")
    local = LocalKafka(state.plan.folder, state.plan.folder / "log", "127.0.0.1:5", 1, started)
    choice = Choice("kafka://127.0.0.1:5", local)
    state.began, state.first_release = 3.0, 5.0
    state.page, state.pids = "http://127.0.0.1:6/", {"worker": 77, "serve": 78}
    end = Ending(state, choice, kept, 10.0, 4.0)
    text = "\n".join(last_words(end))
    view = state.plan.views[DESTINATIONS].name
    assert text.startswith("Done in 10 s. The first release came after 4.0 s, 2.0 s after the start of the worker.")
    assert f"{state.plan.name}.releases.{view}.{{public,partner,internal}}" in text
    assert f"tail {state.plan.folder / 'flights.yaml'} {view} partner" in text
    assert ("kill 77" in text) is ("kill 77 78" in text) is kept
    assert ("page      http://127.0.0.1:6/, running" in text) is kept
    assert ("stream-dp serve" in text) is (not kept)
    assert ("kafka up" in text) is (started and not kept)
    assert ("its topics stay" in text.splitlines()[6]) is (started and not kept)
    assert summary(end)["worker_pid"] == (77 if kept else None)
    assert (summary(end)["page"], summary(end)["page_pid"]) == ((state.page, 78) if kept else (None, None))


def test_ending_on_the_embedded_log_promises_no_topics(state: DemoState) -> None:
    took(state, Writer(state).year())
    state.note("the year")
    end = Ending(state, Choice("memory://"), False, 2.0, 1.0)
    text = "\n".join(last_words(end))
    assert "the embedded log ends with this process" in text
    assert "tail" not in text


def test_log_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    say(Console(width=20), "a line that is longer than that")
    assert capsys.readouterr().out == "a line that is longer than that\n"


def test_dead_worker_ends_a_wait_that_would_never_end(state: DemoState) -> None:
    def dead() -> None:
        raise StateError("the worker has ended")

    walkthrough = Walkthrough(state, cast(Client, None), [dead], Console())
    with pytest.raises(StateError, match="has ended"):
        asyncio.run(walkthrough.until(lambda: False))
