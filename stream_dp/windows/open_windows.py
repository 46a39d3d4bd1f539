"""What a window that still takes events is in memory: the sum of its journal rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stream_dp.windows.count_rows import JournalRow


@dataclass(slots=True)
class OpenWindow:
    """Who has which items in a window, and how many have each.

    Items are numbered in the order in which they were first accepted, and a user has a tuple of numbers. That of a
    user with a single item belongs to the item: all such users share it. The journal's order is the order of
    acceptance, so a window that is read back from it is the same in every respect.
    """

    rows: int = 0
    """How many journal rows it has."""
    accepted: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    alone: dict[str, tuple[int]] = field(default_factory=dict)
    """By item, what a user has who has nothing else; in the order of the numbers."""
    tallies: list[int] = field(default_factory=list)
    """By number, how many users have the item."""

    @property
    def tables(self) -> tuple[dict[bytes, tuple[int, ...]], dict[str, tuple[int]], list[int]]:
        """What changes with every contribution, for a loop over many: `accepted`, `alone` and `tallies`."""
        return self.accepted, self.alone, self.tallies

    def add(self, row: JournalRow) -> None:
        """Take a stored journal row into the sum."""
        self.rows += 1
        accepted, alone, tallies = self.tables
        for user, item in zip(row.users, row.items, strict=True):
            own = alone.get(item)
            if own is None:
                own = alone[item] = (len(tallies),)
                tallies.append(0)
            held = accepted.get(user)
            accepted[user] = own if held is None else held + own
            tallies[own[0]] += 1

    def counts(self) -> Iterator[tuple[str, int]]:
        """Items and how many users have them, in the order in which they were first accepted."""
        return zip(self.alone, self.tallies, strict=True)
