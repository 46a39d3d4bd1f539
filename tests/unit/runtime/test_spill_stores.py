"""Scratch databases: what they keep, and that nothing of it stays behind."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from sys import getsizeof

import pytest
import rocksdict

from stream_dp.runtime.storage import DiskSpillStore, DiskSpillStores
from stream_dp.windows.encoding import CHUNK_BYTES

CACHE = rocksdict.Cache(1 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spill"


def test_a_spill_store_gives_back_what_was_put_last_and_none_for_the_rest(folder: Path) -> None:
    spill_store = DiskSpillStores(folder, CACHE)()
    spill_store.put((b"%d" % number, b"") for number in range(1000))
    spill_store.put([(b"7", b"\x00"), (b"\xff\x00", b"x")])
    assert spill_store.get([b"7", b"8", b"1000", b"\xff\x00", b""]) == [b"\x00", b"", None, b"x", None]
    assert spill_store.get([]) == []


def test_short_rows_are_stored_a_few_megabytes_of_objects_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is far larger in memory than its text: a window that is put away must not take twice its memory."""
    spill_store, at_once = DiskSpillStores(folder, CACHE)(), list[int]()
    monkeypatch.setattr(
        spill_store._database, "write", lambda rows: at_once.append(sum(map(getsizeof, chain.from_iterable(rows))))
    )
    spill_store.put((b"%d" % number, b"") for number in range(100_000))
    assert len(at_once) > 1
    assert max(at_once) < CHUNK_BYTES


def filled(spill_stores: DiskSpillStores) -> DiskSpillStore:
    spill_store = spill_stores()
    spill_store.put((b"secret %d" % number, bytes(1000)) for number in range(50_000))
    assert spill_store.get([b"secret 1"]) == [bytes(1000)]
    return spill_store


def test_spill_stores_are_apart_and_one_that_is_dropped_leaves_no_file(folder: Path) -> None:
    spill_stores = DiskSpillStores(folder, CACHE)
    one, other = filled(spill_stores), spill_stores()
    assert other.get([b"secret 1"]) == [None]
    assert any(file.suffix == ".sst" for file in folder.rglob("*"))
    one.drop()
    other.drop()
    assert list(folder.iterdir()) == []


def test_a_spill_store_that_is_forgotten_leaves_no_file(folder: Path) -> None:
    """A counter is thrown away when its partition changes hands, in the middle of whatever it does."""
    spill_store = filled(DiskSpillStores(folder, CACHE))
    del spill_store
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_left_is_deleted_before_a_spill_store_is_made(folder: Path) -> None:
    (folder / "left").mkdir(parents=True)
    (folder / "left" / "000012.sst").write_bytes(b"secret")
    DiskSpillStores(folder, CACHE)
    assert not folder.exists()
