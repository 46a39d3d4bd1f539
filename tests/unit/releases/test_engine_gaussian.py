"""Windows with discrete Gaussian noise on the engine: what is charged, published, sharpened and stored."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.kinds.topk import TopKPlan
from stream_dp.records.models import Release
from tests.support.given import there
from tests.support.panes import COUNTS, LIST, counts_at, give_all, paned
from tests.support.releasing import DELTA, FINE, MIDDLE, ONLY_PAGES, POOL, Desk, plan
from tests.support.running import give_panes, newest_totals, running, spent, total
from tests.unit.config.test_gaussian_noise import GAUSSIAN, LADDER

F = Fraction
NOTHING = Fraction(0)
FINEST = Fraction(1, 2)
"""Rho of standard deviation 1."""
TOPS = ("kind: topk\n", "kind: topk\n    noise: discrete-gaussian\n")
HOME = {"home": 40, "cart": 12, "rare": 1}


def both() -> Plan:
    return plan(POOL, LADDER, GAUSSIAN, TOPS)


def test_a_window_pays_for_all_levels_with_its_first_release() -> None:
    desk = Desk(plan(POOL, LADDER, GAUSSIAN, ONLY_PAGES))
    desk.give("pages", 0, HOME)
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=FINEST)
    charges = [desk.charged("pages", audience, 0).rho for audience in ("partner", "public", "staff")]
    assert sorted(charges) == [0, 0, FINEST]
    for number, (audience, level) in enumerate([("partner", "middle"), ("partner", "fine"), ("staff", "fine")]):
        desk.grant(number + 1, audience, level)
    assert desk.ledger().spent == Cost(NOTHING, DELTA, rho=FINEST)
    records = desk.records("pages", "partner")
    assert [record.level.name for record in records] == ["coarse", "middle", "fine"]
    for record in records:
        assert isinstance(record, Release)
        assert record.privacy.window.cost == Cost(NOTHING, DELTA, rho=FINEST)
        assert (record.level.epsilon, there(record.level.rho).value) == (None, FINEST)
        assert record.noise.distribution == "discrete gaussian"
        assert (record.noise.ratio, Fraction(record.noise.scale) ** 2) == (None, there(record.noise.variance).value)
    desk.auditor.settled()


def test_draws_are_charged_beside_it() -> None:
    desk = Desk(both())
    desk.give("tops", 0, HOME)
    view = desk.plan.views["tops"]
    assert isinstance(view.kind, TopKPlan)
    assert desk.ledger(view="tops").spent == Cost(2 * DELTA, DELTA, rho=FINEST + F(2, 8))
    desk.auditor.settled()


def test_a_level_reads_the_same_whoever_asks_first() -> None:
    one, other = Desk(both()), Desk(both())
    for desk in (one, other):
        desk.give("pages", 0, HOME)
    one.grant(1, "partner", "fine")
    other.grant(1, "public", "middle")
    other.grant(2, "partner", "middle")
    other.grant(3, "partner", "fine")

    def readings(desk: Desk, audience: str) -> dict[str, object]:
        return {record.level.name: record.items for record in desk.records("pages", audience)}  # type: ignore[union-attr]

    fine = readings(one, "partner")["fine"]
    assert readings(other, "partner")["fine"] == fine
    assert (
        readings(other, "partner")["middle"] == readings(other, "staff")["middle"] == readings(one, "staff")["middle"]
    )
    assert readings(other, "public")["coarse"] == readings(one, "public")["coarse"]


PANES = ("kind: catalogue\n", "kind: catalogue\n    noise: discrete-gaussian\n")


def test_windows_of_panes_are_the_sums_of_their_panes_with_an_interval_of_the_sum() -> None:
    planned = paned(4, 2, POOL, LADDER, PANES)
    view, desk = planned.views["pages"], Desk(planned)
    give_all(desk, range(0, 8000, 1000))
    records = [record for record in desk.records("pages", "staff") if isinstance(record, Release)]
    assert len(records) == 3
    for record in records:
        starts = range(record.window.start_ms, record.window.end_ms, 1000)
        panes = [counts_at(view, start, MIDDLE, COUNTS[start // 1000]) for start in starts]
        sums = dict(zip(LIST, map(sum, zip(*panes, strict=True)), strict=True))
        assert {item.item: item.count for item in record.items} == sums
        assert record.noise_interval_95 == view.levels[MIDDLE].interval_of(4)
        assert view.levels[MIDDLE].interval_of(1) < record.noise_interval_95 <= 2 * view.levels[MIDDLE].interval_of(1)
    desk.auditor.settled()


POOL_OF_RUNNING = POOL[0].replace("period: 4s", "period: 12s"), POOL[1].replace("period: 4s", "period: 12s")


def test_running_totals_are_sums_of_blocks() -> None:
    planned = running(POOL_OF_RUNNING, LADDER, ("kind: running\n", "kind: running\n    noise: discrete-gaussian\n"))
    view, desk = planned.views["pages"], Desk(planned)
    counts = dict(enumerate(COUNTS[:6]))
    give_panes(desk, counts={1000 * at: some for at, some in counts.items()}, starts=range(0, 6000, 1000))
    found = newest_totals(desk, "staff")
    for start in range(0, 6000, 1000):
        exact = {1000 * at: some for at, some in counts.items()}
        assert found[start] == ("middle", total(view, start, MIDDLE, exact))
    assert 0 <= view.levels[FINE].rho - FINEST / 3 < F(1, 10**11)
    assert spent(desk).rho == view.levels[FINE].rho
    desk.auditor.settled()
