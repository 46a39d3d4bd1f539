"""The key file: made once, never readable by others, the same for ever."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.runtime.keys import key_id, load_key


def test_missing_key_file_is_made_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    umask = os.umask(0)
    try:
        key = load_key(path)
    finally:
        os.umask(umask)

    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key(path) == key
    assert load_key(tmp_path / "other.key") != key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_key_file_that_others_can_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret.key"
    load_key(path)
    path.chmod(mode)

    with pytest.raises(ConfigError, match=r"key_file: .* can be read by others; `chmod 600` it"):
        load_key(path)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_key_of_a_wrong_length_is_refused_and_left_alone(tmp_path: Path, length: int) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(bytes(length))
    path.chmod(0o600)

    with pytest.raises(ConfigError, match=f"holds {length} bytes, a key has 32"):
        load_key(path)
    assert path.read_bytes() == bytes(length)


def test_key_file_in_a_missing_folder_or_in_place_of_a_folder_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make"):
        load_key(tmp_path / "nowhere" / "secret.key")
    with pytest.raises(ConfigError, match=r"cannot read|can be read by others"):
        load_key(tmp_path)


def test_key_id_names_the_key_and_is_no_part_of_it() -> None:
    key = bytes(range(32))

    assert key_id(key) == bytes.fromhex("c08aa03ad1d5dac7")
    assert key_id(key) not in key
    assert key_id(bytes(32)) != key_id(key)
