"""What the release engine publishes, charges, refuses and forgets; crashes are cut in `test_engine_crashes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.noise_levels import CONFIDENCE
from stream_dp.lossless.levels import two_sided_from
from stream_dp.records.by_kind import HistogramRelease, TopKRelease
from stream_dp.records.codec import decode, topic_key
from stream_dp.records.models import Refusal
from stream_dp.releases import engine as engine_module
from stream_dp.releases.accounts import ledger_key, read_ledgers
from stream_dp.releases.engine import ReleaseEngine
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.pieces import table_key
from stream_dp.releases.rows import ANNOUNCED, BUCKET, LEDGER, PROMISE, PUBLISHED, TABLE, TOTALS, VIEW, WINDOW
from stream_dp.windows.effects import Commit, Publish, Step
from stream_dp.windows.encoding import text, window_key
from tests.support.chosen import every
from tests.support.releasing import DELTA, FINE, MIDDLE, ONLY_PAGES, Desk, buckets_of, keyed, plan, totals
from tests.support.sealing import minimum_counts

HOME = {"home": 40, "cart": 12, "rare": 1}
PAGES = plan(ONLY_PAGES)
BOTH = plan()
AUDIENCES = ("partner", "public", "staff")


def starts(desk: Desk, view: str = "pages", audience: str = "public") -> list[int]:
    return [record.window.start_ms for record in desk.records(view, audience)]


def items(desk: Desk, view: str, audience: str, start: int = 0) -> dict[str, int]:
    record = desk.record(view, audience, start)
    return {row.item: row.count for row in record.items}


def epsilons(*parts: str) -> list[Fraction]:
    return [Fraction(part) for part in parts]


# -- the schedule ---------------------------------------------------------------------------------------------------


def test_windows_leave_in_order_whatever_order_they_are_complete_in() -> None:
    desk = Desk(BOTH)
    for start in (2000, 1000):
        desk.give("pages", start, HOME)
        desk.give("tops", start, HOME)
    assert desk.published() == []
    desk.give("pages", 0, HOME)
    assert (starts(desk), starts(desk, "tops")) == ([0, 1000, 2000], [])
    desk.give("tops", 0, HOME)
    assert starts(desk, "tops") == [0, 1000, 2000]


def test_a_window_waits_for_each_of_its_buckets() -> None:
    desk = Desk(PAGES)
    first, second = buckets_of(PAGES.views["pages"], 0, HOME)
    desk.reader.write([first])
    desk.reader.write([first])
    desk.reader.restart()
    assert desk.published() == []
    desk.reader.write([second])
    assert starts(desk) == [0]


def test_a_step_releases_some_of_the_windows_that_wait_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two steps the runtime looks whether the partition is still its own."""
    monkeypatch.setattr(engine_module, "RELEASED_AT_ONCE", 64)
    desk = Desk(PAGES)
    engine = desk.made(ReleaseEngine)
    messages = [one for start in range(140) for one in buckets_of(PAGES.views["pages"], 1000 * start, HOME)]
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    desk.machine.leaving.clear()
    desk.machine.carry_out(engine.buckets([message.value for message in messages]))
    found = []
    while engine.waits:
        desk.machine.carry_out(engine.due())
        found.append(len(desk.machine.leaving))
    assert found == [64, 128, 140]
    assert [leave.start_ms for leave in desk.machine.leaving] == [1000 * start for start in range(140)]
    assert desk.published() == []


def test_an_empty_window_is_released_and_charged_like_any_other() -> None:
    desk = Desk(BOTH)
    desk.give("pages", 0, {})
    desk.give("tops", 0, {})
    assert items(desk, "pages", "staff") == items(desk, "tops", "staff") == {}
    top = desk.record("tops", "staff", 0)
    assert isinstance(top, TopKRelease)
    assert not top.complete
    assert desk.ledger().spent == Cost(2 + (2 + 1 + DELTA), 2 * DELTA)  # a lone bottom is one draw
    desk.auditor.settled()


def test_the_counts_of_a_released_window_are_gone_from_table_files_and_topic_at_once() -> None:
    desk = Desk(BOTH)
    for view in ("pages", "tops"):
        desk.give(view, 0, HOME)
        assert [key for key in desk.machine.rows if key.startswith(BUCKET)] == []
        assert desk.machine.unerased(BUCKET) == []
    assert desk.reader.standing() == set()


