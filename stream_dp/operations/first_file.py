"""A first configuration, written from answers that a newcomer can give: who, what, when, how often, which promise."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from stream_dp.config.crosschecks import shape_of
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.config.shares import windows_in
from stream_dp.config.yaml_data import parse_yaml
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_down, exact_text, parse_exact
from stream_dp.kinds.noise_levels import GAUSSIAN, LAPLACE, TRUNCATED
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_counts import EventColumns
from stream_dp.operations.past_events import open_past_events
from stream_dp.operations.what_if import Point, Subject, what_if
from stream_dp.runtime.construction import construct_file
from stream_dp.windows.durations import (
    DAY_MS,
    CalendarUnit,
    format_time,
    parse_duration,
    parse_length,
    parse_time,
)
from stream_dp.windows.events import TimeUnit
from stream_dp.windows.local_times import DEFAULT_ZONE
from stream_dp.windows.shapes.shape import Settings

_KEEP = 4
"""Windows whose keys are counted."""
_KEPT = "}\n    retention: 1830d  # the list has nothing of a window that is retained no longer"
_MONDAY_MS = parse_time("2024-01-01T00:00:00Z")
_PERIODS = ("4w", "1d", "30d", "52w")
"""Periods that are offered, the usual one first."""


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
        zone: time zone of times without an offset from UTC.
        window_zone: time zone in whose days and weeks windows begin.
        population: who is protected, in words.
        window: length of a window.
        period: for how long the promise is.
        epsilon: promised to each user in each period.
        delta: promised as well.
        items_per_user: items of one user that count in a window.
        windows_per_user: windows of a period that a user counts in; None: all.
        one_level: whether all readers have the same noise.
        first_ms: of past events the earliest time: windows follow the times in them; None: they begin with the worker.
        last_ms: of past events the latest time.
        has_outliers: whether some events have outlying times.
        has_malformed: whether some rows have no usable time.
    """

    name: str
    broker: str
    topic: str
    partitions: int
    user: str = ""
    item: str = ""
    time: str = ""
    time_unit: TimeUnit = "ms"
    zone: str = DEFAULT_ZONE
    window_zone: str = DEFAULT_ZONE
    population: str = ""
    window: str = ""
    period: str = ""
    epsilon: str = "1"
    delta: str = "1e-6"
    items_per_user: int = 3
    windows_per_user: int | None = None
    one_level: bool = False
    first_ms: int | None = None
    last_ms: int | None = None
    has_outliers: bool = False
    has_malformed: bool = False


def _length(text: str) -> int | CalendarUnit | None:
    with suppress(ValueError):
        return parse_length(text)
    return None


def usual_window(first_ms: int, last_ms: int) -> str:
    """Return a length of windows of which the events fill some: a day, or an hour or a week."""
    days = (last_ms - first_ms) // DAY_MS
    return "1h" if days < 2 else "1d" if days < 28 else "1w"


