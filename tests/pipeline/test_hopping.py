"""Windows that hop, from events to records: what a plain loop over the events says, in memory and on a real Kafka."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from stream_dp.records.codec import AnyRecord, encode
from stream_dp.testing import Application, Event, Watermark, count_script, expected_records
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
HOPS = ("window: {size: 1m,", "window: {size: 3m, step: 1m,")


def crowd(start_ms: int, minutes: int) -> list[Event]:
    """Visits of 200 users, popular pages more often, some of them out of order by less than the grace."""
    chance = random.Random(minutes)
    pages = [f"/page/{number}" for number in range(8)]
    times = sorted(start_ms + chance.randrange(MINUTE * minutes) for _ in range(600 * minutes))
    late = [max(start_ms, time - chance.randrange(8000)) for time in times]
    return [
        Event(f"u{chance.randrange(200)}", chance.choices(pages, [8, 7, 6, 5, 4, 3, 2, 1])[0], time) for time in late
    ]


def encoded(records: dict[str, list[AnyRecord]]) -> dict[str, list[bytes]]:
    return {audience: [encode(record) for record in rows] for audience, rows in records.items()}


async def test_windows_that_hop_are_released_as_the_oracle_says_and_each_is_charged_once(launch: Launch) -> None:
    app = await launch(HOPS)
    view = only_view(app)
    start = start_of(view)
    events = crowd(start, 7)
    script: list[Event | Watermark] = []
    for at, event in enumerate(events):
        script += [event]
        if at % 100 == 99:
            script += [Watermark(event.time_ms - 9000), Event("tardy", "/late", start)]
    script.append(Watermark(start + 8 * MINUTE))
    worker = await app.start()
    await app.publish(script)

    await app.wait_for_releases(view.name, 5)

    expected = count_script(view, start, script)
    windows = expected.between(view, start, start + 5 * MINUTE)
    assert len(windows) == 5
    assert all(windows.values())
    records = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    assert await app.published(view.name) == encoded(records)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 5 * view.cost(view.start_level).epsilon
    assert not ledger.reserved
    assert worker.counters.total("events_refused", reason="late") == expected.refused["late"] > 0
