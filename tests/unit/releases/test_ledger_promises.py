"""Any sequence of changed periods, budgets, names and views: every period that began keeps what it promised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting import Cost, Ledger
from stream_dp.accounting.composition import rho_within
from stream_dp.config import planner
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.config.shares import Shares
from stream_dp.records.codec import AnyRecord, decode
from stream_dp.records.models import Refusal, Release
from stream_dp.records.statement import caps
from stream_dp.releases.accounts import Accounts, Charge, period_of
from stream_dp.releases.rows import Call
from stream_dp.windows.effects import Commit
from stream_dp.windows.shapes.shape import Interval
from tests.support.acts import shop
from tests.support.chosen import ordinarily
from tests.support.given import there
from tests.support.machine import Machine
from tests.support.releasing import is_about_view
from tests.support.shapes import HOME, Shape, opened, stored


@pytest.fixture(autouse=True, scope="module")
def caps_are_worked_out_once() -> Iterator[None]:
    """That of a pool takes a tenth of a second, and here are hundreds of plans with few pools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "rho_within", cache(rho_within))
        yield


@dataclass
class Book:
    """What the records say was paid, kept as (period, window, view, cost), and what that leaves."""

    begun: dict[Interval, Cost] = field(default_factory=dict)
    """The caps of every period that a release was charged to."""
    paid: list[tuple[Interval, Interval, str, Cost]] = field(default_factory=list)
    refused: int = 0
    changed: int = 0
    """Releases that were paid by a period of another shape than the configured one."""
    exact: bool = True
    """Whether to ask more than that every promise is kept: that what is charged fits, and what is refused does not."""
    pooled: bool = False
    finest: dict[tuple[str, Interval], Cost] = field(default_factory=dict)
    """By view and window: what the finest release of it has cost; in a pool, the finest of its first."""
    levels: dict[tuple[str, Interval], Fraction] = field(default_factory=dict)
    """By view and window: the finest level that anybody has, by its epsilon."""
    earlier: set[tuple[str, Interval]] = field(default_factory=set)
    """Windows that were released by earlier acts: what is released of them now is a step."""
    steps: dict[tuple[str, Fraction], Fraction] = field(default_factory=dict)
    """By view and epsilon of a level: rho of a step to it, whatever was released before."""
    kept: dict[Interval, Mapping[str, Cost]] = field(default_factory=dict)
    """By period that has begun: what it keeps for each view that there was then."""

    def counted(self, period: Interval) -> Cost:
        return sum(self.taken(period).values(), Cost.ZERO)

    def taken(self, period: Interval) -> dict[str, Cost]:
        """What counts in a period, by view."""
        found: dict[str, Cost] = {}
        for payer, _, view, cost in self.paid:
            if payer.overlaps(period):
                found[view] = found.get(view, Cost.ZERO) + cost
        return found

    def inside(self, period: Interval) -> Cost:
        """What the windows have cost that have a moment in a period, whichever period paid."""
        return sum((cost for _, window, _, cost in self.paid if window.overlaps(period)), Cost.ZERO)

    def fits(self, payer: Interval, budget: Cost, window: Interval, cost: Cost) -> bool:
        """Whether a window may be charged: entry by entry under all that have begun, and in whole where one begins."""
        if payer not in self.begun and not self.counted(payer) + cost <= budget:
            return False
        bound = {period: most for period, most in self.begun.items() if period.overlaps(window)}
        return all(
            not asked or have + asked <= most
            for period, limit in bound.items()
            for have, asked, most in zip(self.counted(period), cost, limit, strict=True)
        )

    def shared(self, plan: Plan, payer: Interval, budget: Cost, window: Interval, view: str, cost: Cost) -> bool:
        """Whether nothing that a window costs is kept for another view in any period that it is in."""
        periods = {payer: budget} | {each: caps for each, caps in self.begun.items() if each.overlaps(window)}
        return all(
            cost <= self._shares(plan, period, limit).room(view, self.taken(period))
            for period, limit in periods.items()
        )

    def _shares(self, plan: Plan, period: Interval, budget: Cost) -> Shares:
        planned = Shares.of(budget, period, plan.views.values())
        return replace(planned, kept=self.kept.get(period, planned.kept))

    def change(self, plan: Plan) -> None:
        """Nothing is kept any more for views that there are no more; nobody gets it back."""
        for period, kept in self.kept.items():
            self.kept[period] = {name: cost for name, cost in kept.items() if name in plan.views}

    def take(self, plan: Plan, record: AnyRecord) -> None:
        """Check a record against what was paid before, and write down what it charged."""
        window = Interval(record.window.start_ms, record.window.end_ms)
        payer = Interval(record.ledger.period.start_ms, record.ledger.period.end_ms)
        (ledger,) = plan.ledgers.values()
        today = ledger.periods.interval(window.start_ms)
        begun = sorted(self.begun, key=lambda period: (period.start_ms, period.end_ms))
        paying = today if today in self.begun else next((each for each in begun if each.holds(window)), today)
        assert payer == paying, "another period paid than the one that has begun"
        budget = self.begun.get(payer, ledger.budget)
        assert caps(record.ledger) == budget, "a record says another budget than its period began with"
        if isinstance(record, Refusal):
            self.refused += 1
            asked = record.requested.cost
            fits = self.fits(payer, budget, window, asked)
            fits = fits and self.shared(plan, payer, budget, window, record.view, asked)
            assert not fits, "a window was refused that is affordable"
            return
        assert isinstance(record, Release)
        cost = self._charged(plan, record, (record.view, window))
        fits = self.fits(payer, budget, window, cost)
        fits = fits and (not any(cost) or self.shared(plan, payer, budget, window, record.view, cost))
        self.kept.setdefault(payer, self._shares(plan, payer, budget).kept)
        self.begun[payer] = budget
        self.paid.append((payer, window, record.view, cost))
        self.changed += payer != today
        for period, limit in self.begun.items():
            assert self.inside(period) <= limit, "a period does not keep what it promised"
        assert fits or not self.exact, "a window was charged that does not fit"

    def _charged(self, plan: Plan, record: Release, place: tuple[str, Interval]) -> Cost:
        """What a release costs beyond all that was released of its window, to whomever."""
        level, before = there(record.level.epsilon).value, self.levels.get(place, Fraction(0))
        self.levels[place] = max(level, before)
        if self.pooled and place in self.earlier:
            rho = self.steps[record.view, level] if level > before else Fraction(0)
            return Cost(Fraction(0), Fraction(0), rho)
        self.steps |= {(record.view, one.epsilon): one.step_rho for one in plan.views[record.view].levels}
        former, held = self.finest.get(place, Cost.ZERO), record.privacy.window.cost
        self.finest[place] = former.most(held)
        return former.most(held) - former

    def agree(self, ledgers: Mapping[Interval, Ledger]) -> None:
        """What is stored is what was paid, no more and no less."""
        assert ledgers.keys() == self.begun.keys()
        for period, ledger in ledgers.items():
            paid = [cost for payer, _, _, cost in self.paid if payer == period]
            assert (ledger.spent, ledger.budget) == (sum(paid, Cost.ZERO), self.begun[period])
            assert not ledger.reserved


