"""A worker has its data folder to itself."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_dp.errors import StateError
from stream_dp.runtime.storage import make_folder, unusable

log = logging.getLogger("stream_dp.worker")

LOCK = "lock"
SHELVES = "shelves"
OTHERS = 0o077
"""Of a file's mode: what accounts but the owner may do."""
_FILES = ("changelogs.json", "changelogs.new", "counters.json", "counters.json.new")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a data folder, made if it is missing; the lock ends with the process, however that ends.

    It is open to this account alone.

    Raises:
        StateError: another worker holds it.
        StorageError: it cannot be written.
    """
    make_folder(folder)
    try:
        file = (folder / LOCK).open("ab")
    except OSError as error:
        raise unusable(folder / LOCK, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"another worker runs on the data folder {folder}; stop it first, or give this one a folder of its own "
                "with --data-dir"
            ) from None
        except OSError as error:
            raise unusable(folder, error) from None
        _close(folder)
        _check(folder)
        yield


def _close(folder: Path) -> None:
    """Let nobody but this account into the folder: it holds exact counts."""
    if stat.S_IMODE(folder.stat().st_mode) & OTHERS == 0:
        return
    try:
        folder.chmod(0o700)
    except OSError:  # it is another account's, as the root of a volume may be; what is made in it is closed
        log.warning("others can look into the data folder %s, which holds exact counts: `chmod 700` it", folder)
    else:
        log.warning("others could look into the data folder %s, which holds exact counts; its mode is 0700 now", folder)


def _check(folder: Path) -> None:
    """Make sure that the files of a former worker can be used, before the broker and the group hear of this one.

    Raises:
        StorageError: one cannot.
    """
    version, shelves = folder / "v1", folder / SHELVES
    tables = version / "tables"
    files = {file for name in _FILES if (file := folder / name).exists()}
    for place in sorted({*files, *_below(version), *_below(shelves)}):
        is_folder = place in (version, tables, shelves) or place.parent in (tables, shelves)
        if is_folder and not place.is_dir():
            raise unusable(place, _of_system(errno.ENOTDIR))
        if not is_folder and place.is_dir():
            raise unusable(place, _of_system(errno.EISDIR))
        if not os.access(place, os.R_OK | os.W_OK | (os.X_OK if is_folder else 0)):
            raise unusable(place, _of_system(errno.EACCES))


def _below(place: Path) -> list[Path]:
    return [place, *place.rglob("*")] if place.exists() else []


def _of_system(number: int) -> OSError:
    return OSError(number, os.strerror(number))
