"""The page for operators explains every reason, and its alerts are about metrics that there are."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import plan_from
from tests.support.operating import METRICS, PAGE
from tests.support.reasons import REASONS
from tests.support.visits import configuration


def test_alerts_are_about_metrics_that_there_are() -> None:
    alerts = PAGE.partition("## Alerts")[2].partition("## Logs")[0]
    found = set(re.findall(r"stream_dp_\w+", alerts))
    assert found
    assert found <= METRICS.keys()


def test_every_reason_is_explained() -> None:
    table = PAGE.partition("| reason |")[2].partition("##")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == REASONS


def test_no_row_stands_twice_in_a_table() -> None:
    for is_row, lines in groupby(PAGE.splitlines(), lambda line: line.startswith("| `")):
        cells = [line.split("|")[1] for line in lines if is_row]
        assert len(set(cells)) == len(cells), cells


def test_every_topic_that_a_worker_makes_is_listed_with_its_bound(tmp_path: Path) -> None:
    text = configuration("app", ("user: user, time: {field: at}}", "key: user, time: {field: at}}")).replace(
        "app-pages", "pages"
    )
    plan = plan_from(text, tmp_path)
    topics = Topics.of(plan)
    listed = PAGE.partition("| topic | partitions | bound |")[2].partition("\n\n")[0]
    for spec in [topics.owners, *topics.all(plan)]:
        name = re.sub(r"^app\.releases\.pages\.\w+$", "<id>.releases.<view>.<audience>", spec.name)
        name = re.sub(r"^app", "<id>", name).replace("visits", "<source>")
        short = name.replace("<id>-merges", "-merges").replace("<id>-releases", "-releases")
        assert f"`{name}`" in listed or f"`{short}`" in listed, spec.name
