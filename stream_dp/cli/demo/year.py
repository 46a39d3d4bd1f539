"""The first frame of the demo: the newest window as three audiences read it, side by side."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.state import DemoState
from stream_dp.cli.live_table import bars, full_width, keys_of, progress_line, rest
from stream_dp.cli.numbers import cents_up, days, spent
from stream_dp.records.history import Seen

FEWEST_ROWS, MOST_ROWS = 4, 16
FRAME_ROWS = 13
"""Lines of a frame that are not keys."""


def year_frame(state: DemoState, size: ConsoleDimensions) -> RenderableType:
    """The year so far: progress, the newest full window, what it has cost.

    Args:
        state: what is known.
        size: of the terminal.
    """
    progress = progress_line(len(state.complete()), len(state.starts), "windows released", size.width)
    windows = state.full_windows()
    if not windows:
        return Group(progress, Text("Waiting for the first window to close.", "dim"))
    start = windows[-1]
    releases = {audience: state.destinations(audience)[start].release for audience in state.audiences}
    scale = full_width([release for release in releases.values() if release is not None])
    grid = Table.grid(expand=True)
    for _ in releases:
        grid.add_column(ratio=1)
    rows = min(MOST_ROWS, max(FEWEST_ROWS, size.height - FRAME_ROWS))
    grid.add_row(*(_panel(state, audience, start, rows, scale) for audience in releases))
    title = f"Aircraft by destination, {days(start, start + state.starts.step)}; below, the largest carriers"
    return Group(progress, Text(title, "bold"), grid, _leaders(state, start), *_spending(state))


def year_line(state: DemoState, start: int) -> str:
    """One window in one line, for a log."""
    parts = []
    for audience in state.audiences:
        release = state.destinations(audience)[start].release
        if release is None:
            parts.append(f"{audience} refused")
        else:
            parts.append(f"{audience} {len(release.items)} places ±{release.noise_interval_95}")
    leads = _leads(state, start)
    return f"  {days(start, start + state.starts.step)}: {', '.join(parts)}" + (f"; {leads[0]}" if leads else "")


def _panel(state: DemoState, audience: str, start: int, rows: int, scale: int) -> Panel:
    style = state.style(audience)
    release = state.destinations(audience)[start].release
    if release is None:
        return Panel(Text("refused: the ledger is spent", "red"), title=audience, border_style=style)
    keys = keys_of(release, rows)
    return Panel(
        Group(
            Text(f"epsilon {spent(release.level.epsilon)}, ±{release.noise_interval_95}", "dim"),
            bars(release, keys, scale=scale, style=style),
            *[Text("")] * (rows - len(keys)),
            Text(rest(release, rows), "dim"),
            _carriers(state.carriers(audience).get(start), style),
        ),
        title=Text.assemble((audience, f"bold {style}"), f", {release.level.name}"),
        subtitle=release.extent(),
        border_style=style,
        height=rows + 6,
    )


def _carriers(seen: Seen | None, style: str) -> RenderableType:
    release = seen.release if seen is not None else None
    if release is None:
        return Text("")
    if not release.items:
        return Text("no carrier stands out", "dim")
    pairs = [Text.assemble((entry.item, style), f" {entry.count}") for entry in release.items]
    return Columns([*pairs, Text(f"±{release.noise_interval_95}", "dim")], padding=(0, 2))


def _leaders(state: DemoState, start: int) -> Text:
    """Who leads, by how much, how sure: the same for every audience."""
    return Text.assemble("In front: ", ("; ".join(_leads(state, start)), "bold"))


def _leads(state: DemoState, start: int) -> list[str]:
    """A line for every carrier in front."""
    seen = state.leaders(state.audiences[0]).get(start)
    release = seen.release if seen is not None else None
    return [] if release is None else [f"{entry.item} {release.remark(entry)}" for entry in release.items]


def _spending(state: DemoState) -> list[RenderableType]:
    spending = state.spending()
    alone = ", ".join(f"{audience} {cents_up(paid.epsilon)}" for audience, paid in spending.alone.items())
    together = f"{cents_up(spending.together.epsilon)} of {cents_up(spending.budget.epsilon)}"
    return [
        Text.assemble("Epsilon of these weeks, each alone: ", (alone, "bold")),
        Text.assemble("All readers together: ", (together, "bold"), ", what the finest of them knows"),
    ]
