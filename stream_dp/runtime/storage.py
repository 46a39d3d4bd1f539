"""RocksDB as Faust's store opens it, with errors that are sentences and a failure that is final.

A full or read-only disk ends the worker. Whatever the changelog has acknowledged by then is complete there, and the
next start reads from it what the local rows lack.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import stat
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from threading import Lock
from typing import Any, TypeVar

import rocksdict

from stream_dp.errors import StateError, StorageError
from stream_dp.releases.rows import BLOCK, BUCKET, OUTBOX
from stream_dp.windows.encoding import (
    CHUNK_BYTES,
    WRITE_BUFFER_BYTES,
    WRITE_BUFFERS,
    after,
    cut,
    decode,
    encode,
    row_size,
)

SCHEME = "stream-dp-rocksdb"
COMPACTED_AT_ONCE = 4 << 20
"""Bytes of a family in which one compaction serves several ranges, though it rewrites what lies between them."""
ERASED, ERASED_SOON = "erased", (BUCKET, BLOCK)
"""A column family, and the kinds of rows that are in it: exact counts of windows that wait for their release."""
DELETED = b"\x00deleted"
"""Key of a row that no changelog has: the deleted rows that files may still hold (`Database.follow`)."""

LOG_BYTES, LOG_FILES = 128 << 10, 2
"""Of RocksDB's own log of a database: it tells sizes of rows, and without a bound it fills a disk."""
MANIFEST_BYTES = 1 << 20
OPEN_FILES = 64
"""Of a database; without a bound each takes nine tenths of what the process may open."""
_BLOOM_BITS = 10
"""Of a key: most of what a spill store is asked for is not there."""

_OBJECTS_BYTES = 160
"""Of a row in memory, beside its text: most rows of a spill store are short."""

T = TypeVar("T")

_CONGESTED = "actual-delayed-write-rate", "is-write-stopped", "num-immutable-mem-table"
_LOCKED = ("While lock file", "lock hold by current process")
"""Message of RocksDB about a folder that is still open elsewhere, which passes."""


