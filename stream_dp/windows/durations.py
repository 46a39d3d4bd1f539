"""Times as they are written in a configuration: "7d", "1h30m", "1mo"; and moments as RFC 3339 text in UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

DAY_MS = 86_400_000
_UNITS_MS = {"w": 7 * DAY_MS, "d": DAY_MS, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_FORM = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}){unit})?" for unit in _UNITS_MS))
_CALENDAR = re.compile(r"[0-9]+(?:M| ?(?:mo|months?|y|years?|q|quarters?))")


class CalendarUnit(StrEnum):
    """Lengths that follow a calendar, as they are written."""

    DAY = "1d"
    WEEK = "1w"
    MONTH = "1mo"
    QUARTER = "1q"
    YEAR = "1y"


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """A duration in milliseconds, from whole numbers with units, largest unit first.

    Args:
        text: such as "7d", "1h30m" or "250ms"; units w, d, h, m, s, ms.

    Raises:
        ValueError: the text is not of this form. Months and years are not: they have no fixed length (`parse_length`).
    """
    match = _FORM.fullmatch(text)
    parts = {unit: int(number) for unit, number in match.groupdict().items() if number} if match else {}
    if not parts and _CALENDAR.fullmatch(text):
        raise ValueError(
            "months, quarters and years have no fixed length. The size of a window and the period of a ledger can be "
            '"1w", "1mo", "1q" or "1y"; anywhere else write days: "30d", "365d"'
        )
    if not parts:
        raise ValueError('write a duration as whole numbers with units, largest first: "7d", "1h30m", "250ms"')
    return sum(number * _UNITS_MS[unit] for unit, number in parts.items())


def parse_length(text: str) -> int | CalendarUnit:
    """Return a length of windows or periods: one that follows a calendar, or a duration in milliseconds.

    Args:
        text: "1w", "1mo", "1q" or "1y"; or a duration, such as "7d". So is "1d": it follows a calendar only where a
            time zone is named.

    Raises:
        ValueError: it is neither.
    """
    units = {one.value: one for one in CalendarUnit if one is not CalendarUnit.DAY}
    return units.get(text) or parse_duration(text)


def format_duration(duration_ms: int) -> str:
    """The shortest text that `parse_duration` reads back as this duration; weeks are written in days."""
    text, rest = "", duration_ms
    for unit, size in list(_UNITS_MS.items())[1:]:
        number, rest = divmod(rest, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def parse_time(text: str) -> int:
    """A moment in milliseconds since epoch, from RFC 3339 text with its offset, such as "2013-01-01T00:00:00Z".

    Raises:
        ValueError: not such a text, no offset from UTC, or finer than a millisecond.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError('write a moment as "2013-01-01T00:00:00Z"') from None
    if time.tzinfo is None:
        raise ValueError('a moment needs its offset from UTC: "2013-01-01T00:00:00Z"')
    milliseconds, rest = divmod(time - EPOCH, MILLISECOND)
    if rest:
        raise ValueError("a moment is a whole number of milliseconds")
    return milliseconds


def parse_moment(text: str) -> int:
    """Return a moment as users write it, in milliseconds: RFC 3339 text, or a date for its first moment in UTC.

    Raises:
        ValueError: it is neither.
    """
    return parse_time(text if "T" in text else f"{text}T00:00:00Z")


def format_time(time_ms: int) -> str:
    """A moment as RFC 3339 text in UTC, with milliseconds only where there are any.

    Raises:
        ValueError: outside the years 1 to 9999.
    """
    try:
        time = EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        raise ValueError(f"{time_ms} ms is outside the years 1 to 9999") from None
    return time.isoformat(timespec="milliseconds" if time_ms % 1000 else "seconds").replace("+00:00", "Z")


def moment(time_ms: int) -> str:
    """Return a moment in UTC as text: a bare date at midnight, RFC 3339 otherwise."""
    return format_time(time_ms).removesuffix("T00:00:00Z")


@dataclass(frozen=True, slots=True)
class Slots:
    """Moments at multiples of one length, and how long after its close a window takes the first of them.

    Nothing here looks at counts: the slot of a window follows from the time of its close. All times in ms.

    Attributes:
        every_ms: time from one slot to the next, above 0; slots are its multiples since 1970.
        offset_ms: time from the close of a window to the earliest slot of its release, 0 or more.
    """

    every_ms: int
    offset_ms: int

    def first(self, time_ms: int) -> int:
        """The first slot at a time or after it."""
        return time_ms - time_ms % -self.every_ms

    def after(self, closed_ms: int) -> int:
        """The slot of what was closed, or ordered, at a time."""
        return self.first(closed_ms + self.offset_ms)

    def missed(self, slot_ms: int, now_ms: int) -> bool:
        """Return True if it is too late for a slot: by more than a quarter of its length, the time to wake up."""
        return now_ms > slot_ms + self.every_ms // 4
