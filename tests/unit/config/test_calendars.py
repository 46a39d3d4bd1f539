"""Calendar windows and periods in a configuration: what goes together, what is refused, explained and forecast."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.explanation import describe
from stream_dp.config.forecast import covered
from stream_dp.config.loading import read_config
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.config.shares import Shares, asked
from stream_dp.control.editions import first_record, next_record, plan_holding, plan_of
from stream_dp.control.settings_change import Situation, boundary
from stream_dp.errors import ConfigError
from stream_dp.windows.durations import CalendarUnit, parse_time
from stream_dp.windows.shapes import calendars
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.shape import Interval
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.time_zones import zone_rules
from tests.support.releasing import ONLY_PAGES, SHOP, plan

BERLIN = "Europe/Berlin"
DAY, HOUR = 86_400_000, 3_600_000
WINDOW, PERIOD = "{size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}", "period: 4s"
LOCAL = "{size: 1d, zone: Europe/Berlin}"
MONTHS = "period: 1mo, zone: Europe/Berlin"


def shop(window: str, period: str, *changes: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, (WINDOW, window), (PERIOD, period), *changes)


def faults(window: str, period: str, *changes: tuple[str, str]) -> list[str]:
    text = SHOP
    for old, new in (ONLY_PAGES, (WINDOW, window), (PERIOD, period), *changes):
        text = text.replace(old, new)
    sections, found = read_config(text, {})
    if sections.config is not None:
        with pytest.raises(ConfigError) as raised:
            build_plan(sections.raw)
        found = [*raised.value.faults]
    return [str(fault) for fault in found]


@pytest.mark.parametrize(
    ("window", "period"),
    [
        (LOCAL, MONTHS),
        (LOCAL, "period: 1d, zone: Europe/Berlin"),
        ("{size: 1mo, zone: Europe/Berlin}", "period: 1q, zone: Europe/Berlin"),
        ("{size: 1q, zone: Europe/Berlin}", "period: 1y, zone: Europe/Berlin"),
        ("{size: 1w, zone: Europe/Berlin}", "period: 1w, zone: Europe/Berlin"),
        ("{size: 1mo}", "period: 1y"),
        ("{size: 1w, start: 2024-01-01T00:00:00Z}", "period: 28d, start: 2024-01-01T00:00:00Z"),
        ("{size: 1w}", "period: 7d, start: 2024-01-01T00:00:00Z"),
        ("{size: 1d}", "period: 1mo"),
        ("{size: 1h}", MONTHS),
        ("{size: 2h, step: 1h}", MONTHS),
        ("{size: 15m}", "period: 1mo, zone: Asia/Kolkata"),
        ("{size: 1mo, zone: Europe/Berlin, start: 2024-01-31T23:00:00Z}", "period: 1y, zone: Europe/Berlin"),
        (LOCAL, "period: 1mo, zone: Europe/Berlin, start: 2024-01-31T23:00:00Z"),
    ],
)
def test_windows_that_tile_periods_are_right(window: str, period: str) -> None:
    view = shop(window, period).views["pages"]
    assert view.window.shape.paid.tiles(view.ledger.periods)


REFUSED = [
    (
        "{size: 1w, zone: Europe/Berlin}",
        MONTHS,
        "views.pages.window.size: windows of 1w in Europe/Berlin do not tile the periods of ledger 'visitors', 1mo in "
        "Europe/Berlin: one that is in two periods would be charged to the first alone; give the window size: 1mo and "
        "zone: Europe/Berlin, or ledger 'visitors' period: 1w and zone: Europe/Berlin",
    ),
    ("{size: 1w}", "period: 1mo", "give the window size: 1mo, or ledger 'visitors' period: 1w$"),
    ("{size: 1d}", MONTHS, "give the window size: 1d and zone: Europe/Berlin, or ledger 'visitors' period: 1mo$"),
    (LOCAL, "period: 1mo", "give the window size: 1d, or ledger 'visitors' period: 1mo and zone: Europe/Berlin$"),
    ("{size: 1h}", "period: 1mo, zone: Asia/Kolkata", "give the window size: 1mo and zone: Asia/Kolkata, or"),
    ("{size: 2h, step: 1h}", "period: 1mo, zone: Asia/Kolkata", "give the window step: 30m, or"),
    ("{size: 7d}", MONTHS, "windows of 7d from 1970-01-01T00:00:00Z on do not tile the periods"),
    ("{size: 1mo}", "period: 30d", "windows of 1mo in UTC do not tile the periods of ledger 'visitors', 30d from 1970"),
    ("{size: 60d, step: 1d}", "period: 1mo", "window.size: windows of 60d do not fit into a period of ledger"),
    (LOCAL[:-1] + ", step: 1h}", MONTHS, "window.step: has no meaning for windows that follow a calendar"),
    ("{size: 1w, pane: 1d}", "period: 1w", "window.pane: has no meaning for windows that follow a calendar"),
    ("{size: 12h, zone: Europe/Berlin}", MONTHS, "window.size: with a zone, a length is one of 1d, 1w, 1mo, 1q, 1y; "),
    ("{size: 1h}", "period: 30d, zone: Europe/Berlin", "ledgers.visitors.period: with a zone, a length is one of 1d, "),
    (
        "{size: 1mo, start: 2024-02-02T00:00:00Z}",
        "period: 1mo",
        "window.start: is inside one of 1mo in UTC, by the rules of tzdata [0-9.]+ on this machine; "
        "give start: 2024-02-01T00:00:00Z or 2024-03-01T00:00:00Z",
    ),
    ("{size: 1mo, start: 1969-12-01T00:00:00Z}", "period: 1mo", "window.start: calendars are known from 1970 on"),
    ("{size: 1d, zone: Berlin}", "period: 1mo", "window.zone: no time zone has this name; write Europe/Berlin"),
    ("{size: 3mo}", "period: 1y", "window.size: months, quarters and years have no fixed length"),
    ("{size: 1mo, grace: 1mo}", "period: 1y", "window.grace: months, quarters and years have no fixed length"),
]


@pytest.mark.parametrize(("window", "period", "expected"), REFUSED)
def test_what_does_not_go_together_is_refused_with_what_does(window: str, period: str, expected: str) -> None:
    found = faults(window, period)
    assert len(found) == 1
    assert re.search(expected, found[0]), found[0]


def test_what_is_offered_is_accepted() -> None:
    offered = 0
    for window, period, _ in REFUSED:
        said = faults(window, period)[0]
        for key, former in (("size", window), ("step", window), ("period", period)):
            for size, zone in re.findall(rf"\b{key}: (\w+)(?: and zone: ([\w/]+))?", said.partition("; give ")[2]):
                changed = re.sub(r", zone: [\w/]+", "", former)
                changed = re.sub(rf"{key}: \w+", f"{key}: {size}" + (f", zone: {zone}" if zone else ""), changed)
                shop(*((window, changed) if key == "period" else (changed, period)))
                offered += 1
    assert offered >= 10


def test_totals_of_calendar_windows_are_refused() -> None:
    changes = (("kind: histogram", "kind: running"), ('delta: "1/100"', "catalogue: [home]"))
    assert any("running totals need windows of a fixed size" in one for one in faults("{size: 1mo}", MONTHS, *changes))


def test_the_shape_and_what_follows_from_it() -> None:
    view = shop(LOCAL, MONTHS).views["pages"]
    assert (
        view.window.shape == view.window.shape.released == view.window.shape.paid == Calendar(CalendarUnit.DAY, BERLIN)
    )
    assert view.ledger.periods == Calendar(CalendarUnit.MONTH, BERLIN)
    assert view.window.max_ahead_ms == 25 * HOUR
    assert view.window.kept_ms == view.window.retention_ms


def test_what_a_period_asks_for_at_worst_is_31_days() -> None:
    (ledger,) = describe(shop(LOCAL, MONTHS)).ledgers
    assert (ledger.period, ledger.shares[0].windows_asked, ledger.shares[0].windows_afforded) == (
        "1mo in " + BERLIN,
        31,
        20,
    )
    (ledger,) = describe(shop("{size: 1h}", MONTHS)).ledgers
    assert ledger.shares[0].windows_asked == 31 * 24 + 1, "October"
    (ledger,) = describe(shop(LOCAL, "period: 1y, zone: Europe/Berlin")).ledgers
    assert ledger.shares[0].windows_asked == 366


def test_a_period_that_runs_keeps_and_asks_for_its_own_windows() -> None:
    view = shop(LOCAL, MONTHS).views["pages"]
    cost = view.cost(view.planned_level)
    for at, days in (
        ("2023-02-14", 28),
        ("2024-02-14", 29),
        ("2024-03-14", 31),
        ("2024-10-14", 31),
        ("2024-11-14", 30),
    ):
        period = view.ledger.periods.interval(parse_time(f"{at}T00:00:00Z"))
        assert asked(view, period) == cost * days
        kept = Shares.of(Cost(Fraction(10**6), Fraction(10**6)), period, [view]).kept["pages"]
        assert kept == cost * days


def test_windows_are_explained() -> None:
    (view,) = describe(shop(LOCAL, MONTHS)).views
    assert (view.window, view.step, view.when) == (*["1d in Europe/Berlin"] * 2, "every 1d in Europe/Berlin")
    assert "A window is a day of the calendar of Europe/Berlin, from local midnight on: 23 to 25 hours" in view.hops
    (view,) = describe(shop("{size: 1w}", "period: 1w")).views
    assert "from local midnight on, from Monday on: 168 hours" in view.hops
    assert view.modes == []


def test_what_a_ledger_pays_for_of_windows_that_are_over_is_counted_period_by_period() -> None:
    start = "start: 2024-01-31T23:00:00Z"
    view = shop("{size: 1d, zone: Europe/Berlin, " + start + "}", MONTHS).views["pages"]
    assert [covered(view, count) for count in (20, 29, 30, 29 + 31, 29 + 31 + 1)] == [20, 20, 21, 40, 41]


def test_unit_and_zone_are_part_of_what_a_view_is() -> None:
    windows = [LOCAL, "{size: 1d, zone: Europe/Paris}", "{size: 1w, zone: Europe/Berlin}", "{size: 1d}"]
    own = [window.strip("{}").replace("size", "period") for window in windows]
    prints = [shop(*pair).views["pages"].fingerprint for pair in zip(windows, own, strict=True)]
    assert len({*prints}) == 4


@pytest.fixture
def other_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Germany has the clocks of Great Britain."""
    calendars._table.cache_clear()
    monkeypatch.setattr(calendars, "zone_rules", lambda _: zone_rules("Europe/London"))
    yield
    calendars._table.cache_clear()


