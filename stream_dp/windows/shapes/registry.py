"""Every window shape. A new one is a file beside this and a line here."""

from __future__ import annotations

from stream_dp.windows.shapes.base import Settings, Shape
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.paned import Paned
from stream_dp.windows.shapes.running import Running
from stream_dp.windows.shapes.tumbling import Tiling

SHAPES: dict[str, type[Shape]] = {shape.name: shape for shape in (Calendar, Running, Paned, Hopping, Tiling)}
"""By name; of those that settings ask for, the first holds."""


def asked_shape(settings: Settings) -> type[Shape]:
    """Return the shape that a configuration asks for."""
    return next(shape for shape in SHAPES.values() if shape.is_asked(settings))
