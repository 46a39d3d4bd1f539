"""The interface of window shapes, and the windows that a ledger's periods pay for.

A shape cuts time into intervals, each named by its start, and its intervals end in the order in which they start. What
it cuts is what is counted, noised and sealed by itself: windows, or the panes that windows are made of. The answers in
the second half of `Shape` say what becomes of these: what is released, what is paid for together, what is bounded
together. Their defaults are those of windows that are counted, released and paid for one by one.

The periods of a ledger are a shape, too, one that tumbles. All times and lengths are in ms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

from stream_dp.errors import Fault
from stream_dp.windows.durations import DAY_MS, CalendarUnit, format_duration


@dataclass(frozen=True, slots=True)
class Interval:
    """The moments from `start_ms` up to, and without, `end_ms`."""

    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """Length in ms."""
        return self.end_ms - self.start_ms

    def share(self, length_ms: int) -> Fraction:
        """Return a length as a part of this interval."""
        return Fraction(length_ms, self.length_ms)

    def holds(self, other: Interval) -> bool:
        """Tell whether all of another interval is in this one."""
        return self.start_ms <= other.start_ms and other.end_ms <= self.end_ms

    def overlaps(self, other: Interval) -> bool:
        """Tell whether some moment is in both."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a view's windows, from the configuration.

    Attributes:
        size: length of a window.
        step: from one window to the next; None where that is the length.
        pane: length of a pane; None where nothing is said of panes.
        start_ms: start of the first window; None where it is recorded at run time.
        zone: the time zone of a calendar; None where none is named.
        totals: whether the view's kind releases running totals.
    """

    size: int | CalendarUnit
    step: int | None = None
    pane: int | None = None
    start_ms: int | None = None
    zone: str | None = None
    totals: bool = False

    @property
    def origin_ms(self) -> int:
        """Start of some window of a fixed length."""
        return self.start_ms or 0

    @property
    def every_ms(self) -> int:
        """From one release to the next, of a shape whose windows have one length."""
        return (self.pane if self.totals else self.step) or self.size_ms

    @property
    def size_ms(self) -> int:
        """Length of a window, of a shape whose windows have one length."""
        assert isinstance(self.size, int)  # noqa: S101 - a calendar claims the others, or has faults
        return self.size


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the ways in which windows that overlap, or are made of panes, can be made.

    Attributes:
        mode: "panes" or "direct".
        paid: what is paid for by itself.
        panes: number of noisy counts that a released count is the sum of.
        configured: whether it is the way of this shape.
    """

    mode: str
    paid: Shape
    panes: int
    configured: bool