class Database:
    """The database of one partition of a table.

    The first operation that fails closes it, and all others fail as that one did. If space came free and later rows
    were stored with their changelog offset, it would pass rows that are missing.
    """

    def __init__(self, rocks: Any, folder: Path, erased: Any = None) -> None:
        """Set up the database.

        Args:
            rocks: it, open; nobody else holds it.
            folder: where it stands.
            erased: its column family for `ERASED_SOON`, if it has one. What is erased there rewrites no files but its
                own, however much the database keeps.
        """
        self._rocks: Any = rocks
        self._erased: Any = erased
        self._folder = folder
        self._failure: StorageError | None = None
        self._noting = Lock()
        stored = self.get(DELETED)
        self._deleted = {} if stored is None else decode(dict[bytes, tuple[bytes, bytes, int]], stored)
        """By kind, from where to where rows were deleted that are to be erased, and how many."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""
        found: bytes | None = self._do(lambda rocks: rocks.get(key), key)
        return found

    def get_all(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """The values of keys, in their order."""
        found: Sequence[bytes | None] = self._do(lambda rocks: rocks.get(list(keys)))
        return found

    def items(self, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values in order, one after another."""
        return self._each(lambda rocks: rocks.items(**options), options.get("from_key", b""))

    def keys(self, **options: Any) -> Iterator[bytes]:
        """Keys in order, one after another."""
        return self._each(lambda rocks: rocks.keys(**options), options.get("from_key", b""))

    def put(self, key: bytes, value: bytes) -> None:
        """Store one row."""
        self._do(lambda rocks: rocks.put(key, value), key)

    def write(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Store rows, all or nothing of them; of one key the last, and one of None is deleted."""
        self._do(lambda rocks: rocks.write(self._batch(rocks, rows)))

    def _batch(self, rocks: Any, rows: Iterable[tuple[bytes, bytes | None]]) -> rocksdict.WriteBatch:
        batch = rocksdict.WriteBatch(raw_mode=True)
        erased = None if self._erased is None else rocks.get_column_family_handle(ERASED)
        for key, value in dict(rows).items():
            family = erased if key.startswith(ERASED_SOON) else None
            if value is None:
                batch.delete(key, family)
            else:
                batch.put(key, value, family)
        return batch

    def erase(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        """Leave no file that holds a deleted row of some ranges (`DurableTable.erase`)."""
        options = rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        self._do(lambda rocks: rocks.flush())
        soon = [one for one in ranges if self._erased is not None and one[0].startswith(ERASED_SOON)]
        late = [one for one in ranges if one not in soon]
        if self._erased is not None:  # a log ends when all families have stored what stands in it
            self._do(lambda erased: erased.flush(), ERASED_SOON[0])
        for some in filter(None, (soon, late)):
            joined = self._joined(some)
            self._do(lambda rocks: [rocks.compact_range(*one, options) for one in joined], some[0][0])  # noqa: B023

    @property
    def is_congested(self) -> bool:
        """True if a write would have to wait for RocksDB, and hold up the event loop: rocksdict keeps Python's lock."""
        waits = [self._do(lambda rocks: rocks.property_int_value(f"rocksdb.{name}")) for name in _CONGESTED]  # noqa: B023
        return any(waits)

    def follow(self, rows: Sequence[tuple[bytes, bytes | None]], *own: tuple[bytes, bytes]) -> None:
        """Store rows that were read from a changelog, and note which of them have to be erased.

        Args:
            rows: as another worker committed them.
            own: rows to store with them.
        """
        with self._noting:
            for place in [_window_of(key) for key, value in rows if value is None]:
                first, last, number = self._deleted.get(place[:1], (place, after(place), 0))
                self._deleted[place[:1]] = min(first, place), max(last, after(place)), number + 1
            self.write([*rows, *own, (DELETED, encode(self._deleted))])

    def follow_on(self) -> None:
        """Note that any row may have been deleted and not erased: by the owner that this worker was before."""
        whole = {kind: (kind, after(kind), 0) for kind in ERASED_SOON} | {b"": (b"\x01", b"\xff" * 8, 0)}
        with self._noting:
            self._deleted |= whole
            self.put(DELETED, encode(self._deleted))

    def erase_followed(self) -> None:
        """Leave no file that holds a row which `follow` has deleted. May take seconds: call it off the event loop.

        Published records do not ask for it: they are deleted all the time, and hide nothing.
        """
        with self._noting:
            before = dict(self._deleted)
        if not before.keys() - {OUTBOX}:
            return
        self.erase([(first, last) for first, last, _ in before.values()])
        with self._noting:
            self._deleted = {kind: noted for kind, noted in self._deleted.items() if noted != before.get(kind)}
            self.put(DELETED, encode(self._deleted))

    def _joined(self, ranges: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
        """The ranges, or the one that spans them, where that is little to write: most of a compaction is waiting."""
        first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
        size = self._do(lambda rocks: rocks.property_int_value("rocksdb.live-sst-files-size"), first)
        return [(first, last)] if size <= COMPACTED_AT_ONCE else ranges

    def _do(self, operation: Callable[[Any], T], key: bytes = b"") -> T:
        """Do something with the family of a key."""
        if self._failure is not None:
            raise self._failure
        try:
            apart = self._erased is not None and key.startswith(ERASED_SOON)
            return operation(self._erased if apart else self._rocks)
        except Exception as error:  # rocksdict has no class of its own
            failure = unusable(self._folder, error)
        raise self._failed(failure)

    def _each(self, read: Callable[[Any], Iterable[T]], key: bytes) -> Iterator[T]:
        rows = self._do(read, key)
        try:
            yield from rows
        except Exception as error:
            failure = unusable(self._folder, error)
        else:
            return
        raise self._failed(failure)

    def _failed(self, failure: StorageError) -> StorageError:
        """Close the database; outside of the handlers no error's stack refers to it any more."""
        self._failure, self._rocks, self._erased = failure, None, None
        return failure


def _window_of(key: bytes) -> bytes:
    """The beginning of a key, up to its view and time: what follows may be a user's pseudonym."""
    return key[: 10 + key[1]] if len(key) > 1 else key


def table_options(cache: rocksdict.Cache) -> rocksdict.Options:
    """Options of a database.

    Its files beside its rows stay small however long it is open. What it reads, indexes and filters too, is in the
    cache that all databases of a process share.
    """
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    options.set_max_open_files(OPEN_FILES)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS, block_based=False)
    table.set_block_cache(cache)
    table.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(table)
    options.set_max_log_file_size(LOG_BYTES)
    options.set_keep_log_file_num(LOG_FILES)
    options.set_max_manifest_file_size(MANIFEST_BYTES)
    return options


def open_database(folder: Path, cache: Any) -> Database:
    """Open the database in a folder, or make it.

    Args:
        folder: of the database.
        cache: the block cache of the process.

    Raises:
        StorageError: it cannot be used.
        Exception: RocksDB's own, where it is still open elsewhere, which passes.
    """
    try:
        options = table_options(cache)
        options.create_missing_column_families(True)
        rocks = rocksdict.Rdict(str(folder), options=options, column_families={ERASED: table_options(cache)})
        return Database(rocks, folder, rocks.get_column_family(ERASED))
    except Exception as error:  # rocksdict has no class of its own
        if any(words in str(error) for words in _LOCKED):
            raise
        raise unusable(folder, error) from None


def make_folder(folder: Path) -> None:
    """Make a folder that files can be written to.

    Raises:
        StorageError: they cannot.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise unusable(folder, error) from None


def unusable(place: Path, error: Exception) -> StorageError:
    """Return the error for a place that cannot be read or written.

    Of RocksDB's own words only the system's reason is repeated: what stands in its files is nobody's to read.
    """
    reason = getattr(error, "strerror", None) or _reason(str(error))
    if reason == os.strerror(errno.EMFILE):
        return StorageError(
            f"{place} cannot be used: {reason}; let the process open more files (`ulimit -n`), then start again"
        )
    remedy = _REMEDIES.get(reason) or (_DAMAGED if reason == f"{_REPORTED} corruption" else "")
    return StorageError(
        f"{place} cannot be used: {reason}; {remedy or _FULL}, then start again: what was acknowledged is "
        "in the broker's topics, and what is missing here is read from there",
        is_lasting=bool(remedy),
    )


_FULL = "make room and make it writable"
_REPORTED = "RocksDB reports"
_DAMAGED = "its files are damaged: delete it"
_REMEDIES = {
    os.strerror(errno.EACCES): "give it to the account that this worker runs under",
    os.strerror(errno.EPERM): "give it to the account that this worker runs under",
    os.strerror(errno.ENOENT): _DAMAGED,
    **dict.fromkeys(
        map(os.strerror, (errno.EEXIST, errno.EISDIR, errno.ENOTDIR)),
        "a file is in the place of a folder, or a folder in that of a file: move that away",
    ),
}
"""By the system's reason, where it is one that stays until an operator changes something."""


def _reason(text: str) -> str:
    if text.startswith("IO error") or "(os error" in text:
        found = text.partition(" (os error")[0]
        return next((reason for reason in _REMEDIES if reason in found), found.rsplit(": ", 1)[-1])
    return f"{_REPORTED} {text.partition(':')[0].strip().lower()}"


log = logging.getLogger("stream_dp.worker")

LOCK = "lock"
SPILL_FOLDER = "spill"
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
    version, spill_stores = folder / "v1", folder / SPILL_FOLDER
    tables = version / "tables"
    files = {file for name in _FILES if (file := folder / name).exists()}
    for place in sorted({*files, *_below(version), *_below(spill_stores)}):
        is_folder = place in (version, tables, spill_stores) or place.parent in (tables, spill_stores)
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


class DiskSpillStores:
    """Makes spill stores in a folder; what stands there already is deleted."""

    def __init__(self, folder: Path, cache: rocksdict.Cache) -> None:
        """Clear the folder.

        Args:
            folder: below the data folder, and used by this process alone.
            cache: of the tables of the process.
        """
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._cache = cache

    def __call__(self) -> DiskSpillStore:
        """A new spill store."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            return DiskSpillStore(Path(mkdtemp(dir=self._folder)), self._cache)
        except Exception as error:  # rocksdict has no class of its own
            raise unusable(self._folder, error) from None


class DiskSpillStore:
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
        """See `SpillStore`."""
        return self._database.get_all(keys)

    def put(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """See `SpillStore`."""
        for some in cut(entries, lambda row: row_size(row) + _OBJECTS_BYTES, CHUNK_BYTES):
            self._database.write(some)

    def drop(self) -> None:
        """See `SpillStore`."""
        try:
            self._vanish()
        except OSError as error:
            raise unusable(self._folder, error) from None


def _vanish(database: rocksdict.Rdict, folder: Path) -> None:
    database.close()
    shutil.rmtree(folder)
