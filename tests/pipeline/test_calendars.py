"""Windows of local days and months, from events to records, over a leap February and a change of the clock.

What they have to count is worked out here from the local dates that the standard library gives for events.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.records.codec import encode
from stream_dp.releases.accounts import period_of
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.effects import Message
from stream_dp.windows.shapes import calendars
from stream_dp.windows.time_zones import zone_rules
from tests.kinds.cases import CASES, Case
from tests.support.chosen import ordinarily
from tests.support.oracle import expected_records
from tests.support.views import only_view, released

SLOW_ON_KAFKA = True
HOUR, DAY = 3_600_000, 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")
LEAP, FIRST, LAST = date(2024, 2, 29), date(2024, 2, 27), date(2024, 4, 2)
"""In between are 29 February, of a leap year, and 31 March, a day of 23 hours."""
ITEMS_PER_USER = 2
CALENDAR_KINDS = sorted(kind for kind, case in CASES.items() if not case.window)

Launch = Callable[..., Awaitable[Application]]
WINDOW = "{size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event,"
PERIOD = "period: 366d"


def midnight(day: date) -> int:
    """When a day begins in Berlin, where midnight was never skipped."""
    return int(datetime(day.year, day.month, day.day, tzinfo=BERLIN).timestamp()) * 1000


def local(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms // 1000, UTC).astimezone(BERLIN).date()


def events(first_ms: int, end_ms: int, pages: list[str], number: int) -> list[Event]:
    """Visits in the order of their time, many of them a second before or behind local midnight."""
    chance, found = random.Random(3), []
    days = [midnight(FIRST + timedelta(days=at)) for at in range((LAST - FIRST).days + 1)]
    for user in range(number):
        near = chance.choice(days) + chance.choice([-1000, -1, 0, 1, 999])
        time = near if user % 2 else chance.randrange(first_ms, end_ms)
        page = pages[min(int(chance.expovariate(1)), len(pages) - 1)]
        found.append(Event(f"u{user % 40}", page, min(max(time, first_ms), end_ms - 1)))
    return sorted(found, key=lambda one: one.time_ms)


def fixed_list(view: ViewPlan) -> Container[str] | None:
    """The list of a view, if it cannot change: other values are dropped before they are bounded."""
    return None if view.kind.topics else view.kind.domain({})


def counted(
    script: list[Event], start_of: Callable[[date], date], first: date, last: date, listed: Container[str] | None
) -> dict[int, dict[str, int]]:
    """Bounded counts by local date: the first items of a user in a day or month count, once; off a fixed list none."""
    had: defaultdict[tuple[date, str], list[str]] = defaultdict(list)
    found: dict[date, dict[str, int]] = {start_of(first + timedelta(days=at)): {} for at in range((last - first).days)}
    for event in script:
        day = start_of(local(event.time_ms))
        items = had[day, event.user]
        is_counted = listed is None or event.item in listed
        if is_counted and event.item not in items and len(items) < ITEMS_PER_USER:
            items.append(event.item)
            found[day][event.item] = found[day].get(event.item, 0) + 1
    return {midnight(day): counts for day, counts in found.items()}


async def begun(launch: Launch, case: Case, size: str, start_ms: int, period: str) -> Application:
    start = datetime.fromtimestamp(start_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    app = await launch(
        ('epsilon: "100", delta: "1/100", ' + PERIOD, f'epsilon: "1000", delta: "1/2", {period}, zone: Europe/Berlin'),
        (WINDOW, f"{{size: {size}, zone: Europe/Berlin, start: {start}, grace: 10s, clock: event,"),
        ("    kind: histogram\n", ""),
        ('    delta: "1e-4"\n', case.settings),
        ("retention: 1d", "retention: 400d"),
    )
    for topic, listed in case.lists.items():
        await app.client.create([TopicSpec(topic, 2)])
        await app.client.publish([Message(topic, key.encode(), b"1", len(key) % 2) for key in listed.keys])
    return app


async def check(app: Application, case: Case, windows: Mapping[int, Mapping[str, int]]) -> None:
    """What is published is what these counts come to, and every window is charged to its local month or year."""
    view = only_view(app)
    records = await app.wait_for_releases(view.name, len(windows))
    expected = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy, lists=case.lists)
    assert await app.published(view.name) == {
        audience: [encode(record) for record in rows] for audience, rows in expected.items()
    }
    for rows in records.values():
        assert [one.window.start_ms for one in rows] == [*windows]
        assert [one.window.end_ms for one in rows[:-1]] == [*windows][1:]
        assert all(
            one.ledger.period.start_ms <= one.window.start_ms < one.ledger.period.end_ms for one in released(rows)
        )


@pytest.mark.parametrize("kind", ordinarily(1, CALENDAR_KINDS))
async def test_local_days_over_a_leap_day_and_a_change_of_the_clock(kind: str, launch: Launch) -> None:
    case, first, end = CASES[kind], midnight(FIRST), midnight(LAST)
    app = await begun(launch, case, "1d", first, "period: 1mo")
    view = only_view(app)
    script = events(first, end, [*case.counts], 600)
    windows = counted(script, lambda day: day, FIRST, LAST, fixed_list(view))
    assert [end - start for start, end in pairwise(windows)].count(23 * HOUR) == 1
    assert midnight(LEAP) in windows
    half = len(script) // 2
    await app.start()
    await app.publish([*script[:half], Watermark(script[half].time_ms)])
    await app.wait_for_releases(view.name, 5)
    await app.stop()
    await app.start()
    await app.publish([*script[half:], Watermark(end + DAY)])
    await check(app, case, windows)

    ledgers = {period_of(key): ledger for key, ledger in (await app.ledgers()).items()}
    months = [date(2024, 2, 1), date(2024, 3, 1), date(2024, 4, 1), date(2024, 5, 1)]
    assert [(one.start_ms, one.end_ms) for one in sorted(ledgers, key=lambda one: one.start_ms)] == [
        (midnight(month), midnight(behind)) for month, behind in pairwise(months)
    ]
    paid = [ledgers[period].spent for period in sorted(ledgers, key=lambda one: one.start_ms)]
    if case.worst.epsilon == case.worst.delta == 0:  # every window costs the same
        cost = view.cost(view.start_level)
        assert paid == [cost * 3, cost * 31, cost]


async def test_local_months_over_a_leap_february(launch: Launch) -> None:
    case, first, end = CASES["catalogue"], midnight(date(2024, 1, 1)), midnight(date(2024, 5, 1))
    app = await begun(launch, case, "1mo", first, "period: 1y")
    script = events(first, end, [*case.counts], 400)
    await app.start()
    await app.publish([*script, Watermark(end + DAY)])
    listed = fixed_list(only_view(app))
    await check(app, case, counted(script, lambda day: day.replace(day=1), date(2024, 1, 1), date(2024, 5, 1), listed))


async def test_a_worker_with_other_rules_of_the_zone_does_not_go_on(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Germany has the clocks of Austria until 1980: the first window is the same, and boundaries of then are not."""
    case = CASES["catalogue"]
    app = await begun(launch, case, "1d", midnight(FIRST), "period: 1mo")
    await app.start()
    await app.stop()
    calendars._table.cache_clear()
    monkeypatch.setattr(calendars, "zone_rules", lambda _: zone_rules("Europe/Vienna"))
    try:
        with pytest.raises(ConfigError, match=r"the rules of time zone Europe/Berlin differ: .* tzdata 20"):
            await app.start()
    finally:
        calendars._table.cache_clear()
