"""What an application publishes equals what a plain-Python oracle says: in memory and on a real Kafka."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from stream_dp.releases.plan import ViewPlan
from stream_dp.releases.records import encode
from stream_dp.testing import Application, Event, Watermark, count_script, expected_records

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


def only_view(app: Application) -> ViewPlan:
    (view,) = app.plan.views.values()
    return view


def start_of(view: ViewPlan) -> int:
    assert view.window.start_ms is not None
    return view.window.start_ms


def crowd(start_ms: int, minutes: int, seed: int) -> list[Event]:
    """Visits of 300 users at random moments of some minutes, popular pages more often."""
    chance = random.Random(seed)
    pages = [f"/page/{number}" for number in range(12)]
    weights = [1 / (1 + number) for number in range(12)]
    events = [
        Event(f"u{chance.randrange(300)}", chance.choices(pages, weights)[0], start_ms + chance.randrange(MINUTE * minutes))
        for _ in range(1500 * minutes)
    ]
    return sorted(events, key=lambda event: event.time_ms)


async def test_releases_equal_the_oracle_and_each_window_is_charged_once(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    script = [*crowd(start, 3, seed=1), Watermark(start + 10 * MINUTE)]
    await app.start()
    await app.publish(script)

    await app.wait_for_releases(view.name, 9)

    expected = count_script(view, start, script)
    windows = expected.between(view, start, start + 9 * MINUTE)
    assert [sum(counts.values()) > 0 for counts in windows.values()] == [True] * 3 + [False] * 6
    records = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    assert await app.published(view.name) == {name: [encode(record) for record in rows] for name, rows in records.items()}
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 9 * 2
    assert not ledger.reserved
