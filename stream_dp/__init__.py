"""Differentially private releases of Kafka streams, sharpened without extra privacy cost."""

from stream_dp.version import __version__

__all__ = ["__version__"]
