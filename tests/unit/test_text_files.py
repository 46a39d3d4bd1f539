"""A byte order mark, which Windows spreadsheets and editors write, is never part of the text that is read."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.access import Secret
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.gateway.tokens import new_token, read_tokens
from stream_dp.kinds.public_lists import FileSettings, KeyList, fixed_list
from stream_dp.operations.event_tables import open_table
from stream_dp.operations.keys import rotate
from stream_dp.runtime.kafka.cluster import read_secret
from stream_dp.runtime.key_file import fresh_line, read_lines
from tests.support.published import visits_file  # noqa: F401  a fixture


def mark(file: Path) -> Path:
    file.write_bytes(BOM_UTF8 + file.read_bytes())
    return file


def test_mark_is_no_part_of_the_first_key_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("DE\nFR\n")
    mark(tmp_path / "keys.txt")
    assert fixed_list(FileSettings(file="keys.txt"), tmp_path) == KeyList.of(["DE", "FR"])


@pytest.mark.parametrize(
    ("name", "text"),
    [("rows.jsonl", '{"user": "a"}\n{"user": "b"}\n'), ("rows.csv", "user\na\nb\n"), ("rows.tsv", "user\na\nb\n")],
)
def test_mark_loses_no_row_and_no_column(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert list(open_table(mark(tmp_path / name)).rows()) == [{"user": "a"}, {"user": "b"}]


def test_mark_is_no_part_of_a_configuration(visits_file: Path) -> None:  # noqa: F811
    plain = load_plan(visits_file, {})
    assert load_plan(mark(visits_file), {}) == plain


def test_mark_is_no_part_of_a_key_file(tmp_path: Path) -> None:
    file = tmp_path / "app.key"
    file.touch(mode=0o600)
    file.write_text(fresh_line())
    (key,) = read_lines(file)
    mark(file)
    assert read_lines(file) == [key]
    rotate(file)
    assert read_lines(file)[0] == key


def test_mark_is_no_part_of_a_file_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "readers.tokens"
    entry, _ = new_token(file, "public", 0)
    mark(file)
    assert read_tokens(file) == [entry]


def test_mark_is_no_part_of_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    assert read_secret(Secret("broker.sasl.password", file=mark(file))) == "s3cret"


def test_utf_16_is_called_that(tmp_path: Path) -> None:
    """PowerShell writes it by default."""

    def said(read: Callable[[], object]) -> str:
        with pytest.raises(ConfigError) as caught:
            read()
        return str(caught.value)

    for file in (tmp_path / "app.yaml", tmp_path / "keys.txt"):
        file.write_bytes("name: x\n".encode("utf-16"))
    assert "is UTF-16 text. Save it as UTF-8" in said(lambda: load_plan(tmp_path / "app.yaml", {}))
    assert "is UTF-16 text. Save it as UTF-8" in said(lambda: fixed_list(FileSettings(file="keys.txt"), tmp_path))
