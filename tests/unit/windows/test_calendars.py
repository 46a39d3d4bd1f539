"""Calendar windows against the local dates of time zones, and against what is known of some of them."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows.durations import CalendarUnit, format_time, parse_time
from stream_dp.windows.shapes import calendars
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.time_zones import check_zone, zone_rules
from tests.support.chosen import examples, spread
from tests.unit.windows.test_every_shape import DAY, HOUR, ZONES

BERLIN = "Europe/Berlin"
KNOWN = st.integers(parse_time("1970-01-02T00:00:00Z"), parse_time("2099-12-29T00:00:00Z"))
MANY = (
    *ZONES,
    "Africa/Cairo",
    "Africa/Casablanca",  # summer time ends for Ramadan
    "Africa/Monrovia",
    "America/Caracas",
    "America/Havana",
    "America/New_York",
    "America/Scoresbysund",
    "Antarctica/Troll",  # two hours
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Europe/Dublin",
    "Europe/London",
    "Europe/Moscow",
    "Pacific/Chatham",
    "Pacific/Kwajalein",  # 21 August 1993 is missing
    "Pacific/Kiritimati",
)


def local(time_ms: int, zone: str) -> date:
    """What clocks show, by the library, from the same rules."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).astimezone(zone_rules(zone)).date()


def first_date(unit: CalendarUnit, day: date) -> date:
    """The first date of the interval that a date is in."""
    match unit:
        case CalendarUnit.DAY:
            return day
        case CalendarUnit.WEEK:
            return day - timedelta(days=day.weekday())
        case CalendarUnit.MONTH:
            return day.replace(day=1)
        case CalendarUnit.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    return day.replace(month=1, day=1)


@examples(
    30,
    100,
    given(st.sampled_from(CalendarUnit), st.sampled_from(["UTC", BERLIN, "America/Sao_Paulo", "Asia/Kolkata"]), KNOWN),
)
def test_a_moment_is_in_the_interval_of_its_local_date(unit: CalendarUnit, zone: str, moment: int) -> None:
    """In zones whose clocks were never set back over midnight since 1970."""
    found = Calendar(unit, zone).interval(moment)
    first = first_date(unit, local(moment, zone))
    assert first_date(unit, local(found.start_ms, zone)) == first
    assert first_date(unit, local(found.end_ms - 1, zone)) == first
    assert local(found.start_ms - 1, zone) < first <= local(found.start_ms, zone)
    assert first_date(unit, local(found.end_ms, zone)) > first


@examples(30, 100, given(st.sampled_from(CalendarUnit), st.sampled_from(MANY), KNOWN))
def test_an_interval_begins_when_clocks_first_show_its_first_date_or_a_later_one(
    unit: CalendarUnit, zone: str, moment: int
) -> None:
    start = Calendar(unit, zone).start_of(moment)
    shown = local(start, zone)
    first = shown if unit is CalendarUnit.DAY else first_date(unit, shown)
    assert all(local(start - back, zone) < first for back in (1, HOUR, DAY))
    if shown != first:  # the zone never had its first dates
        assert local(start - 1, zone) < first


