"""Scratch databases: what they keep, and that nothing of it stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from stream_dp.runtime.storage import DiskShelf, Shelves

CACHE = rocksdict.Cache(1 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shelves"


def test_a_shelf_gives_back_what_was_put_last_and_none_for_the_rest(folder: Path) -> None:
    shelf = Shelves(folder, CACHE)()
    shelf.put((b"%d" % number, b"") for number in range(1000))
    shelf.put([(b"7", b"\x00"), (b"\xff\x00", b"x")])
    assert shelf.get([b"7", b"8", b"1000", b"\xff\x00", b""]) == [b"\x00", b"", None, b"x", None]
    assert shelf.get([]) == []


def filled(shelves: Shelves) -> DiskShelf:
    shelf = shelves()
    shelf.put((b"secret %d" % number, bytes(1000)) for number in range(50_000))
    assert shelf.get([b"secret 1"]) == [bytes(1000)]
    return shelf


def test_shelves_are_apart_and_one_that_is_dropped_leaves_no_file(folder: Path) -> None:
    shelves = Shelves(folder, CACHE)
    one, other = filled(shelves), shelves()
    assert other.get([b"secret 1"]) == [None]
    assert any(file.suffix == ".sst" for file in folder.rglob("*"))
    one.drop()
    other.drop()
    assert list(folder.iterdir()) == []


def test_a_shelf_that_is_forgotten_leaves_no_file(folder: Path) -> None:
    """A counter is thrown away when its partition changes hands, in the middle of whatever it does."""
    shelf = filled(Shelves(folder, CACHE))
    del shelf
    assert list(folder.iterdir()) == []


def test_what_a_killed_process_left_is_deleted_before_a_shelf_is_made(folder: Path) -> None:
    (folder / "left").mkdir(parents=True)
    (folder / "left" / "000012.sst").write_bytes(b"secret")
    Shelves(folder, CACHE)
    assert not folder.exists()