def test_a_bucket_that_comes_again_after_its_window_is_withdrawn_and_changes_nothing() -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, HOME)
    before, published = dict(desk.machine.rows), desk.published()
    desk.give("pages", 0, {"home": 4000})
    assert desk.machine.rows == before
    assert desk.published() == published
    assert desk.reader.standing() == set()


def test_a_bucket_of_a_view_that_is_not_configured_is_withdrawn_and_not_stored() -> None:
    desk = Desk(PAGES)
    desk.reader.write(buckets_of(BOTH.views["tops"], 0, HOME))
    assert {key[:1] for key in desk.machine.rows} == {VIEW, ANNOUNCED}
    assert desk.reader.standing() == set()


def without_tops() -> Desk:
    """A desk whose view `tops` was taken out of the configuration while a window of it waited."""
    desk = Desk(BOTH)
    desk.give("pages", 1000, HOME)
    desk.give("tops", 1000, HOME)
    desk.change(PAGES)
    return desk


WAITING = {message.key for message in buckets_of(BOTH.views["pages"], 1000, HOME)}


def test_counts_of_a_view_that_is_no_longer_configured_are_deleted_and_erased() -> None:
    desk = without_tops()
    assert {key for key in desk.machine.rows if key.startswith(BUCKET)} == WAITING
    assert desk.machine.unerased(BUCKET) == []


def test_counts_of_a_view_that_is_no_longer_configured_are_withdrawn_from_the_topic() -> None:
    """They are as soon as they are stored: compaction keeps the last record of a key for ever."""
    assert without_tops().reader.standing() == set()


# -- charged before drawn, stored before published ------------------------------------------------------------------


def test_a_window_is_reserved_then_drawn_then_stored_then_published() -> None:
    trace: list[str] = []

    def entropy(context: bytes) -> BitSource:
        trace.append("draw")
        return keyed(context)

    def noted(steps: Step) -> Step:
        for effect in steps:
            if isinstance(effect, Commit):
                kinds = [key[:1].decode() for key, value in effect.rows if value is not None]
                trace.append("store " + "".join(dict.fromkeys(kinds)))
            elif isinstance(effect, Publish):
                trace.append("publish")
            yield effect

    desk = Desk(PAGES, entropy)
    engine, values = desk.engine(), [message.value for message in buckets_of(PAGES.views["pages"], 0, HOME)]
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    desk.machine.carry_out(noted(engine.buckets(values)))

    draws = [at for at, what in enumerate(trace) if what == "draw"]
    (published,) = [at for at, what in enumerate(trace) if what == "publish"]
    (stored,) = [at for at, what in enumerate(trace) if what.startswith("store") and "t" in what.split()[1]]
    reserved = next(at for at, what in enumerate(trace) if what == "store pl")
    assert reserved < min(draws) <= max(draws) < stored < published
    assert {"t", "w", "l"} <= set(trace[stored].split()[1])
    assert trace[published + 1 :] == ["store nrw"]


def test_what_is_charged_adds_up_over_the_audiences_to_the_finest_level() -> None:
    desk = Desk(plan(ONLY_PAGES, ("staff: middle", "staff: fine"), ("partner: coarse", "partner: middle")))
    desk.give("pages", 0, HOME)
    records = [desk.record("pages", audience, 0) for audience in ("public", "partner", "staff")]
    (entry,) = desk.entries()
    assert [reader.audience for reader in entry.audiences] == ["public", "partner", "staff"]
    assert [Fraction(reader.charged.epsilon.exact) for reader in entry.audiences] == epsilons("1", "1", "2")
    assert [Fraction(reader.charged.delta.exact) for reader in entry.audiences] == [DELTA, 0, 0]
    assert [Fraction(record.privacy.window.epsilon.exact) for record in records] == epsilons("1", "2", "4")
    assert desk.ledger().spent == Cost(Fraction(4), DELTA)
    assert {name: cost.epsilon for name, cost in desk.ledger().readers.items()} == {
        "public": 1,
        "partner": 2,
        "staff": 4,
    }
    assert entry.remaining.epsilon.exact == "36"


def test_a_topk_is_charged_the_draws_it_made_and_the_rest_is_returned() -> None:
    desk = Desk(BOTH)
    for start, counts in enumerate(({"a": 50, "b": 45}, {"a": 50}, {})):
        desk.give("tops", 1000 * start, counts)
    made = [len(items(desk, "tops", "public", start)) for start in (0, 1000, 2000)]
    assert made == [2, 1, 0]
    draws = 2 + 2 + 1  # the second and the third draw bottom
    assert desk.ledger().spent == Cost(3 * 2 + draws * (1 + DELTA), 3 * DELTA)
    assert not desk.ledger().reserved


