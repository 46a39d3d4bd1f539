"""The key file: made once, never readable by others, changed in one piece, and nothing in it is told."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from stream_dp.errors import ConfigError
from stream_dp.operations.keys import retire, rotate
from stream_dp.releases.keyring import KeyRing, PrfKey
from stream_dp.runtime.key_file import load_keys, others_can_use, read_lines

FIRST, SECOND = bytes(range(32)), bytes(32)
FIRST_ID, SECOND_ID = PrfKey.of(FIRST).id, PrfKey.of(SECOND).id


def key_file(folder: Path, *lines: str) -> Path:
    path = folder / "secret.key"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path


def test_missing_key_file_is_made_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secret.key"
    umask = os.umask(0)
    try:
        keys = load_keys(path)
    finally:
        os.umask(umask)

    assert len(keys.keys) == 1
    assert len(keys.newest[1]) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_keys(path) == keys
    assert load_keys(tmp_path / "other.key") != keys
    (line,) = read_lines(path)
    assert line.made is not None


def test_of_workers_that_make_the_file_at_once_all_read_the_same_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fsync = tmp_path / "secret.key", os.fsync
    found: list[KeyRing] = []

    def another_meanwhile(descriptor: int) -> None:
        """While the file is written, another worker starts."""
        fsync(descriptor)
        monkeypatch.setattr(os, "fsync", fsync)
        assert not path.exists()
        found.append(load_keys(path))

    monkeypatch.setattr(os, "fsync", another_meanwhile)
    keys = load_keys(path)
    assert found == [keys]
    assert list(tmp_path.iterdir()) == [path]


def test_keys_stand_a_line_each_among_comments_and_the_last_that_is_not_retired_is_in_use(tmp_path: Path) -> None:
    comment = f"# a secret in a comment is none: {SECOND.hex()}"
    keys = load_keys(
        key_file(tmp_path, comment, "", f"  {FIRST.hex()} # made 2026-01-31T09:30:00Z\r", f"retired {'ab' * 8}")
    )
    assert [(key.id, key.secret) for key in keys.keys] == [(FIRST_ID, FIRST), ("ab" * 8, None)]
    assert keys.newest == (FIRST_ID, FIRST)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_key_file_that_others_can_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret.key"
    load_keys(path)
    path.chmod(mode)

    with pytest.raises(ConfigError, match=r"key_file: .* can be read by others; `chmod 600` it"):
        load_keys(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no key; put back a copy"),
        (b"# nothing\n\n", "holds no key; put back a copy"),
        (b"retired 0123456789abcdef\n", "holds no key; put back a copy"),
        (bytes(range(1, 33)), r"line 1 of .* is no key; that is 64 hexadecimal digits"),
        (FIRST.hex().encode() + b"\n" + FIRST.hex().upper().encode(), "line 2 of .* is no key"),
        (FIRST.hex().encode()[:-1], "line 1 of .* is no key"),
        (FIRST.hex().encode() + b"00", "line 1 of .* is no key"),
        (FIRST.hex().encode() + b" " + SECOND.hex().encode(), "line 1 of .* is no key"),
        (b"\xff" * 64, "line 1 of .* is no key"),
        (f"{FIRST.hex()}\nretired {FIRST_ID}\n".encode(), "holds a key twice"),
    ],
)
def test_file_that_is_not_one_of_keys_is_refused_left_alone_and_not_told(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(content)
    path.chmod(0o600)

    for attempt in (load_keys, rotate):
        with pytest.raises(ConfigError, match=message) as caught:
            attempt(path)
        assert FIRST.hex()[:20].lower() not in str(caught.value).lower()
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_key_file_in_a_missing_folder_or_in_place_of_a_folder_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot make"):
        load_keys(tmp_path / "nowhere" / "secret.key")
    with pytest.raises(ConfigError, match=r"cannot read|can be read by others"):
        load_keys(tmp_path)
    with pytest.raises(ConfigError, match="cannot read"):
        rotate(tmp_path / "secret.key")
    assert list(tmp_path.iterdir()) == []


# -- rotation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "\n"])
def test_rotation_appends_a_fresh_key_and_keeps_every_line(tmp_path: Path, end: str) -> None:
    lines = ["# of the shop", FIRST.hex() + "  # mine", f"retired {SECOND_ID}"]
    path = key_file(tmp_path, *lines)
    path.write_text(path.read_text() + end)
    ids = [rotate(path), rotate(path)]
    assert path.read_text().split("\n")[:3] == lines
    assert [key.id for key in load_keys(path).keys] == [FIRST_ID, SECOND_ID, *ids]
    assert load_keys(path).newest[0] == ids[1]
    assert load_keys(path).application == FIRST_ID
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_rotation_through_a_link_changes_the_file_and_leaves_the_link(tmp_path: Path) -> None:
    path = key_file(tmp_path, FIRST.hex())
    link = tmp_path / "link.key"
    link.symlink_to(path)
    rotate(link)
    assert link.is_symlink()
    assert len(load_keys(path).keys) == 2


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_rotation_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = key_file(tmp_path, FIRST.hex())
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        rotate(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_changes_at_once_the_second_is_refused_and_the_first_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key_file(tmp_path, FIRST.hex())
    urandom, refused = os.urandom, []

    def second_change(size: int) -> bytes:
        monkeypatch.setattr(os, "urandom", urandom)
        with pytest.raises(ConfigError, match=re.escape(f"{path}.new exists: another change is running")) as caught:
            rotate(path)
        refused.append(caught.value)
        return urandom(size)

    monkeypatch.setattr(os, "urandom", second_change)
    added = rotate(path)
    assert refused
    assert [key.id for key in load_keys(path).keys] == [FIRST_ID, added]


# -- retiring -------------------------------------------------------------------------------------------------------


def test_a_retired_key_keeps_its_place_and_id_and_its_secret_is_gone(tmp_path: Path) -> None:
    path = key_file(tmp_path, "# head", f"{FIRST.hex()}  # made 2026-01-31T09:30:00Z", "# middle", SECOND.hex(), "")
    retire(path, FIRST_ID)
    assert path.read_text() == (f"# head\nretired {FIRST_ID}  # made 2026-01-31T09:30:00Z\n# middle\n{SECOND.hex()}\n")
    assert load_keys(path).application == FIRST_ID
    assert [line.made for line in read_lines(path)] == ["2026-01-31T09:30:00Z", None]


def test_a_lost_key_is_written_down_behind_the_others_and_the_one_in_use_stays_in_use(tmp_path: Path) -> None:
    path = key_file(tmp_path, FIRST.hex())
    retire(path, SECOND_ID)
    keys = load_keys(path)
    assert [(key.id, key.secret) for key in keys.keys] == [(FIRST_ID, FIRST), (SECOND_ID, None)]
    assert (keys.application, keys.newest) == (FIRST_ID, (FIRST_ID, FIRST))


@pytest.mark.parametrize(
    ("key_id", "message"),
    [
        (FIRST_ID, f"ID: key {FIRST_ID} is in use. Run `stream-dp keys rotate FILE` first"),
        (SECOND_ID, f"ID: key {SECOND_ID} is retired already"),
        ("first", f"ID: 'first' is not the id of a key; there are {SECOND_ID}, {FIRST_ID}"),
    ],
)
def test_the_key_in_use_a_retired_one_and_what_is_no_key_are_refused(tmp_path: Path, key_id: str, message: str) -> None:
    path = key_file(tmp_path, f"retired {SECOND_ID}", FIRST.hex())
    before = path.read_bytes()
    with pytest.raises(ConfigError) as caught:
        retire(path, key_id)
    assert str(caught.value) == message
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("owner", "mode", "refused"),
    [
        (1000, 0o600, False),
        (1000, 0o640, True),
        (0, 0o440, False),
        (0, 0o640, False),
        (0, 0o660, True),
        (0, 0o644, True),
    ],
)
def test_a_group_may_only_read_what_root_hands_over(
    owner: int, mode: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert others_can_use(os.stat_result((mode, 0, 0, 1, owner, 1000, 0, 0, 0, 0))) == refused
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert others_can_use(os.stat_result((0o640, 0, 0, 1, 0, 0, 0, 0, 0, 0)))


def test_a_key_file_is_read_from_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """Root may write everywhere, so the test asks for more: nothing is made there at all."""
    path = key_file(tmp_path, FIRST.hex())
    before = tmp_path.stat().st_mtime_ns

    assert load_keys(path).newest == (FIRST_ID, FIRST)
    assert tmp_path.stat().st_mtime_ns == before
