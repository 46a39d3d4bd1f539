"""When windows expire (section 3, stage 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.transcript.announcements import Announcements
from tests.transcript.editions import Edition
from tests.transcript.levels import NOTHING
from tests.transcript.predictions import Place, Record
from tests.transcript.releasing import Releasing
from tests.transcript.windows import Output, Unit


@dataclass
class Expiry:
    """Takes windows back that are older than their retention.

    Attributes:
        releasing: windows, levels and account.
        announcements: the records about views.
        is_over: whether all windows of an edition were decided.
        decided: by view, tick time and start of its newest decided window.
    """

    releasing: Releasing
    announcements: Announcements
    is_over: Callable[[Edition], bool]
    decided: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note(self, unit: Unit, tick_ms: int) -> None:
        """Remember a decided window."""
        former = self.decided.get(unit.view)
        start_ms = unit.start_ms if former is None else max(former[1], unit.start_ms)
        self.decided[unit.view] = (tick_ms, start_ms)

    def expire_by_wall_clock(self, tick_ms: int, place: Place) -> None:
        """Expire windows of views on the wall clock, by view and window start."""
        due: list[Output] = []
        for output in self._retained():
            if output.edition.plan.window.clock != "wall":
                continue
            noted_ms, newest_ms = self.decided[output.edition.view]
            is_passed = noted_ms == tick_ms and newest_ms > output.end_ms + self._retention_ms(output)
            if is_passed or (self._is_removed(output) and self._would_end_ms(output) <= tick_ms):
                due.append(output)
        self._expire(due, place)

    def expire_by_watermark(self, unit: Unit, place: Place) -> None:
        """Expire what the window that was just decided makes due, of its view and of removed ones."""
        due: list[Output] = []
        for output in self._retained():
            if output.edition.plan.window.clock == "wall":
                continue
            is_own = output.edition.view == unit.view
            is_passed = is_own and self.decided[unit.view][1] > output.end_ms + self._retention_ms(output)
            if is_passed or (not is_own and self._is_over_by(output, unit)):
                due.append(output)
        self._expire(due, place)

    def _retained(self) -> list[Output]:
        """The windows that may expire; the newest published one of a view never does."""
        newest: dict[str, int] = {}
        for output in self.releasing.windows.outputs:
            if any(level > NOTHING for level in output.had.values()):
                newest[output.edition.view] = max(output.start_ms, newest.get(output.edition.view, output.start_ms))
        return [
            output
            for output in self.releasing.windows.outputs
            if not output.is_expired and output.start_ms != newest.get(output.edition.view)
        ]

    def _retention_ms(self, output: Output) -> int:
        newest = self.releasing.state.newest(output.edition.view)
        return (newest or output.edition.plan).window.retention_ms

    def _is_removed(self, output: Output) -> bool:
        return self.releasing.state.newest(output.edition.view) is None and self.is_over(output.edition)

    def _is_over_by(self, output: Output, unit: Unit) -> bool:
        """Return True if a window of another view of the source reaches the time when one of a removed view expires."""
        has_source = output.edition.plan.source == unit.edition.plan.source
        return has_source and self._is_removed(output) and self._would_end_ms(output) <= unit.end_ms

    def _would_end_ms(self, output: Output) -> int:
        """Return the end of the window that would have made a window of a removed view expire."""
        shape = output.edition.plan.window.shape.counted
        return shape.end(shape.first_from(output.end_ms + self._retention_ms(output) + 1))

    def _expire(self, due: list[Output], place: Place) -> None:
        for output in sorted(due, key=lambda one: (one.edition.view, one.start_ms, one.end_ms)):
            output.is_expired = True
            for audience in sorted(output.posted):
                self._take_back(output, audience, place)
            self._forget_units(output)
            self._take_back_edition(output.edition, place)

    def _take_back(self, output: Output, audience: str, place: Place) -> None:
        records = [self.releasing.outbox.record(at) for at in output.posted[audience]]
        if all(record.voided_ms is not None for record in records):
            return
        edition = output.edition
        record = Record(place, "tombstone", edition.view, audience, edition.number, output.start_ms, output.end_ms)
        self.releasing.outbox.post(record, self.releasing.state.plan.slots)

    def _forget_units(self, output: Output) -> None:
        """Delete the tables that no retained or later window is made of."""
        newest_ms = self.decided[output.edition.view][1]
        for unit in output.units:
            is_old = newest_ms > unit.end_ms + unit.edition.plan.window.kept_ms
            if not self.releasing.windows.outputs_with(unit) and (is_old or self._is_removed(output)):
                unit.is_expired = True

    def _take_back_edition(self, edition: Edition, place: Place) -> None:
        """Take the records about an edition back with its last window."""
        others = [
            output
            for output in self.releasing.windows.outputs
            if not output.is_expired and (output.edition.view, output.edition.number) == (edition.view, edition.number)
        ]
        current = self.releasing.state.editions[edition.view][edition.number - 1]
        if not others and self.is_over(current):
            self.announcements.take_back(edition, self.releasing.state, self.releasing.outbox, place)