def test_views_of_one_ledger_are_charged_together_and_periods_apart() -> None:
    desk = Desk(BOTH)
    for start in range(0, 8000, 1000):
        desk.give("pages", start, HOME)
    for start in range(0, 5000, 1000):
        desk.give("tops", start, HOME)
    assert desk.ledger(0).spent == Cost(4 * 2 + 4 * (2 + 2 * (1 + DELTA)), 8 * DELTA)
    assert desk.ledger(4000).spent == Cost(4 * 2 + (2 + 2 * (1 + DELTA)), 5 * DELTA)
    desk.auditor.settled()


# -- refusals -------------------------------------------------------------------------------------------------------

POOR = plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "5"'))
"""Pays for two windows at the middle level of each period of four."""


def test_a_window_that_the_ledger_cannot_pay_for_is_refused_once_and_its_counts_are_erased() -> None:
    drawn: list[bytes] = []

    def entropy(context: bytes) -> BitSource:
        drawn.append(context)
        return keyed(context)

    desk = Desk(POOR, entropy)
    for start in (0, 1000):
        desk.give("pages", start, HOME)
    before = len(drawn)
    desk.give("pages", 2000, HOME)
    assert not [key for key in desk.machine.rows if key.startswith(BUCKET)]
    assert desk.machine.unerased(BUCKET) == []
    desk.reader.restart()

    assert len(drawn) == before
    for audience in AUDIENCES:
        records = [record for record in desk.records("pages", audience) if record.window.start_ms == 2000]
        assert len(records) == 1
        refusal = records[0]
        assert isinstance(refusal, Refusal)
        assert (refusal.revision, refusal.reason) == (1, "budget")
        assert refusal.requested.epsilon.exact == "2"
        assert topic_key(refusal) == f"pages/{audience}/2000/refusal".encode()
    assert desk.reader.standing() == set()
    assert desk.ledger().spent == Cost(Fraction(4), 2 * DELTA)
    assert desk.machine.counts["windows_refused", (("view", "pages"),)] == 1


def test_windows_of_the_next_period_are_released_again() -> None:
    desk = Desk(POOR)
    for start in range(0, 8000, 1000):
        desk.give("pages", start, HOME)
    kinds = [record.type for record in desk.records("pages", "staff")]
    assert kinds == 2 * ["release", "release", "refusal", "refusal"]
    desk.auditor.settled()


def test_a_spent_delta_refuses_as_a_spent_epsilon_does() -> None:
    desk = Desk(plan(ONLY_PAGES, ('delta: "1/5"', 'delta: "1/50"')))
    for start in (0, 1000, 2000):
        desk.give("pages", start, HOME)
    assert [record.type for record in desk.records("pages", "staff")] == ["release", "release", "refusal"]


def test_a_cheaper_view_is_still_released_when_a_dearer_one_is_refused() -> None:
    """Two windows of pages and one of tops come to 8.02; after one of each there is room for pages only."""
    desk = Desk(plan(('epsilon: "40"', 'epsilon: "9"')))
    for start in (0, 1000):
        desk.give("tops", start, HOME)
        desk.give("pages", start, HOME)
    assert [record.type for record in desk.records("tops", "staff")] == ["release", "refusal"]
    assert [record.type for record in desk.records("pages", "staff")] == ["release", "release"]
    desk.auditor.settled()


def test_a_refused_window_stays_refused_when_the_budget_is_raised() -> None:
    desk = Desk(POOR)
    for start in (0, 1000, 2000):
        desk.give("pages", start, HOME)
    desk.change(PAGES)
    for start in (3000, 4000):
        desk.give("pages", start, HOME)
    kinds = [record.type for record in desk.records("pages", "staff")]
    assert kinds == ["release", "release", "refusal", "refusal", "release"]
    desk.auditor.settled()


# -- what must not change -------------------------------------------------------------------------------------------


def test_a_changed_view_is_refused_at_the_start() -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, HOME)
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        desk.change(plan(ONLY_PAGES, ('middle, epsilon: "2"', 'middle, epsilon: "3"')))


