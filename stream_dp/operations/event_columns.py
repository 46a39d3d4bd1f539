"""Guesses of the columns of events, by their names and values, and the rows that have no usable time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, tzinfo
from typing import Any

from aiokafka import TopicPartition

from stream_dp.errors import BrokerError, ConfigError
from stream_dp.operations.event_tables import BadRow, Row, json_row
from stream_dp.operations.events_file import FIRST_ROWS, FORMS
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import DAY_MS, parse_time
from stream_dp.windows.events import TimeUnit
from stream_dp.windows.local_times import DEFAULT_ZONE, has_offset, read_zone, text_ms
from stream_dp.windows.outlying_times import MIN_GAP_MS, Outlying, TimeSpread
from stream_dp.windows.plausible_times import PLAUSIBLE_FROM_MS, PlausibleTimes

SAMPLED_ROWS = 2000
_USERS = ("user", "customer", "client", "member", "account", "person", "visitor", "reader", "author", "patient")
_TIMES = ("time", "at", "date", "timestamp", "ts", "when")


@dataclass(slots=True)
class MalformedRows:
    """Rows without a usable time, for one reason.

    Attributes:
        reason: why their times cannot be used.
        rows: number of rows.
        first: numbers of the first of them.
    """

    reason: str
    rows: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Count a row."""
        self.rows += 1
        if len(self.first) < FIRST_ROWS:
            self.first.append(number)


@dataclass(frozen=True, slots=True)
class Guess:
    """Columns of some events, as far as their names and values tell.

    Attributes:
        columns: those with texts or numbers.
        user: column of the user.
        item: column of what is counted.
        time: column of the time; empty where none looks like one.
        times: columns that look like times, each with its form, and the earliest and latest time in ms that is not
            outlying.
        local: columns with times that have no offset from UTC.
        outlying: the outlying times of each time column that has any.
        malformed: for each time column, the rows without a usable time, by reason.
    """

    columns: Sequence[str]
    user: str
    item: str
    time: str
    times: Mapping[str, tuple[TimeUnit, int, int]]
    local: Collection[str] = ()
    outlying: Mapping[str, Sequence[Outlying[int]]] = field(default_factory=dict)
    malformed: Mapping[str, Sequence[MalformedRows]] = field(default_factory=dict)


def guess(rows: Iterable[Row | BadRow], zone: str = DEFAULT_ZONE) -> Guess:
    """Guess the columns of events by their names and values.

    Args:
        rows: of the events.
        zone: time zone of times without an offset from UTC.

    Raises:
        ConfigError: no two columns have texts or numbers.
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in {} if isinstance(row, BadRow) else row.items():
            if not isinstance(value, dict | list):
                values.setdefault(name, []).append(value)
    if len(values) < 2:
        raise ConfigError(
            f"events need a user and an item, and there is {', '.join(map(repr, values)) or 'no row with a field'}. "
            "A CSV separates its columns with commas, semicolons, tabs or | and names them in its first line; JSON "
            "lines have one object per line, with text or numbers in it"
        )
    rules = read_zone(zone)
    forms = {name: form for name, some in values.items() if (form := _time_form(some, rules)) is not None}
    times = {name: (form, *_first_and_last(values[name], form, rules)) for name, form in forms.items()}
    time = _named(times, _TIMES) or next(iter(times), "")
    rest = [name for name in values if name != time]
    user = _named(rest, _USERS) or max(rest, key=lambda name: len({*map(str, values[name])}))
    others = [name for name in rest if name != user]
    texts = [name for name in others if any(isinstance(one, str) and not _is_number(one) for one in values[name])]
    local = [name for name, found in times.items() if found[0] == "iso" and any(map(_is_local, values[name]))]
    return Guess([*values], user, next(iter(texts or others), ""), time, times, local)


async def topic_rows(client: Client, topic: str) -> tuple[list[Row | BadRow], int]:
    """Return the newest records of a topic as rows, and the number of its partitions.

    Raises:
        BrokerError: there is no such topic.
    """
    partitions = await client.partitions(topic)
    if partitions is None:
        raise BrokerError(f"there is no topic {topic}")
    places = [TopicPartition(topic, number) for number in range(partitions)]
    begins = await client.begins(places)
    ends = await client.stable_ends(places)
    each = -(-SAMPLED_ROWS // partitions)
    since = {place: max(begins[place], ends[place] - each) for place in places}
    records = client.follow([topic], until_end=True, since=since, foreign=True)
    rows = [json_row(record.value or b"") async for record in records]
    return rows, partitions


def _named(names: Iterable[str], words: Sequence[str]) -> str:
    """Return the first name that has one of some words in it; the earlier words first."""
    names = list(names)
    return next((name for word in words for name in names if word in name.lower()), "")


def _is_number(value: object) -> bool:
    return str(value).removeprefix("-").replace(".", "", 1).isdecimal()


def _is_local(value: object) -> bool:
    """Return True if a time has no offset from UTC."""
    if isinstance(value, datetime):
        return value.tzinfo is None
    if isinstance(value, date):
        return True
    try:
        return not has_offset(str(value))
    except ValueError:  # one of the few values that are not times
        return False


def _iso_ms(value: object, zone: tzinfo) -> int:
    """Return the time in ms of a text or a cell.

    Raises:
        ValueError: the value is not a time.
    """
    if isinstance(value, date):
        return text_ms(value.isoformat(), zone)
    if isinstance(value, str):
        return text_ms(value, zone)
    raise ValueError("no time")


_READ: Mapping[TimeUnit, Callable[[Any, tzinfo], int]] = {
    "iso": _iso_ms,
    "s": lambda value, _: int(value) * 1000,
    "ms": lambda value, _: int(value),
}
_PLAUSIBLE_MS = range(PLAUSIBLE_FROM_MS, parse_time("2100-01-01T00:00:00Z"))
_MOST_PERCENT = 90
"""Share of a column's values that must be times in one form; the others count as mistakes."""


