"""The page for operators explains every reason, and its alerts are about metrics that there are."""

from __future__ import annotations

import re

from tests.support.operating import METRICS, PAGE
from tests.support.reasons import REASONS


def test_alerts_are_about_metrics_that_there_are() -> None:
    alerts = PAGE.partition("## Alerts")[2].partition("## Logs")[0]
    found = set(re.findall(r"stream_dp_\w+", alerts))
    assert found
    assert found <= METRICS.keys()


def test_every_reason_is_explained() -> None:
    table = PAGE.partition("| reason |")[2].partition("##")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == REASONS
