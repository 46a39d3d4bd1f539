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
from pathlib import Path
from typing import Any

import click
import uvloop

from stream_dp.cli.demo.brokers import Choice, chosen_broker
from stream_dp.cli.demo.ending import Ending, last_words, summary
from stream_dp.cli.demo.flights import Flights, flights_file, read_flights
from stream_dp.cli.demo.runs import DemoRun, new_run
from stream_dp.cli.demo.screen import Screen
from stream_dp.cli.demo.walkthrough import Outcome, play

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
