"""Scratch databases for windows that have outgrown memory (`stream_dp.windows.open_windows.Shelf`).

They hold users and items, so they are gone as soon as nobody needs them: with the window, with the counter that forgot
it, with the process; and what a killed process has left, before the next one makes any.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import mkdtemp

import rocksdict

from stream_dp.runtime.storage import Database, table_options, unusable
from stream_dp.windows.sizes import CHUNK_BYTES, cut, row_size


class Shelves:
    """Makes shelves in a folder; what stands there already is deleted."""

    def __init__(self, folder: Path, cache: rocksdict.Cache) -> None:
        """Clear the folder.

        Args:
            folder: below the data folder, and used by this process alone.
            cache: of the tables of the process.
        """
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._cache = cache

    def __call__(self) -> DiskShelf:
        """A new shelf."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return DiskShelf(Path(mkdtemp(dir=self._folder)), self._cache)
        except Exception as error:  # rocksdict has no class of its own
            raise unusable(self._folder, error) from None


class DiskShelf:
    """A database in a folder of its own, without a log; both vanish with the object at the latest."""

    def __init__(self, folder: Path, cache: rocksdict.Cache) -> None:
        rocks = rocksdict.Rdict(str(folder), table_options(cache))
        unlogged = rocksdict.WriteOptions()
        unlogged.disable_wal = True
        rocks.set_write_options(unlogged)
        self._folder = folder
        self._database = Database(rocks, folder)
        self._vanish = weakref.finalize(self, _vanish, rocks, folder)

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """See `Shelf`."""
        return self._database.get_all(keys)

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """See `Shelf`."""
        for some in cut(entries, row_size, CHUNK_BYTES):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in some:
                batch.put(key, value)
            self._database.write(batch)

    def drop(self) -> None:
        """See `Shelf`."""
        try:
            self._vanish()
        except OSError as error:
            raise unusable(self._folder, error) from None


def _vanish(database: rocksdict.Rdict, folder: Path) -> None:
    database.close()
    shutil.rmtree(folder)
