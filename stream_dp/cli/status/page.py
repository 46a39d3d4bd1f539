"""How `stream-dp status` shows an application on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.cli.numbers import moment
from stream_dp.cli.status.summary import Summary
from stream_dp.config.plan import Plan

UNKNOWN = "-"
OF_CLOCK = {"wall": "", "event": " of the stream"}


def page(plan: Plan, found: Summary) -> RenderableType:
    """All of it; what needs somebody comes first.

    Args:
        plan: the application.
        found: how it is.
    """
    head = Text.assemble((plan.id, "bold"), f" at {moment(_second(found.reports.now_ms))}: ")
    head.append(*(("needs attention", "bold red") if found.faults else ("all is well", "bold green")))
    parts: list[RenderableType] = [Text(f"! {fault}", "red", overflow="fold") for fault in found.faults]
    parts += [table for table in _tables(found) if table.row_count]
    return Group(head, *(Padding(part, (0, 0, 1 if isinstance(part, Table) else 0, 2)) for part in parts))


def _tables(found: Summary) -> Iterator[Table]:
    reports = found.reports

    def at(time_ms: int) -> str:
        """To the second; of today only the time, for many columns stand side by side."""
        words = moment(_second(time_ms))
        day, _, time = words.partition("T")
        return time if time and moment(reports.now_ms).startswith(day) else words

    workers = _table("worker", "since", "version", "settings", "partitions", "")
    for one in reports.workers:
        state = "silent" if reports.is_silent(one) else f"waits for {one.waiting_for}" if one.waiting_for else "ready"
        owned = ", ".join(map(str, sorted(one.partitions))) or "none"
        workers.add_row(one.instance, at(one.started_ms), one.code_version, str(one.settings or UNKNOWN), owned, state)
    yield workers
    sources = _table("source", "records to be counted", "most in partition")
    for name, lags in found.lag.items():
        most = max(lags, key=lags.__getitem__)
        sources.add_row(name, f"{sum(lags.values()):,}", f"{most}: {lags[most]:,}" if lags[most] else UNKNOWN)
    yield sources
    views = _table("view", "edition", "clock", "windows open", "released up to", "next due")
    for name, view in found.views.items():
        windows = UNKNOWN
        if view.open is not None:
            number, interval = view.open
            windows = f"{number}, {at(interval.start_ms)} to {at(interval.end_ms)}" if number else "none"
        due = UNKNOWN if view.next_due is None else at(view.next_due)
        released = UNKNOWN if view.released_to is None else at(view.released_to)
        edition = UNKNOWN if view.edition is None else str(view.edition)
        views.add_row(name, edition, _clocks(view.clocks, at), windows, released, due)
    yield views
    to_come = _table("to come", "view", "")
    for change in found.to_come:
        to_come.add_row(f"{at(change.at_ms)}{OF_CLOCK[change.clock]}", change.view, change.what)
    yield to_come
    budgets = _table("ledger", "")
    for ledger, budget in found.budgets.items():
        budgets.add_row(ledger, budget.words)
    yield budgets
    totals = _table("total since the beginning", "")
    for line, amount in found.totals.items():
        totals.add_row(line, f"{amount:,}")
    yield totals


def _clocks(clocks: Mapping[int, int], at: Callable[[int], str]) -> str:
    """What the clock of a view shows in the partition that is furthest behind, and where that is."""
    if not clocks:
        return UNKNOWN
    behind = min(clocks, key=clocks.__getitem__)
    ahead = max(clocks.values())
    where = f" in partition {behind}" if _second(clocks[behind]) != _second(ahead) else ""
    return f"{at(clocks[behind])}{where}"


def _second(time_ms: int) -> int:
    return time_ms // 1000 * 1000


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
