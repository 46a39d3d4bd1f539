"""Windows that are released together, in a commit of reservations and one of results: as if one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from stream_dp.accounting import Ledger
from stream_dp.config.plan import Plan
from stream_dp.control.editions import first_record, next_record, plan_holding
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.releases import engine as engine_module
from stream_dp.releases import releasing as releasing_module
from stream_dp.releases.engine import SMALL_BYTES, ReleaseEngine
from stream_dp.releases.releasing import Releasing
from stream_dp.releases.rows import BUCKET, WINDOW, Call
from stream_dp.windows.effects import Effect, Leave, Message, Step
from stream_dp.windows.encoding import window_key
from stream_dp.windows.shapes.shape import Interval
from tests.support.chosen import ordinarily
from tests.support.machine import Machine, newest
from tests.support.releasing import ONLY_PAGES, Desk, buckets_of, plan
from tests.support.shapes import Shape, stored

HOME = {"home": 40, "cart": 12, "rare": 1}
STARTS = (0, 1000, 2000, 3000)
GROUP = plan()
SCARCE = plan(('epsilon: "40"', 'epsilon: "159/10"'))
"""The period pays for two windows of each view."""
FALLS_BACK = ("    ladder: three\n", "    ladder: three\n    when_short: coarser\n")
FALLING = plan(('epsilon: "40"', 'epsilon: "159/10"'), FALLS_BACK)
PLANS = {
    "paid": GROUP,
    "scarce": SCARCE,
    "falls back": FALLING,
    "waits for what others return": plan(('epsilon: "40"', 'epsilon: "47/2"'), FALLS_BACK),
    "two windows a user": plan(("    delta: ", "    windows_per_user: 2\n    delta: ")),
}


def give(desk: Desk, starts: tuple[int, ...] = STARTS) -> Desk:
    """Counts of both views, of all windows at once."""
    desk.reader.write([one for at in starts for view in ("pages", "tops") for one in counts_of(desk, view, at)])
    return desk


def counts_of(desk: Desk, view: str, start: int) -> list[Message]:
    return buckets_of(desk.plan.views[view], start, {} if start == 1000 else HOME)


def together(planned: Plan, **options: object) -> Desk:
    """A desk whose engine finds all windows at hand."""
    return Desk(planned, at_once=100, **options)  # type: ignore[arg-type]


def released(desk: Desk) -> dict[tuple[str, int, bytes | None], bytes | None]:
    return newest(desk.published())


def test_a_group_takes_as_many_commits_as_a_window() -> None:
    def commits(starts: tuple[int, ...]) -> int:
        desk = together(GROUP)
        engine = desk.made(ReleaseEngine)
        desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
        values = [one.value for at in starts for view in ("pages", "tops") for one in counts_of(desk, view, at)]
        desk.machine.carry_out(engine.buckets(values))
        desk.machine.commits = 0
        desk.machine.carry_out(engine.due())
        assert not engine.waits
        assert desk.machine.unerased(BUCKET) == []
        return desk.machine.commits

    assert commits(STARTS[:1]) == commits(STARTS) == 2


@pytest.mark.parametrize("planned", PLANS.values(), ids=PLANS)
def test_a_group_leaves_what_its_windows_leave_one_by_one(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, records and the accounts' entries, byte by byte: also what is refused, and what remains."""
    group = give(together(planned))
    group.auditor.settled()
    monkeypatch.setattr(engine_module, "RELEASED_AT_ONCE", 1)
    alone = give(together(planned))
    assert released(group) == released(alone)
    assert group.machine.rows.keys() == alone.machine.rows.keys()
    assert group.ledger() == alone.ledger()


