"""Pages and lines of the demo: the year for three audiences, a window before and after a grant, the ledger."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.runs import CARRIERS, DAY_MS, DESTINATIONS, DIGITS, LEADERS, PARTNER, PUBLIC, DemoState, days
from stream_dp.cli.display import NOT_SHOWN, count_words, level_words, printable, spent, table
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.records.models import Release

PLACES = 8
NEW_KEYS = 3
"""Keys at least of a finer release that the coarser one does not show."""


def say(console: Console, words: str = "", *, style: str = "", whole: bool = False) -> None:
    """Print a line.

    Args:
        console: prints it.
        words: the line.
        style: of the words.
        whole: do not break a long line on a terminal, so that it can be copied.
    """
    console.print(Text(words, style), soft_wrap=whole or not console.is_terminal)


def year_page(state: DemoState) -> RenderableType:
    """Return the year so far: progress, the newest full window for each audience, its cost."""
    progress = Text(f"{len(state.complete())} of {len(state.starts)} windows released", "bold")
    windows = state.full_windows()
    if not windows:
        return Group(progress, Text("Waiting for the first window to close.", "dim"))
    start, spending = windows[-1], state.spending()
    places, carriers = (
        [state.release(view, audience, start) for audience in state.audiences] for view in (DESTINATIONS, CARRIERS)
    )
    rows = table("", *state.audiences, words=[""])
    rows.add_row("level", *("refused" if one is None else one.level.name for one in places), style="dim")
    _add_keys(rows, places, PLACES)
    rows.add_row("destinations", *("" if one is None else f"{len(one.items)} shown" for one in places), style="dim")
    _add_keys(rows, carriers, state.plan.raw["views"][CARRIERS]["k"])
    rows.add_row("epsilon alone", *(decimal_up(paid.epsilon, DIGITS) for paid in spending.alone.values()), style="dim")
    return Group(
        progress,
        Text(f"Aircraft by destination, {_weeks(state, start)}; below, {_found(state, start)}", "bold"),
        rows,
        Text(f"In front: {'; '.join(_leads(state, start))}"),
        Text(
            f"All readers together: epsilon {decimal_up(spending.together.epsilon, DIGITS)} of "
            f"{decimal_up(spending.budget.epsilon, DIGITS)}, what the finest of them knows"
        ),
    )


def year_line(state: DemoState, start: int) -> str:
    """Return one window as a line."""
    seen = {audience: state.release(DESTINATIONS, audience, start) for audience in state.audiences}
    parts = [f"{audience} {'refused' if one is None else _places(one)}" for audience, one in seen.items()]
    carriers = state.release(CARRIERS, PUBLIC, start)
    edition = f", edition {carriers.edition}" if carriers is not None and carriers.edition > 1 else ""
    found = [*_leads(state, start)[:1], _found(state, start) + edition]
    return f"  {_weeks(state, start)}: {', '.join(parts)}; {'; '.join(found)}"


def unlock_line(state: DemoState, start: int) -> str:
    """Return a window that is unlocked for the public as a line."""
    seen = state.seen(DESTINATIONS, PUBLIC)[start]
    places = " -> ".join(_places(release) for release in (seen.before, seen.release) if release is not None)
    return (
        f"    unlocked: {_weeks(state, start)} is {state.unlock.after_ms // DAY_MS} days old, {PUBLIC} sees it as "
        f"{PARTNER} now: {places}; the ledger paid {decimal_up(state.unlocks_charged([start]), DIGITS)}"
    )


def sharper_page(state: DemoState, audience: str, start: int) -> RenderableType:
    """Return a window of an audience before and after a grant, or its refusal.

    Args:
        state: of the demo.
        audience: the audience of the grant.
        start: start of the window.
    """
    seen, windows = state.seen(DESTINATIONS, audience)[start], len(state.all_seen(audience))
    if seen.refusal is not None:
        words = (
            f"Level {seen.refusal.level.name} would cost epsilon {spent(seen.refusal.requested.epsilon)} more than "
            f"{audience} has, and the ledger has less left."
        )
        return Group(Text(f"{windows} windows refused", "bold"), Text(words, "red"))
    pair = [release for release in (seen.before, seen.release) if release is not None]
    heads = [f"revision {one.revision}:\n{level_words(one)}" for one in pair]
    rows = table(_weeks(state, start), *heads, words=[_weeks(state, start)])
    _add_keys(rows, pair, PLACES)
    rows.add_row("", *(one.extent() for one in pair), style="dim")
    title = f"{windows} windows published again; aircraft by destination for {audience}, before and now"
    return Group(Text(title, "bold"), rows)


def ledger_page(state: DemoState) -> Table:
    """Return the epsilon of these weeks for one aircraft after each act."""
    heads = [f"{audience}\nalone" for audience in state.audiences]
    first = "epsilon per aircraft"
    rows = table(first, *heads, "all readers\ntogether", "left in\nthe ledger", words=[first])
    for act, spending in state.history:
        paid = [decimal_up(cost.epsilon, DIGITS) for cost in (*spending.alone.values(), spending.together)]
        rows.add_row(act, *paid, decimal_down(spending.left.epsilon, DIGITS))
    return rows


def verdict(state: DemoState, audience: str) -> str:
    """Return the cost of the last grant in a sentence."""
    (_, before), (_, now) = state.history[-2:]
    if now == before:
        budget = decimal_up(now.budget.epsilon, DIGITS)
        return f"Refused. Nothing was drawn and nothing paid: an aircraft is guaranteed epsilon {budget} in four weeks."
    own = now.alone[audience].epsilon - before.alone[audience].epsilon
    added = now.together.epsilon - before.together.epsilon
    paid = {
        0: "Another audience had this level already, so the ledger paid nothing.",
        own: "No audience had this level before, so the ledger paid exactly this difference.",
    }.get(added, f"The ledger paid {decimal_up(added, DIGITS)}, the part that no audience had before.")
    return f"The privacy loss to {audience} alone grew by epsilon {decimal_up(own, DIGITS)}. {paid}"


def _add_keys(rows: Table, releases: Sequence[Release | None], most: int) -> None:
    """Add the largest keys of the last release and some that only it shows, with their counts in every release."""
    counts = [{entry.item: count_words(one, entry.count) for entry in one.items} if one else {} for one in releases]
    keys = [*counts[-1]]
    fresh = [key for key in keys if key not in counts[0]][:NEW_KEYS]
    for key in [*[key for key in keys if key not in fresh][: most - len(fresh)], *fresh]:
        rows.add_row(printable(key), *(found.get(key, NOT_SHOWN) for found in counts))


def _weeks(state: DemoState, start: int) -> str:
    return days(start, start + state.starts.step)


def _places(release: Release) -> str:
    return f"{len(release.items)} places ±{release.noise_interval_95}"


def _leads(state: DemoState, start: int) -> list[str]:
    """Return a line for every leading carrier; it is the same for every audience."""
    release = state.release(LEADERS, PUBLIC, start)
    return [] if release is None else [f"{entry.item} {release.remark(entry)}" for entry in release.items]


def _found(state: DemoState, start: int) -> str:
    """Return the length of the list of carriers in words; it is the same for every audience."""
    release = state.release(CARRIERS, PUBLIC, start)
    k = state.plan.raw["views"][CARRIERS]["k"]
    return f"{'no' if release is None else len(release.items)} of the top {k} carriers"
