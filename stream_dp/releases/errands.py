"""Errands: that one audience sees one released window at a finer level, whoever asks for it.

Grants ask for some (`releases.clearances`), the age of windows for others (`releases.unlocks`), and what a ledger has
left over (`releases.leftover`). Each says how far it has come in rows that stand behind the windows in one commit: what
a crash leaves out is asked for again, and what an audience has already is no errand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.pieces import Change
from stream_dp.releases.rows import WindowRow
from stream_dp.windows.effects import Rows

LOOKED_AT_ONCE = 500
"""Windows that one step looks at: between two steps the runtime looks whether the partition is still its own."""


class Errand(NamedTuple):
    """One window of one audience that is to become finer."""

    view: ViewPlan
    start_ms: int
    audience: str
    level: int
    """Index of the level, finer than what the audience has."""
    slot_ms: int
    """When the revision leaves; later, if it misses that."""
    grant: int | None = None
    """The number of the grant that asks."""
    follows: bool = False
    """Whether the audience has the level of the pane already, and only the window with it is to follow."""

    def is_refused(self, row: WindowRow) -> bool:
        """Whether a ledger could not pay for it, by the row of the window, or of a pane of it."""
        if self.follows:
            return False
        if self.grant is not None:
            return row.turned_down.get(self.audience) == self.grant
        return self.level in row.declined.get(self.audience, ())

    def refuse(self, row: WindowRow) -> None:
        """Note that."""
        if self.grant is not None:
            row.turned_down[self.audience] = self.grant
        else:
            row.declined[self.audience] = sorted({*row.declined.get(self.audience, ()), self.level})


class Errands(Protocol):
    """Who asks."""

    @property
    def waits(self) -> bool:
        """Whether there may be an errand, or progress to store."""

    def errands(self, rows: Rows) -> Iterator[tuple[Errand, WindowRow]]:
        """Errands, each with the row of its window as it is stored; as many of them as are taken are run at once."""

    def progress(self) -> list[Change]:
        """The rows to store behind the errands that were taken."""