def _moment_ms(value: object, form: TimeUnit, zone: tzinfo) -> int | None:
    """Return a value as a time in ms; None if it is not a time in this form."""
    if isinstance(value, bool | float):
        return None
    try:
        return _READ[form](value, zone)
    except (ValueError, TypeError):
        return None


def _time_form(values: Sequence[Any], zone: tzinfo) -> TimeUnit | None:
    """Return the form in which nearly all values are plausible times; None if there is none."""
    for form in FORMS:
        moments = [_moment_ms(value, form, zone) for value in values]
        times = sum(moment is not None and moment in _PLAUSIBLE_MS for moment in moments)
        if times and 100 * times >= _MOST_PERCENT * len(values):
            return form
    return None


def _first_and_last(values: Iterable[Any], form: TimeUnit, zone: tzinfo) -> tuple[int, int]:
    """Return the earliest and the latest plausible time in a form; at least one value must have one."""
    moments = [_moment_ms(value, form, zone) for value in values]
    times = [moment for moment in moments if moment is not None and moment in _PLAUSIBLE_MS]
    return min(times), max(times)


def without_outliers(found: Guess, rows: Iterable[Row | BadRow], now_ms: int, zone: str = DEFAULT_ZONE) -> Guess:
    """Return a guess whose earliest and latest times are those of the bulk of the events, with the rows that differ.

    Args:
        found: the guess from some of the rows.
        rows: all rows, read once.
        now_ms: the clock of this machine.
        zone: time zone of times without an offset from UTC.
    """
    rules = read_zone(zone)
    plausible = PlausibleTimes.of([], [DAY_MS])  # at most the default of `max_ahead`
    spreads = {name: TimeSpread[int](plausible, now_ms, MIN_GAP_MS) for name in found.times}
    malformed: dict[str, dict[str, MalformedRows]] = {name: {} for name in found.times}
    for number, row in enumerate(rows, start=1):
        for name, (form, *_) in found.times.items():
            value = None if isinstance(row, BadRow) else row.get(name)
            moment = _moment_ms(value, form, rules)
            if moment is not None:
                spreads[name].add([number], [moment])
                continue
            reason = row.cause if isinstance(row, BadRow) else _why_no_time(value, form)
            malformed[name].setdefault(reason, MalformedRows(reason)).add(number)
    times = dict(found.times)
    outlying: dict[str, Sequence[Outlying[int]]] = {}
    for name, spread in spreads.items():
        if (bulk := spread.bulk) is not None:
            times[name] = (found.times[name][0], bulk.first_ms, bulk.last_ms)
            outlying[name] = spread.outlying()
    by_column = {name: [*reasons.values()] for name, reasons in malformed.items()}
    return replace(found, times=times, outlying=outlying, malformed=by_column)


def _why_no_time(value: object, form: TimeUnit) -> str:
    """Return why a value is not a time in a form."""
    if value is None or value == "":
        return "the time is missing"
    if isinstance(value, float):
        return "the time is a number with a fraction"
    return f"the time is not {_FORM_WORDS[form]}"


_FORM_WORDS: Mapping[TimeUnit, str] = {
    "iso": "ISO 8601 text",
    "s": "a whole number of seconds since 1970",
    "ms": "a whole number of milliseconds since 1970",
}
