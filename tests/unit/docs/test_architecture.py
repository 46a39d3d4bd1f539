"""The ways through the code that the documents draw: every file and function that they name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
ARCHITECTURE = (CHECKOUT / "docs" / "architecture.md").read_text()
NAMED = re.findall(r"`((?:\w+/)+\w+\.py)` `([\w.]+)`", ARCHITECTURE)


def names_of(file: Path) -> set[str]:
    """Functions, classes, and methods as Class.method."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}.{part.name}" for part in inner}
    return names


def test_the_ways_of_an_event_and_of_a_grant_are_drawn() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_the_architecture_names_is_there(file: str, name: str) -> None:
    place = CHECKOUT / file if file.startswith("agents/") else CHECKOUT / "stream_dp" / file
    assert name in names_of(place)


def test_the_layers_are_those_of_the_import_contract() -> None:
    layers = ARCHITECTURE.partition("## Layers")[2].partition("A package imports")[0]
    listed = [
        name for row in re.findall(r"^\| (`.*?) \|", layers, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    contract = (CHECKOUT / "pyproject.toml").read_text().partition("Layers point downwards")[2].partition("]\n\n")[0]
    assert listed == [
        name for line in reversed(contract.splitlines()) for name in re.findall(r"stream_dp\.(\w+)", line)
    ]
