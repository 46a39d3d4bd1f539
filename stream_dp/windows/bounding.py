"""Contribution bounding and counting of one chunk for one view: the loop that every event passes.

Whether a contribution is kept depends on the event's own time, the view's clock and what the same user added to the
same window before, or to the same interval of windows where contributions are bounded over one; and on which windows
the user entered before, where these are bounded (`participation`). A contribution whose key is off a fixed list is
dropped before any bound, so the rest is counted as without it. The clock is moved by watermark records or by ticks,
never by an event: an event that could close a window would make other users' events late. So adding or removing one
user changes no other user's contributions, and moves each count of a window by at most 1 and at most `items_per_user`
counts of it, or of all windows of the interval together (specs/lossless 1.2, specs/topk 1.2).

An event of windows that overlap counts in each of them that still takes it, and each window is bounded by itself: what
a user adds to one says nothing about the others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stream_dp.windows.count_rows import UNLISTED, JournalRow
from stream_dp.windows.events import Column
from stream_dp.windows.open_windows import CODE_BYTES, OpenWindow, code_of
from stream_dp.windows.participation import REFUSED, Enters, Participation, everybody
from stream_dp.windows.shapes.shape import Shape
from stream_dp.windows.views import CountedView

_NO_MORE = (1 << 63, -(1 << 63))
"""Ends a list of watermarks: behind every offset, before every time."""

_WEIGHT = {reason: at for at, reason in enumerate(("before_start", "late", "duplicate", "clipped", REFUSED, UNLISTED))}
"""Of reasons that differ between the windows of an event, the heaviest is given: one of a window that took events."""


@dataclass(slots=True)
class Bounded:
    """Effect of a chunk on a view: its clock afterwards, the journal rows to store, the refused (offset, reason)."""

    clock_ms: int
    added: dict[int, JournalRow]
    refused: list[tuple[int, str]]


class Admission(NamedTuple):
    """Decides which events of a chunk are in time for a view, and in their place."""

    clock_ms: int
    """The view's clock before the chunk."""
    now_ms: int
    """The wall time of the tick behind the chunk; nothing is counted that lies further ahead of it than `max_ahead_ms`,
    and no watermark shows more."""
    open_from_ms: int
    """Start of the first window that was not handed on; everything before it is late."""
    watermarks: Sequence[tuple[int, int]] = ()
    """(offset, time) in order: behind that offset the clock shows at least that time. The order of the log alone
    decides what is late, not what one fetch happens to bring together."""
    misplaced: Container[bytes] = ()
    """Users in a partition that is not theirs."""
    participation: Participation | None = None
    """Who may enter a window; None: everybody."""
    is_oldest: bool = True
    """No earlier definition of the view is open: what is from before this one began is too late for all. Else it is the
    earlier one's, as what is from `until_ms` on is a later one's: nothing is said of it here."""


def bound_chunk(
    view: CountedView, windows: dict[int, OpenWindow], contributions: Column, admission: Admission
) -> Bounded:
    """Count the events of a chunk that the view's bounds let through.

    Args:
        view: the view.
        windows: what its open windows hold, by start of the window or of the interval that bounds contributions to it;
            changed in place.
        contributions: the column of the chunk that the view counts.
        admission: decides what is late, too early or out of place.

    Returns:
        The clock, the accepted contributions and the refusals, one for each contribution that no window takes, reasons:
        `late`, `before_start`, `future`, `duplicate`, `clipped`, `participation`, `wrong_partition`, `unlisted`.
    """
    tilings = view.windows.tilings
    names = contributions.offsets if len(tilings) == 1 else range(len(contributions.offsets))
    found = [_bound_tiling(one, view, windows, contributions, names, admission) for one in enumerate(tilings)]
    return found[0] if len(found) == 1 else _together(found, contributions.offsets)


def _together(found: Sequence[Bounded], offsets: Sequence[int]) -> Bounded:
    """Combine the effects of a chunk on each tiling of overlapping windows, whose refusals name places."""
    reasons: dict[int, list[str]] = {}
    for one in found:
        for place, reason in one.refused:
            reasons.setdefault(place, []).append(reason)
    everywhere = sorted((place, said) for place, said in reasons.items() if len(said) == len(found))
    return Bounded(
        found[0].clock_ms,
        {start: row for one in found for start, row in one.added.items()},
        [(offsets[at], max(said, key=lambda reason: _WEIGHT.get(reason, len(_WEIGHT)))) for at, said in everywhere],
    )


def _bound_tiling(
    tiling: tuple[int, Shape],
    view: CountedView,
    windows: dict[int, OpenWindow],
    contributions: Column,
    names: Sequence[int],
    admission: Admission,
) -> Bounded:
    """As `bound_chunk`, for those of the view's windows that are of one tiling: an event is in one of them.

    Of what is refused, not the offsets are given but the `names` that stand in their places.
    """
    clock_ms, now_ms, open_from_ms, watermarks, misplaced, participation, is_oldest = admission
    number, shape = tiling
    limit, grace, ends, domain = CODE_BYTES * view.items_per_user, view.grace_ms, view.ends(shape), view.domain
    latest = now_ms + view.max_ahead_ms if ends is None else min(now_ms + view.max_ahead_ms, ends - 1)
    first = shape.first_from(max(open_from_ms, view.first_ms))
    closed_before = max(first, shape.first_open(clock_ms - grace))
    out = Bounded(clock_ms, {}, [])
    marks = iter([*watermarks, _NO_MORE])
    mark_at, mark_ms = next(marks)
    low, since, until, row = 0, 0, 0, JournalRow(0, [], [])
    enters: Enters = everybody
    accepted, codes = OpenWindow().tables
    held_by, own_of, add_user, add_item = accepted.get, codes.get, row.users.append, row.items.append
    for name, offset, user, time, item in zip(names, *contributions, strict=True):
        while mark_at < offset:
            clock_ms = max(clock_ms, min(mark_ms, now_ms))
            mark_at, mark_ms = next(marks)
            closed_before = max(first, shape.first_open(clock_ms - grace))
            since = max(low, closed_before)
        if not since <= time < until:
            if not closed_before <= time <= latest:
                if ends is None or time < ends:
                    late = view.out_of_time(time, closed_before, is_oldest=is_oldest)
                    out.refused += [(name, late)] if late else []
                continue
            low = shape.start_of(time)
            since, until = max(low, closed_before), min(shape.end(low), latest + 1)
            accepted, codes = windows.setdefault(view.bounded_in(low), OpenWindow()).tables
            row = out.added.setdefault(low, JournalRow(0, [], []))
            held_by, own_of, add_user, add_item = accepted.get, codes.get, row.users.append, row.items.append
            enters = everybody if participation is None else participation.enters(low, number)
        held, own, reason = held_by(user), own_of(item), ""
        if own is None and domain is not None and item not in domain:
            reason = UNLISTED
        elif held is not None:
            reason = "duplicate" if own is not None and own in held else "clipped" if len(held) >= limit else ""
        elif user in misplaced:
            reason = "wrong_partition"
        elif enters is not everybody and not enters(user, time):
            reason = REFUSED
        if reason:
            out.refused.append((name, reason))
            continue
        if own is None:
            own = codes[item] = code_of(len(codes))
        accepted[user] = own if held is None else held + own
        add_user(user)
        add_item(item)
    clock_ms = max([clock_ms, *(min(time, now_ms) for _, time in watermarks)])
    return Bounded(clock_ms, {start: row for start, row in out.added.items() if row.users}, out.refused)
