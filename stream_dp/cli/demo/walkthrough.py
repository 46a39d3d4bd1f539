"""The demo from the first event to the last record: a broker, a worker, a page, a year with a tune, three grants."""

from __future__ import annotations

import asyncio
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_dp.agents import AGENTS
from stream_dp.cli.demo.runs import (
    CARRIERS,
    DAY_MS,
    DESTINATIONS,
    DIGITS,
    INTERNAL,
    LEADERS,
    LOG,
    PARTNER,
    PUBLIC,
    SETTING,
    TEMPLATE,
    VIEWS,
    DemoState,
    Feed,
    Flights,
    Tuned,
)
from stream_dp.cli.display import spent, table
from stream_dp.config.access import MEMORY, Broker
from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Grant
from stream_dp.errors import StateError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations.assignments import tuned
from stream_dp.operations.settings_changes import Wish, draft, post_change, rollout
from stream_dp.records.codec import decode_entry, parse
from stream_dp.records.history import Seen
from stream_dp.records.models import Release
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Client, connect
from stream_dp.runtime.kafka.control_topic import write_grant
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka import jars
from stream_dp.runtime.localkafka.broker import HOST, free_port
from stream_dp.runtime.localkafka.processes import carries, spawn_detached, terminate
from stream_dp.runtime.settled import prepare
from stream_dp.runtime.worker.assembly import Options
from stream_dp.runtime.worker.process import running

STOP_SECONDS = 30.0
LOG_LINES = 15
LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 90.0
"""Time without any news after which something is wrong."""
NOTE = "a longer list of carriers"
GATEWAY = ("httptools", "sse_starlette", "starlette", "uvicorn")
GRANTS = ((PARTNER, "detailed", 2), (INTERNAL, "fine", 2), (INTERNAL, "finest", 3))
"""Audience, level, and the revision that the grant makes or is refused."""
Check = Callable[[], None]
_EMBEDDED = "It serves this one process and forgets everything at its end."


@dataclass(frozen=True, slots=True)
class Choice:
    """A broker to run on.

    Attributes:
        broker: as a configuration names it.
        local: the local Kafka, if it is that.
    """

    broker: str
    local: localkafka.LocalKafka | None = None

    @property
    def embedded(self) -> bool:
        """True for the embedded log."""
        return self.broker == MEMORY


@contextmanager
def chosen_broker(say: Callable[[str], None], *, keep_running: bool) -> Iterator[Choice]:
    """Choose the cluster of STREAM_DP_BROKER, else a local Kafka, else (without Java or Maven) the embedded log.

    A local Kafka that was started here is stopped at the end unless it is kept; one that ran before keeps running.

    Args:
        say: gets a line before anything slow, and one on the broker, its limits, and how to get another one.
        keep_running: keep a Kafka that was started here running.

    Raises:
        BrokerError: the local Kafka does not start.
    """
    named = localkafka.external_broker()
    problem = jars.local_kafka_problem() if named is None else None
    if named == MEMORY:
        kafka = "Unset it for a real Kafka, which needs Java 17 and Maven."
        say(f"Broker: the embedded log, as STREAM_DP_BROKER says. {_EMBEDDED} {kafka}")
        yield Choice(MEMORY)
    elif named is not None:
        address = named.removeprefix("kafka://")
        say(f"Broker: the Kafka at {address} that STREAM_DP_BROKER names. The topics of this run stay there.")
        yield Choice(f"kafka://{address}")
    elif problem is not None:
        say(f"Broker: the embedded log. {_EMBEDDED} No real Kafka: {problem}.")
        yield Choice(MEMORY)
    else:
        found = localkafka.start(say=say)
        try:
            say(
                f"Broker: Apache Kafka {jars.kafka_version()} on this machine, {found.address}: one node, no "
                "authentication; STREAM_DP_BROKER names another."
            )
            yield Choice(f"kafka://{found.address}", found)
        finally:
            if found.started and not keep_running:
                say("Stopping Kafka")
                localkafka.stop()