def usual_period(window: str, zone: str = DEFAULT_ZONE) -> str:
    """Return a period that windows of a size tile; days of a zone other than UTC tile its months."""
    if window == CalendarUnit.DAY and zone != DEFAULT_ZONE:
        return CalendarUnit.MONTH.value
    length = _length(window)
    if isinstance(length, CalendarUnit):
        return _PERIODS[0] if length is CalendarUnit.WEEK else "1y"
    return next((one for one in _PERIODS if parse_duration(one) % (length or 1) == 0), window)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Windows and periods as the file writes them.

    Attributes:
        zone: the zone of their calendar; empty: none is named.
        start_ms: start of the first; None: none is written.
        in_days: whether a week is written as seven days, because it begins where `start_ms` says.
    """

    zone: str = ""
    start_ms: int | None = None
    in_days: bool = False

    def size(self, length: str) -> str:
        """Return a length as the file writes it."""
        return "7d" if self.in_days and length == CalendarUnit.WEEK else length


def _choose_grid(answers: Answers, finds: str = "") -> _Grid:
    """Return where windows and periods begin: at or before the first event, in the zone of the windows if possible."""
    lengths = [answers.window, answers.period, *([finds] if finds else [])]
    units = [CalendarUnit(length) for length in lengths if length in [*CalendarUnit]]
    calendar = _calendar_windows(answers.window_zone, answers, finds)
    if calendar is not None:
        start_ms = None if answers.first_ms is None else shape_of(calendar).start_of(answers.first_ms)
        return _Grid(answers.window_zone, start_ms)
    if answers.window_zone != DEFAULT_ZONE and all(unit in (CalendarUnit.DAY, CalendarUnit.WEEK) for unit in units):
        has_weeks = any(length.endswith("w") for length in lengths)
        unit = CalendarUnit.WEEK if has_weeks else CalendarUnit.DAY
        days = shape_of(Settings(unit, zone=answers.window_zone))
        return _Grid(start_ms=days.start_of(answers.first_ms or _MONDAY_MS + DAY_MS), in_days=True)
    if answers.first_ms is None:
        return _Grid()
    found = (_length(length) for length in (answers.window, answers.period))
    calendar_unit = next((length for length in found if isinstance(length, CalendarUnit)), None)
    if calendar_unit is None:
        return _Grid(start_ms=answers.first_ms - answers.first_ms % DAY_MS)
    return _Grid(start_ms=shape_of(Settings(calendar_unit)).start_of(answers.first_ms))


def _calendar_windows(zone: str, answers: Answers, finds: str) -> Settings | None:
    """Return the windows in the calendar of a zone other than UTC; None if they or the periods do not follow one."""
    lengths = [answers.window, answers.period, *([finds] if finds else [])]
    if zone == DEFAULT_ZONE or not all(length in [*CalendarUnit] for length in lengths):
        return None
    windows = Settings(CalendarUnit(answers.window), zone=zone)
    period = shape_of(Settings(CalendarUnit(answers.period), zone=zone))
    found = windows if not finds else Settings(CalendarUnit(finds), zone=zone)
    return windows if shape_of(windows).tiles(period) and shape_of(found).tiles(period) else None


def zone_note(answers: Answers) -> str:
    """Return a note on where windows begin if they do not follow the clocks of the requested zone; empty if they do."""
    zone = answers.window_zone
    if zone == DEFAULT_ZONE or _calendar_windows(zone, answers, "") is not None:
        return ""
    grid = _choose_grid(answers)
    week = shape_of(Settings(CalendarUnit.WEEK, zone=zone))
    if grid.start_ms is not None and grid.in_days and week.shortest_ms == week.longest_ms:
        return ""
    remedy = "For windows of local days and weeks, use --window 1d --period 1mo, or --window 1w --period 1w."
    if not grid.in_days:
        return f"Windows of {answers.window} in periods of {answers.period} begin in UTC, not in {zone}. {remedy}"
    return (
        f"The first window begins at local midnight in {zone}. Windows have a fixed length, so after the clocks change "
        f"they begin at another local time. {remedy}"
    )


def first_file(answers: Answers, finds: str = "") -> tuple[str, Plan]:
    """Return a configuration with comments: a histogram whose levels are shares of what the promise affords.

    The budget is a pool in zCDP where that shows keys of fewer users in every window of a period; else its epsilons add
    up. The noise is that which shows keys of the fewest users.

    Args:
        answers: the answers.
        finds: length of the windows of a further histogram: with it the view is a catalogue of the keys that were
            found, at half of the budget; without, there is one view.

    Returns:
        The text, and its plan.

    Raises:
        ConfigError: an answer is wrong, or the promise affords no window.
    """
    if answers.window == "1w" and answers.period in _IN_WEEKS:
        weeks = _IN_WEEKS[answers.period]
        raise ConfigError(f"weeks do not fill {answers.period}: one would be in two periods. Give {weeks}", "--period")
    epsilon, delta = (_exact(getattr(answers, name), name) for name in ("epsilon", "delta"))
    if delta >= 1:
        raise ConfigError(f"a delta above 0 and below 1 is needed, not {answers.delta}")
    text = _text(answers, decimal_down(delta / 10**9, 1), None, 0, finds=finds)
    trial = next(iter(build_plan(parse_yaml(text)[0]).views.values()))
    windows = trial.most_paid(windows_in(trial, trial.ledger.periods.longest))
    affordable: list[tuple[int, str, Plan]] = []
    faults: list[ConfigError] = []
    slack = Fraction(decimal_down(delta / 2, 1))
    pool = exact_text(epsilon * Fraction(9999, 10_000)), decimal_down(slack, 1)
    ending = [(None, TRUNCATED)] if answers.one_level else []
    for budget, noise in ((None, LAPLACE), *ending, (pool, LAPLACE), (pool, GAUSSIAN)):
        each = decimal_down((delta - (slack if budget else 0)) / max(1, windows) / (2 if finds else 1), 1)
        text = _text(answers, each, budget, windows, noise, finds)
        try:
            plan = build_plan(parse_yaml(text)[0])
            construct_file(plan)
            affordable.append((next(iter(plan.views.values())).kind.least_shown(-1) or 0, text, plan))
        except ConfigError as error:
            faults.append(error)
    if not affordable:
        raise faults[0]
    _, text, plan = min(affordable, key=lambda one: one[0])
    return text, plan


_IN_WEEKS = {"1mo": "4w", "1q": "13w", "1y": "52w"}


def best_pair(answers: Answers, alone: Plan, events: Path | None) -> tuple[str, Plan, str]:
    """Return a configuration with a view that finds keys rarely and one that counts them often.

    Of past events it is that with most useful counts; without, keys are found once in a period.

    Returns:
        The text, its plan, and why it is clearly better than one view alone; nothing if it is not.

    Raises:
        ConfigError: the promise affords no such pair.
    """
    pairs = {answers.period: first_file(answers, answers.period)}
    text, plan = pairs[answers.period]
    if events is None:
        return text, plan, ""
    for finds in _FINDS:
        with suppress(ConfigError):
            pairs[finds] = pairs.get(finds) or first_file(answers, finds)
    columns = EventColumns(plan.views["counts"], [*plan.views])
    options = FeedOptions(skip_bad=True, unchecked_data=True, drop_outliers=True)
    until_ms = open_past_events(plan, events, options, None, columns.take).until_ms

    def point(plan: Plan) -> Point:
        return next(what_if(Subject(plan, "counts", plan.audiences[-1], until_ms), columns, [{}]))

    points = {finds: point(plan) for finds, (_, plan) in pairs.items()}
    finds, two = max(points.items(), key=lambda found: found[1].useful or 0)
    before, useful, shown = point(alone).useful or 0, two.useful or 0, (two.true_keys or 0) + (two.false_keys or 0)
    words = (
        f"One view would show about {before:.1f} counts a window that are right within 50 %, two views {useful:.1f}: "
        f"one finds keys, once in {finds}, the other counts them every {answers.window}. (Computed from raw data: do "
        "not publish.)"
    )
    text, plan = pairs[finds]
    return text, plan, words if useful >= max(1, _CLEARLY * before, _LEAST_USEFUL * shown) else ""


_FINDS = ("1y", "1q", "1mo", "13w", "4w", "1w", "1d")
_CLEARLY, _LEAST_USEFUL = 1.5, 0.25
"""A pair is better with so many times the useful counts, if they are so large a part of what it shows."""


def _exact(text: str, what: str) -> Fraction:
    with suppress(ValueError):
        found = parse_exact(text)
        if found > 0:
            return found
    raise ConfigError(f"{what} {text!r} is no number above 0; write one as 1e-6 or 1/4")


def _text(
    answers: Answers, delta: str, pool: tuple[str, str] | None, windows: int, noise: str = LAPLACE, finds: str = ""
) -> str:
    """Return the file; texts are written as JSON, which YAML is a superset of."""
    a, quote = answers, json.dumps
    item, population = (" ".join(one.split()) for one in (a.item, a.population))  # in comments
    user = f", user: {quote(a.user)}" if a.user else ""
    zone = "" if a.zone == DEFAULT_ZONE else f", zone: {a.zone}"
    time = f", time: {{field: {quote(a.time)}, unit: {a.time_unit}{zone}}}" if a.time else ""
    grid = _choose_grid(a, finds)
    size = grid.size(a.window)
    period = grid.size(a.period)
    start = "" if grid.start_ms is None else f", start: {format_time(grid.start_ms)}"
    monday = f", start: {format_time(_MONDAY_MS)}" if isinstance(_length(size), CalendarUnit) else ""
    follows = bool(grid.zone) or isinstance(_length(period), CalendarUnit)
    period_start = "" if follows else (start or monday).replace(", ", "\n    ")
    window_zone = f", zone: {grid.zone}" if grid.zone else ""
    period_zone = window_zone.replace(", ", "\n    ")
    budget = (
        ""
        if pool is None
        else f"""
    # In this pool the cost of many windows adds up to less than its sum, but for a chance of `slack`. The rest of
    # epsilon is for selections, should you add a topk.
    zcdp: {{epsilon: {quote(pool[0])}, slack: {quote(pool[1])}}}"""
    )
    few = (
        "# windows_per_user: 10  # then a user counts in so many windows of a period only, and each may cost more"
        if a.windows_per_user is None
        else f"windows_per_user: {a.windows_per_user}  # of a period: what a user adds to further ones is dropped"
    )
    where = "in a pool" if noise == GAUSSIAN else "with one level and no pool"
    fits = f"# {where}, {noise} shows keys of fewer users than {LAPLACE}"
    fitting = "" if noise == LAPLACE else f"\n    noise: {noise}  {fits}"
    counted = "" if a.windows_per_user is None else " that a user counts in"
    clock = (
        ", clock: event, idle: 36500d}  # past events: windows follow the times in them\n    retention: 36500d"
        if a.first_ms is not None
        else "}"
    )
    histogram = f"histogram  # every {item} with enough users; others: docs/kinds.md{fitting}"
    more = "more count more and add noise: see `stream-dp plan`"
    bounds = f"items_per_user: {a.items_per_user}  # of one user and window; {more}"
    discovery = f"delta: {quote(delta)}  # a window's chance to show something that one user alone had"
    overview = '\n    - {level: overview, share: "1/4"}'
    coarse, first = ("", "detailed") if a.one_level or finds else (overview, "overview")
    readers = f"public: {first}" + ("" if finds else "\n  team: detailed")
    each, found = f"each of\n# {windows} windows a period{counted}.", ""
    if finds:
        each = "every\n# window of a view, within the share of that view."
        found = f"""
  found:  # finds what there is to count, once in {finds}
    source: events
    kind: {histogram}
    item: {quote(a.item)}
    {bounds}
    share: 1/2  # of the promise; `stream-dp plan --grid split=1/4,1/2` says what another part would show
    window: {{size: {grid.size(finds)}{window_zone}{start}{_KEPT if a.first_ms is None else clock}
    {discovery}
    ledger: promise
    ladder: levels"""
        histogram = f"catalogue  # a count for every {item} that was shown of `found`, without a threshold{fitting}"
        discovery = f"share: 1/2\n    catalogue: {{from: found, audience: public, keep: {_KEEP}}}  # its newest windows"
    return f"""\
# Counts of {item} by {population}, with differential privacy. Written by `stream-dp init`.
# Check it: stream-dp check FILE. All keys: docs/configuration.md.
name: {quote(a.name)}
broker: {quote(a.broker)}
data_dir: state  # counts on their way; keep it private
key_file: {quote(a.name + ".key")}  # made at the first start; keep it private

sources:
  events: {{topic: {quote(a.topic)}, partitions: {a.partitions}{user}{time}}}

# The promise: whatever is released in {a.period}, to everybody together, costs one of the {population} at most this.
# A smaller epsilon protects better and means more noise.
ledgers:
  promise:
    population: {quote(a.population)}
    epsilon: {quote(a.epsilon)}
    delta: {quote(a.delta)}
    period: {period}{period_zone}{period_start}{budget}

# Levels of noise, coarse to fine: shares of the epsilon that the promise affords for {each}
ladders:
  levels:{coarse}
    - {{level: detailed, share: "1"}}

# Who reads, and from which level on. Each audience has a topic of its own.
audiences:
  {readers}

views:{found}
  counts:
    source: events
    kind: {histogram}
    item: {quote(a.item)}
    {bounds}
    {few}
    window: {{size: {size}{window_zone}{start}{clock}
    {discovery}
    ledger: promise
    ladder: levels
"""
