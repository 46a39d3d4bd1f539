"""Views whose windows leave later than their slots, for a while: told of once, and once more when that is over.

What is told follows from slots and from how many windows there are, which every reader sees.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime

log = logging.getLogger("stream_dp.worker")

BEHIND_MS = 10_000
"""A view is behind if nothing of it has left at its slot for so long. One late window is a large one, not a backlog."""


@dataclass(slots=True)
class _Late:
    since_ms: int
    windows: int = 0
    told: bool = False


class Lateness:
    """How long the views of a worker have been late."""

    def __init__(self) -> None:
        self._late: dict[str, _Late] = {}

    def left(self, view: str, slot_ms: int, late: int) -> None:
        """Take note of what left of a view at a slot.

        Args:
            view: its name.
            slot_ms: the slot.
            late: how many windows were to leave earlier; 0 if none was.
        """
        if late:
            found = self._late.setdefault(view, _Late(slot_ms))
            found.windows += late
            if not found.told and slot_ms - found.since_ms >= BEHIND_MS:
                found.told = True
                log.warning(
                    "view %s is behind: since %s its windows leave later than their slots, %d of them so far; "
                    "`stream-dp check` says how many windows a second are asked for and how many this machine releases",
                    view,
                    datetime.fromtimestamp(found.since_ms // 1000, UTC).isoformat().replace("+00:00", "Z"),
                    found.windows,
                )
        elif (over := self._late.pop(view, None)) is not None and over.told:
            log.info("view %s has caught up: after %d late windows they leave at their slots", view, over.windows)
