"""This program among others: how to call it again, what its options mean, and how a command reaches the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from stream_dp.config.plan import Plan
from stream_dp.operations.settings import Effective, read_effective
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import parse_time

PROGRAM = "stream-dp"

T = TypeVar("T")


def command_line(*words: str | Path) -> str:
    """A command of this program as a shell takes it, found the way this very process was."""
    return " ".join([shlex.quote(program()), *map(_word, words)])


def short_path(path: Path) -> str:
    """A path as a shell takes it, from the home folder on where it is there."""
    home = Path.home()
    return f"~/{shlex.quote(str(path.relative_to(home)))}" if path.is_relative_to(home) else shlex.quote(str(path))


def _word(word: str | Path) -> str:
    return short_path(word) if isinstance(word, Path) else shlex.quote(word)


def program() -> str:
    """`stream-dp` where that is on the PATH, else the way to it from here, as from a virtual environment."""
    called = Path(sys.argv[0])
    here = called if called.name == PROGRAM else Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).resolve() == here.resolve():
        return PROGRAM
    return min(str(here.absolute()), os.path.relpath(here), key=len) if here.exists() else PROGRAM


class Moment(click.ParamType):
    """A date or a moment as RFC 3339 text, in ms since epoch; a date is where it begins in UTC."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The moment, if the text is one."""
        text = str(value)
        try:
            return parse_time(text if "T" in text else f"{text}T00:00:00Z")
        except ValueError as error:
            self.fail(f'{text!r}: write a date, "2013-05-07", or {error}', param, ctx)


MOMENT = Moment()


def run(plan: Plan, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run an operation with a client of the broker that a plan names.

    Args:
        plan: the plan.
        work: the operation.

    Raises:
        ConfigError: the cluster does not let us in.
        BrokerError: the cluster does not answer.
    """
    # What matters of the Kafka client's log comes as an error of the package.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())

    async def connected() -> T:
        async with connect(plan.broker) as client:
            return await work(client)

    return asyncio.run(connected())


async def effective(plan: Plan, client: Client) -> Effective:
    """Read the plan in effect; where the file differs, a line on stderr says so.

    Args:
        plan: of the file.
        client: of its broker.
    """
    found = await read_effective(plan, client)
    if found.differs:
        click.echo(
            f"note: settings {found.number} are in effect, and FILE differs in {', '.join(found.differs)}. This uses "
            "the settings in effect. To put FILE into effect: `stream-dp apply FILE`",
            err=True,
        )
    return found
