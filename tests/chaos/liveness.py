"""Whether every window was released in time, as far as it was left in peace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tests.support.audit import Report


@dataclass(frozen=True)
class Calm:
    """A time in which nothing was done to anybody: seconds of one clock."""

    began_s: float
    ended_s: float


def check_liveness(
    fed: Mapping[int, float],
    seen: Mapping[str, Mapping[int, float]],
    calms: Sequence[Calm],
    bound_s: float,
    report: Report,
) -> float:
    """Find every window that was not released though it had been left in peace for so long.

    Args:
        fed: by window, when the last of it was published.
        seen: by public topic and window, when its first record was there.
        calms: when nothing happened, in order.
        bound_s: how long a release may take in a calm, from its beginning or from the end of the window.
        report: gets a fault `late` for every topic and window.

    Returns:
        The longest that a release took in a calm.
    """
    slowest = 0.0
    for topic, windows in seen.items():
        for start, fed_s in fed.items():
            seen_s = windows.get(start, inf)
            for calm in calms:
                since = max(fed_s, calm.began_s)
                if since <= seen_s <= calm.ended_s:
                    slowest = max(slowest, seen_s - since)
                if since + bound_s <= calm.ended_s and seen_s > since + bound_s:
                    took = "never" if seen_s == inf else f"after {seen_s - since:.0f} s"
                    report.fault("late", f"{topic}/{start}: {took}, in a calm of {calm.ended_s - since:.0f} s")
                    break
    return slowest
