"""A small application as operators find it: settings, reports of a worker, charges of twelve weeks, and two grants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import load_plan
from stream_dp.control.acceptance import Verdict
from stream_dp.control.editions import first_record, next_record
from stream_dp.control.grant_records import Grant
from stream_dp.operations.assignments import tuned
from stream_dp.records.codec import encode, entry_key
from stream_dp.records.models import PartitionStatus, ViewStatus, WorkerStatus, encode_status
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import audience_charge, entry_record
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted, write_grant
from stream_dp.windows.durations import parse_time
from tests.support.views import balance

T = TypeVar("T")
WEEK = 7 * 86_400_000
BEGIN = parse_time("2013-09-10T00:00:00Z")
NOW = parse_time("2014-01-28T01:00:00Z")
"""Time of the stream. The wall clock is that of the machine."""
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
CONFIG = """\
name: air
broker: memory://
data_dir: ./state
key_file: ./air.key
sources:
  flights: {topic: flights, partitions: 2, user: tail, time: {field: at, unit: ms}}
ledgers:
  planes:
    {population: aircraft by tail number, epsilon: "7", delta: "1/100000", period: 84d, start: 2013-12-03T00:00:00Z}
ladders:
  counts: [{level: overview, epsilon: "1/20"}, {level: standard, epsilon: "1/10"}, {level: detailed, epsilon: "1/5"}]
  totals: [{level: overview, epsilon: "1/10"}, {level: standard, epsilon: "1/5"}]
audiences:
  public: {level: overview, unlock: [{level: standard, after: 28d}]}
  partner: standard
views:
  airlines:
    kind: catalogue
    catalogue: [AA, B6, DL, UA, US, WN]
    source: flights
    item: carrier
    items_per_user: 1
    window: &week {size: 7d, start: 2013-01-01T00:00:00Z, grace: 1h, clock: event, idle: 60d}
    ledger: planes
    ladder: counts
    retention: 400d
  busiest:
    kind: topk
    source: flights
    item: dest
    k: 4
    kbar: 12
    selection: {epsilon: "1/20", delta: "1e-8"}
    items_per_user: 2
    window: *week
    ledger: planes
    ladder: counts
    retention: 400d
  small-places:
    kind: histogram
    source: flights
    item: dest
    items_per_user: 2
    delta: "1e-8"
    window: *week
    ledger: planes
    ladder: totals
    retention: 400d
"""


def plan(folder: Path, epsilon: str = "7") -> Plan:
    """The plan of the application, whose file is written into a folder; its budget lasts a period from 8 on."""
    file = folder / "air.yaml"
    file.write_text(CONFIG.replace('epsilon: "7"', f'epsilon: "{epsilon}"'), encoding="utf-8")
    return load_plan(file)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: that of a test may have the loop of the browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def report(settings: int = 2, *, reported_ms: int | None = None, lag: int = 0, waiting: str = "") -> WorkerStatus:
    """The report of a worker that has all partitions."""
    names = ("airlines", "busiest", "small-places")
    counters = {
        "events_consumed": 334_996,
        "events_refused{reason=clipped,view=small-places}": 97_135,
        "windows_refused{view=busiest}": 8,
        "windows_released{view=airlines}": 55,
        "windows_released{view=busiest}": 47,
    }
    parts = {
        number: PartitionStatus(
            lag={"flights": lag},
            views={name: ViewStatus(clock_ms=NOW, open_from_ms=NOW - 3_600_000) for name in names},
            next_windows_ms=dict.fromkeys(names, NOW - 3_600_000) if number == 0 else {},
            counters=counters if number == 0 else {},
        )
        for number in range(2)
    }
    return WorkerStatus(
        schema_version=1,
        code_version="0.1.0",
        instance="air-one",
        started_ms=now_ms() - 900_000,
        reported_ms=now_ms() if reported_ms is None else reported_ms,
        settings=settings,
        waiting_for=waiting,
        partitions=parts,
    )


def say(log: MemoryLog, status: WorkerStatus) -> None:
    """Publish the report of a worker."""
    log.append("air-status", 0, status.instance.encode(), encode_status(status))


def accept(plan: Plan, log: MemoryLog, number: int) -> None:
    """Accept settings, as a worker does."""
    run(SettingsLog(plan, MemoryClient(log)).judge(Verdict(number, now_ms())))


def charge(log: MemoryLog, view: ViewPlan, start_ms: int, left: Cost, views: list[ViewPlan]) -> Cost:
    """Charge a window at the levels that audiences start with, or refuse it; return what is left."""
    keys, paid, audiences = view.keys_at_worst, Cost.ZERO, []
    levels = sorted(view.audiences.items(), key=lambda one: one[1])
    finest = levels[-1][1]
    is_paid = view.counts(finest) + keys <= left
    for name, level in levels:
        loss = view.counts(level) + keys
        none = Cost.ZERO, Cost.ZERO
        audiences.append(audience_charge(view, name, level, 1, *((loss - paid, loss) if is_paid else none)))
        paid = loss
    left = left - paid if is_paid else left
    booking = Booking(Ledger(left), balance(view, left, views), view.cost(finest))
    entry = entry_record(view, start_ms, "charge" if is_paid else "refusal", audiences, booking)
    log.append("air-accounts", 0, entry_key(entry), encode(entry))
    return left


def fill(log: MemoryLog, plan: Plan) -> None:
    """Write what an application of eight weeks has written."""
    for topic in ("air-control", "air-status", "air-accounts"):
        log.create(topic, 1)
    log.create("flights", 2)
    client, posted_ms = MemoryClient(log), now_ms() - 600_000
    first = first_record(plan, posted_ms)
    assert run(post_accepted(plan, client, first))
    after = tuned(plan, "busiest", ["selection.epsilon=1/16"])
    begins = {"busiest": BEGIN + 12 * WEEK}
    assert run(
        post_accepted(plan, client, next_record([first], after, begins, {}, posted_ms + 1000, f"choice {HOSTILE}"))
    )
    run(write_grant(plan, client, Grant(audience="partner", level="detailed", windows="future")))
    later = Grant(audience="public", level="standard", views=("airlines",), at="2100-01-01T00:00:00Z")
    run(write_grant(plan, client, later))
    say(log, report())
    ledger, views = after.ledgers["planes"], list(after.views.values())
    left: dict[int, Cost] = {}
    for start_ms in range(BEGIN, NOW - WEEK, WEEK):
        for view in views:
            period = ledger.periods.start_of(start_ms)
            left[period] = charge(log, view, start_ms, left.get(period, ledger.budget), views)
