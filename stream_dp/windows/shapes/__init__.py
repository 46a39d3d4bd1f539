"""Window shapes: one file each, and a line here. A shape says how a view's windows cut time, and who pays."""

from __future__ import annotations

from stream_dp.windows.durations import CalendarUnit
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.paned import Paned
from stream_dp.windows.shapes.running_totals import Running
from stream_dp.windows.shapes.shape import Settings, Shape
from stream_dp.windows.shapes.tumbling import Tiling


def asked_shape(settings: Settings) -> type[Shape]:
    """Return the shape that a configuration asks for."""
    if isinstance(settings.size, CalendarUnit) or settings.zone is not None:
        return Calendar
    if settings.totals:
        return Running
    if settings.pane is not None:
        return Paned
    return Tiling if settings.step in (None, settings.size) else Hopping
