"""Window shapes: one file each, and a line here. A shape says how a view's windows cut time, and who pays."""

from __future__ import annotations

from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.paned import Paned
from stream_dp.windows.shapes.running_totals import Running
from stream_dp.windows.shapes.shape import Settings, Shape
from stream_dp.windows.shapes.tumbling import Tiling

SHAPES: dict[str, type[Shape]] = {shape.name: shape for shape in (Calendar, Running, Paned, Hopping, Tiling)}
"""By name; of those that settings ask for, the first holds."""


def asked_shape(settings: Settings) -> type[Shape]:
    """Return the shape that a configuration asks for."""
    return next(shape for shape in SHAPES.values() if shape.is_asked(settings))
