"""State that was lost is noticed by what readers have: no window is drawn again, and what it cost stays spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.control.editions import next_record, plan_holding
from stream_dp.control.grant_records import Scope
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.bits import BitSource
from stream_dp.records.models import Refusal
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.losses import Shown
from stream_dp.releases.pieces import table_key
from stream_dp.releases.rows import BUCKET, TABLE, WINDOW
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import window_key
from tests.support.chosen import examples, spread
from tests.support.phases import PHASES
from tests.support.releasing import DELTA, ONLY_PAGES, POOL, Desk, buckets_of, keyed, plan, totals

HOME = {"home": 40, "cart": 12}
PAGES = plan(ONLY_PAGES)
BOTH = plan(('epsilon: "40"', 'epsilon: "100"'))
RETENTION = ("retention: 1h\n    buckets: 2", "retention: 2s\n    buckets: 2")
WORST = Cost(Fraction(4), DELTA)
"""What a window of pages costs at the finest level."""


@dataclass
class FreshDesk(Desk):
    """Draws every window anew, as the operating system's entropy does: what is released twice differs."""

    draws: int = 0
    forgotten: list[str] = field(default_factory=list)
    """Records that were deleted from their topics, by key."""

    def __post_init__(self) -> None:
        def fresh(context: bytes) -> BitSource:
            self.draws += 1
            return keyed(context + self.draws.to_bytes(4))

        self.entropy = fresh
        super().__post_init__()

    def published(self) -> list[Message]:
        return [one for one in super().published() if (one.key or b"").decode() not in self.forgotten]

    def lose(self, kept: int = 0) -> None:
        """Stop; of what was ever stored only the first rows survive."""
        del self.machine.changelog[kept:]
        last = dict(self.machine.changelog)
        self.machine.rows = {key: value for key, value in last.items() if value is not None}
        self.machine.watch = lambda: None  # what it checks was promised by the state that is gone
        self.reader.stop()

    def accept(self) -> None:
        """Start accepting the loss, and start again as ever."""
        self.accepts_loss = True
        self.reader.restart()
        self.accepts_loss = False
        self.reader.restart()

    def spent(self) -> dict[bytes, Cost]:
        """What the ledgers say was spent."""
        return {key: ledger.spent for key, ledger in read_ledgers(self.machine.rows.items()).items()}

    def versions(self) -> dict[tuple[str, bytes | None], set[bytes | None]]:
        """The different releases of every window and reader; one that is drawn twice is there twice.

        A refusal draws nothing, and says anew what the ledger knows.
        """
        found: dict[tuple[str, bytes | None], set[bytes | None]] = {}
        for message in self.published():
            if message.key is not None and message.value is not None and not message.key.endswith(b"/refusal"):
                found.setdefault((message.topic, message.key), set()).add(message.value)
        return found


def released(*starts: int, planned: Plan = PAGES) -> FreshDesk:
    desk = FreshDesk(planned)
    for start in starts:
        for view in planned.views:
            desk.give(view, start, HOME)
    return desk


def begun_at(planned: Plan, first_ms: int) -> Plan:
    """A plan whose first windows start later: so it is when that was lost as well."""
    views = {
        name: replace(view, window=replace(view.window, first_ms=first_ms)) for name, view in planned.views.items()
    }
    return replace(planned, views=views)


def refusal(desk: Desk) -> tuple[Fault, ...]:
    """The faults by which the engine refuses to start; it stores and sends nothing."""
    rows, sent = dict(desk.machine.rows), list(desk.machine.sent)
    with pytest.raises(ConfigError) as caught:
        desk.reader.restart()
    assert (desk.machine.rows, desk.machine.sent) == (rows, sent)
    return caught.value.faults


def starts(desk: Desk, view: str = "pages", audience: str = "staff") -> list[int]:
    return [record.window.start_ms for record in desk.records(view, audience)]


# -- noticed --------------------------------------------------------------------------------------------------------


def test_lost_state_is_noticed_and_the_engine_does_not_start() -> None:
    desk = released(0, 1000, 2000, planned=BOTH)
    desk.lose()
    pages, tops = refusal(desk)
    assert (pages.path, tops.path) == ("views.pages", "views.tops")
    assert pages.message.startswith(
        "stored state was lost: of 3 windows or more, the newest that of 1970-01-01T00:00:02Z, readers have what"
    )
    for choice in ("Restore the data folder or the changelog", "--accept-loss", "a new name"):
        assert choice in pages.message
    assert refusal(desk)


def test_one_record_is_enough() -> None:
    desk = released(0, 1000, 2000)
    desk.lose()
    desk.found = lambda: {"pages": [Shown("public", 0, 1, refused=False)]}  # type: ignore[method-assign]
    assert "of 1 windows or more" in refusal(desk)[0].message


