"""Windows and periods that follow the calendar of a time zone: days, weeks from Monday on, months, quarters, years.

An interval begins at the first moment at which local clocks show its first date, so a local day has 23 or 25 hours
where the clock changes. Where clocks skip midnight it begins with the moment of the change. A date that a zone never
had is no day. Intervals follow one another without gaps, and every moment is in one of them.

Rules. They are those of the package `tzdata` that is installed beside stream-dp, whose version is pinned, and never
those of the machine. From them the starts of the years 1970 to 2099 are worked out once, in whole milliseconds. Before
and after these years clocks do not change any more, so every moment has its interval.

Boundaries are part of what is guaranteed: a worker with other rules would count an event in another window. So a hash
of all these starts is part of a view's identity, and a worker whose rules have other starts is refused. Periods need no
such hash: a ledger's rows are named by the start and the end of a period, and what a window costs has to fit into every
period that has begun and that it overlaps, whatever rules these came from (`releases.accounts`). Where the windows of a
user are counted in periods, the hash of these is part of the view's identity, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import pairwise
from typing import Self
from zoneinfo import ZoneInfo

from stream_dp.errors import Fault
from stream_dp.windows.durations import DAY_MS, EPOCH, CalendarUnit, format_time
from stream_dp.windows.shapes.shape import Interval, Settings, Shape
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.time_zones import END_YEAR, FIRST_YEAR, utc_offset_s, zone_rules

HOUR_MS = 3_600_000
UTC_ZONE = "UTC"
_EPOCH = date(FIRST_YEAR, 1, 1).toordinal()
_DAYS = 146_097
"""Of 400 years: after them the calendar repeats itself."""
_MONDAY = 4
"""The first one is so many days after the first day."""
_MONTHS = {CalendarUnit.MONTH: 1, CalendarUnit.QUARTER: 3, CalendarUnit.YEAR: 12}
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Calendar(Shape):
    """Days, weeks, months, quarters or years of a time zone, end to end.

    Attributes:
        unit: of which they are.
        zone: name of the time zone in the database of the IANA.
    """

    unit: CalendarUnit
    zone: str = UTC_ZONE

    @classmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find what a calendar cannot do: overlaps, panes, other sizes, a start inside a window."""
        unit = unit_of(settings.size)
        if unit is None:
            yield Fault("size", SIZES)
        for key, value in (("step", settings.step), ("pane", settings.pane)):
            if value is not None:
                yield Fault(
                    key,
                    "has no meaning for windows that follow a calendar: each begins where the one before ends. Leave "
                    "it out, or give the window a fixed size, as 7d or 30d, and no zone",
                )
        if settings.totals:
            yield Fault("size", "running totals need windows of a fixed size: write days, as 7d or 30d, and no zone")
        if unit is not None and settings.start_ms is not None:
            shape, start = cls(unit, settings.zone or UTC_ZONE), settings.start_ms
            if start < shape.first_from(0):
                yield Fault("start", f"calendars are known from {FIRST_YEAR} on; give a later start")
            elif shape.start_of(start) != start:
                yield Fault(
                    "start",
                    f"is inside one of {shape.words}, by the rules of tzdata {version('tzdata')} on this machine; give "
                    f"start: {format_time(shape.start_of(start))} or {format_time(shape.end(shape.start_of(start)))}",
                )

    @classmethod
    def planned(cls, settings: Settings) -> Self:
        """Return the calendar; in UTC where no zone is named."""
        return cls(unit_of(settings.size) or CalendarUnit.DAY, settings.zone or UTC_ZONE)

    @property
    def settings(self) -> Settings:
        """Settings that ask for it."""
        return Settings(self.unit, zone=self.zone)

    @property
    def _table(self) -> _Table:
        return _table(self.unit, self.zone)

    def start_of(self, time_ms: int) -> int:
        """Return the start of the interval that a time is in."""
        table = self._table
        return table.start(table.number(time_ms))

    def next(self, start_ms: int, steps: int = 1) -> int:
        """Return the start of the interval so many steps on; back, where `steps` is negative."""
        table = self._table
        return table.start(table.number(start_ms) + steps)

    def starts(self, first_ms: int, until_ms: int) -> Sequence[int]:
        """Return the starts from one interval on up to, and without, a time."""
        table = self._table
        return [table.start(number) for number in range(table.number(first_ms - 1) + 1, table.number(until_ms - 1) + 1)]

    def begun(self, first_ms: int, until_ms: int) -> int:
        """Count the intervals that begin from `first_ms`, a start, up to and without a time."""
        table = self._table
        return max(0, table.number(until_ms - 1) - table.number(first_ms - 1))

    @property
    def shortest_ms(self) -> int:
        """Length of the shortest interval."""
        return self._table.shortest.length_ms

    @property
    def longest(self) -> Interval:
        """Return the first interval than which none is longer.

        Of periods it is one that has the most windows: windows of a fixed length, since they tile it; and local days,
        since a month, quarter or year with a day more is longer, whatever its clocks do (tests/unit/windows).
        """
        return self._table.longest

    @property
    def per_second(self) -> Fraction:
        """Intervals that begin in a second, on average over 400 years without changes of the clock."""
        return Fraction(1000 * (_number(self.unit, _DAYS + _MONDAY) - _number(self.unit, _MONDAY)), _DAYS * DAY_MS)

    @property
    def words(self) -> str:
        """Length and zone as text."""
        return f"{self.unit} in {self.zone}"

    @property
    def identity(self) -> Sequence[int | str]:
        """Unit, zone, and a hash of the starts that the rules of the zone come to."""
        return ["calendar", self.unit, self.zone, self._table.digest]

    @property
    def fixed_ms(self) -> int:
        """A day, or a week."""
        return 7 * DAY_MS if self.unit is CalendarUnit.WEEK else DAY_MS

    @property
    def changing(self) -> Sequence[int]:
        """The starts that follow the rules of the zone, and the first one behind them."""
        return self._table.starts

    def tiles(self, others: Shape) -> bool:
        """Tell whether all other starts are starts of these: those that the rules say, and so all others."""
        if isinstance(others, Calendar):
            return self._has(others.changing)
        if isinstance(others, Tiling) and self.unit in (CalendarUnit.DAY, CalendarUnit.WEEK):
            whole = others.length_ms % self.fixed_ms == 0
            return whole and self._has(
                others.starts(others.first_from(self.changing[0]), others.next(self.changing[-1]))
            )
        return False

    def _has(self, starts: Iterable[int]) -> bool:
        return all(self.start_of(start) == start for start in starts)

    def explained(self, ledger: str) -> str:
        """Say where windows begin, and by which rules."""
        shortest, longest = self._table.shortest, self._table.longest
        lengths = f"{shortest.length_ms // HOUR_MS} to {longest.length_ms // HOUR_MS} hours"
        same = shortest.length_ms == longest.length_ms
        return (
            f"A window is a {self.unit.name.lower()} of the calendar of {self.zone}, from local midnight on"
            f"{', from Monday on' if self.unit is CalendarUnit.WEEK else ''}: "
            f"{f'{longest.length_ms // HOUR_MS} hours' if same else lengths}. Its boundaries are those of "
            f"tzdata {version('tzdata')}, and are part of the view's fingerprint."
        )

    @property
    def remedy(self) -> str:
        """Say that rules of the zone may differ, and what to do."""
        return (
            f". Or the rules of time zone {self.zone} differ: this machine has tzdata {version('tzdata')}; install the "
            "version that the application was started with"
        )


