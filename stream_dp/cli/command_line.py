"""Parts that commands share: arguments, connections to the broker, JSON, and commands to show to users."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from stream_dp.cli.output import write_data
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.operations.settings_history import Effective, read_effective
from stream_dp.runtime.kafka.client import Client, connect
from stream_dp.windows.durations import parse_moment

PROGRAM = "stream-dp"
FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))

T = TypeVar("T")


def command_line(*words: str | Path) -> str:
    """Return a command of this program for a shell."""
    quoted = [short_path(word) if isinstance(word, Path) else shlex.quote(word) for word in words]
    return " ".join([shlex.quote(program()), *quoted])


def short_path(path: Path) -> str:
    """Return a path for a shell, with ~ for the home folder."""
    home = Path.home()
    return f"~/{shlex.quote(str(path.relative_to(home)))}" if path.is_relative_to(home) else shlex.quote(str(path))


def program() -> str:
    """Return `stream-dp` if that is on the PATH, else the path of it, as in a virtual environment."""
    called = Path(sys.argv[0])
    here = called if called.name == PROGRAM else Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if found is not None and Path(found).resolve() == here.resolve():
        return PROGRAM
    return min(str(here.absolute()), os.path.relpath(here), key=len) if here.exists() else PROGRAM


def write_new(file: Path, text: str) -> None:
    """Write a new file.

    Raises:
        ConfigError: it exists, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists; name another file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None


def host_and_port(text: str) -> tuple[str, int]:
    """Return the address that `[HOST:]PORT` names; the host is loopback unless given."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) >= 1 << 16:
        raise click.BadParameter(f"write PORT or HOST:PORT, with a port of at most 65535, not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class Parsed(click.ParamType):
    """A value that a function reads from text; its ValueError is the message of what is no such value.

    Attributes:
        name: of the values, for the help.
    """

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name, self._read = name, read

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return what was read, or fail."""
        try:
            return self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _moment(text: str) -> int:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise ValueError(f'{text!r}: write a date, "2013-05-07", or {error}') from None


MOMENT = Parsed("time", _moment)
"""A time as a date or RFC 3339 text, in ms since epoch; a date means its first moment in UTC."""


def run(plan: Plan, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run an operation with a client of a plan's broker.

    Args:
        plan: the plan.
        work: the operation.

    Raises:
        ConfigError: the cluster refuses the login.
        BrokerError: the cluster does not answer.
    """
    # What matters of the Kafka client's log comes as an error of the package.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())

    async def connected() -> T:
        async with connect(plan.broker) as client:
            return await work(client)

    return asyncio.run(connected())


async def effective(plan: Plan, client: Client) -> Effective:
    """Read the plan in effect. If the file differs, print a note on stderr.

    Args:
        plan: of the file.
        client: of its broker.
    """
    found = await read_effective(plan, client)
    note_differences(found.number, found.differs, "This uses the settings in effect.")
    return found


def note_differences(number: int, differs: Sequence[str], used: str) -> None:
    """Print a note on stderr if the file differs from the settings in effect.

    Args:
        number: of the settings.
        differs: the settings of the file that are not in effect.
        used: a sentence on the settings that the command uses.
    """
    if differs:
        click.echo(
            f"note: settings {number} are in effect, and FILE differs in {', '.join(differs)}. {used} To put FILE into "
            "effect: `stream-dp apply FILE`",
            err=True,
        )


def run_effective(file: Path, work: Callable[[Plan, Client], Awaitable[T]]) -> tuple[Plan, T]:
    """Run an operation on the plan in effect.

    Args:
        file: of the application.
        work: the operation.

    Returns:
        The plan in effect, and the result.
    """
    plan = load_plan(file)

    async def connected(client: Client) -> tuple[Plan, T]:
        found = (await effective(plan, client)).plan
        return found, await work(found, client)

    return run(plan, connected)


def print_json(value: object) -> None:
    """Print a value as one JSON object."""
    write_data(json.dumps(value, indent=2, ensure_ascii=False))


def print_faults(error: ConfigError) -> None:
    """Print the faults of a configuration as one JSON object."""
    print_json({"faults": [{"path": fault.path, "message": fault.message} for fault in error.faults]})
