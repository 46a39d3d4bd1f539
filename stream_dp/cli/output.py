"""Output of the commands, which never ends in a traceback: neither without Unicode nor without a reader."""

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
"""ASCII replacements for the characters that the commands print."""
CLOSED = 1
"""Exit code of a command whose output has no reader."""


def write_data(text: str, *, nl: bool = True) -> None:
    """Print JSON or YAML for programs, always in UTF-8, because escapes would change YAML."""
    click.echo(text.encode("utf-8", "backslashreplace"), nl=nl)


def announce(line: str) -> None:
    """Print a line of a long-running program, which continues even if no one reads it."""
    with suppress(BrokenPipeError):
        click.echo(line)


def replace_characters(error: UnicodeError) -> tuple[str, int]:
    """Return replacements or escapes for characters that an output cannot encode (an error handler of `codecs`)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    found = [STAND_INS.get(one) or one.encode("ascii", "backslashreplace").decode() for one in characters]
    return "".join(found), error.end


@contextmanager
def guarded_output() -> Iterator[None]:
    """Print in any encoding inside this context, and exit without a message if no one reads the output."""
    codecs.register_error(HANDLER, replace_characters)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the shell has closed it (`>&-`)
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
    """Flush a stream; drop the rest if no one reads it, so that Python does not report an error at exit."""
    if not isinstance(stream, io.TextIOWrapper):
        return
    try:
        stream.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
