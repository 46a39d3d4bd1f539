"""What a host says of its parts in the log while and after they are loaded."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from stream_dp.runtime.allocator import give_back_freed
from stream_dp.windows.effects import ROWS_LOADED, Increment, Step

log = logging.getLogger("stream_dp.worker")

PROGRESS_SECONDS = 5.0


def tell_withheld(withheld: Mapping[str, Collection[str]]) -> None:
    """Say which audiences wait for a grant; which level is whose is configuration."""
    for audience, views in sorted(withheld.items()):
        log.info(
            "audience %s does not get all windows of %s from before it was added: at its level they cost more than was "
            "paid for them; `stream-dp grant FILE %s --level LEVEL` charges that and releases them",
            audience,
            ", ".join(sorted(views)),
            audience,
        )


def telling(load: Step, what: str) -> Step:
    """Say every few seconds how many rows a load has read back; at its end give back what reading has freed.

    A recovery and a load make and drop several times what they leave behind, and the process would keep all of it.
    """
    said, rows = time.monotonic(), 0
    for effect in load:
        if isinstance(effect, Increment) and effect.name == ROWS_LOADED:
            rows += effect.amount
            if time.monotonic() >= said + PROGRESS_SECONDS:
                said = time.monotonic()
                log.info("reading back %s: %d rows so far", what, rows)
        yield effect
    give_back_freed()
