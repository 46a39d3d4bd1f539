"""Output of the commands. Neither a terminal without Unicode nor a reader that leaves ends one with a traceback."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

HANDLER = "stream-dp-output"
STAND_INS = {"±": "+-", "▆": "#", "─": "-", "…": "...", "·": "*", "–": "-", "—": "-"}
"""Characters of our pages that ASCII lacks."""
CLOSED = 1
"""Exit code where nobody reads the output."""


def write_data(text: str, *, nl: bool = True) -> None:
    """Print JSON or YAML for machines: in UTF-8 whatever the terminal takes, because escapes would change YAML."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=nl)


def announce(line: str) -> None:
    """Print a line of a program that goes on, whether or not somebody reads it."""
    with suppress(BrokenPipeError):
        click.echo(line)


def replace_characters(error: UnicodeError) -> tuple[str, int]:
    """Return something for characters that an output cannot take: a stand-in, or an escape (see `codecs`)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    found = [STAND_INS.get(one) or one.encode("ascii", "backslashreplace").decode() for one in characters]
    return "".join(found), error.end


@contextmanager
def guarded_output() -> Iterator[None]:
    """Let what is printed inside reach any terminal, and end in silence if nobody reads it."""
    codecs.register_error(HANDLER, replace_characters)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # Python sets it so where the shell has closed it (`>&-`)
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  open as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=HANDLER)
    standard = sys.stdout
    try:
        yield
    except BrokenPipeError:
        sys.exit(CLOSED)
    finally:
        _drain(standard)


def _drain(stream: object) -> None:
    """Write the rest of a stream; if nobody reads it, drop it, or Python would complain about it at its end."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
