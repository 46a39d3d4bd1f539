from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.cli.tail_command import schema
from stream_dp.records import codec as records


def test_schema_of_every_record_is_the_default() -> None:
    result = CliRunner().invoke(schema, [])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == records.schema("record")
    assert set(json.loads(result.stdout)["discriminator"]["mapping"]) == {"release", "refusal", "view"}


@pytest.mark.parametrize("name", records.SCHEMA_NAMES)
def test_schema_has_its_name(name: str) -> None:
    body = json.loads(CliRunner().invoke(schema, [name, "--json"]).stdout)
    assert body["$id"] == f"urn:stream-dp:{name}:1"


def test_unknown_name_is_wrong_usage() -> None:
    assert CliRunner().invoke(schema, ["event"]).exit_code == 2


def test_folder_gets_a_file_for_each_schema(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "schemas"
    result = CliRunner().invoke(schema, ["--output", str(folder)])
    assert result.exit_code == 0
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in folder.iterdir()}
    assert files == {f"{name}.schema.json": records.schema(name) for name in records.SCHEMA_NAMES}


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(schema, ["--output", str(tmp_path / "file" / "schemas")])
    assert result.exit_code == 1
    assert "cannot write to" in result.stderr
