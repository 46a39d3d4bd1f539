"""Windows of which a total is told at the end of every pane: what a pane goes on from, and the blocks it adds up.

With every pane a block of panes is sealed that ends with it (`windows.blocks`); it is the table of the pane's row, and
the row says who has what of the total. A window is charged with its first pane, for all of it: whoever has the total of
a later pane has that of the first at the same level or a finer one, and nothing more is charged. A pane is released if
the one before it was, so a window that is refused, or of which counts were lost, is refused to its end.

The exact counts of a block are kept as long as a longer block of the window needs them. They are stored before the
pane's row, which is the commit point, and those that were needed for the last time are deleted behind it. What a crash
leaves, `leftover_blocks` finds: counts of a pane that was not released, and counts that nobody needs any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.kinds.sealing import SealedTable, WindowNoise
from stream_dp.records.models import Reason
from stream_dp.releases.pieces import Change, noise_of, stored_table
from stream_dp.releases.rows import BLOCK, NOTHING, WindowRow, stored_window
from stream_dp.windows.effects import Rows
from stream_dp.windows.keys import after, bucket_number, decode, encode, text, window_key, window_start
from stream_dp.windows.merge_rows import parts_of

Part = tuple[SealedTable, WindowNoise]
"""A sealed block, and what it was sealed with."""


class BlockRow(msgspec.Struct, array_like=True):
    """The exact counts of the block that ends with a pane, or a part of them."""

    parts: int
    """How many there are."""
    counts: dict[str, int]


class Begun(NamedTuple):
    """The window of a pane that is not its first.

    Attributes:
        levels: who has which level of it.
        reason: why none of it is released any more, None where it goes on.
        blocks: the sealed blocks that a total has before the one that ends with the pane.
    """

    levels: Mapping[str, int]
    reason: Reason | None
    blocks: Sequence[Part] = ()


def begun(
    view: ViewPlan, start: int, allowed: Mapping[str, int], secrets: Mapping[str, bytes], rows: Rows
) -> Begun | None:
    """What a pane goes on from; None where it is the first of its window, or windows have no panes.

    Args:
        view: the view.
        start: start of the pane.
        allowed: by audience, the level that it may see.
        secrets: by id, the keys that panes were sealed with, without those that are retired.
        rows: the partition's table.
    """
    if view.window.pays(start):
        return None
    first, before = first_row(view, start, rows), stored_window(view.name, view.window.shape.next(start, -1), rows)
    if first is None or before is None:  # its state was lost
        return Begun({}, "lost")
    if before.refused:
        return Begun({}, "lost" if before.lost else "budget")
    blocks = earlier_blocks(view, start, secrets, rows)
    paid = {name: min(level, first.given.get(name, NOTHING).level) for name, level in allowed.items()}
    levels = {audience: level for audience, level in paid.items() if level >= 0}
    return Begun(levels, "lost" if blocks is None else None, blocks or ())


def is_passed_over(view: ViewPlan, start: int, kept_ms: int, rows: Rows) -> bool:
    """Whether a pane is of a window that began when nobody might see it: no total has the panes before.

    Args:
        view: the view.
        start: start of the pane.
        kept_ms: start of the first pane whose row is kept if it was released; what was lost was so before it.
        rows: the partition's table.
    """
    if view.window.pays(start) or view.window.charged(start).start_ms < kept_ms:
        return False
    before = stored_window(view.name, view.window.shape.next(start, -1), rows)
    return before is None and first_row(view, start, rows) is None


def first_row(view: ViewPlan, start: int, rows: Rows) -> WindowRow | None:
    """The row of the first pane of the window that a pane is in."""
    return stored_window(view.name, view.window.charged(start).start_ms, rows)


def earlier_blocks(view: ViewPlan, start: int, secrets: Mapping[str, bytes], rows: Rows) -> Sequence[Part] | None:
    """The sealed blocks that the total of a released pane has before the one that ends with it, oldest first.

    None where one of them cannot be read any more: it is not stored, or its key is retired. None of them where totals
    are not told of.
    """
    running = view.window.running
    found: list[Part] = []
    for at in [] if running is None else running.blocks(start)[:-1]:
        row = stored_window(view.name, at, rows)
        if row is None or row.key_id not in secrets:
            return None
        found.append((stored_table(view.name, at, rows), noise_of(view, at, row, secrets)))
    return found


# -- exact counts --------------------------------------------------------------------------------------------------


def inner_counts(view: ViewPlan, start: int, rows: Rows) -> Iterator[Mapping[str, int]]:
    """What the block that ends with a pane counts beside that pane, to be added up.

    Raises:
        StateError: some of it is not there.
    """
    for at in _inner(view, start):
        prefix = window_key(BLOCK, view.name, at)
        found = [decode(BlockRow, value) for _, value in rows.scan(prefix, after(prefix))]
        if not found or {row.parts for row in found} != {len(found)}:
            raise StateError(f"the stored counts of some panes of view {view.name} are damaged")
        yield from (row.counts for row in found)


def block_rows(view: ViewPlan, start: int, counts: Mapping[str, int]) -> list[Change]:
    """The rows of the block that ends with a pane, if a longer one needs it.

    Args:
        view: the view.
        start: start of the pane.
        counts: exact, of the block.
    """
    if view.window.running is None or not view.window.running.is_needed_later(start):
        return []
    parts = parts_of(counts)
    return [
        (window_key(BLOCK, view.name, start) + bucket_number(number), encode(BlockRow(len(parts), part)))
        for number, part in enumerate(parts)
    ]


def used_blocks(view: ViewPlan, start: int, *, refused: bool) -> list[bytes]:
    """What the keys of exact counts begin with that nobody needs behind a pane.

    Args:
        view: the view.
        start: start of the pane.
        refused: whether it is refused: then none of its window are needed.
    """
    if view.window.pays(start):
        return []
    used = _open_before(view, start) if refused else _inner(view, start)
    return [window_key(BLOCK, view.name, at) for at in used]


def used_range(view: ViewPlan, start: int) -> tuple[bytes, bytes]:
    """Between which keys such rows stand, those that are needed still among them."""
    return window_key(BLOCK, view.name, view.window.charged(start).start_ms), window_key(BLOCK, view.name, start)


def leftover_blocks(view: ViewPlan, next_ms: int, rows: Rows) -> Iterator[Change]:
    """What is stored of blocks and no longer needed, or not yet.

    Args:
        view: the view.
        next_ms: start of its first pane that is not stored as released.
        rows: the partition's table.
    """
    needed: Sequence[int] = ()
    if not view.window.pays(next_ms):
        before = stored_window(view.name, view.window.shape.next(next_ms, -1), rows)
        needed = () if before is None or before.refused else _open_before(view, next_ms)
    prefix = BLOCK + text(view.name)
    for key, _ in rows.scan(prefix, after(prefix)):
        if window_start(BLOCK, view.name, key) not in needed:
            yield key, None


def _inner(view: ViewPlan, start: int) -> Sequence[int]:
    return () if view.window.running is None else view.window.running.inner(start)


def _open_before(view: ViewPlan, start: int) -> Sequence[int]:
    """Starts of the last panes of the blocks that a pane or a later one needs; it is not the first of its window."""
    running = view.window.running
    if running is None:
        return ()
    return [at for at in running.blocks(running.panes.next(start, -1)) if running.is_needed_later(at)]
