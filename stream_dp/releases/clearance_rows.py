"""The rows of the releases table that are about who sees what: grants, unlocks, and what is left of a budget."""

from __future__ import annotations

import msgspec

from stream_dp.control.grants import Scope
from stream_dp.errors import StateError

_NEVER = -(1 << 62)
"""Before every window."""


class GrantRow(msgspec.Struct, array_like=True):
    """A grant that was taken: one that waits for its time, or one that was carried out or is about to be."""

    number: int
    """`Order.number`."""
    id: str
    """`Order.id`."""
    level: str
    scope: Scope
    time_ms: int
    """Its time. Those that are carried out at once are no older than what was carried out before, so that a clock that
    goes wrong does not let a later one decide nothing."""
    slot_ms: int | None = None
    """When the sharper revisions leave; later, if they miss it. None: it waits for its time."""
    open: bool = False
    """Whether retained windows may still have to be sharpened."""
    turns: dict[str, int] = msgspec.field(default_factory=dict)
    """By view of this partition, where the scope asks for it: start of the first window that was to come when the grant
    was carried out."""

    @property
    def rank(self) -> tuple[int, int]:
        """The newest one decides."""
        return self.time_ms, self.number

    def starts(self, view: str) -> tuple[int | None, int | None]:
        """The first start in its scope, and the first behind it; None where there is no such bound."""
        turn = self.turns.get(view)
        if self.scope.windows == "retained":
            return None, _NEVER if turn is None else turn  # a view that came later had no window then
        if self.scope.windows == "future":
            return turn, None
        return self.scope.from_ms, self.scope.until_ms


class ClearanceRow(msgspec.Struct, array_like=True):
    """The grants of an audience."""

    number: int
    """Of the last order that was taken: one that is read again is known by it."""
    grants: list[GrantRow]
    """Those that wait, and those that decide what may be seen of a window that is retained or to come; oldest first."""


class UnlockRow(msgspec.Struct, array_like=True):
    """How far the windows of a view were unlocked."""

    marks: dict[str, int]
    """By audience, time and level of an unlock: start of the first window that is still to be looked at."""


class LeftoverRow(msgspec.Struct, array_like=True):
    """How far what a ledger has left was spent on sharper releases of a view."""

    done_ms: int
    """The last time of the grid that is carried out."""
    at_ms: int | None = None
    """The one that is being carried out."""
    before_ms: int = 0
    """Of that: windows that start before this are still to be looked at."""


def clearance_audience(key: bytes) -> str:
    """The audience of a clearance row."""
    if len(key) != 2 + key[1]:
        raise StateError("a stored clearance has a damaged key")
    return key[2:].decode()
