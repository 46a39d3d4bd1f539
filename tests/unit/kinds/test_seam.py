"""Nobody but the kinds themselves asks which kind a view is, and nobody but `windows.shapes` adds up window lengths."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from stream_dp.kinds import KINDS

PACKAGE = Path(__file__).parents[3] / "stream_dp"


@cache
def modules() -> Sequence[tuple[str, ast.Module]]:
    return [
        (file.relative_to(PACKAGE).as_posix(), ast.parse(file.read_text())) for file in sorted(PACKAGE.rglob("*.py"))
    ]


def asks(tree: ast.AST) -> list[str]:
    """What compares with the name of a kind, imports the module of one, or asks for a class of one."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(comparators=comparators) if any(_names_kind(value) for value in comparators):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.MatchValue(value=value) if _names_kind(value):
                found.append(f"line {value.lineno}: case {ast.unparse(value)}")
            case ast.ImportFrom(module=str(module)) if module.removeprefix("stream_dp.kinds.") in KINDS:
                found.append(f"line {node.lineno}: imports {module}")
            case ast.ImportFrom(module="stream_dp.kinds", names=names) if {name.name for name in names} & KINDS.keys():
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def _names_kind(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and part.value in KINDS for part in ast.walk(node))


def test_nothing_outside_the_kinds_asks_which_kind_a_view_is() -> None:
    found = {path: asks(tree) for path, tree in modules() if not path.startswith("kinds/")}
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_the_search_finds_what_it_is_for() -> None:
    for text in (
        'if view.kind.name == "histogram":\n    pass',
        'x = kind in ("topk", "other")',
        'match kind:\n    case "topk":\n        pass',
        "from stream_dp.kinds.topk import TopKPlan",
        "from stream_dp.kinds import histogram",
    ):
        assert asks(ast.parse(text)), text
    assert asks(ast.parse("from stream_dp.kinds import KINDS\nKINDS[view.kind.name]")) == []


CUTS = ("shape", "tumbling")
"""A ledger's period that began, and the times at which something is done, are intervals of one length."""


def test_nothing_outside_the_shapes_asks_which_shape_windows_have() -> None:
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not path.startswith("windows/shapes/") and f"{module}.".startswith("stream_dp.windows.shapes."):
                found.append((path, module.rpartition(".")[2]))
    others = {(path, name) for path, name in found if name not in CUTS}
    assert others == {
        ("records/view_record.py", "calendars"),  # how a reader cuts windows by the record of a view
        ("config/crosschecks.py", "shapes"),  # which shape the settings ask for
        ("kinds/running.py", "running_totals"),  # how many blocks a pane is in
    }


def test_only_the_shapes_add_up_lengths_of_windows_and_periods() -> None:
    """Elsewhere a length is shown as a duration, compared or fingerprinted; it is in no sum, product or remainder."""
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp | ast.AugAssign) and not path.startswith("windows/shapes/"):
                names = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                if names & {"length_ms", "origin_ms"}:
                    found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
