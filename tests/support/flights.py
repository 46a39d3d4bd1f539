"""A configuration that is right, and a way to plan it with changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan

FLIGHTS = """\
name: flights
broker: kafka://127.0.0.1:9092
data_dir: ./state
key_file: ./flights.key
sources:
  flights: {topic: flights, partitions: 4, user: tailnum, time: {field: time_hour, unit: ms}}
ledgers:
  aircraft: {population: aircraft by tail number, epsilon: "100", delta: "1/10000",
    period: 371d, start: 2013-01-01T00:00:00Z}
ladders:
  standard:
    - {level: overview, epsilon: "0.25"}
    - {level: standard, epsilon: "1"}
    - {level: detailed, epsilon: "4"}
audiences:
  public: overview
  partner: standard
  internal: detailed
views:
  destinations:
    source: flights
    item: dest
    kind: histogram
    items_per_user: 5
    window: {size: 7d, start: 2013-01-01T00:00:00Z, grace: 1h, clock: event}
    delta: "1e-6"
    ledger: aircraft
    ladder: standard
  busiest:
    source: flights
    item: dest
    kind: topk
    k: 3
    kbar: 40
    selection: {epsilon: "1/10", delta: "1e-7"}
    items_per_user: 5
    window: {size: 7d, start: 2013-01-01T00:00:00Z, clock: event}
    ledger: aircraft
    ladder: standard
    audiences: [public, partner]
"""

Planner = Callable[..., Plan]


@pytest.fixture
def flights() -> str:
    return FLIGHTS


@pytest.fixture
def planned(tmp_path: Path) -> Planner:
    """Plan the flights with some of the text replaced; every text must be there."""

    def plan(*changes: tuple[str, str], broker: str | None = None) -> Plan:
        text = FLIGHTS
        for old, new in changes:
            assert old in text, f"{old!r} is not in the file"
            text = text.replace(old, new)
        file = tmp_path / "flights.yaml"
        file.write_text(text, encoding="utf-8")
        return load_plan(file, {"STREAM_DP_BROKER": broker} if broker else {})

    return plan