Act = Shape | tuple[str, int] | tuple[str, str, str]


def run(acts: Iterable[Act], *, pooled: bool = False, exact: bool = True) -> Book:
    """Change the shape, release the next windows of a view, or grant; check everything that is published."""
    book, seen, following = Book(exact=exact, pooled=pooled), 0, dict.fromkeys(NAMES, 0)
    desk = opened(Shape(4, budget=20 if pooled else 9, pooled=pooled))
    for number, act in enumerate(acts, start=1):
        book.earlier = set(book.finest)
        match act:
            case Shape():
                desk.change(act.plan())
                book.change(desk.plan)
            case (str(view), int(windows)):
                for _ in range(windows if view in desk.plan.views else 0):
                    desk.give(view, following[view], HOME)
                    following[view] = desk.plan.views[view].window.shape.next(following[view])
            case (_, str(audience), str(level)):
                desk.grant(number, audience, level)
        news, seen = desk.machine.sent[seen:], len(desk.machine.sent)
        public = [one for one in news if one.topic.startswith("shop.releases.") and not is_about_view(one)]
        records = [decode(message.value or b"") for message in public]
        for record in sorted(records, key=lambda record: list(desk.plan.views).index(record.view)):  # as it is charged
            book.take(desk.plan, record)
        book.agree(stored(desk))
    return book


NAMES = ("pages", "others", "wide")


@st.composite
def shapes(draw: st.DrawFn, *, pooled: bool) -> Shape:
    period, start = draw(st.integers(2, 9)), draw(st.integers(0, 8))
    views = NAMES if period % 2 == start % 2 == 0 else NAMES[:2]
    gone = draw(st.sampled_from(["", "", "", *views]))
    ledger = draw(st.sampled_from(["visitors", "readers"]))
    budget = draw(st.sampled_from([20, 26] if pooled else [9, 14, 20]))
    return Shape(period, start, budget, ledger, views=tuple(name for name in views if name != gone), pooled=pooled)