def test_another_key_file_is_refused_at_the_start() -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, HOME)
    desk.keys = KeyRing.of(bytes(32))
    with pytest.raises(ConfigError, match="key_file"):
        desk.reader.restart()


def test_a_restart_goes_on_with_the_next_window() -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, HOME)
    desk.reader.restart()
    desk.give("pages", 1000, HOME)
    assert starts(desk) == [0, 1000]


def test_windows_older_than_the_retention_are_deleted() -> None:
    desk = Desk(plan(("retention: 1h\n    buckets: 2", "retention: 2s\n    buckets: 2")))
    for start in range(0, 6000, 1000):
        desk.give("pages", start, HOME)
        desk.give("tops", start, HOME)
    for view, kept in (("pages", (3000, 4000, 5000)), ("tops", range(0, 6000, 1000))):
        prefixes = tuple(kind + text(view) for kind in (TABLE, WINDOW))
        rows = {key for key in desk.machine.rows if key.startswith(prefixes)}
        assert rows == {key for start in kept for key in (table_key(view, start, 0), window_key(WINDOW, view, start))}


# -- what is in the state and in the records --------------------------------------------------------------------------

CROWD = {f"page {n}": 40 + n for n in range(12)} | {"cellar-door": 2}


def test_a_count_that_no_level_shows_is_in_no_row_that_survives() -> None:
    desk = Desk(BOTH)
    desk.give("pages", 0, CROWD)
    desk.give("tops", 0, CROWD)
    desk.grant(1, "public", "fine")
    for key, value in desk.machine.rows.items():
        assert b"cellar" not in key + value
    for message in desk.machine.sent:
        assert b"cellar" not in (message.value or b"")
    table = desk.table("pages", 0)
    shown = set().union(*(items(desk, "pages", audience) for audience in AUDIENCES))
    assert shown == set(table.items) == CROWD.keys() - {"cellar-door"}


def test_no_row_that_survives_holds_the_exact_counts() -> None:
    """With this noise some count moves; the rows hold only what was noised at the finest level."""
    noisy = (('middle, epsilon: "2"', 'middle, epsilon: "11/10"'), ('fine, epsilon: "4"', 'fine, epsilon: "6/5"'))
    desk = Desk(plan(ONLY_PAGES, *noisy))
    desk.give("pages", 0, CROWD)
    table = desk.table("pages", 0)
    noised = dict(zip(table.items, table.values, strict=True))
    assert any(noised[item] != CROWD[item] for item in noised)
    kinds = {TABLE, WINDOW, PROMISE, LEDGER, VIEW, TOTALS, ANNOUNCED, PUBLISHED}
    assert {key[:1] for key in desk.machine.rows} == kinds
    assert totals(desk.machine) == {("windows_released", "pages"): 1}
    assert desk.row("pages", 0).outbox == []


def test_a_release_reads_the_table_at_the_level_of_its_audience() -> None:
    desk = Desk(plan(ONLY_PAGES, ("staff: middle", "staff: fine")))
    desk.give("pages", 0, CROWD)
    table = desk.table("pages", 0)
    least = minimum_counts(desk.plan.views["pages"])[FINE]
    noised = dict(zip(table.items, table.values, strict=True))
    assert items(desk, "pages", "staff") == {item: value for item, value in noised.items() if value >= least}
    assert items(desk, "pages", "public") != items(desk, "pages", "staff")


def with_levels(planned: Plan, change: Callable[[ViewPlan], ViewPlan]) -> Plan:
    """A plan whose views are changed under the fingerprints they have: the noise stays addressed as it is."""
    return replace(planned, views={name: change(view) for name, view in planned.views.items()})


def with_finer_minimum_counts(view: ViewPlan, least: int) -> ViewPlan:
    """A histogram whose finer levels show other keys; a top-k as it is."""
    if not isinstance(view.kind, HistogramPlan):
        return view
    coarse, *finer = view.kind.minimum_counts
    return replace(view, kind=replace(view.kind, minimum_counts=(coarse, *(least for _ in finer))))


def test_a_coarse_record_does_not_depend_on_what_finer_readers_see() -> None:
    """specs/lossless T6: others' clearances and finer levels' minimum counts are not in a coarse reader's bytes."""

    def loosened(view: ViewPlan) -> ViewPlan:
        return with_finer_minimum_counts(view, 1)

    def tightened(view: ViewPlan) -> ViewPlan:
        return with_finer_minimum_counts(view, 10**6)

    def cleared(view: ViewPlan) -> ViewPlan:
        return replace(view, audiences={"partner": FINE, "public": 0, "staff": FINE})

    found = []
    for change in (lambda view: view, loosened, tightened, cleared):
        desk = Desk(with_levels(BOTH, change))
        for view in ("pages", "tops"):
            desk.give(view, 0, CROWD)
        found.append([message for message in desk.published() if message.topic.endswith(".public")])
    assert found[1:] == found[:1] * 3


