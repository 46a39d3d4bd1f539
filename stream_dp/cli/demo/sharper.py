"""The frames behind a grant: the same window before and after, and what the ledger says to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.spending import Spending
from stream_dp.cli.demo.state import DemoState
from stream_dp.cli.live_table import bars, full_width, keys_of, level_words, progress_line
from stream_dp.cli.numbers import cents_down, cents_up, days, spent
from stream_dp.records.models import Refusal, Release

FEWEST_ROWS, MOST_ROWS = 6, 16
FRAME_ROWS = 14
"""Lines of a frame that are not keys."""
MOST_ACTS = 3
"""Columns of the ledger: so many fit into 80 characters."""
NEW_KEYS = 3
"""How many of the keys are ones that only the sharper release shows."""


def sharper_frame(
    state: DemoState, audience: str, level: str, act: str, start: int, size: ConsoleDimensions
) -> RenderableType:
    """A window of one audience before and after its windows were published again, or refused that, and the ledger.

    Args:
        state: what is known; its history ends before the act.
        audience: who was granted a finer level.
        level: the level.
        act: the name of the column of the ledger that the act fills.
        start: start of the window.
        size: of the terminal.
    """
    windows = len(list(state.all_seen(audience)))
    seen = state.destinations(audience)[start]
    answered = "windows refused" if seen.refusal else "windows published again"
    progress = progress_line(state.at_level(audience, level), windows, answered, size.width)
    if seen.refusal is not None:
        return Group(progress, _refused(seen.refusal), ledger_table(state, [(act, state.spending())]))
    before, now = seen.before, seen.release
    if before is None or now is None:
        return Group(progress, ledger_table(state, []))
    rows = min(MOST_ROWS, max(FEWEST_ROWS, size.height - FRAME_ROWS))
    keys, scale, style = _chosen_keys(before, now, rows), full_width([before, now]), state.style(audience)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(_panel(before, keys, scale, "dim"), _panel(now, keys, scale, style))
    title = f"{audience}: aircraft by destination, {days(start, start + state.starts.step)}, before and now"
    return Group(progress, Text(title, "bold"), grid, ledger_table(state, [(act, state.spending())]))


def ledger_table(state: DemoState, current: Sequence[tuple[str, Spending]]) -> Table:
    """What these weeks have cost one aircraft after the newest acts, and how much each added to it."""
    columns = [*state.history, *current][-MOST_ACTS:]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("epsilon per aircraft", no_wrap=True)
    for number, (act, _) in enumerate(columns):
        table.add_column(act, justify="right", no_wrap=True)
        if number:
            table.add_column("", justify="right", no_wrap=True, style="dim")
    for audience in state.audiences:
        amounts = [spending.alone[audience].epsilon for _, spending in columns]
        table.add_row(Text.assemble((audience, state.style(audience)), " alone"), *_amounts(amounts))
    together = [spending.together.epsilon for _, spending in columns]
    table.add_row("all readers together", *_amounts(together), style="bold")
    first, *later = (cents_down(spending.left.epsilon) for _, spending in columns)
    table.add_row("left in the ledger", first, *(cell for left in later for cell in (left, "")), style="dim")
    return table


def verdict(state: DemoState, audience: str) -> str:
    """What the last act has cost, in a sentence; read from the last two entries of the history."""
    (_, before), (_, now) = state.history[-2:]
    if now == before:
        budget = cents_up(now.budget.epsilon)
        return f"Nothing was drawn and nothing paid: the promise to an aircraft, epsilon {budget} in four weeks, holds."
    own = now.alone[audience].epsilon - before.alone[audience].epsilon
    added = now.together.epsilon - before.together.epsilon
    told = f"What {audience} alone was told has grown by epsilon {cents_up(own)}; "
    if not added:
        return f"{told}all readers together learned nothing, and the ledger paid nothing."
    if added == own:
        return f"{told}nobody had that before, and the ledger paid exactly this difference."
    return f"{told}the ledger paid {cents_up(added)}, for what nobody had before."


def _refused(refusal: Refusal) -> Text:
    """What readers are told instead of a release."""
    return Text.assemble(
        (f"revision {refusal.revision}: refused. ", "red"),
        f"Level {refusal.level.name} would cost epsilon {spent(refusal.requested.epsilon)} ",
        f"more than {refusal.audience} has, and the ledger has less left.",
    )


def _chosen_keys(before: Release, now: Release, rows: int) -> list[str]:
    """The largest keys, and the largest of those that were not shown before."""
    known = {entry.item for entry in before.items}
    fresh = [entry.item for entry in now.items if entry.item not in known][:NEW_KEYS]
    return [*[key for key in keys_of(now, rows) if key not in fresh][: rows - len(fresh)], *fresh]


def _panel(release: Release, keys: list[str], scale: int, style: str) -> Panel:
    return Panel(
        bars(release, keys, scale=scale, style=style),
        title=f"revision {release.revision}: {level_words(release)}",
        subtitle=release.extent(),
        border_style=style,
    )


def _amounts(amounts: Sequence[Fraction]) -> Iterator[str]:
    """The first amount; then each, and what it has more than the one before."""
    for number, amount in enumerate(amounts):
        yield cents_up(amount)
        if number:
            yield _added(amount - amounts[number - 1])


def _added(difference: Fraction) -> str:
    return f"+{cents_up(difference)}" if difference else "+0"
