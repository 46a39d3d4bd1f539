"""Docstrings say in their first line what the thing does or is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import stream_dp

PACKAGE = Path(stream_dp.__file__).parent
DONE = (
    "accounting",
    "cli",
    "client",
    "config",
    "control",
    "exact",
    "histograms",
    "kinds",
    "lossless",
    "mechanisms",
    "operations",
    "records",
    "releases",
    "runtime",
    "select",
    "testing",
    "windows",
)
INDIRECT = ("What ", "How ", "Whether ", "Which ")


def files(*packages: str) -> list[Path]:
    return [path for one in packages for path in sorted((PACKAGE / one).rglob("*.py")) or [PACKAGE / one]]


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, also of those behind attributes and constants."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if is_text(node.body[0]):
            yield node.body[0].lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, text in pairwise(node.body):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr) and is_text(text):
                    yield text.lineno, ast.literal_eval(text.value)


def indirect(source: str) -> list[int]:
    """Lines of docstrings that begin with an interrogative."""
    return [line for line, text in docstrings(ast.parse(source)) if text.startswith(INDIRECT)]


@pytest.mark.parametrize("package", DONE)
def test_the_first_line_of_a_docstring_says_what_the_thing_does_or_is(package: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}:{line}"
        for path in files(package)
        for line in indirect(path.read_text())
    ]
    assert found == []


def test_an_indirect_first_line_is_found_wherever_it_stands() -> None:
    source = '"""What it is."""\nA = 1\n"""How many."""\nclass B:\n    """Right."""\n    c: int\n    """Whether."""\n'
    more = '    d: int\n    """Which of them."""\n    def e(self):\n        """What it does."""\n'
    assert indirect(source + more) == [1, 3, 9, 11]
