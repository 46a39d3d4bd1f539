"""One small view of every kind whose noise cannot be refined, of every strict mode, and of noise that ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from tests.kinds.cases import SHOP
from tests.support.releasing import plan_of

_LADDER = 'three: [{level: coarse, epsilon: "1"}, {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}]'
_AUDIENCES = "{partner: coarse, public: coarse, staff: middle}"
COUNTS = {"home": 60, "cart": 40, "rare": 1}
OTHERS: tuple[dict[str, int], ...] = ({}, {f"page {n}": 9 * n + 1 for n in range(30)})


@dataclass(frozen=True)
class OneLevel:
    """A view of one kind.

    Attributes:
        kind: its name.
        settings: what the kind adds to the view, YAML lines of the view's indentation.
        dependent: the fields of the kind's own that may depend on the data.
        moved: how many counts a user with one item moves.
        keys: what showing the keys of a window costs.
        each: what a user with one item adds to its count.
    """

    kind: str
    settings: str
    dependent: str
    moved: int = 1
    keys: Cost = Cost.ZERO
    each: int = 1

    def of(self, counts: Mapping[str, int]) -> dict[str, int]:
        """The exact counts where so many users have each item, and no other."""
        return {item: self.each * count for item, count in counts.items()}

    def text(self, budget: str = "400") -> str:
        """The configuration of a shop with this view alone."""
        shop = SHOP.replace(_LADDER, 'three: [{level: only, epsilon: "2"}]').replace(
            _AUDIENCES, "{public: only, staff: only}"
        )
        return shop.replace("BUDGET", budget) + f"    kind: {self.kind}\n" + self.settings

    def plan(self, budget: str = "400") -> Plan:
        """Its plan."""
        return plan_of(self.text(budget))


ONE_LEVEL = {
    "catalogue strict": OneLevel(
        "catalogue", "    catalogue: [home, cart, nobody, page 7]\n    strict: {largest_count: 5000}\n", "items"
    ),
    "histogram strict": OneLevel(
        "histogram",
        '    delta: "1/100"\n    strict: {rows: 101, largest_count: 5000}\n',
        "items",
        moved=2,
        keys=Cost(Fraction(0), Fraction(1, 100)),
    ),
    "histogram truncated": OneLevel(
        "histogram",
        '    delta: "1/100"\n    noise: truncated-laplace\n',
        "items",
        keys=Cost(Fraction(0), Fraction(1, 100)),
    ),
    "keys": OneLevel("keys", '    delta: "1/100"\n', "items", keys=Cost(Fraction(0), Fraction(1, 100)), each=840),
    "lookup": OneLevel("lookup", "    rows: 101\n    key_bytes: 8\n", "table", moved=2),
    "pure_topk": OneLevel("pure_topk", "    k: 2\n    key_bytes: 8\n", "items"),
}
"""By kind, and strict modes; a test sees to it that no kind is missing."""