def test_windows_before_the_first_of_a_view_that_was_begun_anew_are_noticed_too() -> None:
    """The control topic, which tells where windows begin, was lost as well; what they cost is forgotten."""
    desk = released(0, 1000)
    desk.lose()
    desk.plan = begun_at(desk.plan, 3000)
    assert refusal(desk)
    desk.accept()
    desk.give("pages", 3000, HOME)
    assert desk.ledger().spent == WORST * 2 + Cost(Fraction(2), DELTA)


def test_a_lost_sharper_revision_is_noticed() -> None:
    desk = released(0, 1000)
    before = len(desk.machine.changelog)
    desk.grant(1, "public", "middle")
    desk.lose(before)
    assert "of 2 windows or more, the newest that of 1970-01-01T00:00:01Z" in refusal(desk)[0].message


def test_a_lost_refusal_is_noticed() -> None:
    desk = FreshDesk(POOR)
    desk.give("pages", 0, HOME)
    desk.give("pages", 1000, HOME)
    before = len(desk.machine.changelog)
    desk.give("pages", 2000, HOME)
    desk.lose(before)
    assert "of 1 windows or more, the newest that of 1970-01-01T00:00:02Z" in refusal(desk)[0].message


def test_a_row_that_is_missing_among_others_is_noticed() -> None:
    desk = released(0, 1000, 2000)
    del desk.machine.rows[window_key(WINDOW, "pages", 1000)]
    assert "the newest that of 1970-01-01T00:00:01Z" in refusal(desk)[0].message


# -- not mistaken ---------------------------------------------------------------------------------------------------

POOR = plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "5"'))
"""Pays for two windows at the middle level of each period of four."""


def retained(text_: str) -> Plan:
    return plan(ONLY_PAGES, ("retention: 1h\n    buckets: 2", f"retention: {text_}\n    buckets: 2"))


@pytest.mark.parametrize("retention", ["1s", "2s", "5s", "1h"])
def test_windows_past_their_retention_were_not_lost_whatever_it_is_set_to_later(retention: str) -> None:
    desk = released(*range(0, 8000, 1000), planned=retained("2s"))
    desk.change(retained(retention))
    desk.give("pages", 8000, HOME)
    desk.reader.restart()
    assert starts(desk) == [*range(0, 9000, 1000)]


def test_refused_windows_and_refused_revisions_were_not_lost() -> None:
    desk = released(0, 1000, 2000, planned=POOR)
    desk.grant(1, "public", "fine")
    assert {(record.revision, record.type) for record in desk.records("pages", "public")} == {
        (1, "release"),
        (1, "refusal"),
        (2, "refusal"),
    }
    desk.reader.restart()


def test_an_audience_that_came_later_has_lost_nothing() -> None:
    names = ("retention: 1h\n    buckets: 2", "retention: 1h\n    buckets: 2\n    audiences: [public, staff]")
    desk = released(0, 1000, planned=plan(ONLY_PAGES, names))
    desk.change(PAGES)
    desk.grant(1, "partner", "fine")
    desk.reader.restart()


# -- accepted -------------------------------------------------------------------------------------------------------


def test_lost_windows_are_charged_at_worst_and_never_released_again() -> None:
    desk = released(*range(0, 6000, 1000), planned=BOTH)
    before = desk.versions()
    desk.lose()
    desk.accept()
    tops = BOTH.views["tops"].cost(2)
    assert desk.ledger(0).spent == WORST * 4 + tops * 4
    assert desk.ledger(0).views == {"pages": WORST * 4, "tops": tops * 4}
    assert desk.ledger(4000).spent == WORST * 2 + tops * 2
    for start in range(0, 8000, 1000):  # whoever counts may count them again
        for view in ("pages", "tops"):
            desk.give(view, start, HOME)
    assert desk.versions().items() >= before.items()
    assert starts(desk) == starts(desk, "tops") == [*range(0, 8000, 1000)]
    assert desk.reader.standing() == set()
    assert not [key for key in desk.machine.rows if key.startswith(BUCKET)]
    assert desk.machine.counts["windows_lost", (("view", "pages"),)] == 6
    desk.reader.restart()
    assert desk.ledger(0).spent == WORST * 4 + tops * 4


def test_lost_windows_are_not_sharpened() -> None:
    desk = released(0, 1000)
    desk.lose()
    desk.accept()
    desk.give("pages", 2000, HOME)
    desk.grant(1, "public", "fine")
    sharper = [record.window.start_ms for record in desk.records("pages", "public") if record.revision > 1]
    assert sharper == [2000]


