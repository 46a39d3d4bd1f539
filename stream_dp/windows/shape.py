"""How time is cut: windows, and the periods they are charged to. Nowhere else is the length of either added up.

Windows tumble (`Tiling`) or hop (`Hopping`). Either way a window is named by its start, the starts stand on a grid, and
windows end in the order in which they start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_LONGEST_IN_UNITS = 10_000
"""How far a length that fits is searched for; of lengths as people write them, the first hundreds are enough."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The moments from `start_ms` up to, and without, `end_ms`."""

    start_ms: int
    end_ms: int

    def holds(self, other: Stretch) -> bool:
        """Whether all of another stretch is in this one."""
        return self.start_ms <= other.start_ms and other.end_ms <= self.end_ms

    def overlaps(self, other: Stretch) -> bool:
        """Whether some moment is in both."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms


@dataclass(frozen=True, slots=True)
class Tiling:
    """Stretches of one length, end to end, over all time: tumbling windows, or the periods of a ledger.

    A stretch is named by its start and holds `[start, end)`. All times and lengths are in ms.

    Attributes:
        length_ms: length of every stretch, above 0.
        origin_ms: start of some stretch; all others follow from it.
    """

    length_ms: int
    origin_ms: int = 0

    @classmethod
    def of(cls, stretch: Stretch) -> Tiling:
        """The tiling that a stretch is one of."""
        return cls(stretch.end_ms - stretch.start_ms, stretch.start_ms)

    def stretch(self, time_ms: int) -> Stretch:
        """The stretch that a time is in."""
        start = self.start_of(time_ms)
        return Stretch(start, self.end(start))

    def start_of(self, time_ms: int) -> int:
        """The start of the stretch that a time is in."""
        return time_ms - (time_ms - self.origin_ms) % self.length_ms

    def end(self, start_ms: int) -> int:
        """The first moment behind a stretch."""
        return start_ms + self.length_ms

    def next(self, start_ms: int, steps: int = 1) -> int:
        """The start of the stretch so many steps on; back, where `steps` is negative."""
        return start_ms + steps * self.length_ms

    def starts(self, first_ms: int, until_ms: int) -> range:
        """The starts from one stretch on up to, and without, a time."""
        return range(first_ms, until_ms, self.length_ms)

    def begun(self, first_ms: int, until_ms: int) -> int:
        """How many stretches begin from `first_ms`, a start, up to and without a time; 0 if the time is earlier."""
        return max(0, -((first_ms - until_ms) // self.length_ms))

    def ended(self, first_ms: int, until_ms: int) -> int:
        """How many stretches from `first_ms`, a start, on have ended at a time; 0 if none has."""
        return max(0, (until_ms - first_ms) // self.length_ms)

    def first_open(self, time_ms: int) -> int:
        """The start of the first stretch that has not ended at a time."""
        return self.start_of(time_ms)

    def first_from(self, time_ms: int) -> int:
        """The start of the first stretch that begins at a time or later."""
        return self.start_of(time_ms + self.length_ms - 1)

    @property
    def grid(self) -> Tiling:
        """From one start to the next: the stretches themselves."""
        return self

    @property
    def tilings(self) -> Sequence[Tiling]:
        """What tiles the time each by itself, and is all of these together: one."""
        return (self,)

    @property
    def at_once(self) -> int:
        """How many of them a time is in."""
        return 1

    @property
    def per_second(self) -> Fraction:
        """How many begin in a second."""
        return Fraction(1000, self.length_ms)

    def whole_in(self, length_ms: int, before_ms: int | None = None) -> int:
        """How many of a period are whole in it, the first of which begins with it.

        Args:
            length_ms: length of the period.
            before_ms: count only those that begin before this much of it is over; None for all.
        """
        return self.begun(0, length_ms if before_ms is None else min(before_ms, length_ms))

    def tiles(self, others: Tiling) -> bool:
        """Whether every other stretch is made of whole ones of these, so that none of these is in two of the others."""
        return others.length_ms % self.length_ms == 0 and (self.origin_ms - others.origin_ms) % self.length_ms == 0

    def to_tile(self, others: Tiling) -> Tiling:
        """Stretches like these, but shorter or moved (towards 1970) where they have to be to tile the others."""
        unit = others.length_ms // Fraction(self.length_ms, others.length_ms).denominator  # greatest common divisor
        most = min(self.length_ms // unit, _LONGEST_IN_UNITS)
        length = unit * max(units for units in range(1, most + 1) if others.length_ms // unit % units == 0)
        grid = Tiling(length, others.origin_ms)
        start = grid.start_of(self.origin_ms)
        return Tiling(length, grid.next(start) if start < self.origin_ms < 0 else start)

    def common(self, other: Tiling) -> Tiling | None:
        """The starts that both have, as those of longer stretches; None if they have none in common."""
        ratio = Fraction(self.length_ms, other.length_ms)
        unit = self.length_ms // ratio.numerator  # the greatest common divisor
        apart, rest = divmod(other.origin_ms - self.origin_ms, unit)
        if rest:
            return None
        steps = apart * pow(ratio.numerator, -1, ratio.denominator) % ratio.denominator
        return Tiling(self.length_ms * ratio.denominator, self.next(self.origin_ms, steps))

    def to_be_tiled(self, others: Tiling) -> list[Tiling]:
        """Stretches like these, but shorter, longer or moved where they have to be for the others to tile them."""
        counts = {self.length_ms // others.length_ms, -(-self.length_ms // others.length_ms)} - {0}
        aligned = (self.origin_ms - others.origin_ms) % others.length_ms == 0
        origin = self.origin_ms if aligned else others.origin_ms
        return [Tiling(count * others.length_ms, origin) for count in sorted(counts)]


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one length of which a new one begins at every step, so that they overlap. It has what `Tiling` has.

    A time is in `length_ms / step_ms` windows. Windows that begin so many steps apart tile the time, so all of them
    are that many tilings (`tilings`), and whoever looks at each tiling by itself needs to know nothing else.

    Attributes:
        length_ms: length of every window, a multiple of `step_ms`.
        step_ms: from one start to the next, above 0 and less than `length_ms`.
        origin_ms: start of some window.
    """

    length_ms: int
    step_ms: int
    origin_ms: int = 0

    @property
    def grid(self) -> Tiling:
        """From one start to the next."""
        return Tiling(self.step_ms, self.origin_ms)

    @property
    def tilings(self) -> Sequence[Tiling]:
        """What tiles the time each by itself, and is all of these together."""
        return [Tiling(self.length_ms, start) for start in self.starts(self.origin_ms, self.origin_ms + self.length_ms)]

    @property
    def at_once(self) -> int:
        """How many of them a time is in."""
        return self.length_ms // self.step_ms

    def stretch(self, time_ms: int) -> Stretch:
        """The newest window that a time is in."""
        start = self.start_of(time_ms)
        return Stretch(start, self.end(start))

    def start_of(self, time_ms: int) -> int:
        """The start of the newest window that a time is in."""
        return self.grid.start_of(time_ms)

    def end(self, start_ms: int) -> int:
        """The first moment behind a window."""
        return start_ms + self.length_ms

    def next(self, start_ms: int, steps: int = 1) -> int:
        """The start of the window so many steps on; back, where `steps` is negative."""
        return start_ms + steps * self.step_ms

    def starts(self, first_ms: int, until_ms: int) -> range:
        """The starts from one window on up to, and without, a time."""
        return range(first_ms, until_ms, self.step_ms)

    def begun(self, first_ms: int, until_ms: int) -> int:
        """How many windows begin from `first_ms`, a start, up to and without a time; 0 if the time is earlier."""
        return self.grid.begun(first_ms, until_ms)

    def ended(self, first_ms: int, until_ms: int) -> int:
        """How many windows from `first_ms`, a start, on have ended at a time; 0 if none has."""
        return self.begun(first_ms, until_ms - self.length_ms + 1)

    def first_open(self, time_ms: int) -> int:
        """The start of the first window that has not ended at a time."""
        return self.next(self.start_of(time_ms - self.length_ms))

    def first_from(self, time_ms: int) -> int:
        """The start of the first window that begins at a time or later."""
        return self.grid.first_from(time_ms)

    @property
    def per_second(self) -> Fraction:
        """How many begin in a second."""
        return self.grid.per_second

    def whole_in(self, length_ms: int, before_ms: int | None = None) -> int:
        """As `Tiling.whole_in`; the last of them ends with the period."""
        last = length_ms - self.length_ms + self.step_ms
        return self.begun(0, last if before_ms is None else min(before_ms, last))


