"""Every reason for which an event is not counted, as the code has them."""

from __future__ import annotations

import ast
from pathlib import Path

from stream_dp.windows import avro, bounding, events, views
from stream_dp.windows import avro as schemas
from stream_dp.windows.handover import CHANGED
from stream_dp.windows.participation import REFUSED
from stream_dp.windows.plausible_times import BAD_WATERMARK


def _reasons() -> frozenset[str]:
    found: set[str] = {CHANGED, REFUSED, BAD_WATERMARK, events.UNKNOWN_SCHEMA, *events.UNREADABLE_REASONS}
    for module in (avro, bounding, events, schemas):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and "refuse" in ast.unparse(node.func).lower():
                values = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found |= {value for value in values if isinstance(value, str) and value}
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "malformed":
                found.add(ast.literal_eval(node.value))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "reason":
                constants = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                found |= {value for value in constants if isinstance(value, str) and value}
    assert views.__file__ is not None
    tree = ast.parse(Path(views.__file__).read_text())
    (judge,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "out_of_time"]
    returned = [part for node in ast.walk(judge) if isinstance(node, ast.Return) for part in ast.walk(node)]
    values = [part.value for part in returned if isinstance(part, ast.Constant)]
    return frozenset(found | {value for value in values if isinstance(value, str) and value})


REASONS = _reasons()
