"""A source of which half is good, through a worker: what it says of every record, and makes of the good ones."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.records.codec import encode
from stream_dp.testing import Application, Event, ManualClock, Raw, SourceWriter, Watermark
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.oracle import count_script, expected_records
from tests.support.poison import Visit, good, poison
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]

SLOW_ON_KAFKA = True
MINUTE = 60_000
WINDOWS = 3
PAGES = [f"/{number}" for number in range(9)]


def script(
    app: Application, size: int, chance: random.Random
) -> tuple[list[Event | Watermark], list[Raw | Watermark], Counter[str]]:
    """The good events, all records in order, and how many of the others are refused for what they are."""
    view, start = only_view(app), start_of(only_view(app))
    writer = SourceWriter(app.plan)
    events: list[Event | Watermark] = []
    records: list[Raw | Watermark] = []
    refused: Counter[str] = Counter()
    for at in range(size):
        if at and at % (size // WINDOWS) == 0 and at < size - WINDOWS:
            mark = Watermark(start + at // (size // WINDOWS) * MINUTE + view.window.grace_ms)
            events.append(mark)
            records.append(mark)
        user = f"u{chance.randrange(500)}"
        visit = Visit(user, chance.choice(PAGES), start + chance.randrange(-MINUTE // 20, WINDOWS * MINUTE))
        if chance.random() < 0.5:
            sample = good(visit, chance)
            events.append(Event(visit.user, visit.page, visit.time_ms))
            place = writer.place(user)
        else:
            sample = poison(visit, chance)
            place = chance.randrange(view.source.partitions)
            refused[sample.reason] += 1
        records.append(Raw(place, sample.key, sample.value, sample.headers))
    last = Watermark(start + (WINDOWS + 1) * MINUTE)
    return [*events, last], [*records, last], refused


async def run(app: Application, size: int, seed: int) -> None:
    """Publish so many records; everything adds up."""
    view, start = only_view(app), start_of(only_view(app))
    events, records, due = script(app, size, random.Random(seed))
    worker = await app.start(clock_ms=ManualClock(start + 24 * 60 * MINUTE))
    await app.publish(records)
    partitions = view.source.partitions
    marks = sum(isinstance(record, Watermark) for record in records)
    published = len(records) - marks + marks * partitions

    async def read() -> bool:
        return worker.counters.total("events_consumed") >= published

    await app.eventually(read, within_s=WITHIN_SECONDS + size / 500)
    await app.wait_for_releases(view.name, WINDOWS)

    expected = count_script(view, start, events)
    due += Counter(expected.refused)
    count = worker.counters.total
    assert count("events_consumed") == published
    assert count("events_replayed") == 0
    assert count("watermarks_read") == marks * partitions
    assert {reason: count("events_refused", reason=reason) for reason in due} == due
    assert count("events_refused") == due.total()
    assert count("events_counted") == sum(sum(table.values()) for table in expected.counts.values())
    assert count("events_counted") + due.total() + marks * partitions == published

    letters = [json.loads(letter) for letter in await app.dead_letters()]
    silent = {"duplicate", "clipped"}
    assert Counter(letter["reason"] for letter in letters) == {r: n for r, n in due.items() if r not in silent}
    assert {tuple(letter) for letter in letters} == {("topic", "partition", "offset", "reason", "views")}
    assert len({(letter["partition"], letter["offset"]) for letter in letters}) == len(letters)

    windows = expected.between(view, start, start + WINDOWS * MINUTE)
    records_due = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    found = await app.published(view.name)
    assert {name: rows[:WINDOWS] for name, rows in found.items()} == {
        name: [encode(record) for record in rows] for name, rows in records_due.items()
    }


async def test_a_source_of_which_half_is_bad_adds_up_and_the_good_half_is_released_exactly(launch: Launch) -> None:
    await run(await launch(), 4_000, seed=3)


@pytest.mark.slow
async def test_fifty_thousand_records_of_which_half_are_bad_add_up(launch: Launch) -> None:
    await run(await launch(), 50_000, seed=4)
