"""Users who are counted in few windows of a period: what a worker counts, publishes and charges, and after a crash."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from stream_dp.records.codec import encode
from stream_dp.testing import Application, Event, Watermark
from tests.support.oracle import count_script, dearest_of, expected_records
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
FEW = ("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 3")
PACED = ("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 3\n    pacing: even")
HOPS = (
    "items_per_user: 2\n    window: {size: 1m",
    "items_per_user: 2\n    windows_per_user: 4\n    window: {size: 2m, step: 1m",
)
POOR = ('epsilon: "100", delta: "1/100", period: 366d', 'epsilon: "8", delta: "4e-4", period: 10m')
"""A budget of four windows, as many as a user is in at most."""


def crowd(start_ms: int, minutes: int) -> list[Event]:
    """Visits of 60 users, each of whom comes in some minutes only, some of them in all; not in order of time."""
    chance = random.Random(minutes)
    events = []
    for user in range(60):
        for minute in chance.sample(range(minutes), chance.choice([1, 2, 4, minutes])):
            at = start_ms + minute * MINUTE
            pages = [f"/{chance.randrange(5)}" for _ in range(3)]
            events += [Event(f"u{user}", page, at + chance.randrange(MINUTE)) for page in pages]
    chance.shuffle(events)
    return events


@pytest.mark.parametrize("changes", [(FEW,), (PACED,), (HOPS,)], ids=["tumbling", "paced", "hopping"])
async def test_counts_releases_and_charges_are_those_of_the_oracle(
    launch: Launch, changes: Sequence[tuple[str, str]]
) -> None:
    """Two periods of ten minutes, and a restart in between: every window is released, though few are paid for."""
    app = await launch(POOR, *changes)
    view = only_view(app)
    start = start_of(view)
    script: list[Event | Watermark] = [*crowd(start, 20), Watermark(start + 20 * MINUTE + 10_000)]
    before = await app.start()
    await app.publish(script[:300])

    async def all_counted() -> bool | None:
        return before.counters.total("events_consumed") >= 300 or None

    await app.eventually(all_counted)
    await app.stop()
    await app.start()
    await app.publish(script[300:])

    expected = count_script(view, start, script)
    windows = expected.between(view, start, start + 20 * MINUTE - view.window.shape.shortest_ms + 1)
    await app.wait_for_releases(view.name, len(windows))

    assert expected.refused["participation"] > 50
    records = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    assert all(one.type == "release" for rows in records.values() for one in rows), "every window is paid for"
    found = await app.published(view.name)
    assert found == {audience: [encode(one) for one in rows] for audience, rows in records.items()}
    ledgers = await app.ledgers()
    assert len(ledgers) == 2
    for ledger in ledgers.values():
        assert ledger.spent == dearest_of(view, [view.planned] * len(windows)) <= view.ledger.budget
