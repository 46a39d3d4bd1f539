"""Windows that are sums of panes: a pane is counted, noised and paid for once, whatever windows it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stream_dp.errors import Fault
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shapes.hopping import Hopping, dividing
from stream_dp.windows.shapes.shape import Alternative, Settings, Shape, lengths_in_words
from stream_dp.windows.shapes.tumbling import OfPanes, Tiling

MOST_PANES = 500
"""Panes of a window."""


@dataclass(frozen=True, slots=True)
class Paned(OfPanes):
    """Windows that are made of panes. One ends at every step, with a pane, and has the same number of panes each.

    Attributes:
        pane: how the panes cut time.
        window_ms: length of every window, a whole number of panes.
        every_ms: from one end to the next, a whole number of panes.
    """

    is_sum = True
    counted_unit = "pane"

    pane: Tiling
    window_ms: int
    every_ms: int

    @classmethod
    def faults(cls, settings: Settings) -> Iterator[Fault]:
        """Find windows and steps that are not made of panes."""
        size, pane = settings.size_ms, settings.pane or settings.size_ms
        step = settings.step or size
        slice_, length = format_duration(pane), format_duration(size)
        for key, whole in (("size", size), ("step", step)):
            if whole % pane and (key == "size" or settings.step is not None):
                fitting = [whole // pane * pane, -(-whole // pane) * pane]
                yield Fault(
                    key,
                    f"{format_duration(whole)} is no whole number of panes of {slice_}; give {key}: "
                    f"{lengths_in_words([one for one in fitting if one])}, or another pane",
                )
        if step > size:
            yield Fault(
                "step",
                f"{format_duration(step)} is longer than windows of {length}: what lies between them would be paid for "
                f"and never shown; give step: {length} or less",
            )
        else:
            yield from too_many(size, pane, MOST_PANES, "and bear the noise of all of them")

    @classmethod
    def planned(cls, settings: Settings) -> Shape:
        """Return the windows; where a pane is one, what tumbles."""
        size, pane = settings.size_ms, settings.pane or settings.size_ms
        step = settings.step or size
        panes = Tiling(pane, settings.origin_ms)
        return panes if pane == size == step else cls(panes, size, step)

    @property
    def settings(self) -> Settings:
        """Settings that ask for it."""
        return Settings(self.window_ms, self.every_ms, self.pane.length_ms, self.pane.origin_ms)

    @property
    def paid(self) -> Tiling:
        """The panes, each by itself."""
        return self.pane

    @property
    def released(self) -> Hopping:
        """Shape of the windows; if their length is no multiple of the step, they are no tilings."""
        return Hopping(self.window_ms, self.every_ms, self.pane.origin_ms - self.window_ms)

    @property
    def told(self) -> Tiling:
        """Shape of the releases: a window each step."""
        return self.released.grid

    @property
    def identity(self) -> Sequence[int | str]:
        """That of the panes: size and step decide neither what is counted nor what is paid, and may change."""
        return self.pane.identity

    @property
    def panes(self) -> int:
        """Of how many panes a window is."""
        return self.window_ms // self.pane.length_ms

    @property
    def each_pane(self) -> Paned:
        """The same with a window for every pane."""
        return replace(self, window_ms=self.pane.length_ms, every_ms=self.pane.length_ms)

    def of_window(self, last_ms: int) -> Sequence[int]:
        """Return the starts of the panes of the window that ends with a pane, oldest first; none where none ends."""
        first = self.pane.end(last_ms) - self.window_ms
        ends = self.released.start_of(first) == first
        return self.pane.starts(first, self.pane.end(last_ms)) if ends else ()

    def kept(self, retention_ms: int) -> int:
        """Return how long after its end a pane is kept: as long as a window that it is in."""
        return retention_ms + self.window_ms - self.pane.length_ms

    @property
    def when(self) -> str:
        """Of which time something is released, and how often."""
        length, step = self.released.words, self.told.words
        return f"every {length}" if step == length else f"of the last {length} every {step}"

    def explained(self, ledger: str) -> str:
        """Say what a pane is, and what a count of a window means."""
        return (
            f"Every {self.told.words} a window of the last {self.released.words} is released: the sum of {self.panes} "
            f"panes of {self.pane.words}. A pane is counted, bounded, noised and paid for once, whatever windows it is "
            "in, so size and step cost nothing and may change. A user counts in each pane anew: a count of a window is "
            "how many users had the key in the first pane, and how many in the second, and so on, with the noise of "
            f"{self.panes} counts."
        )

    def alternatives(self, *, divides: bool) -> Sequence[Alternative]:
        """Return these and, where the step divides their length, the same windows each by itself."""
        own = Alternative("panes", self.pane, self.panes, True)
        if self.window_ms % self.every_ms:
            return [own]
        tumbles = self.window_ms == self.every_ms
        direct = Tiling(self.window_ms) if tumbles else Hopping(self.window_ms, self.every_ms)
        return [own, Alternative("direct", direct, 1, False)]


def too_many(size: int, pane: int, most: int, why: str) -> Iterator[Fault]:
    """Find more panes than a window can have."""
    if size > most * pane:
        length, slice_ = format_duration(size), format_duration(pane)
        longer = format_duration(dividing(size, -(-size // most) - 1)[-1])
        yield Fault(
            "pane",
            f"windows of {length} would be of {size // pane} panes of {slice_}, {why}, and {most} is the most; give "
            f"pane: {longer} or more",
        )
