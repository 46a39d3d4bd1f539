"""The page for operators explains every reason, and its alerts are about metrics that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from stream_dp.windows import bounding, events
from tests.support.operating import METRICS, PAGE


def test_alerts_are_about_metrics_that_there_are() -> None:
    alerts = PAGE.partition("## Alerts")[2].partition("## Logs")[0]
    found = set(re.findall(r"stream_dp_\w+", alerts))
    assert found
    assert found <= METRICS.keys()


def test_every_reason_is_explained() -> None:
    reasons = set()
    for module in (bounding, events):
        assert module.__file__ is not None
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.Call) and "refuse" in ast.unparse(node.func).lower():
                reasons |= {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and part.value}
    table = PAGE.partition("| reason |")[2].partition("##")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == reasons
