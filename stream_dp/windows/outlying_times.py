"""Outlying times: far from most others, as mistyped dates and placeholder dates are.

The rule: sorted times are cut wherever two neighbours are more than 30 windows and more than 90 days apart. The part
with the most events is the bulk. All other times are outlying, and so is every time that is not plausible.

The result is exact and takes bounded memory. Times are kept in buckets as long as the smallest gap that cuts, so no
such gap is inside a bucket. A bucket has its number of events, its first and last time, and the places of a few
events. Implausible times share two buckets, so the others span at most the plausible range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

from stream_dp.windows.durations import DAY_MS
from stream_dp.windows.plausible_times import PlausibleTimes
from stream_dp.windows.shapes.shape import Shape

GAP_WINDOWS = 30
MIN_GAP_MS = 90 * DAY_MS
NAMED_PLACES = 5
"""Most outlying events of one kind that are named."""

_TOO_EARLY = -(1 << 63)
_TOO_LATE = 1 << 63
"""Buckets of implausible times; no plausible time has such a bucket."""

P = TypeVar("P")


def longest_gap_ms(shapes: Iterable[Shape]) -> int:
    """Return the longest gap between two neighbouring times that does not separate them.

    Args:
        shapes: window shapes of the views that count the events.
    """
    windows = [GAP_WINDOWS * shape.longest_ms for shape in shapes]
    return max([MIN_GAP_MS, *windows])


@dataclass(slots=True)
class Span(Generic[P]):
    """Events in a stretch of time.

    Attributes:
        events: number of events.
        first_ms: the earliest time.
        last_ms: the latest time.
        places: places of a few events, with their times.
    """

    events: int
    first_ms: int
    last_ms: int
    places: list[tuple[P, int]] = field(default_factory=list)

    def add(self, other: Span[P]) -> None:
        """Include the events of another stretch."""
        self.events += other.events
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        missing = NAMED_PLACES - len(self.places)
        self.places += other.places[:missing]


@dataclass(frozen=True, slots=True)
class Outlying(Generic[P]):
    """Outlying events of one kind.

    Attributes:
        why: why they are outlying, in words that follow "is" or "are".
        span: the events.
    """

    why: str
    span: Span[P]


class TimeSpread(Generic[P]):
    """The times of events, and which of them are outlying. `P` identifies an event: its row, or its offset."""

    def __init__(self, plausible: PlausibleTimes, now_ms: int, gap_ms: int) -> None:
        """Set up the spread; `add` fills it.

        Args:
            plausible: the range of plausible times.
            now_ms: the clock that the range is relative to.
            gap_ms: the longest gap that does not separate two times (`longest_gap_ms`).
        """
        self._from_ms = plausible.from_ms
        self._until_ms = plausible.until(now_ms)
        self._bucket_ms = gap_ms + 1
        self._gap_ms = gap_ms
        self._buckets: dict[int, Span[P]] = {}
        self._too_early: Span[P] | None = None
        self._too_late: Span[P] | None = None

    def add(self, places: Sequence[P], times: Sequence[int]) -> None:
        """Add events.

        Args:
            places: what identifies each event.
            times: the times of the events in ms, of any size.
        """
        if not times:
            return
        first, last = min(times), max(times)
        bucket = first // self._bucket_ms
        is_one_bucket = bucket == last // self._bucket_ms
        if is_one_bucket and self._from_ms <= first and last <= self._until_ms:  # nearly always, and much faster
            named = zip(places[:NAMED_PLACES], times[:NAMED_PLACES], strict=True)
            self._add_to(bucket, Span(len(times), first, last, list(named)))
            return
        in_order = sorted(zip(times, places, strict=True), key=itemgetter(0))
        for bucket_or_end, group in groupby(in_order, key=self._bucket_of):
            found = [(place, time_ms) for time_ms, place in group]
            some = Span(len(found), found[0][1], found[-1][1], found[:NAMED_PLACES])
            if bucket_or_end == _TOO_EARLY:
                self._too_early = _joined(self._too_early, some)
            elif bucket_or_end == _TOO_LATE:
                self._too_late = _joined(self._too_late, some)
            else:
                self._add_to(bucket_or_end, some)

    def _bucket_of(self, named: tuple[int, P]) -> int:
        time_ms = named[0]
        if time_ms < self._from_ms:
            return _TOO_EARLY
        if time_ms > self._until_ms:
            return _TOO_LATE
        return time_ms // self._bucket_ms

    def _add_to(self, bucket: int, some: Span[P]) -> None:
        self._buckets[bucket] = _joined(self._buckets.get(bucket), some)

    @property
    def plausible(self) -> Span[P] | None:
        """All events with a plausible time; None if there is none."""
        found: Span[P] | None = None
        for _, bucket in sorted(self._buckets.items()):
            found = _joined(found, bucket)
        return found

    @property
    def bulk(self) -> Span[P] | None:
        """The events that are not outlying; None if there is none."""
        return max(self._parts(), key=lambda part: part.events, default=None)

    def outlying(self) -> list[Outlying[P]]:
        """Return the outlying events by kind, earliest first; empty if there is none."""
        bulk = self.bulk
        before: Span[P] | None = None
        after: Span[P] | None = None
        for part in self._parts():
            if bulk is not None and part.last_ms < bulk.first_ms:
                before = _joined(before, part)
            if bulk is not None and part.first_ms > bulk.last_ms:
                after = _joined(after, part)
        found = [
            ("too early to be plausible", self._too_early),
            ("far before the others", before),
            ("far after the others", after),
            ("too far ahead of the clock", self._too_late),
        ]
        return [Outlying(why, span) for why, span in found if span is not None]

    def _parts(self) -> list[Span[P]]:
        """Return the plausible events, cut wherever two neighbours are too far apart."""
        parts: list[Span[P]] = []
        for _, bucket in sorted(self._buckets.items()):
            if parts and bucket.first_ms - parts[-1].last_ms <= self._gap_ms:
                parts[-1].add(bucket)
            else:
                parts.append(_joined(None, bucket))
        return parts


def _joined(span: Span[P] | None, more: Span[P]) -> Span[P]:
    """Return a stretch with the events of another one added; the other one is not changed."""
    if span is None:
        return Span(more.events, more.first_ms, more.last_ms, list(more.places))
    span.add(more)
    return span
