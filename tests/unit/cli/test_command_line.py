from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import stream_dp
from stream_dp.cli import cli, main
from stream_dp.cli.command_line import command_line, program, short_path
from stream_dp.errors import ConfigError, Fault, ParameterError, StateError, StreamDPError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A console script in a virtual environment that is not on the PATH."""
    script = tmp_path / "some venv" / "bin" / "stream-dp"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return script


def test_program_on_the_path_is_called_by_its_name(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program() == "stream-dp"


def test_program_elsewhere_is_called_the_short_way_from_here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(installed.parent.parent)
    assert program() == "bin/stream-dp"
    monkeypatch.chdir("/")
    assert Path("/", program()).samefile(installed)


def test_another_program_of_that_name_on_the_path_is_not_taken_for_this_one(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "stream-dp"
    other.parent.mkdir()
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert shutil.which("stream-dp") == str(other)
    assert program() != "stream-dp"


def test_shell_reads_a_command_line_back_word_for_word(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a home"
    monkeypatch.setenv("HOME", str(home))
    file = home / "it's" / "flights.yaml"
    line = command_line("tail", file, "a view")
    assert line.startswith(shlex.quote(program()))
    assert short_path(file).startswith("~/")
    words = subprocess.run(
        ["/bin/sh", "-c", f'printf "%s\\n" {line}'], capture_output=True, text=True, check=True, env={"HOME": str(home)}
    )
    assert words.stdout.splitlines()[1:] == ["tail", str(file), "a view"]


COMMANDS = [[name] for name in cli.list_commands(click.Context(cli))]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=str)
def test_help_keeps_its_lines_apart(command: list[str]) -> None:
    said = CliRunner().invoke(cli, [*command, "--help"])

    assert said.exit_code == 0
    assert "\\b" not in said.output, "a paragraph that click should leave as it is"
    assert "\b" not in said.output


TWO = [Fault("k", "must be at least 1"), Fault("delta", "must be below 1")]


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (ConfigError(TWO), 2, ["error: k: must be at least 1", "error: delta: must be below 1"]),
        (ParameterError(TWO), 2, ["error: k: must be at least 1", "error: delta: must be below 1"]),
        (ParameterError("delta must be below 1"), 2, ["error: delta must be below 1"]),
        (StateError("a row is damaged"), 1, ["error: a row is damaged"]),
    ],
    ids=["configuration", "parameters", "parameter", "state"],
)
def test_an_error_of_the_package_ends_the_command_with_a_line_per_fault(
    error: StreamDPError,
    code: int,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("stream_dp.cli.cli", fails)

    with pytest.raises(SystemExit) as ended:
        main()

    assert (ended.value.code, capsys.readouterr().err.splitlines()) == (code, lines)


def test_every_environment_variable_is_in_the_help_and_in_the_documents() -> None:
    sources = Path(stream_dp.__file__).parent.rglob("*.py")
    read = {name for file in sources for name in re.findall(r"STREAM_DP_[A-Z_]+", file.read_text(encoding="utf-8"))}
    assert read == {"STREAM_DP_BROKER", "STREAM_DP_CACHE", "STREAM_DP_KAFKA_VERSION"}
    said = CliRunner().invoke(cli, ["--help"]).stdout
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [name for name in read if name not in said or name not in page] == []