class Shape(ABC):
    """Division of time into a view's windows, or into a ledger's periods."""

    __slots__ = ()

    # -- from a configuration ------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find what is wrong with settings that ask for it; paths are keys of `window`."""

    @classmethod
    @abstractmethod
    def planned(cls, settings: Settings) -> Self | Shape:
        """Return the shape of settings without faults; a simpler one where that comes to the same."""

    # -- what is counted, noised and sealed by itself --------------------------------------------------------------

    @abstractmethod
    def start_of(self, time_ms: int) -> int:
        """Return the start of the newest interval that a time is in."""

    def end(self, start_ms: int) -> int:
        """Return the first moment behind an interval."""
        return self.next(start_ms)

    @abstractmethod
    def next(self, start_ms: int, steps: int = 1) -> int:
        """Return the start of the interval so many steps on; back, where `steps` is negative."""

    @abstractmethod
    def starts(self, first_ms: int, until_ms: int) -> Sequence[int]:
        """Return the starts from `first_ms`, a start, on up to and without a time."""

    def begun(self, first_ms: int, until_ms: int) -> int:
        """Count the intervals that begin from `first_ms`, a start, up to and without a time; 0 if that is earlier."""
        return len(self.starts(first_ms, until_ms))

    @property
    @abstractmethod
    def shortest_ms(self) -> int:
        """Length of the shortest interval."""

    @property
    @abstractmethod
    def longest(self) -> Interval:
        """An interval than which none is longer: of periods, one that has the most windows."""

    @property
    def longest_ms(self) -> int:
        """Length of the longest interval."""
        return self.longest.length_ms

    @property
    @abstractmethod
    def per_second(self) -> Fraction:
        """Intervals that begin in a second, on average."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Its length as text: "1h", "1mo in Europe/Berlin"."""

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """Settings that ask for it."""

    @property
    def since(self) -> str:
        """Its length as text, and what else is needed to tell its boundaries."""
        return self.words

    @property
    @abstractmethod
    def identity(self) -> Sequence[int | str]:
        """Settings that may not change while state exists: they decide what is counted, noised and paid for together.

        Two shapes that differ in that never share one. `window.start` is no part of it; it stands beside it.
        """

    @property
    def fixed_ms(self) -> int:
        """A length of which every interval is a multiple where clocks do not change."""
        return self.shortest_ms

    @property
    def changing(self) -> Sequence[int]:
        """Starts from which all others follow by multiples of `fixed_ms`."""
        return (self.first_from(0),)

    @abstractmethod
    def tiles(self, others: Shape) -> bool:
        """Tell whether every other interval is made of whole ones of these, which overlap nothing else.

        Then none of these is in two of the others: as windows, each is charged to a period that holds all its events.
        """

    def interval(self, time_ms: int) -> Interval:
        """Return the newest interval that a time is in."""
        start = self.start_of(time_ms)
        return Interval(start, self.end(start))

    def first_open(self, time_ms: int) -> int:
        """Return the start of the first interval that has not ended at a time."""
        return self.start_of(time_ms)

    def first_from(self, time_ms: int) -> int:
        """Return the start of the first interval that begins at a time or later."""
        start = self.start_of(time_ms)
        return start if start == time_ms else self.next(start)

    def first_common(self, other: Shape, time_ms: int) -> int | None:
        """Return the first start, at a time or later, that both have; None where there is none for 40 years."""
        at = self.first_from(time_ms)
        until = at + FAR_MS
        while at < until:
            if (found := other.first_from(at)) == at:
                return at
            at = self.first_from(found)
        return None

    def whole_in(self, period: Interval, before_ms: int | None = None) -> int:
        """Count the intervals that are whole in a period.

        Args:
            period: the period.
            before_ms: count only those that begin before this time; None for all.
        """
        until = self.first_open(period.end_ms)
        return self.begun(self.first_from(period.start_ms), until if before_ms is None else min(before_ms, until))

    @property
    def grid(self) -> Shape:
        """From one start to the next: the intervals themselves, where they do not overlap."""
        return self

    @property
    def tilings(self) -> Sequence[Shape]:
        """Shapes whose intervals do not overlap, and that are all of these together."""
        return (self,)

    @property
    def at_once(self) -> int:
        """Number of intervals that a time is in."""
        return 1

    # -- what becomes of it ------------------------------------------------------------------------------------------

    is_sum: ClassVar[bool] = False
    """True if a release is the sum of panes, each of which is paid for by itself."""
    tells_totals: ClassVar[bool] = False
    """True if a total is released at the end of every pane, and all totals of a window are paid for together."""
    counted_unit: ClassVar[str] = "window"
    """Word for what is counted, noised and charged by itself."""
    bounded_unit: ClassVar[str] = "published count"
    """Word for what one user's contribution moves."""
    due_words: ClassVar[str] = "over"
    """Words for the windows that are due to be paid for."""

    @property
    def counted(self) -> Shape:
        """Shape of what is counted by itself, whatever is made of it later."""
        return self

    @property
    def released(self) -> Shape:
        """Shape of the windows that are released."""
        return self

    @property
    def paid(self) -> Shape:
        """Shape of what is paid for together."""
        return self

    @property
    def told(self) -> Shape:
        """Shape of the releases: the interval between two of them."""
        return self.grid

    @property
    def bounds(self) -> Shape | None:
        """Longer intervals, each of whole windows, in which a user's items are bounded; None: in every window."""
        return None

    @property
    def panes(self) -> int:
        """Of how many panes that are paid for one by one a released window is; 1: it is counted by itself."""
        return 1

    @property
    def totals(self) -> int:
        """Number of totals that are released of a window."""
        return 1

    @property
    def summands(self) -> int:
        """Of how many noisy counts, at most, a released count is the sum."""
        return self.panes

    @property
    def each_pane(self) -> Shape:
        """The same with a window for every pane that is paid for by itself."""
        return self

    def kept(self, retention_ms: int) -> int:
        """Return how long after its end what was sealed is kept, for windows that are kept so long after theirs."""
        return retention_ms

    def of_window(self, last_ms: int) -> Sequence[int]:
        """Return the starts of the panes of the window that ends with a pane, oldest first; none where none ends."""
        return (last_ms,)

    def total(self, start_ms: int) -> Interval:
        """Return what is released at the end of an interval that is counted, where panes are not summed up."""
        return Interval(start_ms, self.end(start_ms))

    def blocks(self, start_ms: int) -> Sequence[int]:
        """Return the starts of the last panes of the blocks that the total at the end of a pane is the sum of."""
        return (start_ms,)

    def inner(self, start_ms: int) -> Sequence[int]:
        """Return the same for what the block that ends with a pane has beside that pane."""
        return ()

    def is_needed_later(self, start_ms: int) -> bool:
        """Tell whether the block that ends with a pane is part of a longer one."""
        return False

    # -- in words ----------------------------------------------------------------------------------------------------

    @property
    def when(self) -> str:
        """Of which time something is released, and how often."""
        return f"every {self.words}"

    def explained(self, ledger: str) -> str:
        """Say what is peculiar to the windows of a view of a ledger; nothing where they simply follow one another."""
        return ""

    def alternatives(self, *, divides: bool) -> Sequence[Alternative]:
        """Return the ways in which such windows can be made; none where there is nothing to compare.

        Args:
            divides: whether the view's kind can make windows of panes.
        """
        return ()

    @property
    def remedy(self) -> str:
        """Remedy for a view that is not the one that it was: the end of a sentence, or nothing."""
        return ""