def test_a_window_that_is_drawn_again_is_noised_afresh_at_every_level() -> None:
    """specs/lossless X02: the same definition about other counts must not show their exact difference."""
    values, coarse = [], []
    for extra in (0, 1):
        desk = Desk(PAGES, entropy=partial(KeyedBits, b"draw %d" % extra))
        desk.give("pages", 0, CROWD | {"page 0": 40 + extra})
        table = desk.table("pages", 0)
        values.append(dict(zip(table.items, table.values, strict=True)))
        coarse.append(items(desk, "pages", "public"))
    added = [{item: row[item] - fine[item] for item in row} for fine, row in zip(values, coarse, strict=True)]
    both = values[0].keys() & values[1].keys()
    assert any(values[0][item] != values[1][item] for item in both - {"page 0"})
    assert sum(added[0][item] != added[1][item] for item in added[0].keys() & added[1].keys()) >= 4


def test_two_windows_have_noise_of_their_own() -> None:
    desk = Desk(PAGES)
    for start in (0, 1000):
        desk.give("pages", start, CROWD)
    first, second = (items(desk, "pages", "public", start) for start in (0, 1000))
    assert sum(first[item] != second[item] for item in first.keys() & second.keys()) >= 4


def test_a_record_says_what_was_asked_for_and_is_keyed_by_view_audience_and_window() -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, HOME)
    desk.give("pages", 1000, HOME)
    for message in desk.published():
        record = decode(message.value or b"")
        assert isinstance(record, HistogramRelease)
        assert message.topic == f"shop.releases.pages.{record.audience}"
        assert message.key == f"pages/{record.audience}/{record.window.start_ms}".encode()
        at = MIDDLE if record.audience == "staff" else 0
        level, least = PAGES.views["pages"].levels[at], minimum_counts(PAGES.views["pages"])[at]
        assert (record.level.name, record.minimum_count) == (level.name, least)
        assert record.noise_interval_95 == level.noise_interval
        assert record.two_sided_from == two_sided_from(level.threshold, least, CONFIDENCE)
        assert record.window.end_ms - record.window.start_ms == 1000


def test_the_ledger_of_a_window_is_that_of_the_period_it_is_in() -> None:
    desk = Desk(PAGES)
    for start in range(0, 5000, 1000):
        desk.give("pages", start, HOME)
    keys = {ledger_key(PAGES.views["pages"], start) for start in (0, 3000, 4000)}
    assert len(keys) == 2
    assert keys == {key for key in desk.machine.rows if key.startswith(LEDGER)}
    spent = sorted(ledger.spent.epsilon for ledger in read_ledgers(desk.machine.rows.items()).values())
    assert spent == epsilons("2", "8")


@every(5)
def test_no_period_has_events_of_a_window_that_is_charged_to_another(step: int) -> None:
    """Every plan of small windows and periods that is not refused: a user of one period pays in that one only."""
    refused: list[str] = []
    tried = [*product(range(1, 5), range(3), (2, 3, 4, 6), range(2))][::step]
    for size, first, period, start in tried:
        times = (
            ("size: 1s, start: 1970-01-01T00:00:00Z", f"size: {size}s, start: 1970-01-01T00:00:0{first}Z"),
            ("period: 4s", f"period: {period}s, start: 1970-01-01T00:00:0{start}Z"),
        )
        try:
            tiled = plan(ONLY_PAGES, *times)
        except ConfigError as error:
            refused += [fault.path for fault in error.faults]
            continue
        desk, windows = Desk(tiled, audit=False), tiled.views["pages"].window.shape
        for at in windows.starts(tiled.views["pages"].window.first_ms or 0, 12_000):
            desk.give("pages", at, HOME)
        for record in desk.records("pages", "public"):
            paying = record.ledger.period
            assert paying.start_ms <= record.window.start_ms < record.window.end_ms <= paying.end_ms
    assert set(refused) == {"views.pages.window.size", "views.pages.window.start"}
    assert len(refused) < len(tried)
