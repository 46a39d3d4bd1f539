"""`stream-dp demo`: a year of real flights, released to three audiences; two of them are then granted more."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import click
import uvloop
from rich.console import Console

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import command_line, short_path
from stream_dp.cli.demo.runs import (
    DESTINATIONS,
    LOG,
    PARTNER,
    PUBLIC,
    TEMPLATE,
    DemoState,
    flights_file,
    new_run,
    read_flights,
)
from stream_dp.cli.demo.walkthrough import Choice, chosen_broker, play, say
from stream_dp.exact.rationals import exact_text
from stream_dp.records.models import PrivacyCost
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import moment

INTERRUPTED = 130
ENDING = (signal.SIGTERM, signal.SIGHUP)
PACE_SECONDS = 20.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
WIDTH = 10


@click.command()
@click.option("--keep-running", is_flag=True, help="Leave page, worker, and a Kafka started here running at the end.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=PACE_SECONDS,
    show_default=True,
    help="Seconds that the year takes at least; 0 feeds it as fast as it goes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end; everything else to stderr.")
def demo(*, keep_running: bool, open_page: bool, pace: float, as_json: bool) -> None:
    """Replay a year of flights and watch it being released, on a page of your browser.

    The flights that left New York in 2013, in windows of four weeks: the number of aircraft by destination, for three
    audiences at three levels of noise, and the largest carriers. Each aircraft is guaranteed a total epsilon of 2 per
    four weeks.

    Windows that are eight weeks old are unlocked for the public at a level that another audience has: that costs
    nothing. In the middle of the year a setting changes while the worker runs, as with `stream-dp tune`: the choice of
    the carriers gets more budget from a window on, and the list gets longer. Then come three grants: a level that
    another audience has costs nothing; a level that no audience has costs the difference; a level that the
    budget does not pay for is refused.

    Runs on the Kafka of STREAM_DP_BROKER, else on a local one, else (without Java or Maven) on a log inside this
    process, without the page. Every run has its own topics and its own folder in the cache folder (STREAM_DP_CACHE,
    else ~/.cache/stream-dp).

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped with Ctrl-C.
    """
    began = time.monotonic()
    stream = sys.stderr if as_json else sys.stdout
    console = Console(file=stream, highlight=False, force_terminal=stream.isatty())
    tell = partial(say, console)
    file = flights_file()
    try:
        with _stoppable(), ThreadPoolExecutor(1) as reader:
            flights = reader.submit(read_flights, file)  # while Kafka starts
            with chosen_broker(tell, keep_running=keep_running) as choice:
                kept = keep_running and not choice.embedded
                if keep_running and choice.embedded:
                    tell("--keep-running has nothing to keep here: the embedded log ends with this process.")
                plan = new_run(choice.broker)
                logging.basicConfig(filename=plan.folder / LOG, level=logging.WARNING, format=LOG_FORMAT)
                state = uvloop.run(play(plan, flights.result(), console, pace_s=pace, kept=kept, open_page=open_page))
    except KeyboardInterrupt:
        tell("Stopped.")
        sys.exit(INTERRUPTED)
    end = Ending(state, choice, kept, time.monotonic() - began, state.first_release - began)
    tell()
    for line in last_words(end):
        tell(line, whole=line.startswith("  "), style="dim" if line.startswith("  #") else "")
    if as_json:
        click.echo(json.dumps(summary(end)))


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: everything that it started is stopped."""

    def end(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # in the event loop it cancels the walkthrough, which cleans up
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    former = {number: signal.signal(number, end) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a demo.

    Attributes:
        state: of the run.
        choice: the broker.
        kept: worker and broker keep running.
        seconds: time of everything.
        first_release_s: time to the first release.
    """

    state: DemoState
    choice: Choice
    kept: bool
    seconds: float
    first_release_s: float


def last_words(end: Ending) -> Iterator[str]:
    """Yield lines on the run, the place of everything, and the next commands to try."""
    state, choice, kept = end.state, end.choice, end.kept
    plan, feed = state.plan, state.feed
    windows = len(state.starts) * len(plan.views)
    first = windows * len(plan.audiences)
    yield (
        f"Done in {end.seconds:.0f} s. The first release came after {end.first_release_s:.1f} s, "
        f"{state.first_release - state.began:.1f} s after the start of the worker."
    )
    yield (
        f"{feed.sent} flights were fed; {feed.flights.nameless} rows of the file name no aircraft and were left out. "
        f"{windows} windows were released to {len(plan.audiences)} audiences: {first} releases, and later "
        f"{state.records - first} sharper revisions and refusals."
    )
    yield ""
    if choice.embedded:
        yield _row("topics", "gone: the embedded log ends with this process")
    else:
        for view in plan.views.values():
            yield _row("topics", Topics.of(plan).release(view.name, "{" + ",".join(view.audiences) + "}"))
        yield _row("broker", _broker(choice, kept=kept))
        yield _row("worker", _process(state, "worker", kept=kept))
        if state.page is not None:
            yield _row("page", f"{state.page}, {_process(state, 'serve', kept=kept)}")
    yield _row("files", f"{short_path(plan.folder)} (configuration, key, state, logs)")
    yield ""
    yield "Next:"
    for command, why in _commands(state, choice, kept=kept):
        yield f"  # {why}"
        yield f"  {command}"


def summary(end: Ending) -> dict[str, Any]:
    """The same for a machine."""
    state, plan, tuned = end.state, end.state.plan, end.state.tuned
    topics = Topics.of(plan)
    return {
        "application": plan.name,
        "broker": end.choice.broker,
        "configuration": str(plan.folder / TEMPLATE),
        "seconds": round(end.seconds, 3),
        "first_release_seconds": round(end.first_release_s, 3),
        "events": state.feed.sent,
        "left_out": state.feed.flights.nameless,
        "records": state.records,
        "topics": {
            view.name: {audience: topics.release(view.name, audience) for audience in view.audiences}
            for view in plan.views.values()
        },
        "unlocked": {
            PUBLIC: {
                "windows": [moment(start) for start in state.unlocked()],
                "paid": exact_text(state.unlocks_charged(state.unlocked())),
            }
        },
        "tuned": tuned and {"settings": tuned.number, "command": tuned.command, "from": moment(tuned.from_ms)},
        "ledger": [
            {
                "after": act,
                "alone": {audience: _price(after.loss(audience)) for audience in plan.audiences},
                "together": _price(after.spent),
                "left": PrivacyCost.left(after.left).model_dump(),
            }
            for act, after in state.history
        ],
        "page": state.page if end.kept else None,
        "page_pid": state.pids.get("serve") if end.kept else None,
        "worker_pid": state.pids.get("worker") if end.kept else None,
    }


def _price(cost: Cost) -> dict[str, Any]:
    return PrivacyCost.spent(cost).model_dump()


def _row(name: str, words: str) -> str:
    return f"{name:<{WIDTH}}{words}"


def _process(state: DemoState, command: str, *, kept: bool) -> str:
    return f"running, stop it with: kill {state.pids[command]}" if kept else "stopped"


def _broker(choice: Choice, *, kept: bool) -> str:
    local = choice.local
    if local is None:
        return f"{choice.broker}, as STREAM_DP_BROKER says; the topics stay there"
    state = "running" if kept or not local.started else "stopped, its topics stay"
    return f"Kafka on {local.address}, {state}; data in {short_path(local.data_dir)}"


def _commands(state: DemoState, choice: Choice, *, kept: bool) -> Iterator[tuple[str, str]]:
    """Yield commands to try, with their purpose."""
    plan, file = state.plan, state.plan.folder / TEMPLATE
    view = plan.views[DESTINATIONS]
    yield command_line("check", file), "the guarantee, and the cost of a window"
    if choice.embedded:
        yield command_line("demo"), "on a real Kafka: needs Java 17 and Maven; unset STREAM_DP_BROKER"
        return
    stopped = choice.local is not None and choice.local.started and not kept
    if stopped:
        yield command_line("kafka", "up"), "start Kafka again, with the same topics"
    yield command_line("tail", file, view.name, PARTNER), "the releases that partner reads"
    yield command_line("ledger", file), "the budget: spent, by whom, and left"
    if not kept:
        if state.page is not None:
            yield command_line("serve", file), "in another terminal: the page again"
        yield command_line("worker", file), "in another terminal, for the next line"
    yield (
        command_line("grant", file, PUBLIC, "--level", view.levels[2].name),
        "sharpen the releases of another audience",
    )
    yield command_line("settings", file), "the tuned setting; the file above was not changed"
    if kept:
        yield f"kill {' '.join(map(str, state.pids.values()))}", "stop the worker and the page"
    if choice.local is not None:
        yield command_line("kafka", "down"), "stop Kafka"
    yield f"rm -r {short_path(plan.folder)}", "remove the files of this run; its topics stay"
