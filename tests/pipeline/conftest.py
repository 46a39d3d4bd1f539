"""An application on the embedded log and on a real Kafka, for the same test body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stream_dp.testing import Application, application

START = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
"""Start of the first window."""
MINUTE = 60_000

CONFIG = """\
name: {name}
broker: memory://
data_dir: ./state
key_file: ./secret.key
sources:
  {name}.visits: {{topic: {name}.visits, partitions: 3, user: user, time: {{field: at}}}}
ledgers:
  visitors: {{population: visitors, epsilon: "100", delta: "1/1000", period: 366d}}
ladders:
  standard:
    - {{level: overview, epsilon: "1"}}
    - {{level: standard, epsilon: "2"}}
    - {{level: detailed, epsilon: "6"}}
audiences: {{public: overview, partner: standard, internal: standard}}
views:
  {name}-items:
    kind: histogram
    source: visits
    item: item
    items_per_user: 2
    window: {{size: 1m, start: "{start}", grace: 10s, clock: event, max_ahead: 1h, idle: 1d}}
    delta: "1e-6"
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 4
"""
