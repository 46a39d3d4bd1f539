"""Disks that are full or read-only, and then are not any more."""

from __future__ import annotations

import errno
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

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
        raise SkipTest(f"no disk can be mounted here: {problem}")
    try:
        yield folder
    finally:
        unmount(folder)


def make_read_only(folder: Path) -> None:
    """Let the disk of a folder have an error, upon which the system lets nobody write to it any more."""
    device = Path(_mounted("SOURCE", folder)).name
    Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")


def make_writable(folder: Path) -> None:
    """Let it be written to again, once nobody uses it."""
    device = _mounted("SOURCE", folder)
    subprocess.run(["umount", str(folder)], check=True)
    subprocess.run(["mount", "-o", "errors=remount-ro", device, str(folder)], check=True)


def _mounted(column: str, folder: Path) -> str:
    command = ["findmnt", "--noheadings", "--output", column, str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def fragile_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A folder with a disk that `make_read_only` can break; the test is skipped where there can be none."""
    if shutil.which("mkfs.ext4") is None or shutil.which("losetup") is None:
        raise SkipTest("no disk can be made here: no mkfs.ext4 or no losetup")
    image = folder.with_suffix(".image")
    folder.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    made = subprocess.run(["mkfs.ext4", "-q", str(image)], check=False, capture_output=True, text=True)
    looped = subprocess.run(["losetup", "--find", "--show", str(image)], check=False, capture_output=True, text=True)
    if made.returncode or looped.returncode:
        raise SkipTest(f"no disk can be made here: {made.stderr}{looped.stderr}")
    device = looped.stdout.strip()
    try:
        subprocess.run(["mount", "-o", "errors=remount-ro", device, str(folder)], check=True)
        try:
            yield folder
        finally:
            unmount(folder)
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)


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