def test_what_was_stored_of_a_view_stays_and_only_what_was_lost_is_charged() -> None:
    desk = released(0, 1000)
    kept = len(desk.machine.changelog)
    for start in (2000, 3000, 4000):
        desk.give("pages", start, HOME)
    desk.lose(kept)
    desk.accept()
    stored = Cost(Fraction(2), DELTA) * 2
    assert desk.ledger(0).spent == stored + WORST * 2
    assert desk.ledger(4000).spent == WORST
    desk.grant(1, "public", "fine")
    assert [record.window.start_ms for record in desk.records("pages", "public") if record.revision > 1] == [0, 1000]
    desk.give("pages", 5000, HOME)
    assert starts(desk) == [*range(0, 6000, 1000)]


def test_a_lost_sharper_revision_is_charged_up_to_the_finest_level_and_its_window_is_sharpened_no_more() -> None:
    desk = released(0, 1000)
    before = len(desk.machine.changelog)
    desk.grant(1, "public", "fine")
    desk.lose(before)
    desk.found = only_window(desk, 0)  # type: ignore[method-assign]
    desk.accept()
    assert desk.ledger().spent == WORST + Cost(Fraction(2), DELTA)
    assert {key for key in desk.machine.rows if key[:1] in (WINDOW, TABLE)} == {
        window_key(WINDOW, "pages", 1000),
        table_key("pages", 1000, 0),
    }
    sent = len(desk.published())
    desk.grant(2, "partner", "fine")
    assert {one.key for one in desk.published()[sent:]} == {b"pages/partner/1000"}


def test_windows_between_of_which_no_record_is_left_are_charged_and_not_released_either() -> None:
    desk = released(0, 1000, 2000, 3000)
    desk.forgotten = [f"pages/{audience}/{start}" for audience in desk.plan.audiences for start in (1000, 2000)]
    desk.lose()
    desk.accept()
    assert desk.ledger().spent == WORST * 4
    for start in (1000, 2000, 4000):
        desk.give("pages", start, HOME)
    assert starts(desk)[-1] == 4000
    assert not {1000, 2000} & {*starts(desk)[4:]}


def test_more_than_the_budget_leaves_nothing_and_refuses_until_the_next_period() -> None:
    desk = released(0, 1000, planned=POOR)
    desk.lose()
    desk.accept()
    assert desk.ledger().left == Cost(Fraction(0), Fraction("1/5") - 2 * DELTA)
    for start in (2000, 3000, 4000):
        desk.give("pages", start, HOME)
    kinds = [(record.window.start_ms, record.type) for record in desk.records("pages", "staff")]
    assert kinds[2:] == [(2000, "refusal"), (3000, "refusal"), (4000, "release")]
    last = desk.records("pages", "staff")[2]
    assert isinstance(last, Refusal)


def test_the_pool_of_a_ledger_is_charged() -> None:
    desk = released(0, 1000, planned=plan(POOL))
    before = desk.spent()
    desk.lose()
    desk.accept()
    views, budget = desk.plan.views, desk.ledger().budget
    worst = (views["pages"].at_worst + views["tops"].at_worst) * 2
    assert worst.delta < budget.delta
    assert worst.rho > budget.rho
    assert desk.ledger().spent == worst.least(budget)
    (former,) = before.values()
    assert former <= desk.ledger().spent


def test_counts_that_wait_for_a_lost_window_are_erased() -> None:
    """The bucket of a lost window that was counted again stands in the table from before the loss was accepted."""
    desk = released(0)
    desk.lose()
    message = buckets_of(desk.plan.views["pages"], 0, HOME)[0]
    desk.machine.rows[message.key or b""] = message.value or b""
    desk.accept()
    assert not [key for key in desk.machine.rows if key.startswith(BUCKET)]
    assert desk.machine.unerased(BUCKET) == []


# -- behind windows that expired ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", ["1ms", "2s"])
def test_lost_state_is_noticed_by_what_never_expires_and_expired_windows_are_charged_too(retention: str) -> None:
    desk = released(*range(0, 6000, 1000), planned=retained(retention))
    before = desk.versions()
    left = {one.start_ms for one in desk.found()["pages"]}
    assert left == ({5000} if retention == "1ms" else {3000, 4000, 5000})
    desk.lose()
    assert refusal(desk)
    desk.accept()
    assert desk.ledger(0).spent == WORST * 4
    assert desk.ledger(4000).spent == WORST * 2
    for start in range(0, 8000, 1000):
        desk.give("pages", start, HOME)
    assert desk.versions().items() >= before.items()
    assert desk.versions().keys() - before.keys() == {
        (f"shop.releases.pages.{audience}", b"pages/%s/%d" % (audience.encode(), start))
        for audience in desk.plan.audiences
        for start in (6000, 7000)
    }