@pytest.mark.parametrize("window", [LOCAL, "{size: 1mo, zone: Europe/Berlin}"])
def test_a_worker_with_other_rules_of_the_zone_is_refused(window: str, request: pytest.FixtureRequest) -> None:
    posted = first_record(shop(window, MONTHS), parse_time("2024-03-01T12:00:00Z"))
    assert plan_of(posted, shop(window, MONTHS)).views
    request.getfixturevalue("other_rules")
    with pytest.raises(ConfigError, match=r"the rules of time zone Europe/Berlin differ: this machine has tzdata 20"):
        plan_of(posted, shop(window, MONTHS))


def test_new_settings_hold_from_a_midnight_that_both_have() -> None:
    now = parse_time("2024-03-30T12:00:00Z")
    local, hours = shop(LOCAL, MONTHS), shop("{size: 1h}", MONTHS)
    for before, after, expected in (
        (local, hours, "2024-03-30T23:00:00Z"),
        (hours, local, "2024-03-30T23:00:00Z"),
        (local, shop("{size: 1mo, zone: Europe/Berlin}", MONTHS), "2024-03-31T22:00:00Z"),
    ):
        known = [first_record(before, parse_time("2024-03-01T12:00:00Z"))]
        situation = Situation(now, plan_holding(known, before))
        begins = boundary(after.views["pages"], situation)
        assert begins == parse_time(expected)
        holding = plan_holding([*known, next_record(known, after, {"pages": begins}, {}, now)], after)
        former, latter = (view for view in holding.views.values() if view.view == "pages")
        assert (former.until_ms, latter.begins_ms) == (begins, begins)


def test_settings_without_a_boundary_in_common_are_refused() -> None:
    local, utc = shop(LOCAL, MONTHS), shop("{size: 1d}", "period: 1mo")
    known = [first_record(local, parse_time("2024-03-01T12:00:00Z"))]
    with pytest.raises(ConfigError, match="begins where one under the present ones ends"):
        boundary(utc.views["pages"], Situation(parse_time("2024-03-30T12:00:00Z"), plan_holding(known, local)))


def test_periods_of_a_ledger_that_began_are_intervals_of_its_calendar() -> None:
    view = shop(LOCAL, MONTHS).views["pages"]
    starts = view.window.shape.starts(parse_time("2024-01-31T23:00:00Z"), parse_time("2024-11-30T23:00:00Z"))
    found: dict[Interval, list[int]] = {}
    for start in starts:
        found.setdefault(view.ledger.periods.interval(start), []).append(start)
    numbers: Mapping[Interval, int] = {period: len(windows) for period, windows in found.items()}
    assert [*numbers.values()] == [29, 31, 30, 31, 30, 31, 31, 30, 31, 30]
    assert all(Tiling.of(period).start_of(start) == period.start_ms for period, own in found.items() for start in own)
