"""Differentially private releases of Kafka streams, sharpened without extra privacy cost.

For programs: `stream_dp.mechanisms` has the mechanisms as functions from counts, epsilon and delta to results;
`stream_dp.records` says what is published, `stream_dp.client` reads it. They are imported when they are first used.
"""

from importlib import import_module
from types import ModuleType

from stream_dp.version import __version__

__all__ = ["__version__", "client", "mechanisms", "records"]


def __getattr__(name: str) -> ModuleType:
    if name in ("client", "mechanisms", "records"):
        return import_module(f"stream_dp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
