"""A history replayed offline: the real engine on the embedded log, and the releases that it publishes.

The noise is drawn as in production, so what is published of a replay costs its people real budget, which no ledger
of a running application knows of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.agents import AGENTS
from stream_dp.config.access import MEMORY
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.errors import ConfigError, Fault, StateError
from stream_dp.exact.bits import Entropy, system_entropy
from stream_dp.operations.budgets import read_entries
from stream_dp.operations.empty_stretches import Stretch, stretch_between, why_all_windows
from stream_dp.operations.events_file import Written
from stream_dp.operations.feed import Watermarks
from stream_dp.operations.past_events import PastEvents
from stream_dp.operations.skipped_windows import PeriodSpending, SkippedWindows, has_places, skip_windows
from stream_dp.records.codec import parse
from stream_dp.records.history import History
from stream_dp.records.statement import LedgerStatement, Period, read_statements
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.worker.assembly import Options, Worker
from stream_dp.runtime.worker.process import running
from stream_dp.windows.durations import DAY_MS, Slots, format_time
from stream_dp.windows.effects import Message

STEPS = 40
"""Times at which the clock stops, at most, so that the windows up to then are released before it moves on; it also
stops where a window closes that a list is made of."""
TICK_SECONDS = 0.05
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 600.0
"""Time that a window may take to be released."""
SLOT_MS = 100


@dataclass(frozen=True, slots=True)
class ReplayNoise:
    """Noise of a replay.

    Attributes:
        entropy: the source of fresh noise.
        key_file: the key file; None: a new one, which is deleted afterwards.
    """

    entropy: Entropy = system_entropy
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Records of one audience of a view, and totals of them.

    Attributes:
        view: name of the view.
        audience: name of the audience.
        records: the records of its topic, as published.
        released: number of windows that were released.
        refused: number of windows that were refused.
        skipped: number of windows without events that were left out and that the ledger is charged for.
        skipped_refused: number of windows without events that were left out and that the ledger does not pay for.
        keys: median number of keys of a window; None if its kind shows none.
        spent: privacy loss of this audience, in the period of the ledger that spent most.
        left: what the ledger had left in that period.
    """

    view: str
    audience: str
    records: Sequence[bytes]
    released: int
    refused: int
    skipped: int
    skipped_refused: int
    keys: float | None
    spent: Cost
    left: Cost


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of a replay: what it publishes, and which windows it leaves out.

    Attributes:
        audiences: an entry for each view and audience.
        skipped: the stretches without events whose windows were left out.
    """

    audiences: Sequence[Replayed]
    skipped: SkippedWindows


async def replay(
    plan: Plan,
    history: PastEvents,
    noise: ReplayNoise = ReplayNoise(),
    progress: Callable[[int], None] = lambda _: None,
    *,
    all_windows: bool = False,
) -> Replay:
    """Run the engine on a history, in this process and a temporary folder, and return what it publishes.

    The views of other sources are left out. Where the events are in order of time, the clock follows them; else it
    goes from the first to the end of the history at once, so that nothing is late. The clock stops where a window
    closes that a list is made of: its releases are read before it goes on, as a worker reads them.

    Windows in a long stretch without events are left out if that changes no other window. They are charged as if they
    had been released (`skipped_windows`).

    Args:
        plan: of the file.
        history: of one of its sources.
        noise: the source of the noise.
        progress: called with the number of windows released or left out so far; the total is `windows_to_release`.
        all_windows: leave out no windows.

    Raises:
        ConfigError: the views of the source alone are no configuration.
        StateError: the worker crashed, or a window took too long.
    """
    with TemporaryDirectory(prefix="stream-dp-replay-") as folder:
        offline = _offline(plan, history, noise, Path(folder))
        log = MemoryLog()
        client = MemoryClient(log)
        source = history.source
        await client.create([TopicSpec(source.topic, source.partitions)])
        found = SkippedWindows()
        skips = not all_windows and not why_all_windows(history.views, ordered=history.survey.ordered)
        steps = _steps(history, skips=skips)
        first = next(steps)
        steps = chain([first], steps)
        now = _Now(first.from_ms if isinstance(first, Stretch) else history.first_ms)
        options = Options(
            log=log,
            entropy=noise.entropy,
            clock_ms=now,
            tick_seconds=TICK_SECONDS,
            backfill=True,
            unchecked_data=True,  # the rows were checked
            clock_bound_ms=None,
        )
        stretch: Stretch | None = None
        is_over = False
        while not is_over:
            async with running(offline, client, AGENTS, options) as worker:
                stretch = await _play(worker, log, steps, now, progress)
                is_over = stretch is None
                effective = worker.plan
            if stretch is not None:
                skip_windows(log, effective, stretch, found)
        return Replay(await _results(offline, client, found), found)


def windows_to_release(history: PastEvents) -> int:
    """Return the number of windows of all views that close by the end of a history, including empty ones."""
    found = 0
    for view in history.views:
        open_ms = view.windows.shape.first_open(history.until_ms - view.window.grace_ms)
        found += 0 if view.window.first_ms is None else view.windows.begun(view.window.first_ms, open_ms)
    return found


class _AtOnce(Slots):
    """Slots of releases that leave as soon as they are made, and are never late: nobody waits for them.

    The time at which a release leaves is in no record.
    """

    __slots__ = ()

    def after(self, closed_ms: int) -> int:
        return self.first(closed_ms)


@dataclass
class _Now:
    """A clock that is set."""

    ms: int

    def __call__(self) -> int:
        return self.ms


def _offline(plan: Plan, history: PastEvents, noise: ReplayNoise, folder: Path) -> Plan:
    """Return the plan of the views of a source, on the embedded log, with state and keys in a folder.

    Raises:
        ConfigError: a public list cannot be had, or these views alone are no configuration.
    """
    if faults := [Fault(f"views.{view.name}", words) for view in history.views if (words := _unlisted(view, history))]:
        raise ConfigError(faults)
    source = history.source.name
    raw = {key: value for key, value in plan.raw.items() if key not in ("registry", "serve", "console")}
    raw |= {"broker": MEMORY, "data_dir": str(folder / "state")}
    raw |= {"key_file": str(noise.key_file or folder / "replay.key")}
    raw["sources"] = {source: raw["sources"][source]}
    raw["views"] = {view.name: _started(raw["views"][view.name], view) for view in history.views}
    return replace(build_plan(raw, plan.folder), slots=_AtOnce(SLOT_MS, offset_ms=DAY_MS))


def _unlisted(view: ViewPlan, history: PastEvents) -> str:
    """Return why a view cannot have its public list here; nothing if it can."""
    if (made_of := view.kind.made_of) is None:
        topics = ", ".join(view.kind.topics)
        return f"replay connects to no broker, and a list is in topic {topics}" if topics else ""
    if made_of.view not in {one.name for one in history.views}:
        return f"its list is made of releases of view {made_of.view}, which counts another source"
    return "" if history.survey.ordered else "its list is made of releases, so sort the rows of the history by time"


def _started(raw: Mapping[str, Any], view: ViewPlan) -> dict[str, Any]:
    """Return the settings of a view for a replay: it begins with a window of the history and has no catch-up."""
    window = {**raw["window"], "catch_up": "0s"}
    if view.window.first_ms is not None and window.get("start") is None:
        window["start"] = format_time(view.window.first_ms)
    return {**raw, "window": window}


@dataclass(frozen=True, slots=True)
class _HistoryStep:
    """Part of a history: the time to set the clock to, and the records and watermarks to publish then."""

    now_ms: int
    messages: Sequence[Message]


def _steps(history: PastEvents, *, skips: bool) -> Iterator[_HistoryStep | Stretch]:
    """Yield the history in steps, and between them the long stretches without events, if these are left out."""
    watermarks = Watermarks(history.source, history.views, history.until_ms, ordered=history.survey.ordered)
    shortest_ms = (history.until_ms - history.first_ms) // STEPS
    shapes = [view.window.shape for view in history.views]
    made_of = {view.kind.made_of.view for view in history.views if view.kind.made_of is not None}
    read = [view.window for view in history.views if view.name in made_of]

    def stop_after(time_ms: int) -> int:
        boundary = min(shape.next(shape.start_of(time_ms + shortest_ms)) for shape in shapes)
        return min([boundary, *(window.closes_after(time_ms) for window in read)])

    some = list[Written]()
    stop_ms = stop_after(history.first_ms)
    last_ms: int | None = None
    for event in chain(chain.from_iterable(history.events.chunks(1)), [None]):
        # A time after the end of the history does not move the clock (`FeedOptions.unchecked_data`).
        time_ms = history.until_ms if event is None else min(event.time_ms, history.until_ms)
        stretch = stretch_between(history.views, last_ms, time_ms, history.until_ms) if skips else None
        while history.survey.ordered and time_ms >= stop_ms and (stretch is None or stop_ms < stretch.from_ms):
            yield _HistoryStep(stop_ms, [*watermarks.among(some), *watermarks.at(stop_ms)])
            some = []
            stop_ms = stop_after(stop_ms)
        if stretch is not None:
            if last_ms is not None:
                yield _HistoryStep(stretch.from_ms, [*watermarks.among(some), *watermarks.at(stretch.from_ms)])
            yield stretch
            some = []
            stop_ms = stop_after(time_ms)
        last_ms = time_ms
        if event is not None:
            some.append(event)
    yield _HistoryStep(history.until_ms, [*watermarks.among(some), *watermarks.at(history.until_ms)])


async def _play(
    worker: Worker,
    log: MemoryLog,
    steps: Iterator[_HistoryStep | Stretch],
    now: _Now,
    progress: Callable[[int], None],
) -> Stretch | None:
    """Play a history up to the next stretch without events whose windows are left out; None: to its end."""
    for step in steps:
        if isinstance(step, Stretch):
            await _wait_for_places(worker, log)
            return step
        now.ms = step.now_ms
        for message in step.messages:  # Nothing is awaited in between, so no tick has the new time without its events.
            log.take(message)
        await _released(worker, now.ms, progress)
    return None


async def _wait_for_places(worker: Worker, log: MemoryLog) -> None:
    """Wait until the places of all views are stored, so that they can be changed.

    Raises:
        StateError: the worker crashed.
    """
    while not has_places(log, worker.plan):
        if (reason := worker.crash_reason()) is not None:
            raise StateError(f"the replay failed: {reason}") from reason
        await asyncio.sleep(LOOK_SECONDS)


async def _released(worker: Worker, now_ms: int, progress: Callable[[int], None]) -> None:
    """Wait until all windows that are over at a time are released, and lists are made of them.

    Args:
        worker: the worker.
        now_ms: the time that its clock shows.
        progress: called with the number of windows released so far.

    Raises:
        StateError: the worker crashed, or nothing was released for too long.
    """
    waiting = [*worker.plan.views.values()]
    before, since = dict[str, int](), time.monotonic()
    while True:
        if (reason := worker.crash_reason()) is not None:
            raise StateError(f"the replay failed: {reason}") from reason
        found = {name: at for one in worker.standings().values() for name, at in one.released.items()}
        progress(sum(_windows_before(view, found.get(view.view)) for view in worker.plan.views.values()))
        waiting = [view for view in waiting if not _is_released(view, found.get(view.view), now_ms)]
        if not waiting and worker.host.is_idle:
            return await worker.lists.look()
        if found != before:
            before, since = found, time.monotonic()
        if time.monotonic() > since + PATIENCE_SECONDS:
            raise StateError(f"no window was released for {PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)


def _windows_before(view: ViewPlan, next_ms: int | None) -> int:
    """Return the number of windows of a view before the next one to be released."""
    return 0 if next_ms is None else view.windows.begun(view.begins_ms, next_ms)


def _is_released(view: ViewPlan, next_ms: int | None, now_ms: int) -> bool:
    """Tell whether no window that is over at a time is still to be released, from the next one on."""
    open_ms = view.windows.shape.first_open(now_ms - view.window.grace_ms)
    if next_ms is None:
        return open_ms <= view.begins_ms
    return not view.windows.begun(next_ms, open_ms)


async def _results(plan: Plan, client: MemoryClient, skipped: SkippedWindows) -> list[Replayed]:
    """Read what was published, and add what was left out."""
    topics = Topics.of(plan)
    statements = read_statements(await read_entries(topics.accounts, client))
    found = []
    for view in plan.views.values():
        spending = _dearest_period(view, statements, skipped)
        for audience in view.audiences:
            topic = topics.release(view.name, audience)
            values = [one.value async for one in client.follow([topic], until_end=True) if one.value is not None]
            found.append(_replayed(view, audience, values, spending, skipped))
    return found


def _dearest_period(
    view: ViewPlan, statements: Mapping[Period, LedgerStatement], skipped: SkippedWindows
) -> PeriodSpending | None:
    """Return the spending of the period of a view's ledger that spent most; None if none was charged."""
    found: list[PeriodSpending] = []
    for period in {*statements, *skipped.periods}:
        if period.ledger != view.ledger.name:
            continue
        one = skipped.periods.get(period, PeriodSpending(Cost.ZERO, view.ledger.budget))
        losses = dict(one.losses)
        spent = one.spent
        left = one.left
        statement = statements.get(period)
        if statement is not None:
            for key, share in statement.shares.items():
                losses[key] = losses.get(key, Cost.ZERO) + share.loss
            if spent <= statement.spent:  # the newest entry is about a later window
                spent = statement.spent
                left = statement.left
        found.append(PeriodSpending(spent, left, losses))
    return max(found, key=lambda one: tuple(one.spent), default=None)


