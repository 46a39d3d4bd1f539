"""A worker has its data folder to itself."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_dp.errors import StateError
from stream_dp.runtime.storage import make_folder, unusable

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a data folder, made if it is missing; the lock ends with the process, however that ends.

    Raises:
        StateError: another worker holds it.
        StorageError: it cannot be written.
    """
    make_folder(folder)
    try:
        file = (folder / LOCK).open("ab")
    except OSError as error:
        raise unusable(folder, error) from None
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
        yield