@asynccontextmanager
async def started(plan: Plan, keep_running: bool, command: str, *options: str) -> AsyncIterator[tuple[int, Check]]:
    """Run a command on the configuration of a run, as a process that belongs to no terminal.

    Leaving the context stops it, unless it is kept and nothing went wrong.

    Args:
        plan: of the run.
        keep_running: keep the process running.
        command: of `stream-dp`; its log file has its name.
        options: of the command.

    Yields:
        The process, and a check that raises StateError with the end of its log if it has ended.
    """
    marker, log_file = str(plan.folder / TEMPLATE), plan.folder / f"{command}.log"
    arguments = [sys.executable, "-m", "stream_dp.cli", command, marker, *options]
    pid = spawn_detached(arguments, plan.folder, log_file)

    def check() -> None:
        if not carries(pid, marker):
            said = log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
            raise StateError("\n  ".join([f"`stream-dp {command}` has ended; the end of {log_file}:", *said]))

    kept = False
    try:
        yield pid, check
        kept = keep_running
    finally:  # after Ctrl-C as well
        if not kept:
            await asyncio.to_thread(terminate, pid, marker, STOP_SECONDS)


@asynccontextmanager
async def worker_here(plan: Plan, client: Client, log: MemoryLog) -> AsyncIterator[Check]:
    """Run the worker of a run on the embedded log in this process.

    Yields:
        A check that raises StateError with the reason if the worker has crashed.
    """
    async with running(plan, client, AGENTS, Options(log=log)) as worker:

        def check() -> None:
            reason = worker.crash_reason()
            if reason is not None:
                raise StateError(f"the worker has crashed: {type(reason).__name__}: {reason}") from reason

        yield check


def without_page(broker: Broker) -> str | None:
    """Return the reason why this run has no readers' page, None if it has one."""
    if broker.is_embedded:
        return "No page of the releases: `stream-dp serve` reads a real Kafka."
    if all(map(find_spec, GATEWAY)):
        return None
    return "No page of the releases: pip install 'stream-dp[gateway]'."


