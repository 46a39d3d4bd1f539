"""This program among others: how to call it again, and what libraries may say in its name."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "stream-dp"


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


def hush_libraries() -> None:
    """Keep the Kafka client's log off the terminal: what matters of it comes as an error of the package."""
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