@pytest.mark.parametrize("epsilon", [17, 22, 27, 40])
def test_a_group_ends_where_a_view_is_another_from_then_on(epsilon: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of the next definition come before later ones of other views, also if the ledger does not pay for all."""
    scarce = ('epsilon: "40", delta: "1/5"', f'epsilon: "{epsilon}", delta: "9/10"')
    two_items = ("items_per_user: 1\n    window", "items_per_user: 2\n    window")
    first, second = plan(ONLY_PAGES, scarce), plan(scarce, two_items)
    known = [first_record(first, 0)]
    known.append(next_record(known, second, {"pages": 2000, "tops": 1000}, {}, 0))

    def caught_up() -> Desk:
        desk = together(plan_holding(known, first))
        held = [(view, at) for view in desk.plan.views.values() for at in STARTS if view.asks_for(at)]
        desk.reader.write([one for view, at in held for one in buckets_of(view, at, HOME)])
        return desk

    group = caught_up()
    monkeypatch.setattr(engine_module, "RELEASED_AT_ONCE", 1)
    alone = caught_up()
    assert released(group) == released(alone)
    assert {*map(str, group.entries())} == {*map(str, alone.entries())}


def test_a_group_ends_where_a_period_begins_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former period pays for windows 5 to 7, and the one that begins with window 8 would pay for the last two."""

    def charged() -> dict[Interval, Ledger]:
        desk = Desk(Shape(4, budget=1000).plan(), audit=False, at_once=100)
        for shape, starts in ((4, range(5)), (6, range(5, 12))):
            desk.change(Shape(shape, budget=1000).plan())
            desk.reader.write([one for at in starts for one in buckets_of(desk.plan.views["pages"], 1000 * at, HOME)])
        return stored(desk)

    group = charged()
    monkeypatch.setattr(engine_module, "RELEASED_AT_ONCE", 1)
    assert group == charged()
    spent = {period.start_ms: ledger.spent.epsilon for period, ledger in group.items()}
    assert spent == dict.fromkeys((0, 4000, 6000), Fraction(8))


@pytest.mark.parametrize("planned", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("first", ordinarily(1, range(5)))
def test_a_group_that_is_cut_anywhere_ends_as_an_uncut_one(planned: Plan, first: int) -> None:
    whole = give(together(planned))
    whole.reader.restart()
    for cut in range(first, whole.machine.points, 5):
        desk = give(together(planned, cuts=[cut], back=cut % 3, compacts=cut % 2 > 0))
        desk.machine.cut_after = None
        desk.reader.restart()
        desk.auditor.settled()
        assert desk.machine.rows == whole.machine.rows, cut
        assert released(desk) == released(whole), cut
        assert desk.machine.unerased(BUCKET) == []


def test_reservations_of_windows_that_have_to_wait_are_dropped() -> None:
    """They are not stored again with the next group: a restart would count them next to those that are made again."""
    desk = together(GROUP)
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    values = [one.value for at in STARTS for view in ("pages", "tops") for one in counts_of(desk, view, at)]
    desk.machine.carry_out(engine.buckets(values))
    turns = iter([True, True])
    desk.machine.carry_out(engine._releasing.release(engine._group(), lambda _: next(turns, False)))
    assert not desk.ledger().reserved
    while engine.waits:
        desk.machine.carry_out(engine.due())
        assert not desk.ledger().reserved
    assert desk.ledger() == give(together(GROUP)).ledger()


def test_large_windows_are_released_alone_and_large_results_are_stored_in_several_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = {f"page {number:060d}": 40 for number in range(SMALL_BYTES // 60)}
    desk = together(GROUP, audit=False)
    engine = desk.made(ReleaseEngine)
    desk.machine.carry_out(engine.load(desk.machine, now_ms=0))
    views = desk.plan.views
    messages = [one for at in STARTS for one in buckets_of(views["pages"], at, large if at == 2000 else HOME)]
    desk.machine.carry_out(engine.buckets([one.value for one in messages]))
    assert [start for _, start in engine._group()] == [0, 1000]
    desk.machine.carry_out(engine.due())
    assert [start for _, start in engine._group()] == [2000]
    desk.machine.carry_out(engine.due())
    assert [start for _, start in engine._group()] == [3000]

    monkeypatch.setattr(releasing_module, "BYTES_TOGETHER", 1)
    desk = give(together(GROUP))
    desk.auditor.settled()
    assert released(desk) == released(give(together(GROUP)))


# -- the order, and what breaks it ----------------------------------------------------------------------------------


class OrderError(AssertionError):
    """Something was done before that which has to be stored first."""


class Watched:
    """Entropy that is asked about a window only when its reservation is stored, and a machine that lets nothing leave
    that is not."""

    def __init__(self) -> None:
        self.desk = together(GROUP, entropy=self, audit=False)
        self.drawn = 0

    def __call__(self, context: bytes) -> BitSource:
        desk = self.desk
        for view in desk.plan.views.values():
            if view.query_id in context:
                start = int.from_bytes(context.partition(view.query_id)[2], "big") - (1 << 63)
                if str(Call(view.name, start)) not in desk.ledger(start, view.name).reserved:
                    raise OrderError("drawn before it is reserved for")
                self.drawn += 1
        return KeyedBits(b"watched", context)

    def run(self) -> None:
        machine, engine = self.desk.machine, self.desk.made(ReleaseEngine)
        machine.carry_out(engine.load(machine, now_ms=0))
        values = [one.value for at in STARTS for view in ("pages", "tops") for one in counts_of(self.desk, view, at)]
        machine.carry_out(engine.buckets(values))
        while engine.waits:
            machine.carry_out(self._checked(engine.due(), machine))

    @staticmethod
    def _checked(step: Step, machine: Machine) -> Iterator[Effect]:
        for effect in step:
            match effect:
                case Leave(view, start) if start >= 0 and window_key(WINDOW, view, start) not in machine.rows:
                    raise OrderError("leaves before it is stored")
            yield effect


def test_each_window_of_a_group_is_reserved_for_before_it_is_drawn_and_stored_before_it_leaves() -> None:
    watched = Watched()
    watched.run()
    assert watched.drawn >= 8
    assert not watched.desk.ledger().reserved


def draws_first(step: Iterator[Effect]) -> Iterator[Effect]:
    """A mutant: everything is computed before the reservations are stored."""
    yield from list(step)


def leaves_first(step: Iterator[Effect]) -> Iterator[Effect]:
    """A mutant: a window leaves before its table is stored."""
    yield next(step)
    stored = next(step)
    yield from step
    yield stored


@pytest.mark.parametrize(
    ("mutant", "words"), [(draws_first, "drawn before"), (leaves_first, "leaves before")], ids=["draws", "leaves"]
)
def test_another_order_is_noticed(
    mutant: Callable[[Iterator[Effect]], Iterator[Effect]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Releasing.release
    monkeypatch.setattr(Releasing, "release", lambda *args: mutant(release(*args)))
    with pytest.raises(OrderError, match=words):
        Watched().run()
