"""What the demo knows while it runs: the records that were read, how far the feed is, the ledger after each act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.cli.demo.flights import Feed
from stream_dp.cli.demo.runs import CARRIERS, DESTINATIONS, LEADERS, DemoRun
from stream_dp.cli.demo.spending import Spending, check_spending, read_books, read_spending
from stream_dp.cli.demo.tuning import Tuned
from stream_dp.config.plan import Unlock
from stream_dp.records.codec import AnyRecord, entry_key
from stream_dp.records.history import History, Seen, cost
from stream_dp.records.models import LedgerEntry

STYLES = ("cyan", "yellow", "green")


@dataclass
class DemoState:
    """What the frames are drawn from.

    Attributes:
        run: the run.
        feed: the feeder.
        published: every record that was read of the release topics.
        entries: every entry that was read of the accounts, by key.
        records: how many records were read, old ones that came again left out.
        tuned: the settings that were changed while the worker ran, None before.
        history: the ledger after each act, oldest first, with the name of the act.
    """

    run: DemoRun
    feed: Feed
    published: History = field(default_factory=History)
    entries: dict[bytes, LedgerEntry] = field(default_factory=dict)
    records: int = 0
    tuned: Tuned | None = None
    history: list[tuple[str, Spending]] = field(default_factory=list)
    _accounted: set[tuple[str, int, str, int]] = field(default_factory=set)
    _begun: set[tuple[str, int, str]] = field(default_factory=set)

    def take(self, record: AnyRecord) -> None:
        """Add a record."""
        self.records += self.published.take(record) is not None

    def take_entry(self, entry: LedgerEntry) -> None:
        """Add an entry of the accounts."""
        self.entries[entry_key(entry)] = entry
        for one in entry.audiences:
            self._accounted.add((entry.view, entry.window.start_ms, one.audience, one.revision))
            self._begun.add((entry.view, entry.window.start_ms, one.audience))

    def accounted(self, record: AnyRecord) -> bool:
        """Whether the entry of a record was read."""
        return (record.view, record.window.start_ms, record.audience, record.revision) in self._accounted

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences, as the configuration orders them."""
        return self.run.plan.audiences

    @property
    def starts(self) -> range:
        """The starts of the year's windows; the last one may reach beyond the data."""
        window = self.run.view(DESTINATIONS).window
        return range(window.first_ms or 0, self.feed.flights.end_ms, window.shape.grid.shortest_ms)

    def style(self, audience: str) -> str:
        """The colour of an audience."""
        return STYLES[self.audiences.index(audience) % len(STYLES)]

    def destinations(self, audience: str) -> Mapping[int, Seen]:
        """What was read of the destinations, by window."""
        return self.published.windows(self.run.view(DESTINATIONS).name, audience)

    def carriers(self, audience: str) -> Mapping[int, Seen]:
        """What was read of the carriers, by window."""
        return self.published.windows(self.run.view(CARRIERS).name, audience)

    def leaders(self, audience: str) -> Mapping[int, Seen]:
        """What was read of the leading carriers, by window."""
        return self.published.windows(self.run.view(LEADERS).name, audience)

    def complete(self) -> list[int]:
        """Starts of the windows of which every audience has every view, and the accounts too, in order of time.

        A window stays complete while the accounts of a later revision of it are still to be read.
        """
        names = [self.run.view(view).name for view in (DESTINATIONS, CARRIERS, LEADERS)]
        columns = [(view, reader, self.published.windows(view, reader)) for reader in self.audiences for view in names]
        return [
            start
            for start in columns[0][2]
            if all(start in column and (view, start, reader) in self._begun for view, reader, column in columns)
        ]

    @property
    def tuned_ms(self) -> int:
        """Start of the window in the middle of the year, from which on new settings are to hold."""
        return self.starts[(len(self.starts) + 1) // 2]

    @property
    def unlocks(self) -> Mapping[str, Unlock]:
        """What each audience that has a schedule sees at its end; it is the same in all views."""
        return {name: steps[-1] for name, steps in self.run.view(DESTINATIONS).unlocks.items()}

    def unlocked_level(self, audience: str) -> str:
        """The level at the end of an audience's schedule."""
        return self.run.view(DESTINATIONS).levels[self.unlocks[audience].level].name

    def unlocked(self, audience: str) -> list[int]:
        """Starts of the windows that an audience sees finer by now because of their age, in every view."""
        level = self.unlocked_level(audience)
        destinations, *others = self._columns(audience)
        return [
            start
            for start, seen in destinations.items()
            if self._has(seen, level) and all(start in one and self._has(one[start], level) for one in others)
        ]

    def all_unlocked(self) -> bool:
        """Whether every window is unlocked that is old enough when the last one of the year is released."""
        shape, unlocks = self.run.view(DESTINATIONS).window.shape, self.unlocks
        end_ms = shape.end(self.starts[-1])
        due = {
            name: sum(shape.end(start) + step.after_ms <= end_ms for start in self.starts)
            for name, step in unlocks.items()
        }
        return all(len(self.unlocked(name)) >= count for name, count in due.items())

    def charged_later(self, audience: str, start: int) -> Fraction:
        """What the ledger was charged for what an audience saw of a window after its first release, in all views."""
        return sum(
            (
                cost(one.charged).epsilon
                for entry in self.entries.values()
                if entry.window.start_ms == start
                for one in entry.audiences
                if one.audience == audience and one.revision > 1
            ),
            Fraction(0),
        )

    def full_windows(self) -> list[int]:
        """Those of `complete` that the data cover to their end."""
        shape = self.run.view(DESTINATIONS).window.shape
        return [start for start in self.complete() if shape.end(start) <= self.feed.flights.end_ms]

    def all_seen(self, audience: str) -> Iterator[Seen]:
        """Every window of every view of an audience."""
        for column in self._columns(audience):
            yield from column.values()

    def at_level(self, audience: str, level: str) -> int:
        """How many windows of an audience, over all views, are at a level or were refused it, the accounts too."""
        return sum(
            self._has(seen, level) or (seen.refusal is not None and self._is_accounted(seen))
            for seen in self.all_seen(audience)
        )

    def _columns(self, audience: str) -> list[Mapping[int, Seen]]:
        """What was read of every view, by window."""
        return [read(audience) for read in (self.destinations, self.carriers, self.leaders)]

    def _has(self, seen: Seen, level: str) -> bool:
        """Whether a window is at a level, and the accounts say so."""
        return seen.release is not None and seen.release.level.name == level and self._is_accounted(seen)

    def _is_accounted(self, seen: Seen) -> bool:
        return all(self.accounted(record) for record in (seen.release, seen.refusal) if record is not None)

    def note(self, act: str) -> None:
        """Write down the ledger after an act, of which every record was read.

        Raises:
            StateError: in some period the charges do not add up to what the ledger says was spent.
        """
        for books in read_books(self.published, self.entries.values()).values():
            check_spending(books, read_spending(books, self.audiences))
        self.history.append((act, self.spending()))

    def spending(self) -> Spending:
        """The ledger in the period of the newest full window, as the records and entries that were read tell it."""
        period = self.run.view(DESTINATIONS).ledger.periods.start_of(self.full_windows()[-1])
        return read_spending(read_books(self.published, self.entries.values())[period], self.audiences)
