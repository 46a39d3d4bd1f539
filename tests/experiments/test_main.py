from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from experiments import __main__ as main
from experiments.common.experiment import folder_option


def paper(name: str, *, reproduced: bool) -> click.Command:
    """A paper that is recomputed at once."""

    @click.command(name, help=f"All of {name}.")
    @folder_option
    @click.pass_context
    def command(context: click.Context, *, folder: Path) -> None:
        click.echo(f"{name} into {folder}")
        if not reproduced:
            context.exit(1)

    return command


def run_all(papers: Sequence[click.Command], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    monkeypatch.setattr(main, "PAPERS", papers)
    result = CliRunner().invoke(main.experiments, ["all", "--folder", str(folder)])
    return result.exit_code, result.output.splitlines()


def test_all_papers_run_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = run_all([paper("one", reproduced=True), paper("two", reproduced=True)], tmp_path, monkeypatch)

    assert (code, lines[-1]) == (0, f"two into {tmp_path}")
    assert f"one into {tmp_path}" in lines
    assert "== one: All of one." in lines


def test_a_paper_that_does_not_come_out_does_not_stop_the_others_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines = run_all([paper("one", reproduced=False), paper("two", reproduced=True)], tmp_path, monkeypatch)

    assert (code, lines[-1]) == (1, "NOT reproduced: one")
    assert f"two into {tmp_path}" in lines


@pytest.mark.parametrize("command", [[], *([paper.name] for paper in main.PAPERS), ["all"]], ids=str)
def test_help_keeps_its_lines_apart(command: list[str]) -> None:
    said = CliRunner().invoke(main.experiments, [*command, "--help"])

    assert said.exit_code == 0
    assert "\\b" not in said.output, "a paragraph that click should leave as it is"
    assert "\b" not in said.output


def test_a_paper_has_a_folder_of_its_own() -> None:
    folders = {file.parent.name for file in Path(main.__file__).parent.glob("*/command.py")}

    assert folders == {paper.name for paper in main.PAPERS}