def test_a_window_that_was_sharpened_and_expired_since_what_is_left_is_charged_at_worst() -> None:
    """Nobody can tell any more how sharp it was: its records were taken back."""
    desk = released(0, 1000, 2000, planned=retained("2s"))
    kept = len(desk.machine.changelog)
    desk.grant(1, "public", "fine")
    desk.give("pages", 3000, HOME)
    spent = desk.ledger().spent
    assert 0 not in {one.start_ms for one in desk.found()["pages"]}
    desk.lose(kept)
    desk.accept()
    assert desk.ledger().spent == spent == WORST * 4


@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_windows_of_a_former_definition_of_which_nothing_is_left_are_charged_and_not_drawn_again(step: int) -> None:
    """They have expired by those of the definition that took its place; the changelog ends anywhere before."""
    short = (ONLY_PAGES, RETENTION, ("period: 4s", "period: 100s"), ('"1/5"', '"9/10"'))
    former, latter = plan(*short), plan(*short, ("items_per_user: 1", "items_per_user: 2"))
    known = [next_record((), former, {"pages": 0}, {}, 0)]
    known.append(next_record(known, latter, {"pages": 2000}, {}, 0))

    def run() -> FreshDesk:
        desk = released(0, 1000, planned=plan_holding(known[:1], former))
        desk.grant(1, "public", "fine", scope=Scope(until_ms=1000))
        desk.change(plan_holding(known, latter))
        for start in range(2000, 6000, 1000):
            desk.give("pages@2", start, HOME)
        return desk

    noticed = 0
    for kept in range(0, len(run().machine.changelog), step):
        desk = run()
        assert {one.start_ms for found in desk.found().values() for one in found} == {3000, 4000, 5000}
        before, spent = desk.versions(), desk.ledger().spent
        desk.lose(kept)
        try:
            desk.reader.restart()
        except ConfigError:
            noticed += 1
        desk.accept()
        for start in (0, 1000):
            desk.give("pages", start, HOME)
        assert desk.versions() == before
        assert spent <= desk.ledger().spent
    assert noticed


# -- wherever the changelog ends, and wherever a crash cuts ---------------------------------------------------------


def busy(seed: Sequence[int]) -> FreshDesk:
    """Windows of two views, grants, refusals, in an order that the seed decides."""
    desk = FreshDesk(plan(('epsilon: "40"', 'epsilon: "16"'), RETENTION))
    next_start = dict.fromkeys(desk.plan.views, 0)
    for at, number in enumerate(seed):
        view = ("pages", "tops")[number % 2]
        if number < 8:
            desk.give(view, next_start[view], HOME)
            next_start[view] += 1000
        else:
            desk.grant(at, ("public", "partner", "staff")[number % 3], ("middle", "fine")[number % 2])
    return desk


SEEDS = st.lists(st.integers(0, 11), min_size=3, max_size=9)


@examples(15, 60, given(seed=SEEDS, share=st.fractions(0, 1)), phases=PHASES)
def test_wherever_the_changelog_ends_nothing_is_released_twice_and_what_was_spent_stays_spent(
    seed: Sequence[int], share: Fraction
) -> None:
    desk = busy(seed)
    spent, sent = desk.spent(), len(desk.published())
    before = desk.versions()
    desk.lose(int(len(desk.machine.changelog) * share))
    try:
        desk.reader.restart()
    except ConfigError:
        desk.accept()
    for start in range(0, 10_000, 1000):
        for view in ("pages", "tops"):
            desk.give(view, start, HOME)
    assert desk.versions().items() >= before.items()
    assert len(desk.published()) > sent
    after = desk.spent()
    assert all(spent[key] <= after[key] for key in spent)


@pytest.mark.parametrize("cut", spread(4, range(14)))
@pytest.mark.parametrize("begun", [0, 6000], ids=["", "begun anew"])
def test_a_crash_while_a_loss_is_accepted_charges_too_much_or_exactly_never_too_little(cut: int, begun: int) -> None:
    desk = released(*range(0, 5000, 1000), planned=BOTH)
    desk.lose()
    desk.plan = begun_at(desk.plan, begun)
    spent = {0: (WORST + BOTH.views["tops"].cost(2)) * 4, 4000: WORST + BOTH.views["tops"].cost(2)}
    desk.machine.cut_after = cut
    desk.accept()
    for start, worst in spent.items():
        assert worst <= desk.ledger(start).spent
        assert desk.ledger(start).spent <= worst * 2
    assert totals(desk.machine) == {("windows_lost", view): 5 for view in BOTH.views}, "counted once all the same"
    for start in (5000, 6000):
        desk.give("pages", start, HOME)
    assert starts(desk)[5:] == [start for start in (5000, 6000) if start >= begun]


def only_window(desk: Desk, start: int) -> Callable[[], dict[str, list[Shown]]]:
    """What was found, the sharper revisions of one window alone."""
    found = desk.found

    def some() -> dict[str, list[Shown]]:
        return {
            view: [one if one.start_ms == start else one._replace(revision=1) for one in shown]
            for view, shown in found().items()
        }

    return some
