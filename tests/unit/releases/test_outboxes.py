"""When stored records leave, in which order, and what a crash between storing and leaving changes: nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from stream_dp.control.grant_records import Order
from stream_dp.records.codec import decode as decode_record
from stream_dp.releases import outboxes
from stream_dp.releases.engine import SHARPENED_AT_ONCE, ReleaseEngine
from stream_dp.releases.outboxes import Outboxes
from stream_dp.releases.pieces import table_key
from stream_dp.releases.rows import TABLE, WINDOW
from stream_dp.windows.effects import Commit, Leave, Message, Publish, Step
from stream_dp.windows.encoding import window_key
from tests.support.chosen import every
from tests.support.machine import newest
from tests.support.releasing import ONLY_PAGES, Desk, buckets_of, plan, totals

HOME = {"home": 40, "cart": 12}
BOTH = plan()
PAGES = plan(ONLY_PAGES)
CLOSED, SLOT = 10_000, 12_000
"""A close, and the slot that it leads to."""
RECORDS = 4
"""Of a window: one for each audience, and the entry of the accounts."""


def held(planned: object = PAGES, **how: object) -> Desk:
    """A desk at which no slot has come."""
    return Desk(planned, until_ms=0, **how)  # type: ignore[arg-type]


def published(desk: Desk, topic: str = "shop.releases.pages.public") -> list[tuple[int, int]]:
    """Start of the window and revision of what stands on a topic, in order, immediate repetitions left out."""
    sent = [message.value for message in desk.published() if message.topic == topic]
    records = [decode_record(value) for value in sent if value is not None]
    found = [(record.window.start_ms, record.revision) for record in records]
    return [one for at, one in enumerate(found) if at == 0 or found[at - 1] != one]


@dataclass
class Bench:
    """A release engine and its outboxes, whose steps are carried out by hand, one effect behind the other."""

    desk: Desk
    outboxes: Outboxes = field(default_factory=Outboxes)

    def __post_init__(self) -> None:
        self.engine = self.desk.made(ReleaseEngine)
        self.do(self.engine.load(self.desk.machine, now_ms=0))
        self.slot(0)

    def do(self, step: Step) -> list[object]:
        """Carry out a step, and say which effects it had."""
        done: list[object] = []

        def heeded() -> Step:
            for effect in step:
                done.append(effect)
                if isinstance(effect, Leave):
                    self.outboxes.add(effect)
                yield effect

        self.desk.machine.carry_out(heeded())
        return done

    def give(self, view: str, start: int, closed_ms: int) -> None:
        messages = buckets_of(self.desk.plan.views[view], start, HOME, closed_ms)
        self.do(self.engine.buckets([message.value for message in messages]))

    def work(self) -> None:
        while self.engine.waits:
            self.do(self.engine.due())

    def slot(self, slot_ms: int) -> list[list[Message]]:
        """Publish at a slot, and settle; the messages of every `Publish`."""
        effects = self.do(self.outboxes.publish(slot_ms, self.desk.machine))
        sent = [effect for effect in effects if isinstance(effect, Publish)]
        assert {publish.slot_ms for publish in sent} <= {slot_ms}
        self.settle()
        return [[*publish.messages] for publish in sent]

    def settle(self) -> int:
        """Empty the outboxes of what was published; the number of commits."""
        commits = 0
        while self.outboxes.published:
            commits += sum(isinstance(one, Commit) for one in self.do(self.outboxes.settle(self.desk.machine)))
        return commits


# -- slots ----------------------------------------------------------------------------------------------------------


def test_a_window_leaves_at_the_slot_of_its_close_and_not_before() -> None:
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.slot(SLOT - 1)
    assert desk.published() == []
    assert desk.ledger().spent.epsilon == 2, "it is released all the same"
    desk.slot(SLOT)
    assert published(desk) == [(0, 1)]
    assert desk.row("pages", 0).outbox == []
    assert desk.machine.counts["releases_late", (("view", "pages"),)] == 0


@pytest.mark.parametrize("keys", [0, 10, 5000])
def test_the_slot_of_a_window_does_not_depend_on_its_counts(keys: int) -> None:
    desk = held()
    desk.give("pages", 0, {f"page {number}": 40 for number in range(keys)}, CLOSED)
    assert desk.row("pages", 0).slot_ms == SLOT
    assert {departure.slot_ms for departure in desk.row("pages", 0).outbox} == {SLOT}


def test_the_last_partition_and_bucket_to_close_decide_when_a_window_leaves() -> None:
    desk = held()
    first, second = (buckets_of(PAGES.views["pages"], 0, HOME, closed)[at] for at, closed in enumerate((5000, 9500)))
    desk.reader.write([second, first])
    assert desk.row("pages", 0).slot_ms == SLOT


def test_many_windows_leave_at_one_slot_in_one_go() -> None:
    bench = Bench(held(BOTH))
    for start in range(0, 4000, 1000):
        for view in BOTH.views:
            bench.give(view, start, CLOSED)
    bench.work()
    (messages,) = bench.slot(SLOT)
    assert len(messages) == 2 * 4 * RECORDS
    assert bench.outboxes.next_ms is None


def test_fifteen_views_of_one_ledger_with_windows_of_a_second_take_one_slot_a_second() -> None:
    """However many views: a window does not wait until another one has left."""
    views = "views:\n" + "".join(_view(f"view-{number}") for number in range(13))
    many = plan(("views:\n", views), ('"40"', '"4000"'), ('"1/5"', '"99/100"'))
    assert len(many.views) == 15
    bench = Bench(held(many, audit=False))
    seconds = 8
    for second in range(seconds):
        for view in many.views:
            bench.give(view, 1000 * second, CLOSED + 1000 * second)
        bench.work()
    slots = []
    while (slot := bench.outboxes.next_ms) is not None:
        slots.append(slot)
        (messages,) = bench.slot(slot)
        assert len(messages) == 15 * RECORDS
    assert slots == [SLOT + 1000 * second for second in range(seconds)]


def _view(name: str) -> str:
    return (
        f"  {name}:\n    source: visits\n    item: page\n    kind: histogram\n    items_per_user: 1\n"
        "    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}\n"
        '    delta: "1/10000"\n    ledger: visitors\n    ladder: three\n    buckets: 1\n'
    )


def test_a_window_that_misses_its_slot_leaves_at_the_next_one_and_is_counted() -> None:
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.give("pages", 1000, HOME, CLOSED + 1000)
    desk.slot(SLOT + 1000)
    assert published(desk) == [(0, 1), (1000, 1)]
    assert desk.machine.counts["releases_late", (("view", "pages"),)] == 1


def test_what_gets_ready_while_a_slot_is_published_waits_for_the_next_one() -> None:
    """Else the moment it leaves would tell how long it took."""
    bench = Bench(held())
    bench.give("pages", 0, CLOSED)
    bench.give("pages", 1000, CLOSED)
    bench.do(bench.engine.due())
    step = bench.outboxes.publish(SLOT, bench.desk.machine)
    bench.give("pages", 2000, CLOSED)
    bench.work()
    bench.do(step)
    assert published(bench.desk) == [(0, 1), (1000, 1)]
    assert bench.outboxes.next_ms == SLOT


def test_windows_of_a_view_leave_in_order_though_a_clock_was_set_back_between_their_closes() -> None:
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.reader.restart()
    desk.give("pages", 1000, HOME, CLOSED - 5000)
    desk.slot(SLOT - 1000)
    assert desk.published() == []
    desk.slot(SLOT)
    assert published(desk) == [(0, 1), (1000, 1)]


def test_refusals_leave_at_slots_too() -> None:
    desk = held(plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "3"')))
    desk.give("pages", 0, HOME, CLOSED)
    desk.give("pages", 1000, HOME, CLOSED)
    desk.slot(SLOT - 1000)
    assert desk.published() == []
    desk.slot(SLOT)
    assert [record.type for record in desk.records("pages", "staff")] == ["release", "refusal"]


def test_publishing_and_settling_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "PUBLISHED_AT_ONCE", 2 * RECORDS)
    monkeypatch.setattr(outboxes, "SETTLED_AT_ONCE", 2)
    bench = Bench(held(plan(ONLY_PAGES, ("period: 4s", "period: 100s"))))
    for start in range(0, 5000, 1000):
        bench.give("pages", start, CLOSED)
    bench.work()
    effects = bench.do(bench.outboxes.publish(SLOT, bench.desk.machine))
    assert [len(effect.messages) for effect in effects if isinstance(effect, Publish)] == [
        2 * RECORDS,
        2 * RECORDS,
        RECORDS,
    ]
    assert bench.settle() == 3
    assert [bench.desk.row("pages", start).outbox for start in range(0, 5000, 1000)] == [[]] * 5


def test_large_records_are_published_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "BYTES_AT_ONCE", 1)
    bench = Bench(held())
    for start in (0, 1000):
        bench.give("pages", start, CLOSED)
    bench.work()
    assert [len(messages) for messages in bench.slot(SLOT)] == [1] * (2 * RECORDS)


# -- restarts and crashes -------------------------------------------------------------------------------------------


def test_an_outbox_survives_a_restart_and_leaves_with_the_same_bytes_at_a_later_slot() -> None:
    whole = Desk(PAGES)
    whole.give("pages", 0, HOME, CLOSED)
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.reader.restart()
    assert desk.published() == []
    desk.slot(SLOT + 7000)
    assert desk.published() == whole.published()
    assert desk.machine.counts["releases_late", (("view", "pages"),)] == 1


def test_a_restart_does_not_let_a_window_leave_before_its_slot() -> None:
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.reader.restart()
    desk.slot(SLOT - 1000)
    assert desk.published() == []
    desk.slot(SLOT)
    assert published(desk) == [(0, 1)]


def play(cuts: Sequence[int] = ()) -> Desk:
    """Windows that wait for slots, one of them sharpened before it has left, over three slots and a restart."""
    desk = Desk(plan(ONLY_PAGES, ("period: 4s", "period: 100s")), cuts=cuts, until_ms=0)
    desk.give("pages", 0, HOME, CLOSED)
    desk.give("pages", 1000, HOME, CLOSED + 500)
    desk.slot(SLOT)
    desk.grant(1, "public", "fine", CLOSED + 400)
    desk.give("pages", 2000, HOME, CLOSED + 1200)
    desk.slot(SLOT + 1000)
    desk.reader.restart()
    desk.slot(SLOT + 2000)
    desk.machine.cut_after = None
    desk.reader.restart()
    desk.slot(SLOT + 3000)
    return desk


@every(8)
def test_a_run_cut_at_any_effect_publishes_the_bytes_of_an_uncut_run_in_their_order(step: int) -> None:
    whole = play()
    whole.auditor.settled()
    in_order = [(0, 1), (0, 2), (1000, 1), (1000, 2), (2000, 1)]
    assert published(whole) == in_order
    for cut in range(0, whole.machine.points, step):
        desk = play([cut])
        desk.auditor.settled()
        assert newest(desk.published()) == newest(whole.published())
        assert desk.machine.rows == whole.machine.rows
        assert list(dict.fromkeys(published(desk))) == in_order


@every(4)
def test_a_late_window_is_counted_once_wherever_publishing_it_is_cut(step: int) -> None:
    """One that left in time and comes again after a crash is late then: it is the last time that readers see."""

    def run(cut: int) -> Desk:
        desk = held()
        desk.give("pages", 0, HOME, CLOSED)
        desk.give("pages", 1000, HOME, CLOSED)
        desk.slot(SLOT + 1000)
        desk.give("pages", 2000, HOME, CLOSED + 2000)
        desk.machine.cut_after = cut
        desk.slot(SLOT + 3000)
        desk.machine.cut_after = None
        desk.reader.restart()
        return desk

    for cut in range(0, 60, step):
        desk = run(cut)
        assert totals(desk.machine) == {("windows_released", "pages"): 3, ("releases_late", "pages"): 3}
    assert desk.machine.points > 60


# -- sharpening -----------------------------------------------------------------------------------------------------


def test_a_sharper_revision_leaves_at_the_slot_of_its_order() -> None:
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.slot(SLOT)
    desk.grant(1, "public", "fine", 20_000)
    desk.slot(21_000)
    assert published(desk) == [(0, 1)]
    desk.slot(22_000)
    assert published(desk) == [(0, 1), (0, 2)]


def test_a_revision_never_leaves_before_the_one_it_sharpens() -> None:
    """The clock of the worker that takes an order may be behind that of the worker that closed the window."""
    desk = held()
    desk.give("pages", 0, HOME, CLOSED)
    desk.grant(1, "public", "fine", CLOSED - 6000)
    desk.slot(SLOT - 1000)
    assert desk.published() == []
    desk.slot(SLOT)
    assert published(desk) == [(0, 1), (0, 2)]


def test_a_window_that_is_sharpened_between_its_publishing_and_its_settling_loses_nothing() -> None:
    bench = Bench(held())
    bench.give("pages", 0, CLOSED)
    bench.work()
    bench.do(bench.outboxes.publish(SLOT, bench.desk.machine))
    bench.do(bench.engine.order(Order(1, "public", "fine"), now_ms=0))
    bench.work()
    assert len(bench.desk.row("pages", 0).outbox) == 2
    assert bench.do(bench.outboxes.publish(SLOT + 500, bench.desk.machine)) == [], "the first may come again"
    bench.settle()
    assert [departure.number for departure in bench.desk.row("pages", 0).outbox] == [2]
    bench.slot(SLOT + 1000)
    assert published(bench.desk) == [(0, 1), (0, 2)]
    assert bench.desk.row("pages", 0).outbox == []


def test_a_window_that_was_not_published_yet_outlives_its_retention() -> None:
    desk = held(plan(ONLY_PAGES, ("retention: 1h", "retention: 1s")))
    for start in range(0, 5000, 1000):
        desk.give("pages", start, HOME, CLOSED)
    desk.slot(SLOT)
    assert published(desk) == [(start, 1) for start in range(0, 5000, 1000)]
    assert [message for message in desk.published() if message.value is None] == []
    desk.give("pages", 5000, HOME, CLOSED)
    desk.slot(SLOT + 3000)
    kept = {key for start in (4000, 5000) for key in (window_key(WINDOW, "pages", start), table_key("pages", start, 0))}
    assert {key for key in desk.machine.rows if key.startswith((WINDOW, TABLE))} == kept


@pytest.mark.slow
def test_an_order_of_hundreds_of_windows_is_carried_out_in_bounded_steps_and_resumed_where_it_was_cut() -> None:
    """A rebalance leaves it to whoever loads the engine next, and its message need not come again."""
    count = 600
    cheap = ('delta: "1/100"\n', 'delta: "1/10000"\n')
    desk = Desk(plan(ONLY_PAGES, ('"40"', '"40000"'), ('"1/5"', '"9/10"'), ("4s", "1h"), cheap), audit=False)
    messages = [
        one for start in range(count) for one in buckets_of(desk.plan.views["pages"], 1000 * start, {"home": 9})
    ]
    bench = Bench(desk)
    for at in range(0, len(messages), 500):
        bench.do(bench.engine.buckets([message.value for message in messages[at : at + 500]]))
    bench.work()
    bench.slot(2000)
    bench.do(bench.engine.order(Order(1, "public", "fine"), now_ms=0))
    sharpened = 0
    while sharpened < count // 2:
        before = len(desk.machine.leaving)
        bench.do(bench.engine.due())
        assert len(desk.machine.leaving) - before == SHARPENED_AT_ONCE
        sharpened += SHARPENED_AT_ONCE

    bench = Bench(desk)
    steps = 0
    while bench.engine.waits:
        bench.do(bench.engine.due())
        steps += 1
    assert steps == (count - sharpened) // SHARPENED_AT_ONCE
    bench.slot(2000)
    assert published(desk)[count:] == [(1000 * start, 2) for start in range(count)]


def test_windows_that_are_due_are_not_kept_waiting_by_an_order() -> None:
    bench = Bench(held(plan(ONLY_PAGES, ("period: 4s", "period: 100s"))))
    bench.give("pages", 0, CLOSED)
    bench.work()
    bench.do(bench.engine.order(Order(1, "public", "fine"), now_ms=CLOSED))
    bench.give("pages", 1000, CLOSED)
    bench.do(bench.engine.due())
    assert bench.desk.row("pages", 1000).states["public"].revision == 1
    assert bench.desk.row("pages", 0).states["public"].revision == 1
    bench.work()
    assert bench.desk.row("pages", 0).states["public"].revision == 2


def test_a_newer_order_takes_the_place_of_one_that_is_not_carried_out() -> None:
    bench = Bench(held())
    bench.give("pages", 0, CLOSED)
    bench.work()
    for number, level in ((1, "fine"), (2, "coarse")):
        bench.do(bench.engine.order(Order(number, "public", level), now_ms=CLOSED))
    bench.work()
    assert bench.desk.row("pages", 0).states["public"].revision == 1
    bench = Bench(bench.desk)
    assert not bench.engine.waits