SIZES = f"with a zone, a length is one of {', '.join(CalendarUnit)}; leave the zone out for another one"


def unit_of(size: int | CalendarUnit) -> CalendarUnit | None:
    """Return the unit that a length is with a time zone; None where no calendar has it."""
    if isinstance(size, CalendarUnit):
        return size
    return CalendarUnit.DAY if size == DAY_MS else None


@dataclass(frozen=True, slots=True)
class _Table:
    """The starts of a calendar, by number: 0 is the first one of 1970.

    Attributes:
        unit: what they are the starts of.
        starts: those that follow the rules of the zone, in ms since 1970, UTC, rising; and the first one behind them.
        before_ms: how far local clocks are ahead of UTC before the first one.
        behind_ms: how far they are behind the last one.
        skipped: number of dates between that the zone never had.
        shortest: the first of the shortest intervals.
        longest: the first of the longest ones.
        digest: hash of the starts.
    """

    unit: CalendarUnit
    starts: tuple[int, ...]
    before_ms: int
    behind_ms: int
    skipped: int
    shortest: Interval
    longest: Interval
    digest: str

    def number(self, time_ms: int) -> int:
        """Return the number of the interval that a time is in."""
        starts = self.starts
        if time_ms < starts[0]:
            return _number(self.unit, (time_ms + self.before_ms) // DAY_MS)
        if time_ms >= starts[-1]:
            return _number(self.unit, (time_ms + self.behind_ms) // DAY_MS) - self.skipped
        return bisect_right(starts, time_ms) - 1

    def start(self, number: int) -> int:
        """Return the start of an interval by its number."""
        if number < 0:
            return _first_day(self.unit, number) * DAY_MS - self.before_ms
        if number >= len(self.starts):
            return _first_day(self.unit, number + self.skipped) * DAY_MS - self.behind_ms
        return self.starts[number]


@cache
def _table(unit: CalendarUnit, zone: str) -> _Table:
    rules = zone_rules(zone)
    end = date(END_YEAR, 1, 1).toordinal() - _EPOCH
    last = _number(unit, end - 1) + 1
    days = [_first_day(unit, number) for number in range(last + 1)]
    starts = tuple(dict.fromkeys(_begins(rules, days)))
    lengths = [behind - start for start, behind in pairwise(starts)]
    assert min(lengths) > 0  # noqa: S101 - clocks go on
    shortest, longest = (starts[lengths.index(of(lengths))] for of in (min, max))
    return _Table(
        unit,
        starts,
        days[0] * DAY_MS - starts[0],
        days[-1] * DAY_MS - starts[-1],
        len(days) - len(starts),
        Interval(shortest, shortest + min(lengths)),
        Interval(longest, longest + max(lengths)),
        blake2b(repr(starts).encode(), digest_size=_DIGEST_BYTES, person=b"stream-dp zone").hexdigest(),
    )


def _number(unit: CalendarUnit, day: int) -> int:
    """Return the number of the interval that a date is in; for days, days since 1970."""
    if unit is CalendarUnit.DAY:
        return day
    if unit is CalendarUnit.WEEK:
        return (day - _MONDAY) // 7
    times, rest = divmod(day, _DAYS)
    found = date.fromordinal(_EPOCH + rest)
    return ((found.year - FIRST_YEAR + 400 * times) * 12 + found.month - 1) // _MONTHS[unit]


def _first_day(unit: CalendarUnit, number: int) -> int:
    """The first date of an interval, as days since 1970: the inverse of `_number`."""
    if unit is CalendarUnit.DAY:
        return number
    if unit is CalendarUnit.WEEK:
        return 7 * number + _MONDAY
    times, month = divmod(number * _MONTHS[unit], 12 * 400)
    return date(FIRST_YEAR + month // 12, month % 12 + 1, 1).toordinal() - _EPOCH + times * _DAYS


def _begins(rules: ZoneInfo, days: Sequence[int]) -> Iterator[int]:
    """For each date the first moment at which clocks show it, or a later one, in ms."""
    for day in days:
        midnight = datetime.fromordinal(_EPOCH + day).replace(tzinfo=rules)
        before, behind = utc_offset_s(midnight), utc_offset_s(midnight.replace(fold=1))
        start = day * 86_400 - before
        if behind > before:  # no clock shows midnight: it is passed over at the change, which is looked for
            low, high = day * 86_400 - behind, start
            while high - low > 1:
                middle = (low + high) // 2
                changed = utc_offset_s((EPOCH + timedelta(seconds=middle)).astimezone(rules)) >= behind
                low, high = (low, middle) if changed else (middle, high)
            start = high
        yield start * 1000
