"""What the demo knows while it runs: the records that were read, how far the feed is, the ledger after each act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stream_dp.cli.demo.flights import Feed
from stream_dp.cli.demo.runs import CARRIERS, DESTINATIONS, LEADERS, DemoRun
from stream_dp.cli.demo.spending import Spending, check_spending, read_books, read_spending
from stream_dp.records.codec import AnyRecord, entry_key
from stream_dp.records.entries import Entry
from stream_dp.records.history import History, Seen

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
        history: the ledger after each act, oldest first, with the name of the act.
    """

    run: DemoRun
    feed: Feed
    published: History = field(default_factory=History)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    records: int = 0
    history: list[tuple[str, Spending]] = field(default_factory=list)
    _accounted: set[tuple[str, int, str, int]] = field(default_factory=set)

    def take(self, record: AnyRecord) -> None:
        """Add a record."""
        self.records += self.published.take(record) is not None

    def take_entry(self, entry: Entry) -> None:
        """Add an entry of the accounts."""
        self.entries[entry_key(entry)] = entry
        self._accounted |= {(entry.view, entry.window.start_ms, one.audience, one.revision) for one in entry.readers}

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
        return window.shape.starts(window.first_ms or 0, self.feed.flights.end_ms)

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
        """Starts of the windows of which every audience has every view, and the accounts too, in order of time."""
        reads = (self.destinations, self.carriers, self.leaders)
        columns = [read(name) for name in self.audiences for read in reads]
        return [
            start
            for start in columns[0]
            if all(start in column and self._is_accounted(column[start]) for column in columns)
        ]

    def full_windows(self) -> list[int]:
        """Those of `complete` that the data cover to their end."""
        shape = self.run.view(DESTINATIONS).window.shape
        return [start for start in self.complete() if shape.end(start) <= self.feed.flights.end_ms]

    def all_seen(self, audience: str) -> Iterator[Seen]:
        """Every window of every view of an audience."""
        yield from self.destinations(audience).values()
        yield from self.carriers(audience).values()
        yield from self.leaders(audience).values()

    def at_level(self, audience: str, level: str) -> int:
        """How many windows of an audience, over all views, are at a level or were refused it, the accounts too."""
        return sum(
            self._is_accounted(seen)
            and (seen.refusal is not None or (seen.release is not None and seen.release.level.name == level))
            for seen in self.all_seen(audience)
        )

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
