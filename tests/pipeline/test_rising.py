"""Clearances that grow by themselves, from events to records: a grant with a time, unlocks, and what is left over."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from stream_dp.records.codec import AnyRecord
from stream_dp.testing import Application, Event, ManualClock, Watermark
from stream_dp.windows.durations import format_time
from tests.support.oracle import count_script
from tests.support.sealing import read_window, seal_window, window_key_of
from tests.support.views import only_view, start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WINDOWS = 30
UNLOCK = ("public: overview", "public: {level: overview, unlock: [{level: standard, after: 10m}]}")
SPEND = (
    "    retention: 1d\n",
    '    retention: 1d\n    sharpen: {audience: internal, level: detailed, reserve: "1/4", every: 30m}\n',
)
SHORT = ("period: 366d", "period: 30m")


async def test_a_window_rises_by_age_by_a_grant_and_by_what_is_left_and_costs_what_its_finest_release_costs(
    launch: Launch,
) -> None:
    """The windows get older with their stream, and a grant comes with a time of the wall clock."""
    app = await launch(UNLOCK, SPEND, SHORT)
    view = only_view(app)
    start, chance = start_of(view), random.Random(7)
    events: list[Event | Watermark] = [
        Event(f"user {user}", f"/{chance.randrange(2)}", start + chance.randrange(WINDOWS * MINUTE))
        for user in range(100 * WINDOWS)
    ]
    clock = ManualClock(start + 40 * MINUTE)
    await app.start(clock_ms=clock)
    await app.publish(events)

    async def stream_to(minute: int) -> None:
        await app.publish([Watermark(start + minute * MINUTE + 10_000)])
        await app.wait_for_releases(view.name, minute)

    async def has(audience: str, windows: list[tuple[int, str]]) -> bool:
        records = [record for record in (await app.releases(view.name))[audience] if record.revision > 1]
        assert all(record.type == "release" and record.revision == 2 for record in records)
        return sorted(((r.window.start_ms - start) // MINUTE, r.level.name) for r in records) == windows

    at = format_time(start + 45 * MINUTE)
    second = {"start_from": format_time(start + MINUTE), "start_until": format_time(start + 2 * MINUTE)}
    await app.grant("partner", "detailed", at=at, **second)
    await stream_to(10)
    assert await has("public", [])
    await stream_to(12)
    await app.eventually(lambda: has("public", [(0, "standard"), (1, "standard")]))
    await app.stop()
    await app.start(clock_ms=clock)
    await stream_to(15)
    await app.eventually(lambda: has("public", [(n, "standard") for n in range(5)]))
    assert await has("partner", [])
    clock.now_ms = start + 45 * MINUTE + 1000
    await app.eventually(lambda: has("partner", [(1, "detailed")]))
    assert await has("internal", [])
    await stream_to(WINDOWS)
    # Of 100, 64 are spent and 25 held back: two windows more.
    await app.eventually(lambda: has("internal", [(n, "detailed") for n in (28, 29)]))
    await app.eventually(lambda: has("public", [(n, "standard") for n in range(20)]))

    counts, final = count_script(view, start, events).counts, await app.releases(view.name)
    for number in range(WINDOWS):
        window = start + number * MINUTE
        levels = {"public": int(number < 20), "partner": 2 if number == 1 else 1, "internal": 2 if number > 27 else 1}
        key = window_key_of(view, window, app.prf_key, app.entropy)
        table = seal_window(view, window, counts[window], prf_key=key, entropy=app.entropy)
        for audience, level in levels.items():
            (reading,) = read_window(view, window, table, [level], key)
            assert shown(newest(final[audience], window)) == dict(reading.items) != {}
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 3 * 6 + 27 * 2
    assert ledger.spent.delta == WINDOWS * view.keys_at_worst.delta
    told = {audience: ledger.readers[audience].epsilon for audience in view.audiences}
    assert told == {"public": 20 * 2 + 10 * view.levels[0].epsilon, "partner": 29 * 2 + 6, "internal": 28 * 2 + 2 * 6}


def newest(records: list[AnyRecord], start: int) -> AnyRecord:
    return max((record for record in records if record.window.start_ms == start), key=lambda record: record.revision)


def shown(record: AnyRecord) -> dict[str, int]:
    assert record.type == "release"
    return {row.item: row.count for row in record.items}
