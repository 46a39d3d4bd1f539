"""Clearances that grow by themselves, from events to records: a grant with a time, unlocks, and what is left over."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from stream_dp.records.codec import AnyRecord
from stream_dp.testing import Application, Event, ManualClock, Watermark, count_script
from stream_dp.windows.durations import format_time
from tests.support.sealing import read_window, seal_window
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WINDOWS = 4
UNLOCK = ("public: overview", "public: {level: overview, unlock: [{level: standard, after: 10m}]}")
SPEND = (
    "    retention: 1d\n",
    '    retention: 1d\n    sharpen: {audience: internal, level: detailed, reserve: "1/4", every: 30m}\n',
)
SHORT = ("period: 366d", "period: 30m")


async def test_a_window_rises_by_age_by_a_grant_and_by_what_is_left_and_costs_what_its_finest_release_costs(
    launch: Launch,
) -> None:
    app = await launch(UNLOCK, SPEND, SHORT)
    view = only_view(app)
    start, chance = start_of(view), random.Random(7)
    script: list[Event | Watermark] = [
        Event(f"user {user}", f"/{chance.randrange(5)}", start + chance.randrange(WINDOWS * MINUTE))
        for user in range(400)
    ]
    script.append(Watermark(start + (WINDOWS + 1) * MINUTE))
    clock = ManualClock(start + 6 * MINUTE)
    await app.start(clock_ms=clock)
    await app.publish(script)
    await app.wait_for_releases(view.name, WINDOWS)

    async def has(audience: str, windows: list[tuple[int, str]]) -> bool:
        records = (await app.releases(view.name))[audience][WINDOWS:]
        assert all(record.type == "release" and record.revision == 2 for record in records)
        return sorted(((r.window.start_ms - start) // MINUTE, r.level.name) for r in records) == windows

    at = format_time(start + 20 * MINUTE)
    second = {"start_from": format_time(start + MINUTE), "start_until": format_time(start + 2 * MINUTE)}
    await app.grant("partner", "detailed", at=at, **second)
    clock.now_ms = start + 12 * MINUTE + 1000
    await app.eventually(lambda: has("public", [(0, "standard"), (1, "standard")]))
    await app.stop()
    clock.now_ms = start + 15 * MINUTE
    await app.start(clock_ms=clock)
    await app.eventually(lambda: has("public", [(n, "standard") for n in range(WINDOWS)]))
    assert await has("partner", [])
    clock.now_ms = start + 20 * MINUTE + 1000
    await app.eventually(lambda: has("partner", [(1, "detailed")]))
    assert await has("internal", [])
    clock.now_ms = start + 30 * MINUTE + 1000
    # Of 100, 12 are spent, 25 held back and 52 kept for windows to come: two windows more, and one is paid for already.
    await app.eventually(lambda: has("internal", [(n, "detailed") for n in (1, 2, 3)]))

    counts, final = count_script(view, start, script).counts, await app.releases(view.name)
    for number in range(WINDOWS):
        window = start + number * MINUTE
        table = seal_window(view, window, counts[window], prf_key=app.prf_key, entropy=app.entropy)
        for audience, level in (("public", 1), ("partner", 2 if number == 1 else 1), ("internal", 2 if number else 1)):
            (reading,) = read_window(view, window, table, [level], app.prf_key)
            assert shown(newest(final[audience], window)) == dict(reading.items)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 3 * 6 + 2
    assert ledger.spent.delta == WINDOWS * view.keys_at_worst.delta
    told = {audience: ledger.readers[audience].epsilon for audience in view.audiences}
    assert told == {"public": WINDOWS * 2, "partner": 3 * 2 + 6, "internal": 3 * 6 + 2}


def newest(records: list[AnyRecord], start: int) -> AnyRecord:
    return max((record for record in records if record.window.start_ms == start), key=lambda record: record.revision)


def shown(record: AnyRecord) -> dict[str, int]:
    assert record.type == "release"
    return {row.item: row.count for row in record.items}
