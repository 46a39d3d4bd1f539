"""The command for keys: what it shows is never a secret, and what it changes is what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from stream_dp.runtime.key_file import load_keys

Make = Callable[..., Any]


@pytest.fixture
def key_file(visits_file: Path) -> Path:
    """The key file of the application, as its first worker makes it."""
    path = visits_file.with_name("visits.key")
    load_keys(path)
    return path


def secrets(key_file: Path) -> list[str]:
    return [secret.hex() for secret in load_keys(key_file).secrets.values()]


def test_keys_are_listed_by_id_and_no_secret_is_shown(call: Make, visits_file: Path, key_file: Path) -> None:
    call("keys", "rotate", visits_file)
    call("keys", "rotate", visits_file)
    first, second, third = (key.id for key in load_keys(key_file).keys)
    former = secrets(key_file)
    call("keys", "retire", visits_file, second, "--yes")

    said = call("keys", visits_file)

    assert said.code == 0
    made = r"made \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    head, *rows = said.out.splitlines()
    assert head.endswith("visits.key, oldest first")
    for row, pattern in zip(
        rows,
        [
            f"{first}  {made}  for windows sealed with it",
            f"{second}  {made}  retired",
            f"{third}  {made}  in use",
        ],
        strict=True,
    ):
        assert re.fullmatch(f"  {pattern}", row)
    assert not [secret for secret in former if secret in said.out]
    assert call("keys", "list", visits_file).out == said.out


def test_rotation_says_what_is_to_be_done_and_tells_no_secret(call: Make, visits_file: Path, key_file: Path) -> None:
    said = call("keys", "rotate", visits_file)
    _, second = load_keys(key_file).keys
    assert said.code == 0
    assert said.out.startswith(f"Key {second.id} was added to ")
    assert "Copy the file to every machine" in said.out
    assert "Restart the workers" in said.out
    assert not [secret for secret in secrets(key_file) if secret in said.out]


@pytest.mark.parametrize("command", [[], ["rotate"]])
def test_a_key_file_is_made_by_a_worker_and_by_nobody_else(call: Make, visits_file: Path, command: list[str]) -> None:
    said = call("keys", *command, visits_file)
    assert said.code == 2
    assert re.match(r"error: key_file: cannot read .*visits.key: No such file", said.err)
    assert not visits_file.with_name("visits.key").exists()


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_retiring_asks_and_does_nothing_without_consent(
    call: Make, visits_file: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    call("keys", "rotate", visits_file)
    first, before = load_keys(key_file).application, key_file.read_bytes()
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    said = call("keys", "retire", visits_file, first)
    assert said.code == 1
    assert "never sharpened again" in said.out
    assert key_file.read_bytes() == before

    monkeypatch.setattr("sys.stdin", StringIO("y\n"))
    assert call("keys", "retire", visits_file, first).code == 0
    assert [key.secret is None for key in load_keys(key_file).keys] == [True, False]


def test_the_key_in_use_is_not_retired_and_nobody_is_asked(call: Make, visits_file: Path, key_file: Path) -> None:
    used = load_keys(key_file).application
    said = call("keys", "retire", visits_file, used)
    assert (said.code, said.out) == (2, "")
    assert said.err.strip() == f"error: ID: key {used} is in use. Run `stream-dp keys rotate FILE` first"


def test_a_key_that_the_file_does_not_hold_is_written_down_as_lost(
    call: Make, visits_file: Path, key_file: Path
) -> None:
    said = call("keys", "retire", visits_file, "0123456789abcdef", "--yes")
    assert said.code == 0
    assert "records key 0123456789abcdef as lost" in said.out
    assert [key.id for key in load_keys(key_file).keys if key.secret is None] == ["0123456789abcdef"]


def test_a_file_that_is_lost_is_replaced_by_one_that_names_the_application_as_before(
    call: Make, visits_file: Path, key_file: Path
) -> None:
    first = load_keys(key_file).application
    key_file.unlink()
    said = call("keys", "retire", visits_file, first, "--yes")
    assert said.code == 0
    assert "a new file with a new key: " in said.out
    ring = load_keys(key_file)
    assert (ring.application, len(ring.keys), len(ring.secrets)) == (first, 2, 1)
    key_file.unlink()
    assert call("keys", "retire", visits_file, "zelda", "--yes").code == 2
    assert not key_file.exists()


def test_a_key_file_is_made_once_and_never_replaced(call: Make, visits_file: Path, key_file: Path) -> None:
    key_file.unlink(missing_ok=True)
    said = call("keys", "new", visits_file)
    (key,) = load_keys(key_file).keys
    made = key_file.read_bytes()

    assert said.out.startswith(f"Key {key.id} was made in ")
    again = call("keys", "new", visits_file)
    assert (again.code, key_file.read_bytes()) == (2, made)
