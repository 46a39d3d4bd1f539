"""One small view of every release kind, and what is known of it beforehand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.models import Release
from stream_dp.releases.publication import Revision, account
from tests.support.laplace_family import pmf
from tests.support.laplace_laws import tail
from tests.support.releasing import KEY, keyed, plan_of
from tests.support.sealing import minimum_counts, read_window, seal_window

VIEW = "asked"
COARSE, MIDDLE, FINE = range(3)
SHOP = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1}
ledgers:
  visitors: {population: visitors, epsilon: "BUDGET", delta: "1/5", period: 100s}
ladders:
  three: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]
audiences: {partner: coarse, public: coarse, staff: middle}
views:
  asked:
    source: visits
    item: page
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 2
"""
"""A shop whose one view is completed by the case."""


Law = Mapping[Hashable, Fraction]


@dataclass(frozen=True)
class Case:
    """A view of one kind.

    Attributes:
        settings: what the kind adds to the view, YAML lines of the view's indentation.
        counts: a small snapshot; `law` is about its key "home".
        others: snapshots that share nothing with it but the plan.
        law: the exact law of `outcome`, from the parameter a of the noise of one count, at a level of the view.
        worst: what showing the keys of a window costs at worst.
        dependent: the fields of the kind's own that may depend on the data.
        lists: public lists that stand in topics.
        window: what the kind adds to the window; one that is told of at every pane has one pane here.
    """

    settings: str
    counts: Mapping[str, int]
    others: tuple[Mapping[str, int], ...]
    law: Callable[[Fraction, ViewPlan, int], Law]
    worst: Cost
    dependent: frozenset[str] = frozenset({"items"})
    lists: Mapping[str, KeyList] = field(default_factory=dict)
    window: str = ""

    def text(self, budget: str = "400") -> str:
        """The configuration of a shop with this view alone."""
        return SHOP.replace("BUDGET", budget).replace("{size: 1s", f"{{size: 1s{self.window}") + self.settings

    def plan(self, budget: str = "400") -> Plan:
        """Its plan."""
        return plan_of(self.text(budget))


def outcome(record: Release) -> Hashable:
    """What a record says of the key "home": its count, or that it is hidden."""
    return next((entry.count for entry in record.items if entry.item == "home"), "hidden")


def outcomes_of(case: Case, view: ViewPlan, windows: int) -> list[list[Hashable]]:
    """What the records of many windows with the counts of a case say, level by level."""
    levels = range(len(view.levels))
    found: list[list[Hashable]] = [[] for _ in levels]
    for start in range(windows):
        table = seal_window(view, start, case.counts, prf_key=KEY, entropy=keyed, lists=case.lists)
        for level, reading in zip(levels, read_window(view, start, table, levels, KEY), strict=True):
            revision = Revision(
                view,
                audience="public",
                level=level,
                start_ms=start,
                number=1,
                period_loss=Cost.ZERO,
                ledger=account(view.ledger, start),
            )
            found[level].append(outcome(revision.release(fields=reading.fields, window_loss=Cost.ZERO)))
    return found


def noised(count: int) -> Callable[[Fraction, ViewPlan, int], Law]:
    """The count with the noise of the level."""

    def law(a: Fraction, _view: ViewPlan, _level: int) -> Law:
        return {count + z: pmf(a, z) for z in range(-60, 61)}

    return law


def _histogram_law(a: Fraction, view: ViewPlan, level: int) -> Law:
    """specs/lossless 2.9.5: the count with its noise where that reaches the minimum count, else nothing."""
    least = minimum_counts(view)[level]
    shown: dict[Hashable, Fraction] = {n: pmf(a, n - 8) for n in range(least, least + 60)}
    return shown | {"hidden": 1 - tail(a, least - 8)}


DELTA = Fraction(1, 100)
PAGE_LIST = {"page-list": KeyList.of(["home", "cart", "nobody", "page 7"])}

CASES = {
    "catalogue": Case(
        """\
    kind: catalogue
    catalogue: {topic: page-list}
""",
        {"home": 3, "cart": 7, "rare": 1},
        ({}, {f"page {n}": 3 * n + 1 for n in range(30)}),
        noised(3),
        Cost.ZERO,
        lists=PAGE_LIST,
    ),
    "gap": Case(
        """\
    kind: gap
    catalogue: {topic: page-list}
    k: 2
    selection: {epsilon: "4"}
""",
        {"home": 90, "cart": 5, "rare": 1},  # "home" is missed by the selection with a chance below e^-80
        ({}, {f"page {n}": 9 * n + 1 for n in range(30)}),
        noised(90),
        Cost(Fraction(4), Fraction(0)),
        lists=PAGE_LIST,
    ),
    "histogram": Case(
        """\
    kind: histogram
    delta: "1/100"
""",
        {"home": 8, "cart": 7, "rare": 1},
        ({}, {f"page {n}": 3 * n + 1 for n in range(30)}),
        _histogram_law,
        Cost(Fraction(0), DELTA),
    ),
    "running": Case(
        """\
    kind: running
    catalogue: [home, cart, nobody, page 7]
""",
        {"home": 3, "cart": 7, "rare": 1},
        ({}, {f"page {n}": 3 * n + 1 for n in range(30)}),
        noised(3),
        Cost.ZERO,
        window=", pane: 1s",
    ),
    "subset": Case(
        """\
    kind: subset
    catalogue: {topic: page-list}
    k: 2
    selection: {epsilon: "4"}
""",
        {"home": 90, "cart": 5, "rare": 1},  # "home" is missed by the selection with a chance below e^-80
        ({}, {f"page {n}": 9 * n + 1 for n in range(30)}),
        noised(90),
        Cost(Fraction(4), Fraction(0)),
        lists=PAGE_LIST,
    ),
    "topk": Case(
        """\
    kind: topk
    k: 2
    kbar: 3
    selection: {epsilon: "1", delta: "1/100"}
""",
        {"home": 90, "cart": 5, "rare": 1},  # "home" is missed by the selection with a chance below e^-70
        ({}, {f"page {n}": 9 * n + 1 for n in range(30)}),
        noised(90),
        Cost(2 * (1 + DELTA), DELTA),
        frozenset({"items", "complete"}),
    ),
}
"""By kind; kinds of one level are in `one_level`."""
