"""Times without an offset from UTC, read as local times in the time zone of their source.

Rule (PEP 495, fold 0): a time that clocks show twice is the first of the two; a time that clocks skip is read with the
offset before the change. So each text names one moment, whatever was read before it.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import cache

from stream_dp.windows.durations import EPOCH, MILLISECOND
from stream_dp.windows.time_zones import zone_rules

DEFAULT_ZONE = "UTC"


@cache
def read_zone(name: str) -> tzinfo:
    """Return the rules of a zone, from the pinned `tzdata` package."""
    return UTC if name == DEFAULT_ZONE else zone_rules(name)


def in_zone(time: datetime, zone: tzinfo) -> datetime:
    """Return a time with an offset from UTC: its own or, if it has none, that of a zone."""
    return time if time.tzinfo is not None else time.replace(tzinfo=zone, fold=0)


def epoch_ms(time: datetime) -> int:
    """Return a time that has an offset from UTC as ms since 1970, rounded down."""
    return (time - EPOCH) // MILLISECOND


def text_ms(text: str, zone: tzinfo = UTC) -> int:
    """Return the time of an ISO 8601 text in ms since 1970, rounded down.

    Raises:
        ValueError: the text is not ISO 8601.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:  # `in_zone` and `epoch_ms` inlined, which saves two calls per event
        time = time.replace(tzinfo=zone)
    return (time - EPOCH) // MILLISECOND


def local_ms(clock_ms: int, zone: tzinfo) -> int | None:
    """Convert a local time to ms since 1970 in UTC.

    Args:
        clock_ms: local time, in ms since the start of 1970 on the zone's clocks.
        zone: the zone.

    Returns:
        The time; None outside the years 1 to 9999.
    """
    try:
        clock = (EPOCH + clock_ms * MILLISECOND).replace(tzinfo=None)
    except OverflowError:
        return None
    return epoch_ms(in_zone(clock, zone))


def has_offset(text: str) -> bool:
    """Return True if an ISO 8601 text has an offset from UTC.

    Raises:
        ValueError: it is no such text.
    """
    return datetime.fromisoformat(text).tzinfo is not None
