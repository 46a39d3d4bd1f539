"""The first frame of the demo: the newest window as three audiences read it, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from rich.columns import Columns
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.flights import DAY_MS
from stream_dp.cli.demo.runs import CARRIERS
from stream_dp.cli.demo.state import DemoState
from stream_dp.cli.live_table import bars, full_width, keys_of, progress_line, rest
from stream_dp.cli.numbers import cents_up, days, spent
from stream_dp.records.history import Seen

FEWEST_ROWS, MOST_ROWS = 4, 16
FRAME_ROWS = 16
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
    title = f"Aircraft by destination, {days(start, start + state.starts.step)}; below, {_found(state, start)}"
    return Group(progress, Text(title, "bold"), grid, _leaders(state, start), *_spending(state), *_changes(state))


def year_line(state: DemoState, start: int) -> str:
    """One window in one line, for a log."""
    parts = []
    for audience in state.audiences:
        release = state.destinations(audience)[start].release
        if release is None:
            parts.append(f"{audience} refused")
        else:
            parts.append(f"{audience} {len(release.items)} places ±{release.noise_interval_95}")
    seen = state.carriers(state.audiences[0]).get(start)
    edition = 1 if seen is None or seen.release is None else seen.release.edition
    found = [*_leads(state, start)[:1], _found(state, start) + (f", edition {edition}" if edition > 1 else "")]
    return f"  {days(start, start + state.starts.step)}: {', '.join(parts)}; {'; '.join(found)}"


def unlock_line(state: DemoState, audience: str, start: int) -> str:
    """A window that an audience sees finer because of its age, in one line, for a log."""
    seen, level = state.destinations(audience)[start], state.unlocked_level(audience)
    releases = {name: state.destinations(name)[start].release for name in state.audiences if name != audience}
    alike = [name for name, release in releases.items() if release is not None and release.level.name == level]
    both = [release for release in (seen.before, seen.release) if release is not None]
    places = " -> ".join(f"{len(release.items)} places ±{release.noise_interval_95}" for release in both)
    return (
        f"    unlocked: {days(start, start + state.starts.step)} is {_age(state, audience)}, "
        f"{audience} sees it as {' and '.join(alike) or level} now: {places}; "
        f"the ledger paid {cents_up(state.charged_later(audience, start))}"
    )


def tune_lines(state: DemoState) -> list[str]:
    """The command that has changed settings, and what it means; nothing before it."""
    return [] if state.tuned is None else [f"$ {state.tuned.command}", state.tuned.words]


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


def _found(state: DemoState, start: int) -> str:
    """How long the list of carriers is, which is the same for every audience."""
    seen = state.carriers(state.audiences[0]).get(start)
    release = seen.release if seen is not None else None
    if release is None:
        return "no carriers"
    return f"{len(release.items)} of the top {state.run.plan.raw['views'][CARRIERS]['k']} carriers"


def _age(state: DemoState, audience: str) -> str:
    return f"{state.unlocks[audience].after_ms // DAY_MS} days old"


def _changes(state: DemoState) -> Iterator[Text]:
    """What has changed by itself, and what was changed, while the windows were released."""
    for audience in state.unlocks:
        starts = state.unlocked(audience)
        paid = sum((state.charged_later(audience, start) for start in starts), Fraction(0))
        windows = f"{len(starts)} window{'' if len(starts) == 1 else 's'}"
        if starts:
            words = f"when {_age(state, audience)}; the ledger paid {cents_up(paid)}"
            yield Text.assemble("Unlocked: ", (f"{audience} {windows}", f"bold {state.style(audience)}"), f", {words}")
    yield from (Text(line, "bold" if line.startswith("$") else "") for line in tune_lines(state))


def _spending(state: DemoState) -> list[RenderableType]:
    spending = state.spending()
    alone = ", ".join(f"{audience} {cents_up(paid.epsilon)}" for audience, paid in spending.alone.items())
    together = f"{cents_up(spending.together.epsilon)} of {cents_up(spending.budget.epsilon)}"
    return [
        Text.assemble("Epsilon of these weeks, each alone: ", (alone, "bold")),
        Text.assemble("All readers together: ", (together, "bold"), ", what the finest of them knows"),
    ]
