"""What the demo says at its end: what it did, where everything is, what to try next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import command_line, short_path
from stream_dp.cli.demo.brokers import Choice
from stream_dp.cli.demo.runs import DESTINATIONS
from stream_dp.cli.demo.state import DemoState
from stream_dp.cli.demo.tuning import Tuned
from stream_dp.cli.demo.walkthrough import PARTNER, Outcome
from stream_dp.cli.numbers import moment
from stream_dp.exact.rationals import exact_text
from stream_dp.records.models import PrivacyCost
from stream_dp.runtime.kafka.topics import Topics

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
