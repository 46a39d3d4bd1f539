"""Time zones by name, with the rules of the pinned package `tzdata`, never those of the machine."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from zoneinfo import ZoneInfo

from stream_dp.windows.durations import EPOCH

FIRST_YEAR, END_YEAR = 1970, 2100
"""Years in which clock changes follow the rules; before and after them, clocks do not change."""
_DIGEST_BYTES = 8


def check_zone(name: str) -> str:
    """Return the name of a time zone after checking that it exists.

    Raises:
        ValueError: no time zone has this name.
    """
    if name not in _zones():
        city = name.rpartition("/")[2].lower()
        alike = [zone for zone in sorted(_zones()) if zone.rpartition("/")[2].lower() == city]
        raise ValueError(
            f"no time zone has this name; write {' or '.join(alike)}"
            if alike
            else "no time zone has this name; write an IANA time zone, such as Europe/Berlin or UTC"
        )
    return name


@cache
def _zones() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


@cache
def zone_digest(name: str) -> str:
    """Return a hash of every change of a zone's clocks from `FIRST_YEAR` to `END_YEAR`, and how far ahead they are."""
    rules = zone_rules(name)

    def ahead(second: int) -> int:
        return utc_offset_s((EPOCH + timedelta(seconds=second)).astimezone(rules))

    end = (date(END_YEAR, 1, 1) - date(FIRST_YEAR, 1, 1)).days * 86_400
    offset = ahead(0)
    changes = [(0, offset)]
    for begin in range(0, end, 7 * 86_400):
        before, behind = begin, begin + 7 * 86_400
        if ahead(behind) == offset:
            continue
        while behind - before > 1:
            middle = (before + behind) // 2
            if ahead(middle) == offset:
                before = middle
            else:
                behind = middle
        offset = ahead(behind)
        changes.append((behind, offset))
    return blake2b(repr(changes).encode(), digest_size=_DIGEST_BYTES, person=b"stream-dp zone").hexdigest()


def zone_rules(name: str) -> ZoneInfo:
    """Return the rules of a time zone from the pinned package, whatever the machine has."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def utc_offset_s(time: datetime) -> int:
    """Return how far local clocks are ahead of UTC, in seconds."""
    offset = time.utcoffset()
    assert offset is not None  # noqa: S101 - every zone has one
    return offset.days * 86_400 + offset.seconds
