"""Every reason for which an event is not counted, as the code has them."""

from __future__ import annotations

import ast
from pathlib import Path

from stream_dp.windows import bounding, events


def _reasons() -> frozenset[str]:
    found: set[str] = set()
    for module in (bounding, events):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and "refuse" in ast.unparse(node.func).lower():
                values = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found |= {value for value in values if isinstance(value, str) and value}
    return frozenset(found)


REASONS = _reasons()
