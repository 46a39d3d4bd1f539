"""Records that wait for their slot and that their audience may not see any more: they never leave.

Settings or a grant take back what an audience may see. What has left stays where it is. What was drawn and waits in an
outbox is made void: its row keeps its place without the record, and the row of the window says that the audience has
what it had before. What it cost stays charged: a later release of that level costs nothing more (`WindowRow.drawn`),
nor is it counted twice among what the audience was told (`WindowRow.taken_back`). Its revision is not used again, since
some of its records may have left before a crash.

The void rows are stored before the window's row. A crash between the two leaves the level as it was, so the same is
found again.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.pieces import Change, RecordRow, stored_records
from stream_dp.releases.rows import NOTHING, WINDOW, Departure, WindowRow
from stream_dp.windows.effects import Rows
from stream_dp.windows.keys import encode, window_key


def revoked(
    view: ViewPlan,
    start: int,
    row: WindowRow,
    most: Callable[[str], int],
    topic: Callable[[str, str], str],
    rows: Rows,
) -> list[Change]:
    """What changes of the records of a window that wait and may not leave: their rows, and behind them the window's.

    Args:
        view: the view.
        start: start of the window.
        row: its row; it is changed.
        most: the finest level that an audience may be shown of it by now, -1 for nothing.
        topic: the public topic of a view and an audience.
        rows: the partition's table.
    """
    waiting: dict[str, dict[int, list[tuple[bytes, RecordRow]]]] = {}
    for departure in row.outbox:
        for key, record in stored_records(view.name, start, departure, rows):
            if record.value is not None or record.void:
                waiting.setdefault(record.topic, {}).setdefault(departure.number, []).append((key, record))
    changed: list[Change] = []
    given = row.given if row.sum is None else row.sum.given
    finest, is_lowered = row.finest, False
    for audience in view.readers:
        records = waiting.get(topic(view.view, audience), {})
        departures = [one for one in row.outbox if one.number in records]
        first = _first_revoked(departures, audience, row.has(audience), most(audience))
        if first is not None:
            behind = (one for number, those in records.items() if number >= first.number for one in those)
            changed += [(key, encode(_void(record))) for key, record in behind if not record.void]
            level = first.had.get(audience, NOTHING.level)
            if audience in given and given[audience].level != level:
                row.drawn = finest
                if row.sum is None:
                    row.taken_back[audience] = row.told(audience)
                given[audience] = replace(given[audience], level=level)
                is_lowered = True
    return [*changed, (window_key(WINDOW, view.name, start), encode(row))] if changed or is_lowered else []


def _first_revoked(departures: list[Departure], audience: str, has: int, most: int) -> Departure | None:
    """The first departure that gives an audience more than it may be shown; or anything, where it may see nothing.

    Args:
        departures: those that have records of the audience.
        audience: the audience.
        has: the level that it has with the last of them.
        most: the finest level that it may be shown.
    """
    levels = [*(one.had.get(audience, NOTHING.level) for one in departures[1:]), has]
    return next((one for one, level in zip(departures, levels, strict=False) if most < 0 or level > most), None)


def _void(record: RecordRow) -> RecordRow:
    return RecordRow(record.topic, record.key, None, void=True)
