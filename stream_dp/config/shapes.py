"""Window shapes of a configuration, and the faults of lengths that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from stream_dp.config.models import SHORTEST_MS, LedgerConfig, ViewConfig, WindowConfig
from stream_dp.config.yaml_data import join
from stream_dp.errors import Fault
from stream_dp.kinds.base import KindPlan
from stream_dp.kinds.registry import KINDS
from stream_dp.windows.durations import CalendarUnit, format_duration, format_time
from stream_dp.windows.shapes.base import Settings, Shape
from stream_dp.windows.shapes.registry import asked_shape
from stream_dp.windows.shapes.tumbling import Tiling


def shape_of(view: ViewConfig) -> Shape:
    """Return the shape of a view's windows; their lengths go together."""
    settings = _settings(view)
    return asked_shape(settings).planned(settings)


def periods_of(ledger: LedgerConfig) -> Shape:
    """Return how a ledger's periods cut time."""
    settings = _period(ledger)
    return asked_shape(settings).planned(settings)


def _settings(view: ViewConfig) -> Settings:
    window = view.window
    return Settings(window.size, window.step, window.pane, window.start, window.zone, KINDS[view.kind].running)


def _period(ledger: LedgerConfig) -> Settings:
    return Settings(ledger.period, start_ms=ledger.start, zone=ledger.zone)


def pane_faults(window: WindowConfig, kind: KindPlan) -> Iterator[Fault]:
    """Panes of a view whose kind has none; paths are relative to the view."""
    if window.pane is None or not kind.undivided or isinstance(window.size, CalendarUnit) or window.zone is not None:
        return
    step = format_duration(window.step or window.size)
    yield Fault(
        "window.pane",
        f"windows of a {kind.name} are not made of panes: {kind.undivided}. Leave pane out: with step: {step} each "
        "window is counted and noised by itself, at the price of a window each",
    )


def period_faults(path: str, ledger: LedgerConfig) -> Iterator[Fault]:
    """Faults of the periods of a ledger.

    Args:
        path: of the ledger.
        ledger: its configuration.
    """
    settings = _period(ledger)
    for fault in asked_shape(settings).faults(settings):
        yield Fault(join(path, "period" if fault.path == "size" else fault.path), fault.message)


def window_faults(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Faults of the lengths of a view's windows, alone and beside its ledger's periods.

    Args:
        path: of the view.
        view: its configuration.
        ledger: that of its ledger.
    """
    settings = _settings(view)
    faults = [
        Fault(join(join(path, "window"), one.path), one.message) for one in asked_shape(settings).faults(settings)
    ]
    if faults or any(period_faults("", ledger)):
        yield from faults
    else:
        yield from _straddling(path, view, ledger)


def _straddling(path: str, view: ViewConfig, ledger: LedgerConfig) -> Iterator[Fault]:
    """Windows of which one could be in two periods: charged to one, they would be free in the other.

    Of windows that hop such are left out; but the others have to begin with every period and end with it. Of windows
    that are made of panes it is the panes that are charged, but where these are charged together.
    """
    windows, periods = shape_of(view).paid, periods_of(ledger)
    grid, hops = windows.grid, windows.at_once > 1
    if windows.tiles(periods):
        return
    if hops and windows.shortest_ms > periods.shortest_ms:
        yield Fault(
            f"{path}.window.size",
            f"windows of {windows.words} do not fit into a period of ledger {view.ledger!r}, {periods.words}, so no "
            f"period could pay for one; give the window a size of at most that, or the ledger a period of "
            f"{windows.words} or more",
        )
        return
    paned = view.window.pane is not None and not KINDS[view.kind].running
    key, what = ("step", "steps") if hops else ("pane", "panes") if paned else ("size", "windows")
    if isinstance(grid, Tiling) and isinstance(periods, Tiling):
        wrong, offers = _lengths(view, grid, periods, key)
    else:
        wrong, offers = key, _calendars(view, ledger, key)
    yield Fault(
        f"{path}.window.{wrong}",
        f"{what} of {grid.since} do not tile the periods of ledger {view.ledger!r}, {periods.since}: {_why(hops)}; "
        f"give {offers}",
    )


def _lengths(view: ViewConfig, grid: Tiling, periods: Tiling, key: str) -> tuple[str, str]:
    """The key that is wrong, and what would fit, where all lengths are fixed.

    A view without `window.start` has windows since 1970 as far as that goes; it is offered the ledger's start, since an
    earlier one would release every window from then on.
    """
    divides = view.window.pane is not None or key == "step"
    fitting, tiled = grid.to_tile_with(periods) if divides else grid.to_tile(periods), periods.to_be_tiled(grid)
    if view.window.start is None and fitting.origin_ms != grid.origin_ms:
        fitting = replace(fitting, origin_ms=periods.origin_ms)
    remedies = [("the window", key, grid, [fitting])] if fitting.length_ms >= SHORTEST_MS else []
    remedies.append((f"ledger {view.ledger!r}", "period", periods, tiled))
    offers = ", or ".join(f"{of} {_offer(key, former, others)}" for of, key, former, others in remedies)
    return "start" if fitting.length_ms == grid.length_ms else key, offers


_LENGTHS: Mapping[str, int | CalendarUnit] = MappingProxyType(
    {"15m": 900_000, "30m": 1_800_000, "1h": 3_600_000, "1d": 86_400_000}
    | {one: one for one in CalendarUnit if one is not CalendarUnit.DAY}
)
"""Calendar lengths that are offered, the shortest first."""


def _calendars(view: ViewConfig, ledger: LedgerConfig, key: str) -> str:
    """Lengths that fit if windows or periods follow a calendar: the longest windows, the shortest periods."""
    windows, periods = shape_of(view).paid, periods_of(ledger)
    zones = dict.fromkeys([view.window.zone, ledger.zone])
    known = [Settings(size, zone=zone) for size in _LENGTHS.values() for zone in zones]
    planned = [(one, asked_shape(one).planned(one)) for one in known if not any(asked_shape(one).faults(one))]
    sized = [(one, shape) for one, shape in planned if key == "size" or isinstance(shape, Tiling)]
    fitting = [one for one, shape in sized if shape.tiles(periods)]
    tiled = [one for one, shape in planned if windows.tiles(shape)]
    longest = [one for one in fitting if one.size == view.window.size] or fitting[-1:]
    shortest = [one for one in tiled if one.size == ledger.period] or tiled[:1]
    return ", or ".join(
        [
            *(f"the window {_written(key, one)}" for one in longest),
            *(f"ledger {view.ledger!r} {_written('period', one)}" for one in shortest),
        ]
    )


def _written(key: str, settings: Settings) -> str:
    size = next(text for text, size in _LENGTHS.items() if size == settings.size)
    return f"{key}: {size}" + (f" and zone: {settings.zone}" if settings.zone else "")


def _why(hops: bool) -> str:
    if hops:
        return "the first window of a period begins with it, and the last ends with it"
    return "one that is in two periods would be charged to the first alone"


def _offer(key: str, former: Tiling, others: Sequence[Tiling]) -> str:
    """Settings to write instead of the former length and start, where they differ: "size: 6d" or "period: 1d or 2d"."""
    lengths = [other.length_ms for other in others]
    words = [f"{key}: {' or '.join(map(format_duration, lengths))}"] if former.length_ms not in lengths else []
    start = others[0].origin_ms
    return " and ".join([*words, *([f"start: {format_time(start)}"] if start != former.origin_ms else [])])