FAR_MS = 40 * 366 * DAY_MS
"""Starts in common are looked for so far ahead."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The windows of a shape that are whole in some period: no other is released, since no period could pay for it.

    Windows that tumble tile the periods, so that is each of them. Of windows that hop, the first of a period begins
    with it and the last ends with it.

    Attributes:
        shape: how the windows cut time; its grid tiles the periods.
        periods: how the periods do.
    """

    shape: Shape
    periods: Shape

    def has(self, start_ms: int) -> bool:
        """Tell whether the window is whole in a period."""
        return self.shape.end(start_ms) <= self.periods.end(self.periods.start_of(start_ms))

    def next(self, start_ms: int) -> int:
        """Return the start of the first that begins at a start or later."""
        return start_ms if self.has(start_ms) else self.periods.end(self.periods.start_of(start_ms))

    def begun(self, first_ms: int, until_ms: int) -> int:
        """Count those that begin from `first_ms`, a start, up to and without a time.

        Every whole period between lacks as many of the starts in it as windows reach beyond its end.
        """
        if until_ms <= first_ms:
            return 0
        one, last = self.periods.interval(first_ms), self.periods.interval(until_ms)
        starts = self.shape.begun(self.shape.first_from(one.start_ms), last.start_ms)
        lacking = (self.shape.at_once - 1) * self.periods.begun(one.start_ms, last.start_ms)
        return starts - lacking + self.shape.whole_in(last, until_ms) - self.shape.whole_in(one, first_ms)

    def after(self, start_ms: int, count: int) -> int:
        """Return the start of the one that comes so many behind the first from `start_ms`, a start, on."""
        first = self.next(start_ms)
        low, high = count, (count + 1) * self.shape.at_once
        while low < high:  # every period has one at least, so of `at_once` starts in a row one is whole
            middle = (low + high) // 2
            enough = self.begun(first, self.shape.next(first, middle + 1)) > count
            low, high = (low, middle) if enough else (middle + 1, high)
        return self.shape.next(first, low)


def lengths_in_words(lengths: Sequence[int]) -> str:
    """Put lengths into words: "2s or 4s"."""
    return " or ".join(format_duration(one) for one in lengths)
