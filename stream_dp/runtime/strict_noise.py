"""Time that windows of strict noise take on this machine.

A window of strict noise takes the same steps whatever is in it, so a made-up one says how long each real one takes: a
public number, measured before any event is counted. If no window could be ready at its slot, a worker refuses the plan.
`check` warns earlier, since much else takes time, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from secrets import token_bytes
from time import thread_time

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import Fault
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import Sealing
from stream_dp.lossless.sealed import KEY_BYTES, WindowNoise
from stream_dp.runtime.kafka.list_topics import Lists
from stream_dp.windows.durations import format_duration

MAX_MEASUREMENTS = 3
"""A window that takes too long is measured this often, and the shortest time counts: other work only adds to it."""


def strict_seconds(view: ViewPlan, lists: Mapping[str, KeyList]) -> float | None:
    """Return the computing seconds of one window of a view, None where they depend on the window's counts.

    Args:
        view: the view.
        lists: the view's public lists that are kept in topics, by topic.
    """
    keys = view.kind.made_up_keys
    if keys is None:
        return None
    counts = {f"{number:0{len(str(keys))}d}": 1 for number in range(keys)}
    sealing = Sealing(WindowNoise(b"made up", token_bytes(KEY_BYTES)), system_entropy, lists)
    began = thread_time()
    view.kind.seal(counts, sealing)
    return thread_time() - began


def find_late_views(plan: Plan, lists: Lists, known: Collection[str] = ()) -> list[Fault]:
    """Return a fault for each view whose windows take longer here than `release.offset` plus one slot.

    Args:
        plan: the views.
        lists: the public lists that are kept in topics.
        known: names of view definitions that were measured before; they are skipped.
    """
    faults = []
    most_ms = plan.slots.offset_ms + plan.slots.every_ms
    for view in plan.newest.values():
        took = 0.0 if view.name in known else _least_seconds(view, lists.at(view.name, 0), most_ms / 1000)
        if took * 1000 > most_ms:
            words = (
                f"a window takes {took:.2g} s to compute on this machine, whatever is in it, and release.offset and "
                f"release.slot leave it {format_duration(most_ms)}: every release would be late; raise "
                "release.offset, make the view smaller, or use a faster machine"
            )
            faults.append(Fault(f"views.{view.view}", words))
    return faults


def _least_seconds(view: ViewPlan, lists: Mapping[str, KeyList], enough: float) -> float:
    """Return the least of some measurements; no more of them than it takes to find one that is short enough."""
    least = strict_seconds(view, lists) or 0.0
    for _ in range(MAX_MEASUREMENTS - 1):
        if least <= enough:
            break
        least = min(least, strict_seconds(view, lists) or 0.0)
    return least
