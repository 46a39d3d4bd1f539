"""What the demo shows: the year as three audiences read it, a window before and after a grant, the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from rich.columns import Columns
from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.demo.runs import CARRIERS, DAY_MS
from stream_dp.cli.demo.state import DemoState, Spending
from stream_dp.cli.live_table import bars, full_width, keys_of, level_words, progress_line, rest
from stream_dp.operations.numbers import cents_down, cents_up, days, spent
from stream_dp.records.history import Seen
from stream_dp.records.models import Refusal, Release

REDRAW_SECONDS = 0.2
HOLD_SECONDS = 3.0
LOG_SIZE = ConsoleDimensions(110, 30)

Frame = Callable[[ConsoleDimensions], RenderableType]


class Screen:
    """Shows acts one after the other; what an act showed last stays."""

    def __init__(self, *, stderr: bool = False, watch: Callable[[], None] = lambda: None) -> None:
        """Set up the screen.

        Args:
            stderr: show everything on standard error.
            watch: called all the time while an act is on; what it raises ends the act.
        """
        console = Console(stderr=stderr, highlight=False)
        self.moving = console.file.isatty() and console.is_interactive  # a log may ask for colours, never for motion
        if not self.moving:
            console = Console(stderr=stderr, highlight=False, width=LOG_SIZE.width, height=LOG_SIZE.height)
        self._console = console
        self.watch = watch

    def say(self, words: str = "", *, style: str = "", whole: bool = False) -> None:
        """Show a line.

        Args:
            words: the line.
            style: of the words.
            whole: leave a line that is too long to the terminal, so that it can be copied as one.
        """
        self._console.print(Text(words, style), soft_wrap=whole or not self.moving)

    def show(self, what: RenderableType) -> None:
        """Show something that stays as it is."""
        self._console.print(what)

    async def act(self, frame: Frame, done: Callable[[], bool], lines: Callable[[], Iterable[str]]) -> None:
        """Show something that changes, until it is done.

        Args:
            frame: draws it for a size of terminal.
            done: whether it is.
            lines: what there is to say of it since the last call, where nothing can be drawn anew.
        """
        if self.moving:
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                while not done():
                    live.update(frame(self._console.size), refresh=True)
                    await self._beat()
                live.update(frame(self._console.size), refresh=True)
            return
        while not done():
            self._say_all(lines())
            await self._beat()
        self._say_all(lines())
        self.show(frame(self._console.size))

    async def hold(self) -> None:
        """Leave a spectator the time to read."""
        until = time.monotonic() + (HOLD_SECONDS if self.moving else 0.0)
        while time.monotonic() < until:
            await self._beat()

    async def _beat(self) -> None:
        self.watch()
        await asyncio.sleep(REDRAW_SECONDS)

    def _say_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.say(line)


FEWEST_YEAR_ROWS, MOST_ROWS = 4, 16
YEAR_FRAME_ROWS = 16
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
    rows = min(MOST_ROWS, max(FEWEST_YEAR_ROWS, size.height - YEAR_FRAME_ROWS))
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
        return Text("no carrier is shown", "dim")
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


FEWEST_SHARPER_ROWS = 6
SHARPER_FRAME_ROWS = 14
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
    rows = min(MOST_ROWS, max(FEWEST_SHARPER_ROWS, size.height - SHARPER_FRAME_ROWS))
    keys, scale, style = _chosen_keys(before, now, rows), full_width([before, now]), state.style(audience)
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(_release_panel(before, keys, scale, "dim"), _release_panel(now, keys, scale, style))
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
        return f"Refused. Nothing was drawn and nothing paid: an aircraft is guaranteed epsilon {budget} in four weeks."
    own = now.alone[audience].epsilon - before.alone[audience].epsilon
    added = now.together.epsilon - before.together.epsilon
    grown = f"The privacy loss to {audience} alone grew by epsilon {cents_up(own)}. "
    if not added:
        return f"{grown}Another audience had this level already, so the ledger paid nothing."
    if added == own:
        return f"{grown}No audience had this level before, so the ledger paid exactly this difference."
    return f"{grown}The ledger paid {cents_up(added)}, the part that no audience had before."


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


def _release_panel(release: Release, keys: list[str], scale: int, style: str) -> Panel:
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
