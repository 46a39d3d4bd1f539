"""Windows that hop, from events to records: what a plain loop over the events says, in memory and on a real Kafka."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from stream_dp.records.codec import AnyRecord, encode
from stream_dp.testing import Application, Event, Watermark
from tests.support.oracle import count_script, expected_records
from tests.support.views import start_of

SLOW_ON_KAFKA = True

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


PANES = """
  NAME-sums:
    kind: catalogue
    source: visits
    item: page
    catalogue: [/page/0, /page/1, /page/2, /page/3, /none]
    items_per_user: 2
    window: {size: 4m, step: 2m, pane: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, idle: 1d}
    ledger: passers
    ladder: standard
    retention: 1d
    buckets: 2
"""
PASSERS = (
    'ledgers:\n  passers: {population: passers, epsilon: "100", delta: "0", period: 3m, start: 2024-01-01T00:00:00Z}'
)


async def test_windows_that_hop_and_windows_of_panes_are_those_of_the_oracle_and_paid_for_once(launch: Launch) -> None:
    """The second view has periods that its windows cross; each pane is charged to its own."""
    app = await launch(HOPS, ("views:", "views:" + PANES.rstrip()), ("ledgers:", PASSERS))
    hops, sums = sorted(app.plan.views.values(), key=lambda view: view.kind.name, reverse=True)
    start = start_of(hops)
    script: list[Event | Watermark] = []
    for at, event in enumerate(crowd(start, 9)):
        script += [event]
        if at % 100 == 99:
            script += [Watermark(event.time_ms - 9000), Event("tardy", "/page/3", start)]
    script.append(Watermark(start + 10 * MINUTE))
    await app.start()
    await app.publish(script)

    for view, releases in ((hops, 7), (sums, 3)):
        await app.wait_for_releases(view.name, releases)
        windows = count_script(view, start, script).between(view, start, start + (releases + 6) * MINUTE)
        shown = {at: counts for at, counts in windows.items() if at <= start + (6 if view is hops else 7) * MINUTE}
        records = expected_records(view, shown, prf_key=app.prf_key, entropy=app.entropy)
        found = {audience: rows[:releases] for audience, rows in (await app.published(view.name)).items()}
        assert found == encoded(records)
    await app.grant("public", "standard")

    async def sharper() -> list[AnyRecord] | None:
        found = (await app.releases(sums.name))["public"]
        return found[3:] if len(found) >= 6 else None

    again = await app.eventually(sharper)
    assert [(record.revision, record.level.name, record.panes) for record in again] == [(2, "standard", 4)] * 3
    spent = [ledger.spent.epsilon for ledger in (await app.ledgers()).values()]
    assert sorted(spent) == [
        6,
        6,
        6,
        14,
    ]  # three panes a period, and seven windows, at the level of partner and internal
