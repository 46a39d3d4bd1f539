"""A ledger and views whose names, periods and budgets change, and desks that are opened with them."""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.accounting import Ledger
from stream_dp.config.plan import Plan
from stream_dp.releases.accounts import period_of, read_ledgers
from stream_dp.windows.shapes.shape import Interval
from tests.support.releasing import SHOP, Desk, plan_of

HOME = {"home": 40, "cart": 12}

VIEW = """\
  NAME:
    source: visits
    item: page
    kind: histogram
    items_per_user: 1
    window: {size: SIZEs, start: 1970-01-01T00:00:00Z, grace: 0s}
    delta: "1/100"
    ledger: LEDGER
    ladder: three
    retention: 1h
    buckets: 1
"""
WHOLE = 'epsilon: "EPSILON", delta: "1/2"'
POOLED = WHOLE + ', zcdp: {epsilon: "ZCDP", slack: "1/100"}'


@dataclass(frozen=True)
class Shape:
    """What may change of a ledger and of the views on it, the shop's but for that. Times are in seconds."""

    period: int
    start: int = 0
    budget: int = 4
    ledger: str = "visitors"
    population: str = "visitors"
    views: tuple[str, ...] = ("pages",)
    """"pages" and "others" have windows of 1 s, "wide" of 2 s."""
    pooled: bool = False

    def plan(self) -> Plan:
        head, former = SHOP.partition("views:\n")[0], 'visitors: {population: visitors, epsilon: "40", delta: "1/5", '
        assert former in head
        budget = POOLED if self.pooled else WHOLE
        budget = budget.replace("EPSILON", str(self.budget)).replace("ZCDP", str(self.budget - 1))
        head = head.replace(former, f"{self.ledger}: {{population: {self.population}, {budget}, ")
        head = head.replace("period: 4s", f"period: {self.period}s, start: 1970-01-01T00:00:{self.start:02}Z")
        views = [VIEW.replace("NAME", name).replace("SIZE", "2" if name == "wide" else "1") for name in self.views]
        return plan_of(head + "views:\n" + "".join(views).replace("LEDGER", self.ledger))


def opened(shape: Shape) -> Desk:
    return Desk(shape.plan(), audit=False)


def stored(desk: Desk) -> dict[Interval, Ledger]:
    return {period_of(key): ledger for key, ledger in read_ledgers(desk.machine.rows.items()).items()}
