"""Lines of the demo: a window of the year, an unlocked one, a grant; and the table of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.runs import CARRIERS, DAY_MS, DESTINATIONS, DIGITS, LEADERS, PARTNER, PUBLIC, VIEWS, DemoState
from stream_dp.cli.display import spent, table
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.records.history import Seen
from stream_dp.records.models import Release


def say(console: Console, words: str = "", *, style: str = "", whole: bool = False) -> None:
    """Print a line.

    Args:
        console: prints it.
        words: the line.
        style: of the words.
        whole: do not break a long line on a terminal, so that it can be copied.
    """
    console.print(Text(words, style), soft_wrap=whole or not console.is_terminal)


def year_line(state: DemoState, start: int) -> str:
    """Return a window of the year as a line."""
    seen = {audience: state.seen(DESTINATIONS, audience, start).release for audience in state.plan.audiences}
    parts = [f"{audience} {'refused' if one is None else _places(one)}" for audience, one in seen.items()]
    # Both lists are the same for every audience.
    leaders, carriers = (state.seen(view, PUBLIC, start).release for view in (LEADERS, CARRIERS))
    leads = [f"{entry.item} {leaders.remark(entry)}; " for entry in leaders.items[:1]] if leaders else []
    found = f"{'no' if carriers is None else len(carriers.items)} of the top {state.plan.raw['views'][CARRIERS]['k']}"
    edition = f", edition {carriers.edition}" if carriers is not None and carriers.edition > 1 else ""
    return f"  {_weeks(state, start)}: {', '.join(parts)}; {''.join(leads)}{found} carriers{edition}"


def unlock_line(state: DemoState, start: int) -> str:
    """Return a window that is unlocked for the public as a line."""
    return (
        f"    unlocked: {_weeks(state, start)} is {state.unlock.after_ms // DAY_MS} days old, {PUBLIC} sees it as "
        f"{PARTNER} now: {_sharper(state.seen(DESTINATIONS, PUBLIC, start))}; "
        f"the ledger paid {decimal_up(state.unlocks_charged([start]), DIGITS)}"
    )


def grant_lines(state: DemoState, audience: str) -> list[str]:
    """Return the effect of the last grant, which was to an audience, and its cost."""
    (_, before), (_, now) = state.history[-2:]
    start, windows = state.newest_full_ms, len(VIEWS) * len(state.starts)
    seen = state.seen(DESTINATIONS, audience, start)
    if seen.refusal is not None:
        asked, whole = spent(seen.refusal.requested.epsilon), decimal_up(now.budget.epsilon, DIGITS)
        return [
            f"{windows} windows refused. Level {seen.refusal.level.name} would cost epsilon {asked} more than "
            f"{audience} has, and the ledger has less left.",
            f"Nothing was drawn and nothing paid: an aircraft is guaranteed epsilon {whole} in four weeks.",
        ]
    own = now.loss(audience).epsilon - before.loss(audience).epsilon
    added = now.spent.epsilon - before.spent.epsilon
    paid = {
        0: "Another audience had this level already, so the ledger paid nothing.",
        own: "No audience had this level before, so the ledger paid exactly this difference.",
    }.get(added, f"The ledger paid {decimal_up(added, DIGITS)}, the part that no audience had before.")
    return [
        f"{windows} windows published again. {_weeks(state, start)} for {audience}: {_sharper(seen)}",
        f"The privacy loss to {audience} alone grew by epsilon {decimal_up(own, DIGITS)}. {paid}",
    ]


def ledger_table(state: DemoState) -> Table:
    """Return the epsilon of four weeks for one aircraft after each act."""
    heads = [f"{audience}\nalone" for audience in state.plan.audiences]
    first = "epsilon per aircraft"
    rows = table(first, *heads, "all readers\ntogether", "left in\nthe ledger", words=[first])
    for act, after in state.history:
        losses = [after.loss(audience) for audience in state.plan.audiences]
        paid = [decimal_up(cost.epsilon, DIGITS) for cost in (*losses, after.spent)]
        rows.add_row(act, *paid, decimal_down(after.left.epsilon, DIGITS))
    return rows


def days(start_ms: int, end_ms: int) -> str:
    """Return an interval of whole days by its first and last day: "24 Dec to 30 Dec 2013"."""
    first, last = (datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in (start_ms, end_ms - 1))
    return f"{first.day} {first:%b} to {last.day} {last:%b %Y}"


def _weeks(state: DemoState, start: int) -> str:
    return days(start, start + state.starts.step)


def _places(release: Release) -> str:
    return f"{len(release.items)} places ±{release.noise_interval_95}"


def _sharper(seen: Seen) -> str:
    return " -> ".join(_places(release) for release in (seen.before, seen.release) if release is not None)
