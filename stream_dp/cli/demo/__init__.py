"""`stream-dp demo`: a year of real flights, released to three audiences, two of which are then shown more."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import uvloop

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import command_line, short_path
from stream_dp.cli.demo.frames import Screen
from stream_dp.cli.demo.runs import DESTINATIONS, DemoRun, Flights, flights_file, new_run, read_flights
from stream_dp.cli.demo.state import DemoState, Tuned
from stream_dp.cli.demo.walkthrough import PARTNER, Choice, Outcome, chosen_broker, play
from stream_dp.exact.rationals import exact_text
from stream_dp.operations.numbers import moment
from stream_dp.records.models import PrivacyCost
from stream_dp.runtime.kafka.topics import Topics

INTERRUPTED = 130
ENDING = (signal.SIGTERM, signal.SIGHUP)
PACE_SECONDS = 20.0


@click.command()
@click.option("--keep-running", is_flag=True, help="Leave the worker, and a Kafka started here, running at the end.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=PACE_SECONDS,
    show_default=True,
    help="Seconds that the year takes at least; 0 feeds it as fast as it goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end; everything else to stderr.")
def demo(*, keep_running: bool, pace: float, as_json: bool) -> None:
    """Replay a year of flights and watch it being released.

    The flights that left New York in 2013, in windows of four weeks: how many aircraft flew where, for three audiences
    at three levels of noise, and the largest carriers. The promise is to one aircraft and its four weeks: epsilon 2,
    whatever is released of them. Windows that are eight weeks old are unlocked for the public, at a level that another
    audience has: that costs nothing. In the middle of the year a setting changes while the worker runs, as with
    `stream-dp tune`: it pays more for the choice of the carriers, from a window on, and the list gets longer. Then one
    audience is granted what another one has already, which costs nothing; one is granted more than anyone had, which
    costs exactly the difference; and more than the budget pays for, which is refused.

    Runs on the Kafka that STREAM_DP_BROKER names, else on a local one, else (without Java or Maven) on a log inside
    this process. Every run has a folder and topics of its own; the folder lies in the cache folder (STREAM_DP_CACHE,
    else ~/.cache/stream-dp).

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped with Ctrl-C.
    """
    began = time.monotonic()
    screen = Screen(stderr=as_json)
    file = flights_file()
    try:
        with _stoppable(), _reading(file) as flights, chosen_broker(screen.say, keep_running=keep_running) as choice:
            kept = keep_running and not choice.embedded
            _introduce(screen, choice, keep_running=keep_running)
            run = new_run(choice.broker)
            _log_into(run)
            walkthrough = play(run, flights.result(), screen, pace_s=pace, keep_running=kept)
            outcome = uvloop.run(_cancelled_by_signals(walkthrough))
    except (KeyboardInterrupt, asyncio.CancelledError):
        screen.say("Stopped.")
        sys.exit(INTERRUPTED)
    end = Ending(outcome, choice, kept, began, time.monotonic())
    screen.say()
    for line in last_words(end):
        screen.say(line, whole=line.startswith("  "), style="dim" if line.startswith("  #") else "")
    if as_json:
        click.echo(json.dumps(summary(end)))


@contextmanager
def _reading(file: Path) -> Iterator[Future[Flights]]:
    """The flights, read while Kafka starts."""
    with ThreadPoolExecutor(1) as reader:
        yield reader.submit(read_flights, file)


def _introduce(screen: Screen, choice: Choice, *, keep_running: bool) -> None:
    screen.say(choice.words)
    if keep_running and choice.embedded:
        screen.say("--keep-running has nothing to keep here: the embedded log ends with this process.")


def _log_into(run: DemoRun) -> None:
    """What the libraries say goes to the run's log, not over the screen."""
    logging.basicConfig(
        filename=run.log_file, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: with what it started stopped."""
    former = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


async def _cancelled_by_signals(walkthrough: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Inside the event loop a signal cancels the walkthrough, which cleans up at its own pace."""
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(walkthrough)
    for number in ENDING:
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.default_int_handler)


WIDTH = 10


