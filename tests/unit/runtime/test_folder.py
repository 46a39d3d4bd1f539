"""A data folder serves one worker at a time, and says so when it cannot serve any."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stream_dp.errors import StateError, StorageError
from stream_dp.runtime.storage import locked

HOLD = """
import pathlib, sys
from stream_dp.runtime.storage import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_folder_is_made_and_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "new" / "state"):
            assert (tmp_path / "new" / "state").is_dir()


def test_folder_that_another_process_holds_is_refused_until_that_ends_however_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(StateError, match=f"another worker runs on the data folder {re.escape(str(tmp_path))}"),
            locked(tmp_path),
        ):
            pass
        holder.kill()
    with locked(tmp_path):
        pass


def test_folder_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    words = f"{re.escape(str(file / 'state'))} cannot be used: Not a directory"
    with pytest.raises(StorageError, match=words), locked(file / "state"):
        pass


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_open_to_its_account_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "state"):
        assert mode(tmp_path / "state") == 0o700


@pytest.mark.parametrize("former", [0o755, 0o750, 0o701])
def test_a_folder_that_others_could_look_into_is_closed_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, former: int
) -> None:
    tmp_path.chmod(former)
    for _ in range(2):
        with locked(tmp_path):
            assert mode(tmp_path) == 0o700
    assert caplog.messages == [
        f"others could look into the data folder {tmp_path}, which holds exact counts; its mode is 0700 now"
    ]


def test_a_volume_of_another_account_is_used_and_the_log_says_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    tmp_path.chmod(0o775)
    monkeypatch.setattr(Path, "chmod", refuse)
    with locked(tmp_path):
        assert caplog.messages == [
            f"others can look into the data folder {tmp_path}, which holds exact counts: `chmod 700` it"
        ]
