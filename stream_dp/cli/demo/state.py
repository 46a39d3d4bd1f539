"""What the demo knows while it runs: what was read, the ledger after each act, the setting that was changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.cli.demo.runs import CARRIERS, DESTINATIONS, LEADERS, TEMPLATE, DemoRun, Feed
from stream_dp.config.plan import Unlock
from stream_dp.errors import StateError
from stream_dp.operations.apply import Wish, adoptions, draft, post_change
from stream_dp.operations.numbers import cents_up, moment
from stream_dp.operations.tune import tuned
from stream_dp.records.codec import AnyRecord, entry_key
from stream_dp.records.history import History, Seen, cost
from stream_dp.records.models import LedgerEntry, Release
from stream_dp.runtime.kafka.client import Client


@dataclass(frozen=True, slots=True)
class Spending:
    """What one aircraft has paid in one period, at one moment.

    Attributes:
        alone: by audience, sum of `privacy.window` over the releases that hold: known to its readers by themselves.
        together: budget less `left`: what all readers know together. Enforced.
        left: what the ledger has left.
        budget: of the period.
    """

    alone: Mapping[str, Cost]
    together: Cost
    left: Cost
    budget: Cost


@dataclass(frozen=True, slots=True)
class Books:
    """What was read of one period.

    Attributes:
        releases: the newest of every window and audience that the ledger pays for.
        entries: of its account.
    """

    releases: list[Release] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)


def read_books(published: History, entries: Iterable[LedgerEntry]) -> Mapping[int, Books]:
    """What was read of the periods of one ledger, by start of the period, in ms."""
    books: defaultdict[int, Books] = defaultdict(Books)
    for release in published.releases():
        books[release.ledger.period.start_ms].releases.append(release)
    for entry in entries:
        books[entry.ledger.period.start_ms].entries.append(entry)
    return books


def read_spending(books: Books, audiences: Iterable[str]) -> Spending:
    """Add up what was read of a period, of which there is an entry.

    In the middle of things it may be a record behind: topics are read side by side.
    """
    last = min(books.entries, key=lambda entry: cost(entry.remaining).epsilon)
    budget, left = cost(last.ledger.budget), cost(last.remaining)
    held = {
        audience: [cost(one.privacy.window) for one in books.releases if one.audience == audience]
        for audience in audiences
    }
    alone = {audience: sum(costs, Cost.ZERO) for audience, costs in held.items()}
    return Spending(alone, budget - left, left, budget)


def check_spending(books: Books, spending: Spending) -> None:
    """Compare charges with what the ledger says was spent, and windows with what releases say of the period; exactly.

    Args:
        books: all that was published of the period, and every entry of it.
        spending: what `read_spending` made of them.

    Raises:
        StateError: they differ.
    """
    charged = sum((cost(reader.charged) for entry in books.entries for reader in entry.audiences), Cost.ZERO)
    if charged != spending.together:
        raise StateError(f"the entries charge {charged} in all, but the ledger has spent {spending.together}")
    for audience, alone in spending.alone.items():
        told = (cost(release.privacy.period) for release in books.releases if release.audience == audience)
        if alone != max(told, key=lambda one: one.epsilon, default=Cost.ZERO):
            raise StateError(f"what the releases to {audience} tell is not what the last of them says of the period")


SETTING = "selection.epsilon=3/40"
NOTE = "a longer list of carriers"


@dataclass(frozen=True, slots=True)
class Tuned:
    """New settings that the worker goes by.

    Attributes:
        number: of the settings.
        from_ms: start of the first window under them.
        before: what choosing the carriers of a window cost until then, at worst.
        after: what it costs since.
    """

    number: int
    from_ms: int
    before: Cost
    after: Cost

    @property
    def command(self) -> str:
        """The command that does the same."""
        return f"stream-dp tune {TEMPLATE} {CARRIERS} {SETTING} --from {moment(self.from_ms)}"

    @property
    def words(self) -> str:
        """What it means."""
        costs = f"{cents_up(self.before.epsilon)} -> {cents_up(self.after.epsilon)}"
        return f"From the window of {moment(self.from_ms)} on; choosing costs epsilon {costs} at worst"


async def tune_carriers(run: DemoRun, client: Client, from_ms: int) -> Tuned:
    """Pay more for the choice of the carriers from a window on; wait until the worker goes by that.

    Args:
        run: a run whose worker runs.
        client: of its broker.
        from_ms: start of the window.

    Raises:
        ConfigError: that cannot be.
        StateError: somebody else has changed the settings, or the worker does not say that it goes by them.
    """
    wish = Wish(from_ms, note=NOTE)
    change = await draft(run.plan, lambda before: tuned(before, CARRIERS, [SETTING]), client, wish)
    await post_change(change)
    used = [found async for found in adoptions(change, client)][-1]
    if not (used.used_by and used.by_all):
        raise StateError(f"the worker does not use settings {change.posted.number}; see {run.log_file}")
    costs = (plan.views[CARRIERS].keys_at_worst for plan in (change.before, change.after))
    return Tuned(change.posted.number, change.proposal.begins[CARRIERS], *costs)


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