Shape = Tiling | Hopping
"""How windows cut the time."""


@dataclass(frozen=True, slots=True)
class Paned:
    """Windows that are made of panes. One ends at every step, with a pane, and has the same number of panes each.

    Attributes:
        panes: how they cut the time.
        length_ms: length of every window, a whole number of panes.
        step_ms: from one end to the next, a whole number of panes.
    """

    panes: Tiling
    length_ms: int
    step_ms: int

    @property
    def windows(self) -> Hopping:
        """How the windows cut the time; where their length is no multiple of the step, they are no tilings."""
        return Hopping(self.length_ms, self.step_ms, self.panes.origin_ms - self.length_ms)

    @property
    def direct(self) -> Shape | None:
        """The same windows, each by itself; None where the step does not divide their length."""
        if self.length_ms % self.step_ms:
            return None
        return Tiling(self.length_ms) if self.length_ms == self.step_ms else Hopping(self.length_ms, self.step_ms)

    @property
    def count(self) -> int:
        """Of how many panes a window is."""
        return self.length_ms // self.panes.length_ms

    def of_window(self, last_ms: int) -> Sequence[int]:
        """The starts of the panes of the window that ends with a pane, oldest first; none where no window ends."""
        first = self.panes.end(last_ms) - self.length_ms
        ends = self.windows.start_of(first) == first
        return self.panes.starts(first, self.panes.end(last_ms)) if ends else ()

    def kept(self, retention_ms: int) -> int:
        """How long after its end a pane is kept, for windows that are kept so long after theirs."""
        return retention_ms + self.length_ms - self.panes.length_ms


