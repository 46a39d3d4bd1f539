"""A first configuration, written from answers that a newcomer can give: who, what, when, how often, which promise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from aiokafka import TopicPartition

from stream_dp.config.planner import build_plan
from stream_dp.config.yaml_data import parse_yaml
from stream_dp.errors import BrokerError, ConfigError
from stream_dp.exact.rationals import decimal_down
from stream_dp.operations.events_file import FORMS, Row
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import DAY_MS, format_time, parse_duration, parse_time
from stream_dp.windows.events import TimeUnit

SAMPLED_ROWS = 2000
_USERS = ("user", "customer", "client", "member", "account", "person", "visitor", "reader", "author", "patient")
_TIMES = ("time", "at", "date", "timestamp", "ts", "when")
_PERIODS = ("4w", "1d", "30d", "52w")
"""Periods that are offered, the usual one first."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Columns of some events, as far as their names and values tell.

    Attributes:
        columns: all of them.
        user: column of the user; empty where the record key is the user.
        item: column of what is counted.
        time: column of the time; empty where it is the record's own.
        time_unit: form of the time.
        first_ms: the earliest time that was seen.
        last_ms: the latest one.
    """

    columns: Sequence[str]
    user: str
    item: str
    time: str
    time_unit: TimeUnit
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers that a first configuration is made from.

    Attributes:
        name: of the application.
        broker: address of the cluster.
        topic: of the source.
        partitions: of it.
        user: field of the user; empty: the record key.
        item: field that is counted.
        time: field of the time; empty: the record's own.
        time_unit: form of the time.
        population: who is protected, in words.
        window: length of a window.
        period: for how long the promise is.
        epsilon: promised to each user in each period.
        delta: promised as well.
        items_per_user: items of one user that count in a window.
        start_ms: start of the first window and of a period; None where time begins with the first worker.
        is_history: the events are past ones, so windows follow the times in them.
    """

    name: str
    broker: str
    topic: str
    partitions: int
    user: str
    item: str
    time: str
    time_unit: TimeUnit
    population: str
    window: str
    period: str
    epsilon: str
    delta: str
    items_per_user: int
    start_ms: int | None
    is_history: bool


def guess(rows: Iterable[Row | None]) -> Guess:
    """Guess the columns of events by their names and values.

    Raises:
        ConfigError: no row has a field.
    """
    values: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in (row or {}).items():
            values.setdefault(name, []).append(value)
    if not values:
        raise ConfigError("there are no events to look at: the file or the topic has no row with named fields")
    times = {name: form for name, some in values.items() if (form := _form(some)) is not None}
    time = _named(times, _TIMES) or next(iter(times), "")
    rest = [name for name in values if name != time]
    user = _named(rest, _USERS) or max(rest, key=lambda name: len({*map(str, values[name])}), default="")
    others = [name for name in rest if name != user]
    texts = [name for name in others if any(isinstance(one, str) and not _is_number(one) for one in values[name])]
    item = next(iter(texts or others), user)
    unit: TimeUnit = times.get(time, "ms")
    seen = [_READ[unit](one) for one in values.get(time, ())] if time else []
    now_ms = wall_clock_ms()
    return Guess([*values], user, item, time, unit, min(seen, default=now_ms), max(seen, default=now_ms))