async def is_listening(port: int) -> bool:
    """Return True if somebody accepts connections at a port of this machine."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


async def tune_carriers(plan: Plan, client: Client, from_ms: int) -> Tuned:
    """Pay more for the choice of the carriers from a window on; wait until the worker uses that.

    Args:
        plan: of a run whose worker runs.
        client: of its broker.
        from_ms: start of the window.

    Raises:
        ConfigError: the change is impossible.
        StateError: the settings were changed elsewhere, or the worker does not report that it uses them.
    """
    wish = Wish(from_ms, note=NOTE)
    change = await draft(plan, lambda before: tuned(before, CARRIERS, [SETTING]), client, wish)
    await post_change(change)
    used = [found async for found in rollout(change, client)][-1]
    if not (used.used_by and used.by_all):
        raise StateError(f"the worker does not use settings {change.posted.number}; see {plan.folder / LOG}")
    costs = (one.views[CARRIERS].keys_at_worst for one in (change.before, change.after))
    return Tuned(change.posted.number, change.proposal.begins[CARRIERS], *costs)


async def play(
    plan: Plan, flights: Flights, console: Console, *, pace_s: float, kept: bool, open_page: bool
) -> DemoState:
    """Create the topics, start the worker and the page, feed the year, tune a view meanwhile, grant three times.

    Args:
        plan: of the run, on any broker.
        flights: the flights.
        console: shows all of it.
        pace_s: the least time for the year, seconds.
        kept: keep the worker and the page running, if they are processes of their own.
        open_page: open the page in a browser.

    Returns:
        The state at the end.

    Raises:
        StreamDPError: the broker failed, a process ended, or nothing happened for `PATIENCE_SECONDS`.
    """
    log = MemoryLog() if plan.broker.is_embedded else None
    source = plan.views[DESTINATIONS].source
    state = DemoState(plan, Feed(flights, source, pace_s))
    checks: list[Check] = []
    async with connect(plan.broker, None if log is None else MemoryClient(log)) as client, AsyncExitStack() as stack:

        async def start(command: str, *options: str) -> None:
            program = started(plan, kept, command, *options)
            state.pids[command], check = await stack.enter_async_context(program)
            checks.append(check)

        await client.create([TopicSpec(source.topic, source.partitions)])
        await prepare(plan, client, lambda: load_keys(plan.key_file).application, backfill=True)
        state.began = time.monotonic()
        if log is None:
            await start("worker")
        else:
            checks.append(await stack.enter_async_context(worker_here(plan, client, log)))
        reason = without_page(plan.broker)
        if reason is None:
            port = free_port()
            state.page = f"http://{HOST}:{port}/"
            await start("serve", "--port", str(port))
            while not await is_listening(port):
                checks[-1]()
                await asyncio.sleep(LOOK_SECONDS)
            say(console, f"Look at {state.page} while it runs.", style="bold")
            if open_page:
                await asyncio.to_thread(webbrowser.open, state.page)
        else:
            say(console, reason)
        await Walkthrough(state, client, checks, console).run()
    return state


@dataclass
class Walkthrough:
    """The story of a run whose worker runs.

    Attributes:
        state: of the run.
        client: of its broker.
        checks: of the processes, each raises an error if its own has ended.
        console: shows it.
    """

    state: DemoState
    client: Client
    checks: Sequence[Check]
    console: Console
    _told: set[object] = field(default_factory=set)

    async def run(self) -> None:
        """Go through it."""
        state = self.state
        window = state.plan.views[DESTINATIONS].window
        end_ms = window.shape.end(state.starts[-1]) + window.grace_ms
        feed = state.feed.run(self.client, tuned_ms=state.tuned_ms, end_ms=end_ms)
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(one) for one in (self._read(), self._tune(), feed)]
                await self._year()
                for grant in GRANTS:
                    await self._grant(*grant)
                for helper in helpers:
                    helper.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self.console.print("", ledger_table(state), sep="\n")

    async def _year(self) -> None:
        """Say a line for every window, until the year is over."""

        def is_over() -> bool:
            over = self.state.is_over()
            for line in self.year_lines():
                say(self.console, line)
            return over

        await self.until(is_over)
        self.state.note("the year")

    def year_lines(self) -> Iterator[str]:
        """Yield a line for every window that is released or unlocked since the last call."""
        for line, starts in ((year_line, self.state.complete()), (unlock_line, self.state.unlocked())):
            for start in starts:
                if (line, start) not in self._told:
                    self._told.add((line, start))
                    yield line(self.state, start)

    async def _tune(self) -> None:
        """Change a setting after the first release; the feed waits for it before the first window of the change."""
        state = self.state
        await state.feed.opened.wait()
        state.tuned = await tune_carriers(state.plan, self.client, state.tuned_ms)
        say(self.console, f"$ {state.tuned.command}", style="bold")
        say(self.console, state.tuned.words)
        state.feed.tuned.set()

    async def _grant(self, audience: str, level: str, revision: int) -> None:
        state = self.state
        say(self.console)
        say(self.console, f"$ stream-dp grant {TEMPLATE} {audience} --level {level}", style="bold")
        await write_grant(state.plan, self.client, Grant(audience=audience, level=level))
        await self.until(lambda: len(state.done(revision, audience)) == len(state.starts))
        state.note(f"{audience}: {level}")
        for line in grant_lines(state, audience):
            say(self.console, line)

    async def _read(self) -> None:
        """Take every record of every release topic and every entry of the accounts; the first record opens the feed."""
        state, topics = self.state, Topics.of(self.state.plan)
        public = [topics.release(view.name, name) for view in state.plan.views.values() for name in view.audiences]
        async for record in self.client.follow([*public, topics.accounts]):
            if record.value is None:
                continue
            if record.topic == topics.accounts:
                state.take_entry(decode_entry(record.value))
                continue
            found = parse(record.value)
            state.take(found)
            if isinstance(found, Release) and not state.feed.opened.is_set():
                state.first_release = time.monotonic()
                state.feed.opened.set()

    async def until(self, is_over: Callable[[], bool]) -> None:
        """Wait for something.

        Args:
            is_over: called repeatedly; returns True at the end.

        Raises:
            StateError: the worker has ended, or there is no news for too long.
        """
        state, news, news_at = self.state, (0, 0), time.monotonic()
        while not is_over():
            for check in self.checks:
                check()
            now = time.monotonic()
            if news != (state.feed.sent, state.records):
                news, news_at = (state.feed.sent, state.records), now
            elif now - news_at > PATIENCE_SECONDS:
                raise StateError(
                    f"nothing came for {PATIENCE_SECONDS:g} s, though the worker runs; see {state.plan.folder / LOG}"
                )
            await asyncio.sleep(LOOK_SECONDS)


def say(console: Console, words: str = "", *, style: str = "", whole: bool = False) -> None:
    """Print a line.

    Args:
        console: prints it.
        words: the line.
        style: of the words.
        whole: do not break a long line on a terminal, so that it can be copied.
    """
    console.print(Text(words, style), soft_wrap=whole or not console.is_terminal)


def year_line(state: DemoState, start: int) -> str:
    """Return a window of the year as a line."""
    seen = {audience: state.seen(DESTINATIONS, audience, start).release for audience in state.plan.audiences}
    parts = [f"{audience} {'refused' if one is None else _places(one)}" for audience, one in seen.items()]
    # Both lists are the same for every audience.
    leaders, carriers = (state.seen(view, PUBLIC, start).release for view in (LEADERS, CARRIERS))
    leads = [f"{entry.item} {leaders.remark(entry)}; " for entry in leaders.items[:1]] if leaders else []
    found = f"{'no' if carriers is None else len(carriers.items)} of the top {state.plan.raw['views'][CARRIERS]['k']}"
    edition = f", edition {carriers.edition}" if carriers is not None and carriers.edition > 1 else ""
    return f"  {_weeks(state, start)}: {', '.join(parts)}; {''.join(leads)}{found} carriers{edition}"


def unlock_line(state: DemoState, start: int) -> str:
    """Return a window that is unlocked for the public as a line."""
    return (
        f"    unlocked: {_weeks(state, start)} is {state.unlock.after_ms // DAY_MS} days old, {PUBLIC} sees it as "
        f"{PARTNER} now: {_sharper(state.seen(DESTINATIONS, PUBLIC, start))}; "
        f"the ledger paid {decimal_up(state.unlocks_charged([start]), DIGITS)}"
    )


def grant_lines(state: DemoState, audience: str) -> list[str]:
    """Return the effect of the last grant, which was to an audience, and its cost."""
    (_, before), (_, now) = state.history[-2:]
    start, windows = state.newest_full_ms, len(VIEWS) * len(state.starts)
    seen = state.seen(DESTINATIONS, audience, start)
    if seen.refusal is not None:
        asked, whole = spent(seen.refusal.requested.epsilon), decimal_up(now.budget.epsilon, DIGITS)
        return [
            f"{windows} windows refused. Level {seen.refusal.level.name} would cost epsilon {asked} more than "
            f"{audience} has, and the ledger has less left.",
            f"Nothing was drawn and nothing paid: an aircraft is guaranteed epsilon {whole} in four weeks.",
        ]
    own = now.loss(audience).epsilon - before.loss(audience).epsilon
    added = now.spent.epsilon - before.spent.epsilon
    paid = {
        0: "Another audience had this level already, so the ledger paid nothing.",
        own: "No audience had this level before, so the ledger paid exactly this difference.",
    }.get(added, f"The ledger paid {decimal_up(added, DIGITS)}, the part that no audience had before.")
    return [
        f"{windows} windows published again. {_weeks(state, start)} for {audience}: {_sharper(seen)}",
        f"The privacy loss to {audience} alone grew by epsilon {decimal_up(own, DIGITS)}. {paid}",
    ]


def ledger_table(state: DemoState) -> Table:
    """Return the epsilon of four weeks for one aircraft after each act."""
    heads = [f"{audience}\nalone" for audience in state.plan.audiences]
    first = "epsilon per aircraft"
    rows = table(first, *heads, "all readers\ntogether", "left in\nthe ledger", words=[first])
    for act, after in state.history:
        losses = [after.loss(audience) for audience in state.plan.audiences]
        paid = [decimal_up(cost.epsilon, DIGITS) for cost in (*losses, after.spent)]
        rows.add_row(act, *paid, decimal_down(after.left.epsilon, DIGITS))
    return rows


def days(start_ms: int, end_ms: int) -> str:
    """Return an interval of whole days by its first and last day: "24 Dec to 30 Dec 2013"."""
    first, last = (datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in (start_ms, end_ms - 1))
    return f"{first.day} {first:%b} to {last.day} {last:%b %Y}"


def _weeks(state: DemoState, start: int) -> str:
    return days(start, start + state.starts.step)


def _places(release: Release) -> str:
    return f"{len(release.items)} places ±{release.noise_interval_95}"


def _sharper(seen: Seen) -> str:
    return " -> ".join(_places(release) for release in (seen.before, seen.release) if release is not None)