def acts(*, pooled: bool) -> st.SearchStrategy[list[Act]]:
    """Some changes, between any two of which windows are released."""
    windows = st.tuples(st.sampled_from(NAMES), st.integers(1, 5))
    grants = st.tuples(
        st.just("grant"), st.sampled_from(["public", "staff"]), st.sampled_from(["coarse", "middle", "fine"])
    )
    interval = st.tuples(shapes(pooled=pooled), windows, windows, windows | grants).map(list)
    return st.lists(interval, min_size=2, max_size=5).map(lambda found: [act for acts in found for act in acts])


@pytest.mark.slow
@given(found=acts(pooled=False))
@settings(derandomize=True, max_examples=50, deadline=None)
def test_every_period_that_began_keeps_its_promise_however_the_shape_is_changed(found: list[Act]) -> None:
    run(found)


@pytest.mark.slow
@given(found=acts(pooled=True))
@settings(derandomize=True, max_examples=25, deadline=None)
def test_every_part_of_every_period_that_began_keeps_its_promise(found: list[Act]) -> None:
    run(found, pooled=True)


def history(*, pooled: bool) -> list[Act]:
    some, more = (30, 40) if pooled else (9, 14)
    return [
        ("pages", 2),
        Shape(3, 1, some, views=("others", "pages"), pooled=pooled),
        ("pages", 4),
        ("others", 4),
        ("grant", "staff", "fine"),
        Shape(6, 2, more, "readers", views=("others", "pages", "wide"), pooled=pooled),
        ("wide", 5),
        ("pages", 4),
        ("others", 5),
        Shape(5, 0, more, views=("others", "pages"), pooled=pooled),
        ("others", 10),
        ("pages", 12),
    ]


@pytest.mark.parametrize("pooled", ordinarily(1, [False, True]))
def test_a_history_of_changes_has_what_the_oracle_looks_at(pooled: bool) -> None:
    book = run(history(pooled=pooled), pooled=pooled)
    assert book.refused
    assert book.changed
    assert len(book.begun) > 3


def test_spending_that_is_not_carried_over_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accounts, "_overlapping", lambda *_: [])
    with pytest.raises(AssertionError, match="a period does not keep what it promised"):
        run([("pages", 4), Shape(3), ("pages", 3)], exact=False)


def test_a_former_period_that_is_not_asked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's period has begun and pays; the window is in a former one as well."""
    monkeypatch.setattr(Accounts, "_others", lambda *_: [])
    with pytest.raises(AssertionError, match="a period does not keep what it promised"):
        run([("pages", 4), Shape(4, 2, budget=40, views=("others", "pages")), ("pages", 1), ("others", 4)], exact=False)


# -- windows that are charged as a whole ------------------------------------------------------------------------------


def views_under(period: str, start: int, epsilon: int, *names: str) -> Mapping[str, ViewPlan]:
    """Some views whose ledger has periods of this length, one of which starts at a second."""
    raw = dict(shop(names).raw)
    shape = {"period": period, "start": f"1970-01-01T00:00:{start:02}Z", "epsilon": str(epsilon)}
    return build_plan({**raw, "ledgers": {"visitors": {**raw["ledgers"]["visitors"], **shape}}}).views


def charged(view: ViewPlan, start_ms: int, cost: Cost) -> Machine:
    """What is stored once a period has begun with a window of a view."""
    machine, accounts = Machine(), Accounts({view.name: view})
    call = Call(view.name, start_ms)
    assert accounts.reserve(view, call, cost)
    accounts.charge(view, call, Charge(cost, {}))
    machine.carry_out(iter([Commit(accounts.rows())]))
    return machine


def resumed(views: Mapping[str, ViewPlan], machine: Machine) -> Accounts:
    accounts = Accounts(views)
    machine.carry_out(accounts.load(machine))
    return accounts


def test_a_window_that_is_charged_as_a_whole_asks_every_period_that_a_pane_of_it_is_in() -> None:
    """Its first pane ends before the period [20 s, 60 s) begins, which has 2 of its 8 left; a new one has 34 of 40."""
    tumbling = views_under("40s", 20, 8, "tumbling")["tumbling"]
    machine = charged(tumbling, 20_000, Cost(Fraction(6), Fraction(0)))
    views = views_under("40s", 0, 40, "tumbling", "running")
    assert resumed(views, machine).left(views["running"], 0).epsilon == 2


def test_a_window_that_is_charged_as_a_whole_is_paid_for_by_a_period_that_holds_all_of_it() -> None:
    """Its first pane is in [0 s, 20 s), which has begun, and the others are not."""
    tumbling = views_under("20s", 0, 40, "tumbling")["tumbling"]
    machine = charged(tumbling, 0, Cost(Fraction(6), Fraction(0)))
    views = views_under("40s", 0, 40, "tumbling", "running")
    key, _ = resumed(views, machine).of(views["running"], 0)
    assert period_of(key) == Interval(0, 40_000)