def _replayed(
    view: ViewPlan,
    audience: str,
    values: Sequence[bytes],
    spending: PeriodSpending | None,
    skipped: SkippedWindows,
) -> Replayed:
    history = History()
    for value in values:
        history.take(parse(value))
    windows = [*history.windows(view.name, audience).values()]
    releases = [seen.release for seen in windows if seen.release is not None]
    shown = [len(items) for release in releases if (items := getattr(release, "items", None)) is not None]
    return Replayed(
        view.name,
        audience,
        values,
        released=len(releases),
        refused=len(windows) - len(releases),
        skipped=skipped.charged[view.name],
        skipped_refused=skipped.refused[view.name],
        keys=median(shown) if shown else None,
        spent=Cost.ZERO if spending is None else spending.losses.get((view.name, audience), Cost.ZERO),
        left=view.ledger.budget if spending is None else spending.left,
    )


def write_releases(found: Sequence[Replayed], folder: Path) -> list[Path]:
    """Write a file of JSON lines for each view and audience, each line a record as it was published.

    Args:
        found: of a replay.
        folder: is made if it is missing.

    Returns:
        The files.

    Raises:
        StateError: one of them is there already, or cannot be written.
    """
    files = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            files.append(folder / f"{one.view}.{one.audience}.jsonl")
            with files[-1].open("xb") as file:
                file.writelines(record + b"\n" for record in one.records)
    except OSError as error:
        raise StateError(f"{error.filename} cannot be written: {error.strerror}. Use an empty folder") from None
    return files
