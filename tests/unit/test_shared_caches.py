"""Caches hold results of pure functions of public values. Each is listed here and judged in the threat model."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHES = {
    "stream_dp/accounting/composition.py:rho_within": "budgets of the plan",
    "stream_dp/accounting/ledger.py:_from_text": "costs in accounts",
    "stream_dp/kinds/gap.py:_lead": "a gap that is in the record, and parameters of the plan",
    "stream_dp/records/by_kind.py:_histogram": "a published table, on the side of readers",
    "stream_dp/records/models.py:_interval": "the interval of a window or a period",
    "stream_dp/records/models.py:_spent": "a cost that is in the record",
    "stream_dp/releases/publication.py:_view_shares": "shares of a budget that are in the record",
    "stream_dp/runtime/kafka/cluster.py:_warn": "words about a file of the configuration",
    "stream_dp/windows/local_times.py:": "the name of a time zone",
    "stream_dp/windows/shapes/calendars.py:": "the name of a time zone",
    "stream_dp/windows/time_zones.py:": "the name of a time zone",
}
"""Key of each cache; a path without a function stands for all of its caches."""


def cached_functions(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = [ast.unparse(one).rpartition(".")[2] for one in node.decorator_list]
            if any(re.match(r"(lru_)?cache\b", one) for one in decorators):
                found.append(node.name)
    return found


def test_every_cache_is_decided_on() -> None:
    undecided = []
    for room in ("windows", "kinds", "releases", "runtime", "control", "records", "accounting"):
        for path in sorted((ROOT / "stream_dp" / room).rglob("*.py")):
            place = str(path.relative_to(ROOT))
            names = cached_functions(path.read_text(encoding="utf-8"))
            undecided += [f"{place}:{name}" for name in names if not {f"{place}:{name}", f"{place}:"} & CACHES.keys()]
    assert undecided == []


def test_a_cache_is_found() -> None:
    assert cached_functions("@lru_cache(maxsize=3)\ndef one(): ...\n@functools.cache\ndef two(): ...\n") == [
        "one",
        "two",
    ]


def test_tests_named_in_the_threat_model_exist() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"## What users share\n(.*?)(?=\n## )", text, re.DOTALL)
    named = re.findall(r"`(tests/[\w/]+\.py)`", table)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).is_file()] == []