async def topic_rows(client: Client, topic: str) -> tuple[list[Row | None], int]:
    """Return the newest records of a topic as rows, and the number of its partitions.

    Raises:
        BrokerError: there is no such topic.
    """
    partitions = await client.partitions(topic)
    if partitions is None:
        raise BrokerError(f"there is no topic {topic}")
    places = [TopicPartition(topic, number) for number in range(partitions)]
    begins, ends = await client.begins(places), await client.ends(places)
    each = -(-SAMPLED_ROWS // partitions)
    since = {place: max(begins[place], ends[place] - each) for place in places}
    rows = [_row(record.value) async for record in client.follow([topic], until_end=True, since=since)]
    return rows, partitions


def _row(value: bytes | None) -> Row | None:
    try:
        found = json.loads(value or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _named(names: Iterable[str], words: Sequence[str]) -> str:
    """Return the first name that has one of some words in it; the earlier words first."""
    names = list(names)
    return next((name for word in words for name in names if word in name.lower()), "")


def _is_number(value: object) -> bool:
    return str(value).removeprefix("-").replace(".", "", 1).isdecimal()


_READ: Mapping[TimeUnit, Callable[[Any], int]] = {
    "iso": lambda value: parse_time(value if "T" in value else f"{value}T00:00:00Z"),
    "s": lambda value: int(value) * 1000,
    "ms": int,
}
_PLAUSIBLE_MS = range(parse_time("1990-01-01T00:00:00Z"), parse_time("2100-01-01T00:00:00Z"))


def _form(values: Sequence[Any]) -> TimeUnit | None:
    """Return the form of times that all values have, None if they are no times."""

    def holds(unit: TimeUnit) -> bool:
        try:
            return all(not isinstance(one, bool | float) and _READ[unit](one) in _PLAUSIBLE_MS for one in values)
        except (ValueError, TypeError):
            return False

    return next(filter(holds, FORMS), None)


def usual_window(found: Guess) -> str:
    """Return a length of windows of which the events fill some: a day, or an hour or a week."""
    days = (found.last_ms - found.first_ms) // DAY_MS
    return "1h" if days < 2 else "1d" if days < 28 else "1w"


def usual_period(window: str) -> str:
    """Return a period that such windows tile."""
    length = parse_duration(window)
    return next((one for one in _PERIODS if parse_duration(one) % length == 0), window)


def first_file(answers: Answers) -> str:
    """Return a configuration with comments: a histogram whose levels are shares of what the promise affords.

    The budget is a pool in zCDP where that affords less noise for every window of a period, else its epsilons add up.

    Raises:
        ConfigError: an answer is wrong, or the promise affords no window.
    """
    windows = parse_duration(answers.period) // max(1, parse_duration(answers.window))
    delta = _exact(answers.delta, "delta")
    texts = []
    for slack in (Fraction(0), Fraction(decimal_down(delta / 2, 1))):
        each = decimal_down((delta - slack) / max(1, windows), 1)
        texts.append(_text(answers, each, decimal_down(slack, 1) if slack else "", windows))
    affordable: list[tuple[Fraction, str]] = []
    faults: list[ConfigError] = []
    for text in texts:
        try:
            (view,) = build_plan(parse_yaml(text)[0]).views.values()
            affordable.append((view.affords or Fraction(0), text))
        except ConfigError as error:
            faults.append(error)
    if not affordable:
        raise faults[0]
    return max(affordable, key=lambda one: one[0])[1]


def _exact(text: str, what: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{what} {text!r} is no number; write one as 1e-6 or 1/4") from None


def _text(answers: Answers, delta: str, slack: str, windows: int) -> str:
    """Return the file; texts are written as JSON, which YAML is a superset of."""
    a, quote = answers, json.dumps
    user = f", user: {quote(a.user)}" if a.user else ""
    time = f", time: {{field: {quote(a.time)}, unit: {a.time_unit}}}" if a.time else ""
    start = "" if a.start_ms is None else f", start: {format_time(a.start_ms)}"
    period_start = start.replace(", ", "\n    ")
    pool = f"\n    zcdp: {{epsilon: {quote(a.epsilon)}, slack: {quote(slack)}}}" if slack else ""
    why_pool = (
        "\n    # In this pool the cost of many windows adds up to less than its sum, but for a chance of `slack`."
        if slack
        else ""
    )
    clock = (
        ", clock: event, idle: 36500d}  # past events: windows follow the times in them\n    retention: 36500d"
        if a.is_history
        else "}"
    )
    return f"""\
# {a.name}: counts of {a.item} by {a.population}, with differential privacy. Written by `stream-dp init`.
# Check it: stream-dp check FILE. All keys: docs/configuration.md.
name: {quote(a.name)}
broker: {quote(a.broker)}
data_dir: state  # counts on their way; keep it private
key_file: {quote(a.name + ".key")}  # made at the first start; keep it private

sources:
  events: {{topic: {quote(a.topic)}, partitions: {a.partitions}{user}{time}}}

# The promise: whatever is released in {a.period}, to everybody together, costs one of the {a.population} at most this.
# A smaller epsilon protects better and means more noise.
ledgers:
  promise:
    population: {quote(a.population)}
    epsilon: {quote(a.epsilon)}
    delta: {quote(a.delta)}
    period: {a.period}{period_start}{why_pool}{pool}

# Levels of noise, coarse to fine: shares of the epsilon that the promise affords for each of {windows} windows.
ladders:
  levels:
    - {{level: overview, share: "1/4"}}
    - {{level: detailed, share: "1"}}

# Who reads, and from which level on. Each audience has a topic of its own.
audiences:
  public: overview
  team: detailed

views:
  counts:
    source: events
    kind: histogram  # every {a.item} with enough users; others: docs/kinds.md
    item: {quote(a.item)}
    items_per_user: {a.items_per_user}  # of one user and window; more count more and add noise: see `stream-dp plan`
    window: {{size: {a.window}{start}{clock}
    delta: {quote(delta)}  # a window's chance to show something that one user alone had
    ledger: promise
    ladder: levels
"""
