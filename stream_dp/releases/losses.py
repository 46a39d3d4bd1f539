"""Detection of lost state: windows that were published and are not stored, by the records in the public topics.

A record is published after its commit is in the changelog, so recovered tables know every record that readers have.
Where they do not, state was lost. To go on would draw windows again that readers have, with fresh noise, and pay for it
from a ledger that forgot the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Self

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError, Fault
from stream_dp.records.codec import Outline
from stream_dp.releases.accounts import Accounts, charged_before
from stream_dp.releases.pieces import forgotten_window
from stream_dp.releases.rows import NOTHING, VIEW, TotalChange, ViewRow, counted, stored_window, stored_windows
from stream_dp.windows.durations import format_time
from stream_dp.windows.effects import Commit, Effect, Message, Rows, Send
from stream_dp.windows.encoding import encode, text


class Shown(NamedTuple):
    """A record that was found in a public topic."""

    audience: str
    start_ms: int
    """Of the window; of one that is made of panes, of the last of them, which it is released with."""
    revision: int
    refused: bool
    panes: int = 1
    """Of how many panes the window is."""

    @classmethod
    def of(cls, view: ViewPlan, audience: str, record: Outline) -> Self:
        """The one that a record is, by its outline."""
        tiling, window = view.window.shape.tilings[0], record.window
        last, panes = tiling.next(window.end_ms, -1), tiling.begun(window.start_ms, window.end_ms)
        alone = view.window.shape.tells_totals  # its other panes were told of by themselves
        return cls(audience, last, record.revision, record.type == "refusal", 1 if alone else panes)


Published = Mapping[str, Collection[Shown]]
"""Records found in the public topics, by view: all, or the newest of them."""
UNPUBLISHED: Published = MappingProxyType({})
MOST_UNKNOWN = 10_000
"""Windows that are refused one by one because their counts were lost with their counters."""


@dataclass(frozen=True, slots=True)
class LostCounts:
    """Counts that were lost before they came here, as far as a worker knows when it starts.

    Attributes:
        on_the_way: whether a topic in which counts stand on their way here was ever lost: windows may miss some.
        unknown_before: by view, the start of the first window whose counts were not lost with their counters.
    """

    on_the_way: bool = False
    unknown_before: Mapping[str, int] = field(default_factory=dict)

    def has(self, view: ViewPlan, start_ms: int) -> bool:
        """Return True if counts of a window were lost with their counters."""
        return start_ms < self.unknown_before.get(view.name, start_ms)

    def check(self, view: ViewPlan, next_ms: int) -> None:
        """Refuse to publish refusals without end, where the source of a view is read long after its events.

        Args:
            view: the view.
            next_ms: start of its next window.

        Raises:
            ConfigError: there would be more than `MOST_UNKNOWN`.
        """
        count = view.window.shape.begun(next_ms, self.unknown_before.get(view.name, next_ms))
        if count > MOST_UNKNOWN:
            raise ConfigError(
                f"its exact counts were lost, of every window that had begun (with windows_per_user, of every window "
                f"of the period), and these are {count}; to publish a refusal for each of them helps nobody. Give the "
                "view a new name",
                path=f"views.{view.name}",
            )


NOTHING_LOST = LostCounts()


def lost_windows(view: ViewPlan, stored: ViewRow | None, shown: Collection[Shown], rows: Rows) -> list[int]:
    """Starts of the windows, or of the panes of windows, of which more was published than is stored, oldest first.

    Args:
        view: the view.
        stored: its row, None when there is none.
        shown: what was found of it in its public topics.
        rows: the partition's table.
    """
    lost = [one for one in shown if _is_lost(view, stored, one, rows)]
    panes = {view.window.shape.next(one.start_ms, -back) for one in lost for back in range(1, one.panes)}
    if stored is not None:  # those that are forgotten since were so before what was lost
        panes = {s for s in panes if s >= stored.kept_ms or stored_window(view.name, s, rows) is not None}
    return sorted(panes.union(one.start_ms for one in lost))


def _is_lost(view: ViewPlan, stored: ViewRow | None, one: Shown, rows: Rows) -> bool:
    row = stored_window(view.name, one.start_ms, rows)
    if row is None:
        return stored is None or one.start_ms >= stored.kept_ms
    states = row.states if row.sum is None else row.sum.states
    return states.get(one.audience, NOTHING).revision < one.revision - one.refused


def expired_windows(view: ViewPlan, shown: Collection[Shown], rows: Rows) -> list[int]:
    """Starts of stored windows, or panes, that have expired since they were stored like this, oldest first.

    They were published, and an audience has no record of them any more; which is how much they were sharpened before
    is forgotten, where state was lost. So may it be of a pane that is in no window that was published.

    Args:
        view: the view, of which state was lost.
        shown: all that was found of it in its public topics.
        rows: the partition's table.
    """
    there = {
        (one.audience, view.window.shape.next(one.start_ms, -back))
        for one in shown
        if not one.refused
        for back in range(one.panes)
    }
    return [
        start
        for start, row in stored_windows(view.name, rows)
        if not (row.refused or row.expires or row.outbox)
        and any((name, start) not in there for name in view.audiences if row.states.get(name, NOTHING).level >= 0)
    ]


def lost_costs(view: ViewPlan, lost: Sequence[int], next_ms: int, rows: Rows) -> dict[int, tuple[Cost, Cost]]:
    """Return what lost windows have cost and the ledger has forgotten, at worst.

    Windows leave in order, so whatever lies between the last that is stored and the newest that is lost was released as
    well, found or not.

    Args:
        view: the view.
        lost: starts of the windows, oldest first.
        next_ms: start of the first window that is not stored as released.
        rows: the partition's table.

    Returns:
        By start of each window, the cost that is known and what it may have cost beyond that.
    """
    starts = view.window.shape.starts(next_ms, lost[-1])
    between = {s for s in starts if view.windows.has(s) and stored_window(view.name, s, rows) is None}
    costs: dict[int, tuple[Cost, Cost]] = {}
    for start in {view.window.charged(start).start_ms for start in between.union(lost)}:
        row = stored_window(view.name, start, rows)
        if row is None or row.refused or row.expires or row.finest < 0:
            costs[start] = Cost.ZERO, view.at_worst
        else:
            finer = view.steps(range(row.finest + 1, len(view.levels)), row.finest)
            costs[start] = charged_before(view, start, row, rows), finer
    return costs


def lost_state(lost: Mapping[str, Sequence[int]]) -> ConfigError:
    """The error of a worker that finds windows of its views in the public topics and not in its tables."""
    return ConfigError(
        [
            Fault(
                f"views.{view}",
                f"stored state was lost: of {len(starts)} windows or more, the newest that of "
                f"{format_time(starts[-1])}, readers have what the tables and the ledger do not know; to release them "
                "again would spend a second time. Restore the data folder or the changelog of the releases; or start "
                "once with --accept-loss, which charges these windows at worst and never releases them again; or give "
                "the view a new name, if the ledger may forget what they cost",
            )
            for view, starts in lost.items()
        ]
    )


def write_off(
    view: ViewPlan,
    lost: Sequence[int],
    mark: ViewRow,
    accounts: Accounts,
    declare_lost: Callable[[str, int], Sequence[Message]],
    rows: Rows,
) -> Iterator[Effect]:
    """Charge lost windows at worst and step over them. A crash in between charges them again, never too little.

    Args:
        view: the view.
        lost: the starts of the windows, ascending.
        mark: how far its releases have come; changed.
        accounts: which ledger pays.
        declare_lost: as `Destinations` has it.
        rows: the partition's table.
    """
    shape = view.window.shape
    next_ms = shape.next(shape.start_of(lost[-1]))
    charged = accounts.charge_lost(view, lost_costs(view, lost, mark.next_ms, rows))
    half = [start for start in lost if stored_window(view.name, start, rows) is not None]
    mark.next_ms, mark.kept_ms = max(mark.next_ms, next_ms), max(mark.kept_ms, next_ms)
    mark.published_ms = max(mark.published_ms, lost[-1])
    forgotten = [row for start in half for row in forgotten_window(view.name, start, rows)]
    yield Send(declare_lost(view.name, mark.next_ms))  # windows behind them may wait for counts that were lost, too
    those = TotalChange("windows_lost", view.name, len(lost), lost[-1], 0)
    yield Commit([counted([those], rows), *charged, *forgotten, (VIEW + text(view.name), encode(mark))])
    yield those.increment
