"""Packages of others that tests run, in an environment of their own, `.venv-stock`: installed once per version."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).parents[2] / ".venv-stock"


def install_node(folder: Path, packages: Sequence[str]) -> None:
    """Install packages of npm; none of their scripts is run. Skips where there is no Node.js."""
    if missing := [name for name in ("node", "npm") if shutil.which(name) is None]:
        pytest.skip(f"no {missing[0]} on this machine")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    npm = ("npm", "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", folder)
    subprocess.run((*npm, *packages), check=True, capture_output=True, cwd=folder)


@contextmanager
def made(name: str, wanted: Sequence[str], install: Callable[[Path, Sequence[str]], None]) -> Iterator[Path]:
    """A folder with some packages, which another run of the tests must not change meanwhile."""
    folder, made_from = ENVIRONMENT / name, ENVIRONMENT / f"{name}-made-from"
    digest = hashlib.sha256(f"{sys.version} {sys.executable} {wanted}".encode()).hexdigest()
    ENVIRONMENT.mkdir(exist_ok=True)
    with (ENVIRONMENT / f"{name}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made_from.exists() or made_from.read_text() != digest:
            made_from.unlink(missing_ok=True)
            try:
                install(folder, wanted)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"{', '.join(wanted)} cannot be installed: {error.stderr.decode()[-300:]}")
            made_from.write_text(digest)
        yield folder
