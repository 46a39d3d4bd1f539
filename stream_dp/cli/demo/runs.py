"""A run of the demo: a folder of its own, and a configuration whose topics no other run has."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import load_plan
from stream_dp.errors import StateError
from stream_dp.runtime.localkafka import cache_folder

TEMPLATE = "flights.yaml"
RUN_BYTES = 3
APPLICATION = "flights"
"""The name of the template that a run makes its own."""
DESTINATIONS, CARRIERS, LEADERS = "destinations", "carriers", "leaders"
"""Its views."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """One run.

    Attributes:
        folder: where everything of it is.
        plan: its plan.
    """

    folder: Path
    plan: Plan

    @property
    def file(self) -> Path:
        """Its configuration."""
        return self.folder / TEMPLATE

    @property
    def log_file(self) -> Path:
        """What its worker says."""
        return self.folder / "worker.log"

    def view(self, name: str) -> ViewPlan:
        """A view by its name."""
        return self.plan.views[name]


def new_run(broker: str) -> DemoRun:
    """Make the folder of a run, readable by its owner only, and write its configuration.

    A release topic belongs to one application for ever: its state, its noise and its ledger are one. So each run names
    its application anew, and with it every topic, and its source topic.

    Args:
        broker: the broker, as a configuration names it.

    Raises:
        StateError: the folder cannot be made.
        ConfigError: STREAM_DP_BROKER is no broker.
    """
    name = secrets.token_hex(RUN_BYTES)
    folder = cache_folder() / "demo" / name
    try:
        folder.mkdir(parents=True, mode=0o700)
        (folder / TEMPLATE).write_text(configuration(name, broker), encoding="utf-8")
    except OSError as error:
        raise StateError(f"the folder {folder} of this run cannot be made: {error.strerror}") from error
    return DemoRun(folder, load_plan(folder / TEMPLATE))


def configuration(name: str, broker: str) -> str:
    """The template's text with the names of a run, comments included."""
    text = files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    changes = [
        (f"\nname: {APPLICATION}\n", f"\nname: {APPLICATION}-{name}\n"),
        ("\nbroker: kafka://127.0.0.1:9092\n", f"\nbroker: {broker}\n"),
        (f"{{topic: {APPLICATION},", f"{{topic: {APPLICATION}-{name},"),
    ]
    for old, new in changes:
        if text.count(old) != 1:
            raise StateError(f"{TEMPLATE} does not have {old!r} once")
        text = text.replace(old, new)
    return text
