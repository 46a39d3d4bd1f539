"""Windows that were published and are not stored: where that is accepted, they are charged at worst and passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.accounts import Accounts
from stream_dp.releases.losses import lost_costs
from stream_dp.releases.pieces import forgotten_window
from stream_dp.releases.rows import VIEW, ViewRow, stored_window
from stream_dp.releases.totals import Counted, counted
from stream_dp.windows.effects import Commit, Effect, Message, Rows, Send
from stream_dp.windows.keys import encode, text


def write_off(
    view: ViewPlan,
    lost: Sequence[int],
    mark: ViewRow,
    accounts: Accounts,
    recall: Callable[[str, int], Sequence[Message]],
    rows: Rows,
) -> Iterator[Effect]:
    """Charge lost windows at worst and step over them. A crash in between charges them again, never too little.

    Args:
        view: the view.
        lost: the starts of the windows, ascending.
        mark: how far its releases have come; changed.
        accounts: which ledger pays.
        recall: as `ReleaseEngine` has it.
        rows: the partition's table.
    """
    shape = view.window.shape
    next_ms = shape.next(shape.start_of(lost[-1]))
    charged = [
        row
        for period, cost in lost_costs(view, lost, mark.next_ms, rows).items()
        for row in accounts.charge_lost(view, period, cost)
    ]
    half = [start for start in lost if stored_window(view.name, start, rows) is not None]
    mark.next_ms, mark.kept_ms = max(mark.next_ms, next_ms), max(mark.kept_ms, next_ms)
    mark.told_ms = max(mark.told_ms, lost[-1])
    forgotten = [row for start in half for row in forgotten_window(view.name, start, rows)]
    yield Send(recall(view.name, mark.next_ms))  # windows behind them may wait for counts that were lost, too
    those = Counted("windows_lost", view.name, len(lost), lost[-1], 0)
    yield Commit([counted([those], rows), *charged, *forgotten, (VIEW + text(view.name), encode(mark))])
    yield those.increment
