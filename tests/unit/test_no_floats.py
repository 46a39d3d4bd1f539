"""No float takes part in a privacy decision: an AST check over the layers whose numbers decide what is released.

What it cannot see: the type of a name (`n ** k` with a negative `k`), and what a called function does inside.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "stream_dp"
LAYERS = ("exact", "lossless", "select", "accounting", "histograms", "windows", "kinds", "config", "releases")
FORBIDDEN_MODULES = frozenset({"cmath", "math", "numpy.random", "random", "statistics"})
FORBIDDEN_NAMES = frozenset({"complex", "float", "truediv"})
WHOLE = frozenset({"comb", "factorial", "gcd", "isqrt", "lcm", "perm"})
"""Functions of `math` that take and return whole numbers alone."""


@dataclass(frozen=True)
class Allowed:
    """What may use floats, and why no output depends on it: a function or class, or "<module>" for the rest of one."""

    path: str
    name: str
    reason: str


EXCEPTIONS: tuple[Allowed, ...] = (
    Allowed("kinds/fields.py", "_exact", "it refuses floats, in a file and in memory"),
    Allowed("config/loading.py", "unknown", "how alike two words are, to ask which one was meant"),
)


@dataclass(frozen=True)
class Violation:
    """Where a float can arise; `name` is the outermost function or class around it, or "<module>"."""

    path: str
    line: int
    name: str
    what: str


def violations(source: str, path: str) -> list[Violation]:
    """Everything in a module that makes or takes a float, in the order of the lines."""
    found = []
    for statement in ast.parse(source).body:
        name = "<module>"
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = statement.name
        for node in ast.walk(statement):
            found += [Violation(path, line, name, what) for line, what in _faults(node)]
    return sorted(found, key=lambda violation: violation.line)


def _faults(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Constant(value=float() | complex()):
            yield node.lineno, f"the literal {node.value!r}"
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            yield node.lineno, "a true division"
        case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp(op=ast.USub())):
            yield node.lineno, "a power with a negative exponent"
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in FORBIDDEN_NAMES:
            yield node.lineno, f"the name {name}"
        case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
            yield node.lineno, "the module numpy.random"
        case ast.Import(names=aliases):
            yield from ((node.lineno, f"the module {alias.name}") for alias in aliases if _forbidden(alias.name))
        case ast.ImportFrom(module="math", names=aliases, level=0) if all(alias.name in WHOLE for alias in aliases):
            return
        case ast.ImportFrom(module=str(module), names=aliases, level=0):
            names = [module, *(f"{module}.{alias.name}" for alias in aliases)]
            yield from ((node.lineno, f"the module {name}") for name in names if _forbidden(name))
            yield from ((node.lineno, f"the name {alias.name}") for alias in aliases if alias.name in FORBIDDEN_NAMES)
        case _:
            return


def _forbidden(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in FORBIDDEN_MODULES)


def checked_files() -> list[Path]:
    return sorted(file for layer in LAYERS for file in (PACKAGE / layer).rglob("*.py"))


def all_violations() -> list[Violation]:
    return [
        violation
        for file in checked_files()
        for violation in violations(file.read_text(), file.relative_to(PACKAGE).as_posix())
    ]


def covers(allowed: Allowed, violation: Violation) -> bool:
    return (allowed.path, allowed.name) == (violation.path, violation.name)


def refused(found: list[Violation], exceptions: tuple[Allowed, ...]) -> list[Violation]:
    return [violation for violation in found if not any(covers(allowed, violation) for allowed in exceptions)]


def test_the_layers_that_decide_outputs_use_no_floats() -> None:
    assert refused(all_violations(), EXCEPTIONS) == []


def test_every_exception_is_still_needed_and_says_why() -> None:
    found = all_violations()

    def needed(allowed: Allowed) -> bool:
        return any(covers(allowed, violation) for violation in found)

    assert [allowed for allowed in EXCEPTIONS if not needed(allowed) or not allowed.reason] == []


def test_an_exception_covers_its_function_and_nothing_else() -> None:
    found = violations("def hint(n):\n    return n / 2\n\n\ndef noise(n):\n    return n / 2\n", "a.py")

    assert refused(found, (Allowed("a.py", "hint", "display only"),)) == found[1:]
    assert refused(found, (Allowed("b.py", "hint", "another module"),)) == found


def test_every_layer_is_really_read() -> None:
    names = {file.relative_to(PACKAGE).as_posix() for file in checked_files()}

    assert {"exact/coins.py", "lossless/sealed.py", "select/gumbel.py", "accounting/ledger.py"} <= names


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("x = 1.0", "the literal 1.0"),
        ("x = 1e-6", "the literal 1e-06"),
        ("x = 2j", "the literal 2j"),
        ("x = [f(a, b=-0.5)]", "the literal 0.5"),
        ("x = a / b", "a true division"),
        ("x /= b", "a true division"),
        ("x = lambda a: a / 2", "a true division"),
        ("x = 2 ** -64", "a power with a negative exponent"),
        ("x = float(a)", "the name float"),
        ("x = map(float, a)", "the name float"),
        ("def f(x: float) -> int: ...", "the name float"),
        ("x = builtins.float(a)", "the name float"),
        ("x = complex(a)", "the name complex"),
        ("from operator import truediv", "the name truediv"),
        ("x = operator.truediv(a, b)", "the name truediv"),
        ("import math", "the module math"),
        ("import os, math as m", "the module math"),
        ("from math import log", "the module math"),
        ("from math import comb, log", "the module math"),
        ("from math import *", "the module math"),
        ("import random", "the module random"),
        ("from random import Random", "the module random"),
        ("import cmath", "the module cmath"),
        ("import statistics", "the module statistics"),
        ("import numpy.random", "the module numpy.random"),
        ("import numpy.random.mtrand", "the module numpy.random.mtrand"),
        ("from numpy import random", "the module numpy.random"),
        ("from numpy.random import default_rng", "the module numpy.random"),
        ("x = np.random.default_rng()", "the module numpy.random"),
        ("x = numpy.random.default_rng()", "the module numpy.random"),
        ("def f():\n    import math", "the module math"),
    ],
)
def test_the_check_finds_each_way_to_a_float(source: str, what: str) -> None:
    assert what in [violation.what for violation in violations(source, "module.py")]


@pytest.mark.parametrize(
    "source",
    [
        "x = a // b",
        "x = 2 ** k - 3 * 4",
        "x = Fraction(1, 3)",
        '"""A / b, 0.5 and float in a text."""',
        "# 1.5 / 2",
        "import numpy as np\nx = np.int64",
        "from .random import walk",
        "import mathematics",
        "from math import comb, gcd",
    ],
)
def test_the_check_lets_integers_and_fractions_pass(source: str) -> None:
    assert violations(source, "module.py") == []


def test_a_violation_is_placed_by_line_and_by_the_outermost_name() -> None:
    source = "x = 1\n\n\nclass Noise:\n    def draw(self):\n        return 1 / 3\n\n\ny = 0.5\n"

    assert violations(source, "a/b.py") == [
        Violation("a/b.py", 6, "Noise", "a true division"),
        Violation("a/b.py", 9, "<module>", "the literal 0.5"),
    ]
