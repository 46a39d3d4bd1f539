"""Every benchmark explains itself, and every command given for one has options that exist."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
BENCH = CHECKOUT / "tests" / "bench"
SCRIPTS = [file.stem for file in sorted(BENCH.glob("*.py")) if "parse_args()" in file.read_text(encoding="utf-8")]
COMMAND = re.compile(r"(?:python -m tests\.bench\.(\w+)|`tests\.bench\.(\w+)(?= --))([^`\"#>\n]*)")
"""A command up to the end of its line, or up to a comment, a redirection or a quotation mark."""
OWN_OPTION = re.compile(r"`(--\w[^`]*)`")


class AcceptedError(Exception):
    """The options were parsed; nothing was measured."""


def given_commands() -> Iterator[tuple[str, str]]:
    """Script and options of each command in a document or docstring, and the options that a script names as its own."""
    for file in [*sorted((CHECKOUT / "docs").rglob("*.md")), *sorted(BENCH.rglob("*.py"))]:
        text = file.read_text(encoding="utf-8")
        for run, mentioned, options in COMMAND.findall(text):
            yield run or mentioned, options.strip()
        if file.parent == BENCH and file.stem in SCRIPTS:
            for option in OWN_OPTION.findall(text):
                yield file.stem, option


@pytest.mark.parametrize("script", SCRIPTS)
def test_benchmark_has_a_help_page(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help"])

    with pytest.raises(SystemExit) as ended:
        import_module(f"tests.bench.{script}").main()

    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


@pytest.mark.parametrize(("script", "options"), sorted(set(given_commands())))
def test_given_command_is_accepted(script: str, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise AcceptedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [script, *shlex.split(options)])

    with pytest.raises(AcceptedError):
        import_module(f"tests.bench.{script}").main()


def test_commands_are_found_where_they_are_given() -> None:
    found = set(given_commands())

    assert ("throughput", "--events 600000 --plain-events 30000 --json") in found
    assert ("accuracy", "--discovery") in found
    assert {script for script, _ in found} >= set(SCRIPTS) - {"sides"}
