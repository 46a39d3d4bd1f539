"""What a window costs: by the finest level that anyone has of it, for all readers together and for each alone."""

from __future__ import annotations

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.kinds.sealing import SealedTable
from stream_dp.releases.rows import Call, WindowRow


def difference(view: ViewPlan, table: SealedTable, before: int, level: int) -> Cost:
    """What a level costs beyond the finest that was given before, -1 for none (specs/lossless 3.2)."""
    cost = view.spent(table, level)
    return cost if before < 0 else cost - view.spent(table, before)


def price(view: ViewPlan, call: Call, table: SealedTable, row: WindowRow) -> tuple[Cost, dict[str, Cost]]:
    """What a stored call costs all readers together, and what each reader it served alone."""
    if call.audience:
        others = max([row.drawn, *(given.level for name, given in row.given.items() if name != call.audience)])
        finest = max(others, call.before)
        return (
            difference(view, table, finest, max(finest, call.level)),
            {call.audience: difference(view, table, call.before, max(call.before, call.level))},
        )
    return (
        view.spent(table, row.finest),
        {name: view.spent(table, given.level) for name, given in row.given.items()},
    )