@dataclass(frozen=True, slots=True)
class Schedule:
    """The windows of a shape that are whole in some period: no other is released, since no period could pay for it.

    Windows that tumble tile the periods, so that is each of them. Of windows that hop, the first of a period begins
    with it and the last ends with it.

    Attributes:
        shape: how the windows cut the time; its grid tiles the periods.
        periods: how the periods do.
    """

    shape: Shape
    periods: Tiling

    def has(self, start_ms: int) -> bool:
        """Whether the window is whole in a period."""
        return self.shape.end(start_ms) <= self.periods.end(self.periods.start_of(start_ms))

    def next(self, start_ms: int) -> int:
        """The start of the first that begins at a start or later."""
        return start_ms if self.has(start_ms) else self.periods.end(self.periods.start_of(start_ms))

    def begun(self, first_ms: int, until_ms: int) -> int:
        """How many begin from `first_ms`, a start, up to and without a time."""
        return max(0, self._before(until_ms) - self._before(first_ms))

    def ended(self, first_ms: int, until_ms: int) -> int:
        """How many from `first_ms`, a start, on have ended at a time."""
        return self.begun(first_ms, until_ms - self.shape.length_ms + 1)

    def after(self, start_ms: int, count: int) -> int:
        """The start of the one that comes so many behind the first from `start_ms`, a start, on."""
        each = self.shape.whole_in(self.periods.length_ms)
        first = self.next(start_ms)
        period = self.periods.start_of(first)
        periods, place = divmod(self.shape.begun(period, first) + count, each)
        return self.shape.next(self.periods.next(period, periods), place)

    def _before(self, time_ms: int) -> int:
        """How many begin before a time, from the first period on, or as a negative number before that."""
        period = self.periods.start_of(time_ms)
        number = (period - self.periods.origin_ms) // self.periods.length_ms
        length = self.periods.length_ms
        return number * self.shape.whole_in(length) + self.shape.whole_in(length, time_ms - period)
