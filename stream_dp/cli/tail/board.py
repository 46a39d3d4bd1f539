"""What `stream-dp tail` shows: one window in full, and the windows around it."""

from __future__ import annotations

from rich.console import ConsoleDimensions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.live_table import (
    NOT_SHOWN,
    Bars,
    Row,
    count_words,
    full_width,
    level_words,
    rest,
)
from stream_dp.cli.numbers import moment, price, printable, spent
from stream_dp.config.plan import ViewPlan
from stream_dp.records.codec import AnyRecord
from stream_dp.records.history import History, Seen
from stream_dp.records.models import ItemCount, Refusal, Release

STYLE = "cyan"
SHARPER = "green"
FEWEST_ROWS, WINDOW_ROWS, FRAME_ROWS = 3, 6, 10
KEYS_IN_A_LINE = 5


class Board:
    """The state of the screen: takes records, renders what it knows."""

    def __init__(self, view: ViewPlan, topic: str, at_ms: int | None = None) -> None:
        """Set up an empty board.

        Args:
            view: the view.
            topic: the topic that is read.
            at_ms: show the window that holds this moment; None for the newest.
        """
        self._view = view
        self._topic = topic
        self._at_ms = at_ms
        self._history = History()

    def take(self, record: AnyRecord) -> None:
        """Add a record of the topic."""
        self._history.take(record)

    def render(self, size: ConsoleDimensions) -> RenderableType:
        """The screen, to fit a terminal of a size."""
        newest = self._history.newest
        if newest is None:
            return Text(f"{self._topic}: nothing released yet. Ctrl-C ends.", "dim")
        windows = self._history.windows(self._view.name, newest.audience)
        start = self._chosen(windows)
        chosen = windows.get(start)
        rows = max(FEWEST_ROWS, size.height - FRAME_ROWS - min(WINDOW_ROWS, len(windows)))
        head = Text.assemble((self._topic, "bold"), ("    Ctrl-C ends", "dim"))
        body = Text("nothing released of this window", "dim") if chosen is None else _body(chosen, rows)
        newer = None if chosen is None else chosen.release or chosen.refusal
        end = self._view.window.released.end(start) if newer is None else newer.window.end_ms
        title = f"{moment(start)} to {moment(end)}"
        panel = Panel(body, title=title, border_style=STYLE, padding=(0, 1))
        return Group(head, panel, _list(windows, start), _account(newest))

    def _chosen(self, windows: dict[int, Seen]) -> int:
        if self._at_ms is None:
            return max(windows)
        return self._view.window.released.start_of(self._at_ms)


def record_line(record: AnyRecord) -> str:
    """A record in one line, for a pipe."""
    until = "" if record.blocks is None else f" to {moment(record.window.end_ms)}"
    head = f"{moment(record.window.start_ms)}{until} revision {record.revision}"
    told = f"told {price(record.privacy.period)} in the period"
    if isinstance(record, Refusal) and record.reason == "lost":
        return f"{head}: lost before it was released; {told}"
    if isinstance(record, Refusal):
        return f"{head}: refused, {record.level.name} would cost {price(record.requested)}; {told}"
    keys = [
        f"{printable(entry.item)} {entry.count}" + (f" ({remark})" if (remark := record.remark(entry)) else "")
        for entry in record.items[:KEYS_IN_A_LINE]
    ]
    more = rest(record, KEYS_IN_A_LINE)
    found = ", ".join(keys) + (f", {more}" if more else "")
    return f"{head}: {level_words(record)}; {found or 'nothing shown'}; {told}"


def _body(seen: Seen, rows: int) -> RenderableType:
    """One window: its level, what it replaced, its keys."""
    parts: list[RenderableType] = []
    if seen.refusal is not None:
        parts.append(_refused(seen.refusal))
    release = seen.release
    if release is None:
        return Group(*parts)
    parts.append(Text.assemble((level_words(release), "bold"), f"   {release.extent()}"))
    if release.revision > 1:
        parts.append(_replaced(release, seen.before))
    parts.append(_keys(release, seen.before, rows))
    if more := rest(release, rows):
        parts.append(Text(more, "dim"))
    return Group(*parts)


def _keys(release: Release, before: Release | None, rows: int) -> Bars:
    lines = [
        Row(
            entry.item,
            entry.count,
            count_words(release, entry.count) + _remark(release, entry) + _was(entry.item, before),
        )
        for entry in release.items[:rows]
    ]
    return Bars(lines, release.interval, full_width([release]), STYLE)


def _remark(release: Release, entry: ItemCount) -> str:
    """What the release says of a key beside its count."""
    remark = release.remark(entry)
    return f"   {remark}" if remark else ""


def _was(key: str, before: Release | None) -> str:
    """What the replaced release said of a key."""
    if before is None:
        return ""
    count = next((entry.count for entry in before.items if entry.item == key), None)
    return f"   {NOT_SHOWN} before" if count is None else f"   was {count_words(before, count)}"


def _replaced(release: Release, before: Release | None) -> Text:
    words = f"revision {release.revision}"
    if before is not None:
        words += f" replaces revision {before.revision}: {level_words(before)}, {before.extent()}"
    return Text(words, SHARPER)


def _refused(refusal: Refusal) -> Text:
    if refusal.reason == "lost":
        return Text("lost by a failure of the system before it was released", "red")
    return Text(
        f"refused: {refusal.level.name} would cost {price(refusal.requested)}, which the ledger does not have left",
        "red",
    )


def _list(windows: dict[int, Seen], chosen: int) -> Table:
    """The newest windows, newest first."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True)
    for heading in ("window", "revision", "level"):
        table.add_column(heading, no_wrap=heading == "window", overflow="fold")
    for heading in ("epsilon", "95 %", "shown", "told so far"):
        table.add_column(heading, justify="right", overflow="fold")
    for start in sorted(windows, reverse=True)[:WINDOW_ROWS]:
        seen, style = windows[start], "bold" if start == chosen else ""
        release = seen.release
        if release is None:
            table.add_row(moment(start), "", Text("refused", "red"), style=style)
            continue
        revision = Text(str(release.revision))
        if release.revision > 1:
            revision = Text(f"{release.revision}, sharper", SHARPER)
        table.add_row(
            moment(start),
            revision,
            Text.assemble(release.level.name, (", sharper one refused", "red") if seen.refusal is not None else ""),
            spent(release.level.epsilon),
            f"±{release.noise_interval_95}",
            str(len(release.items)),
            spent(release.privacy.period.epsilon),
            style=style,
        )
    return table


def _account(newest: AnyRecord) -> Text:
    ledger = newest.ledger
    return Text(
        f"ledger {ledger.name} ({ledger.population}): until {moment(ledger.period.end_ms)} {newest.audience} was told "
        f"{price(newest.privacy.period)}; the budget for all views and audiences together is {price(ledger.budget)}",
        "dim",
    )