@pytest.mark.parametrize(
    ("unit", "zone", "start", "hours"),
    [
        ("1d", BERLIN, "2024-03-30T23:00:00Z", 23),
        ("1d", BERLIN, "2024-10-26T22:00:00Z", 25),
        ("1d", BERLIN, "2024-02-28T23:00:00Z", 24),
        ("1mo", BERLIN, "2024-01-31T23:00:00Z", 29 * 24),
        ("1mo", BERLIN, "2023-01-31T23:00:00Z", 28 * 24),
        ("1mo", BERLIN, "2024-02-29T23:00:00Z", 31 * 24 - 1),
        ("1mo", BERLIN, "2024-09-30T22:00:00Z", 31 * 24 + 1),
        ("1q", BERLIN, "2023-12-31T23:00:00Z", 91 * 24 - 1),
        ("1y", BERLIN, "2023-12-31T23:00:00Z", 366 * 24),
        ("1w", BERLIN, "2024-03-24T23:00:00Z", 7 * 24 - 1),
        ("1w", "UTC", "2024-01-01T00:00:00Z", 7 * 24),
        ("1d", "America/Sao_Paulo", "2018-11-04T03:00:00Z", 23),  # from 1:00 on
        ("1d", "Pacific/Apia", "2011-12-29T10:00:00Z", 24),
        ("1d", "Pacific/Apia", "2011-12-30T10:00:00Z", 24),  # the 31st
        ("1d", "Australia/Lord_Howe", "2024-04-06T13:00:00Z", None),
        ("1mo", "UTC", "2100-02-01T00:00:00Z", 28 * 24),
        ("1y", "UTC", "2400-01-01T00:00:00Z", 366 * 24),
        ("1y", "UTC", "1600-01-01T00:00:00Z", 366 * 24),
    ],
)
def test_intervals_are_as_long_as_clocks_say(unit: str, zone: str, start: str, hours: int | None) -> None:
    shape, start_ms = Calendar(CalendarUnit(unit), zone), parse_time(start)
    found = shape.interval(start_ms)
    assert found.start_ms == start_ms, format_time(found.start_ms)
    assert found.length_ms == (24 * HOUR + HOUR // 2 if hours is None else hours * HOUR)


@pytest.mark.parametrize("zone", spread(5, MANY))
def test_the_longest_month_quarter_and_year_have_the_most_days(zone: str) -> None:
    """So what the longest period asks for is the most that any period does."""
    days = Calendar(CalendarUnit.DAY, zone)
    for unit in (CalendarUnit.MONTH, CalendarUnit.QUARTER, CalendarUnit.YEAR):
        shape = Calendar(unit, zone)
        starts = shape.changing
        numbers = [days.begun(start, shape.end(start)) for start in starts]
        assert max(numbers) == days.whole_in(shape.longest)
        assert max(shape.end(start) - start for start in starts) == shape.longest.length_ms
        assert min(shape.end(start) - start for start in starts) == shape.shortest_ms


def test_which_units_tile_which() -> None:
    def tiles(unit: CalendarUnit, other: CalendarUnit, zone: str = BERLIN) -> bool:
        return Calendar(unit, BERLIN).tiles(Calendar(other, zone))

    day, week, month, quarter, year = CalendarUnit
    assert [[tiles(one, other) for other in CalendarUnit] for one in CalendarUnit] == [
        [True, True, True, True, True],
        [False, True, False, False, False],
        [False, False, True, True, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
    ]
    assert not any(tiles(one, other, "UTC") for one in (day, week, month) for other in (month, quarter, year))


def test_rules_are_those_of_the_package_whatever_the_machine_has(tmp_path: Path) -> None:
    other = tmp_path / "Europe" / "Berlin"
    other.parent.mkdir()
    other.write_bytes(files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes())
    former = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    try:
        zoneinfo.ZoneInfo.clear_cache()
        machine, ours = zoneinfo.ZoneInfo(BERLIN), zone_rules(BERLIN)
    finally:
        zoneinfo.reset_tzpath(former)
        zoneinfo.ZoneInfo.clear_cache()
    winter = datetime(2024, 1, 1)
    assert (machine.utcoffset(winter), ours.utcoffset(winter)) == (timedelta(hours=9), timedelta(hours=1))


def test_other_rules_are_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    identities = {}
    for zone in (BERLIN, "Europe/Paris", "Europe/London"):
        calendars._table.cache_clear()
        monkeypatch.setattr(calendars, "zone_rules", lambda _, zone=zone: zone_rules(zone))
        identities[zone] = tuple(Calendar(CalendarUnit.DAY, BERLIN).identity)
    calendars._table.cache_clear()
    assert len({*identities.values()}) == 3
    assert {identity[:3] for identity in identities.values()} == {("calendar", "1d", BERLIN)}


def test_a_zone_that_there_is_not_is_refused_with_one_that_is_meant() -> None:
    assert check_zone("Europe/Berlin") == BERLIN
    with pytest.raises(ValueError, match="write Europe/Berlin"):
        check_zone("Germany/berlin")
    with pytest.raises(ValueError, match="write an IANA time zone"):
        check_zone("../Europe/Berlin/x")
