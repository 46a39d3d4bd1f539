"""RocksDB on a disk that refuses: one sentence, and never an offset that passes rows that are missing."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
import rocksdict

from stream_dp.errors import StorageError, exit_code
from stream_dp.runtime.storage import Database, make_folder, unusable
from tests.support.disks import fill, make_room, no_more_room, small_disk


def opened(folder: Path) -> Database:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    return Database(rocksdict.Rdict(str(folder), options=options), folder)


def write(database: Database, number: int) -> None:
    """Write a row, and its number as the offset."""
    database.write([(b"row %06d" % number, os.urandom(1000)), (b"offset", b"%d" % number)])


def write_until_refused(database: Database, first: int) -> int:
    """The number of the first row that is refused."""
    for number in range(first, first + 1_000_000):
        try:
            write(database, number)
        except StorageError:
            return number
    raise AssertionError("the disk takes everything")


def assert_sound(folder: Path, refused: int) -> None:
    gc.collect()
    database = opened(folder)
    assert database.get(b"offset") == b"%d" % (refused - 1)
    assert list(database.keys(from_key=b"row")) == [b"row %06d" % number for number in range(refused)]


def test_write_that_the_disk_refused_is_the_last_one_though_there_is_room_again(tmp_path: Path) -> None:
    database = opened(tmp_path / "db")
    for number in range(50):
        write(database, number)
    with no_more_room(tmp_path):
        refused = write_until_refused(database, 50)

    with pytest.raises(StorageError, match=r"db cannot be used: File too large; make room"):
        write(database, refused + 1)
    with pytest.raises(StorageError):
        database.get(b"offset")
    assert_sound(tmp_path / "db", refused)


def test_full_disk_refuses_rows_and_erasure_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16) as disk:
        databases = [opened(disk / name) for name in ("written", "erased")]
        for number in range(50):
            for database in databases:
                write(database, number)
        fill(disk)

        refused = write_until_refused(databases[0], 50)
        with pytest.raises(StorageError, match=r"erased cannot be used: No space left on device; make room"):
            databases[1].erase([(b"row", b"rox")])
        with pytest.raises(StorageError, match=r"disk/state cannot be used: No space left on device"):
            make_folder(disk / "state")
        make_room(disk)

        assert_sound(disk / "written", refused)
        assert_sound(disk / "erased", 50)
        make_folder(disk / "state")
        databases.clear()
        gc.collect()


def test_folder_that_nothing_can_be_written_to_is_told_of_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        StorageError, match=r"file/state cannot be used: Not a directory; a file is in the place of a folder"
    ):
        make_folder(tmp_path / "file" / "state")


def test_a_want_of_descriptors_is_not_told_as_a_full_disk() -> None:
    error = Exception("IO error: While open a file for appending: /x/1.sst: Too many open files")
    failure = unusable(Path("/x"), error)
    assert str(failure) == (
        "/x cannot be used: Too many open files; let the process open more files (`ulimit -n`), then start again"
    )
    assert exit_code(failure) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/x"), "Read-only file system"),
        (Exception("IO error: While appending to file: /x/1.log: Input/output error"), "Input/output error"),
        (Exception("No space left on device (os error 28)"), "No space left on device"),
        (Exception("Corruption: block checksum mismatch: stored = secret, in /x/1.sst"), "RocksDB reports corruption"),
    ],
)
def test_only_the_reason_of_an_error_is_repeated(error: Exception, reason: str) -> None:
    assert str(unusable(Path("/x"), error)).startswith(f"/x cannot be used: {reason}; ")
