"""How the windows of a configuration cut the time, and what is wrong where their lengths do not go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile

from stream_dp.config.models import SHORTEST_MS, LedgerConfig, ViewConfig, WindowConfig
from stream_dp.errors import Fault
from stream_dp.kinds.base import KindPlan
from stream_dp.kinds.registry import KINDS
from stream_dp.windows.blocks import Running
from stream_dp.windows.durations import format_duration, format_time
from stream_dp.windows.shape import Hopping, Paned, Shape, Tiling

MOST_AT_ONCE = 1000
"""Windows of a view that an event is in."""
MOST_PANES = 500
"""Panes of a window."""
MOST_TOTALS = 10_000
"""Panes of a window of which a total is told at the end of each."""


def shape_of(window: WindowConfig) -> Shape:
    """How what is counted by itself cuts the time, windows or panes; the lengths go together."""
    origin = window.start or 0
    if window.pane is not None:
        return Tiling(window.pane, origin)
    if window.step is None or window.step == window.size:
        return Tiling(window.size, origin)
    return Hopping(window.size, window.step, origin)


def windows_of_panes(window: WindowConfig) -> Paned | None:
    """How windows that are made of panes cut the time; None where there are none, or a pane is a window."""
    step = window.step or window.size
    if window.pane is None or window.pane == window.size == step:
        return None
    return Paned(Tiling(window.pane, window.start or 0), window.size, step)


def running_of(window: WindowConfig) -> Running:
    """How windows are made up of which a total is told at the end of every pane; without panes, a window is one."""
    origin = window.start or 0
    return Running(Tiling(window.pane or window.size, origin), Tiling(window.size, origin))


def pane_faults(window: WindowConfig, kind: KindPlan) -> Iterator[Fault]:
    """Panes of a view whose kind has none; paths are relative to the view."""
    if window.pane is None or not kind.undivided:
        return
    step = format_duration(window.step or window.size)
    yield Fault(
        "window.pane",
        f"windows of a {kind.name} are not made of panes: {kind.undivided}. Leave pane out: with step: {step} each "
        "window is counted and noised by itself, at the price of a window each",
    )


def window_faults(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Faults of the lengths of a view's windows, and of its ledger's periods.

    Args:
        path: of the view.
        view: its configuration.
        ledger: that of its ledger.
    """
    if KINDS[view.kind].running:
        faults = list(_running(path, view.window))
    else:
        faults = list(_hops(path, view.window) if view.window.pane is None else _panes(path, view.window))
    yield from faults or _straddling(path, view, ledger)


