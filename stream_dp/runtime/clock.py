"""The wall clock."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """What the machine's clock shows, in ms since the epoch."""
    return time.time_ns() // 1_000_000
