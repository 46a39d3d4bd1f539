"""Windows of the simulator: what is charged, what is counted, and what records are about.

Most windows are all three at once. A window of panes is counted and charged pane by pane; running totals are charged
once for the whole window, and have a record for every pane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.transcript.budgets import Item
from tests.transcript.clock import Closing
from tests.transcript.editions import Edition
from tests.transcript.levels import NOTHING
from tests.transcript.predictions import Reason


@dataclass
class Bill:
    """A charge for one window or pane, or for several together.

    Attributes:
        item: what the account calls it.
        decided_ms: its tick time.
        finest: the finest level that was charged.
        reason: why it is refused; None if it is not.
    """

    item: Item
    decided_ms: int
    finest: int = NOTHING
    reason: Reason | None = None


@dataclass(eq=False)
class Unit:
    """Unit of counting and sealing: a window or a pane.

    Attributes:
        edition: its edition.
        start_ms: its start.
        end_ms: its end.
        bill: what it is charged with.
        closing: how it closed.
        key: the key that it was sealed with.
        list_version: its public list.
        wanted: by audience, the level that it might have at its release.
        had: by audience, the level that it has.
        reason: why it is refused; None if it is released.
        is_expired: whether its table is deleted.
    """

    edition: Edition
    start_ms: int
    end_ms: int
    bill: Bill
    closing: Closing
    key: str | None
    list_version: str | None
    wanted: dict[str, int]
    had: dict[str, int] = field(default_factory=dict)
    reason: Reason | None = None
    is_expired: bool = False

    @property
    def decided_ms(self) -> int:
        """The tick time of what it is charged with."""
        return self.bill.decided_ms

    @property
    def view(self) -> str:
        """Its view."""
        return self.edition.view

    @property
    def is_released(self) -> bool:
        """Whether it was sealed and is retained."""
        return self.reason is None and not self.is_expired


@dataclass(eq=False)
class Output:
    """Subject of a record: the units that it is made of.

    Attributes:
        units: oldest first.
        start_ms: start of the window of the record.
        end_ms: its end.
        had: by audience, the level that it has.
        revisions: by audience, the number of its releases.
        posted: by audience, the places of its records in the outbox.
        is_expired: whether its records were taken back.
    """

    units: tuple[Unit, ...]
    start_ms: int
    end_ms: int
    had: dict[str, int] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    posted: dict[str, list[int]] = field(default_factory=dict)
    is_expired: bool = False

    @property
    def edition(self) -> Edition:
        """The edition of the unit that ends it."""
        return self.units[-1].edition

    @property
    def reason(self) -> Reason | None:
        """Why it is refused: for the first of its units that is."""
        return next((unit.reason for unit in self.units if unit.reason is not None), None)

    @property
    def closed_ms(self) -> int:
        """When the last of its units closed."""
        return max(unit.closing.tick_ms for unit in self.units)

    def level(self, audience: str) -> int:
        """Return the finest level that an audience has of all its units."""
        return min(unit.had.get(audience, NOTHING) for unit in self.units)

    def readers(self) -> list[str]:
        """Return the audiences that all its units are, or might have been, for; by name."""
        names: set[str] = set.union(*({*unit.wanted, *unit.had} for unit in self.units))
        return sorted(name for name in names if all(_is_for(unit, name) for unit in self.units))


def _is_for(unit: Unit, audience: str) -> bool:
    return max(unit.wanted.get(audience, NOTHING), unit.had.get(audience, NOTHING)) > NOTHING


class Windows:
    """All windows of one ledger that were decided."""

    def __init__(self) -> None:
        """Start with none."""
        self.units: dict[tuple[str, int, int], Unit] = {}
        self.outputs: list[Output] = []
        self._bills: dict[tuple[str, int, int], Bill] = {}

    def bill(self, edition: Edition, start_ms: int, tick_ms: int) -> Bill:
        """Return what a unit is charged with: its own, or that of its whole window."""
        charged = edition.plan.window.charged(start_ms)
        key = (edition.view, edition.number, charged.start_ms)
        if key not in self._bills:
            interval = (charged.start_ms, charged.end_ms)
            item = Item(edition.view, edition.definition, interval, edition.plan.windows_per_user)
            self._bills[key] = Bill(item, tick_ms)
        return self._bills[key]

    def add(self, unit: Unit) -> Output | None:
        """Keep a unit; return what its record is about, None where it ends nothing."""
        self.units[unit.view, unit.edition.number, unit.start_ms] = unit
        found = self._ending(unit)
        if found is not None:
            self.outputs.append(found)
        return found

    def of_view(self, view: str) -> Iterator[Unit]:
        """Yield the units of a view."""
        for unit in self.units.values():
            if unit.view == view:
                yield unit

    def released(self) -> list[Unit]:
        """Return the units that were released and have not expired."""
        return [unit for unit in self.units.values() if unit.is_released]

    def outputs_with(self, unit: Unit) -> list[Output]:
        """Return what is made of a unit, oldest first."""
        found = [output for output in self.outputs if unit in output.units and not output.is_expired]
        return sorted(found, key=lambda output: output.end_ms)

    def list_of_window(self, edition: Edition, start_ms: int) -> str | None:
        """Return the list of the first released unit of the window that a unit belongs to; None: there is none."""
        for other_ms in _same_window(edition, start_ms):
            other = self.units.get((edition.view, edition.number, other_ms))
            if other is not None and other.reason is None:
                return other.list_version
        return None

    def _ending(self, unit: Unit) -> Output | None:
        shape = unit.edition.plan.window.shape
        if shape.panes > 1:
            starts = shape.of_window(unit.start_ms)
            return self._made_of(unit, starts) if starts else None
        if shape.paid != shape.counted:
            total = shape.total(unit.start_ms)
            return self._made_of(unit, shape.counted.starts(total.start_ms, total.end_ms))
        return Output((unit,), unit.start_ms, unit.end_ms)

    def _made_of(self, unit: Unit, starts: Sequence[int]) -> Output | None:
        """The window of several units; None where one of them was not made."""
        units: list[Unit] = []
        for start_ms in starts:
            found = self._unit_of_definition(unit.edition, start_ms)
            if found is None:
                return None
            units.append(found)
        return Output(tuple(units), units[0].start_ms, unit.end_ms)

    def _unit_of_definition(self, edition: Edition, start_ms: int) -> Unit | None:
        """A unit of an edition, or of another one of the same definition."""
        for unit in self.of_view(edition.view):
            if unit.start_ms == start_ms and unit.edition.definition == edition.definition:
                return unit
        return None


def _same_window(edition: Edition, start_ms: int) -> Sequence[int]:
    """Starts of the units of the window that a unit belongs to, oldest first."""
    shape = edition.plan.window.shape
    if shape.paid != shape.counted:
        charged = edition.plan.window.charged(start_ms)
        return shape.counted.starts(charged.start_ms, charged.end_ms)
    last_ms = start_ms
    for _ in range(shape.panes):
        starts = shape.of_window(last_ms) if shape.panes > 1 else (start_ms,)
        if start_ms in starts:
            return starts
        last_ms = shape.counted.next(last_ms)
    return (start_ms,)