def _hops(path: str, window: WindowConfig) -> Iterator[Fault]:
    """A step that windows cannot hop by."""
    size, step = window.size, window.step
    if step is None:
        return
    length, hop = format_duration(size), format_duration(step)
    if size % step:
        steps = " or ".join(map(format_duration, _dividing(size, step)))
        yield Fault(
            f"{path}.window.step",
            f"{hop} does not divide the size of the windows, {length}; give step: {steps}, or another size",
        )
    elif size // step > MOST_AT_ONCE:
        longer = format_duration(_dividing(size, -(-size // MOST_AT_ONCE) - 1)[-1])
        yield Fault(
            f"{path}.window.step",
            f"by steps of {hop} an event is in {size // step} windows of {length}, each of which is counted and paid "
            f"for by itself, and {MOST_AT_ONCE} is the most; give step: {longer} or more",
        )


def _running(path: str, window: WindowConfig) -> Iterator[Fault]:
    """Windows that cannot be told of at the end of every pane."""
    size, pane, length = window.size, window.pane, format_duration(window.size)
    if window.step is not None:
        yield Fault(f"{path}.window.step", "has no meaning for running: each window begins where the one before ends")
    if pane is None:
        yield Fault(f"{path}.window.pane", f"is required by running: how often a total is told in a window of {length}")
    elif size % pane:
        lengths = " or ".join(map(format_duration, _dividing(size, pane)))
        yield Fault(
            f"{path}.window.pane",
            f"{length} is no whole number of panes of {format_duration(pane)}; give pane: {lengths}, or another size",
        )
    else:
        yield from _too_many(path, size, pane, MOST_TOTALS, "each with a noisy table of its own")


def _panes(path: str, window: WindowConfig) -> Iterator[Fault]:
    """Windows and steps that are not made of panes."""
    size, step, pane = window.size, window.step or window.size, window.pane or window.size
    slice_, length = format_duration(pane), format_duration(size)
    for key, whole in (("size", size), ("step", step)):
        if whole % pane and (key == "size" or window.step is not None):
            fitting = [whole // pane * pane, -(-whole // pane) * pane]
            lengths = " or ".join(format_duration(one) for one in fitting if one)
            yield Fault(
                f"{path}.window.{key}",
                f"{format_duration(whole)} is no whole number of panes of {slice_}; give {key}: {lengths}, or another "
                "pane",
            )
    if step > size:
        yield Fault(
            f"{path}.window.step",
            f"{format_duration(step)} is longer than windows of {length}: what lies between them would be paid for and "
            f"never shown; give step: {length} or less",
        )
    else:
        yield from _too_many(path, size, pane, MOST_PANES, "and bear the noise of all of them")


def _too_many(path: str, size: int, pane: int, most: int, why: str) -> Iterator[Fault]:
    """More panes than a window can have."""
    if size > most * pane:
        length, slice_ = format_duration(size), format_duration(pane)
        longer = format_duration(_dividing(size, -(-size // most) - 1)[-1])
        yield Fault(
            f"{path}.window.pane",
            f"windows of {length} would be of {size // pane} panes of {slice_}, {why}, and {most} is the most; give "
            f"pane: {longer} or more",
        )


def _dividing(length: int, near: int) -> list[int]:
    """The next shorter and the next longer divisor of a length, in whole seconds as far as the length is one."""
    unit = SHORTEST_MS if length % SHORTEST_MS == 0 else length
    units = length // unit
    small = [one for one in takewhile(lambda one: one * one <= units, count(1)) if units % one == 0]
    found = [unit * one for one in sorted({*small, *(units // one for one in small)})]
    return [*[one for one in found if one < near][-1:], *[one for one in found if one > near][:1]]


def _straddling(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Windows of which one could be in two periods: charged to one, they would be free in the other.

    Of windows that hop such are left out; but the others have to begin with every period and end with it. Of windows
    that are made of panes it is the panes that are charged, but where these are charged together.

    A view without `window.start` has windows since 1970 as far as that goes; it is offered the ledger's start, since an
    earlier one would release every window from then on.
    """
    start, running = view.window.start, KINDS[view.kind].running
    shape = running_of(view.window).windows if running else shape_of(view.window)
    grid, periods = shape.grid, Tiling(ledger.period, ledger.start)
    hops = grid.length_ms < shape.length_ms
    if shape.length_ms > ledger.period and hops:
        yield Fault(
            f"{path}.window.size",
            f"windows of {format_duration(shape.length_ms)} do not fit into a period of ledger {view.ledger!r}, "
            f"{format_duration(ledger.period)}, so no period could pay for one; give the window a size of at most "
            f"that, or the ledger a period of {format_duration(shape.length_ms)} or more",
        )
        return
    if grid.tiles(periods):
        return
    divides = hops or view.window.pane is not None
    fitting, tiled = _common(grid, periods) if divides else grid.to_tile(periods), periods.to_be_tiled(grid)
    if start is None and fitting.origin_ms != grid.origin_ms:
        fitting = replace(fitting, origin_ms=periods.origin_ms)
    paned = view.window.pane is not None and not running
    key, what = ("step", "steps") if hops else ("pane", "panes") if paned else ("size", "windows")
    remedies = [("the window", key, grid, [fitting])] if fitting.length_ms >= SHORTEST_MS else []
    remedies.append((f"ledger {view.ledger!r}", "period", periods, tiled))
    offers = ", or ".join(f"{of} {_offer(key, former, others)}" for of, key, former, others in remedies)
    yield Fault(
        f"{path}.window.{'start' if fitting.length_ms == grid.length_ms else key}",
        f"{what} of {_since(grid)} do not tile the periods of ledger {view.ledger!r}, {_since(periods)}: "
        f"{_why(hops)}; give {offers}",
    )


def _why(hops: bool) -> str:
    if hops:
        return "the first window of a period begins with it, and the last ends with it"
    return "one that is in two periods would be charged to the first alone"


def _common(grid: Tiling, periods: Tiling) -> Tiling:
    """The longest steps or panes that what is made of the former ones is made of as well, and the periods are."""
    length, gap = grid.length_ms, periods.length_ms
    while gap:
        length, gap = gap, length % gap
    return replace(grid.to_tile(periods), length_ms=length)


def _since(tiling: Tiling) -> str:
    return f"{format_duration(tiling.length_ms)} from {format_time(tiling.origin_ms)} on"


def _offer(key: str, former: Tiling, others: Sequence[Tiling]) -> str:
    """What to write instead of the former length and start, where they differ: "size: 6d" or "period: 1d or 2d"."""
    lengths = [other.length_ms for other in others]
    words = [f"{key}: {' or '.join(map(format_duration, lengths))}"] if former.length_ms not in lengths else []
    start = others[0].origin_ms
    return " and ".join([*words, *([f"start: {format_time(start)}"] if start != former.origin_ms else [])])