@dataclass(frozen=True, slots=True)
class Ending:
    """What there is to say at the end.

    Attributes:
        outcome: of the run.
        choice: the broker it ran on.
        kept: whether worker and broker go on running.
        began: when the demo was started, by the monotonic clock, seconds.
        ended: when it was over.
    """

    outcome: Outcome
    choice: Choice
    kept: bool
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long everything took."""
        return self.ended - self.began

    @property
    def first_release_s(self) -> float:
        """How long it took to the first release."""
        return self.outcome.first_release - self.began


def last_words(end: Ending) -> Iterator[str]:
    """What the demo did, where everything is, what to try next, line by line."""
    outcome, choice, kept = end.outcome, end.choice, end.kept
    state, run = outcome.state, outcome.state.run
    windows = len(state.starts) * len(run.plan.views)
    first = windows * len(state.audiences)
    feed = state.feed
    yield (
        f"Done in {end.seconds:.0f} s. The first release came {end.first_release_s:.1f} s after the start of all, "
        f"{outcome.first_release - outcome.began:.1f} s after the worker's."
    )
    yield (
        f"{feed.sent} flights were fed; {feed.flights.nameless} rows of the file name no aircraft and were left out. "
        f"{windows} windows were released to {len(state.audiences)} audiences: {first} releases, and later "
        f"{state.records - first} revisions, sharper ones and refusals."
    )
    yield ""
    if choice.embedded:
        yield _row("topics", "gone with this process: the embedded log lives in it")
    else:
        for view in run.plan.views.values():
            yield _row("topics", Topics.of(run.plan).release(view.name, "{" + ",".join(view.audiences) + "}"))
        yield _row("broker", _broker(choice, kept=kept))
        yield _row("worker", f"running, stop it with: kill {outcome.worker_pid}" if kept else "stopped")
    yield _row("files", f"{short_path(run.folder)} (configuration, key, state, worker.log)")
    yield ""
    yield "Next:"
    for command, why in _commands(outcome, choice, kept=kept):
        yield f"  # {why}"
        yield f"  {command}"


def summary(end: Ending) -> dict[str, Any]:
    """The same for a machine."""
    outcome, choice = end.outcome, end.choice
    state, run = outcome.state, outcome.state.run
    topics = Topics.of(run.plan)
    return {
        "application": run.plan.name,
        "broker": choice.broker,
        "configuration": str(run.file),
        "seconds": round(end.seconds, 3),
        "first_release_seconds": round(end.first_release_s, 3),
        "events": state.feed.sent,
        "left_out": state.feed.flights.nameless,
        "records": state.records,
        "topics": {
            view.name: {audience: topics.release(view.name, audience) for audience in view.audiences}
            for view in run.plan.views.values()
        },
        "unlocked": {audience: _unlocked(state, audience) for audience in state.unlocks},
        "tuned": None if state.tuned is None else _tuned(state.tuned),
        "ledger": [
            {
                "after": act,
                "alone": {audience: _price(paid) for audience, paid in spending.alone.items()},
                "together": _price(spending.together),
                "left": PrivacyCost.left(spending.left).model_dump(),
            }
            for act, spending in state.history
        ],
        "worker_pid": outcome.worker_pid if end.kept else None,
    }


def _unlocked(state: DemoState, audience: str) -> dict[str, Any]:
    starts = state.unlocked(audience)
    paid = sum((state.charged_later(audience, start) for start in starts), Fraction(0))
    return {"windows": [moment(start) for start in starts], "paid": exact_text(paid)}


def _tuned(tuned: Tuned) -> dict[str, Any]:
    return {"settings": tuned.number, "command": tuned.command, "from": moment(tuned.from_ms)}


def _price(cost: Cost) -> dict[str, Any]:
    return PrivacyCost.spent(cost).model_dump()


def _row(name: str, words: str) -> str:
    return f"{name:<{WIDTH}}{words}"


def _broker(choice: Choice, *, kept: bool) -> str:
    local = choice.local
    if local is None:
        return f"{choice.broker}, as STREAM_DP_BROKER says; the topics stay there"
    state = "running" if kept or not local.started else "stopped, its topics stay"
    return f"Kafka on {local.address}, {state}; data in {short_path(local.data_dir)}"


def _commands(outcome: Outcome, choice: Choice, *, kept: bool) -> Iterator[tuple[str, str]]:
    """Commands to try, and what for."""
    run = outcome.state.run
    view = run.view(DESTINATIONS)
    yield command_line("check", run.file), "who is protected against what, and what a window costs"
    if choice.embedded:
        yield command_line("demo"), "with Java 17 and Maven, and without STREAM_DP_BROKER, it runs on a real Kafka"
        return
    stopped = choice.local is not None and choice.local.started and not kept
    if stopped:
        yield command_line("kafka", "up"), "the same topics again"
    yield command_line("tail", run.file, view.name, PARTNER), "what partner reads"
    yield command_line("ledger", run.file), "what was spent, by whom, and what is left"
    if not kept:
        yield command_line("worker", run.file), "in another terminal, for the next line"
    public, level = outcome.state.audiences[0], view.levels[2].name
    yield command_line("grant", run.file, public, "--level", level), "the next one to be sharpened"
    yield command_line("settings", run.file), "what was tuned, and from when on; the file above was not changed"
    if kept:
        yield f"kill {outcome.worker_pid}", "stops the worker"
    if choice.local is not None:
        yield command_line("kafka", "down"), "stops Kafka"
    yield f"rm -r {short_path(run.folder)}", "removes the files of this run; its topics stay"
