"""Disks that are full, and have room again."""

from __future__ import annotations

import errno
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BALLAST = "ballast"


def fill(folder: Path) -> None:
    """Fill the disk of a folder with a file that stands there."""
    with (folder / BALLAST).open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


def make_room(folder: Path) -> None:
    """Take that file away, if it stands there still."""
    (folder / BALLAST).unlink(missing_ok=True)


def mount(folder: Path, megabytes: int) -> str:
    """Make a folder with a disk of its own, in memory; why there is none, empty if there is."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return (done.stderr.strip() or "mount failed") if done.returncode else ""


def unmount(folder: Path) -> None:
    """Take the disk of a folder away, whoever uses it."""
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A folder with a disk of its own; the test is skipped where nothing can be mounted."""
    if problem := mount(folder, megabytes):
        pytest.skip(f"no disk can be mounted here: {problem}")
    try:
        yield folder
    finally:
        unmount(folder)


@contextmanager
def no_more_room(folder: Path) -> Iterator[None]:
    """Let no file of this process outgrow RocksDB's largest log in a folder: what a full disk does, without one."""
    most = max(path.stat().st_size for path in folder.rglob("*.log"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))  # Python ignores the signal, so that it is an error
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
