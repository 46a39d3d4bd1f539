"""Rates of windows per second: those that a plan needs, and those that this machine releases.

The windows of a ledger are released one after another, since each is charged before the next; so are those of ledgers
that share a partition. What falls behind there never catches up, however many workers there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from secrets import token_bytes
from statistics import median
from tempfile import TemporaryDirectory

import rocksdict
from pydantic import BaseModel, Field

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.releases.engine import RELEASED_AT_ONCE
from stream_dp.runtime.computing import Computing
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.storage import Database

SHARE = 2
"""A plan that asks for more than one part in so many of what the machine does is warned of."""
ACKNOWLEDGEMENTS = 2
"""Of the broker, for a window: its reservation, and all the rest."""
ACKNOWLEDGED_MS = 5.0
"""Assumed duration of each: the broker is not asked."""
_STORED, _ERASURES = 1000, 5


class Rate(BaseModel):
    """Rates that the ledgers of one partition need, and that this machine reaches; windows without keys."""

    ledgers: list[str]
    windows_a_second: float = Field(description="That the views on them ask for.")
    records_a_second: float = Field(description="The same, one for each audience of a window.")
    computing_ms: float = Field(description="Measured: of a window without keys.")
    erasing_ms: float = Field(description="Measured: a window's share of a flush and a compaction on this disk.")
    acknowledging_ms: float = Field(description="Assumed: waiting for the broker.")
    windows_possible: float = Field(description="A second, from the three times.")

    @property
    def is_safe(self) -> bool:
        """True if the machine does so much more that it stays behind nothing."""
        return self.windows_a_second * SHARE <= self.windows_possible

    def words(self) -> str:
        """A sentence for operators."""
        return (
            f"{'ledger' if len(self.ledgers) == 1 else 'ledgers'} {', '.join(self.ledgers)}: "
            f"{self.windows_a_second:.3g} windows and {self.records_a_second:.3g} records a second are asked for; this "
            f"machine releases about {self.windows_possible:.3g} windows a second, one after another "
            f"({self.computing_ms:.3g} ms of computing and {self.erasing_ms:.3g} ms of erasing, measured, and "
            f"{self.acknowledging_ms:.3g} ms for the broker, assumed; keys come on top)"
        )


def rates(plan: Plan, computing: Iterable[Computing]) -> list[Rate]:
    """Return the rates of every partition that has ledgers.

    Args:
        plan: the views.
        computing: what their windows take (`stream_dp.runtime.computing.measure`).
    """
    took = {found.view: found.milliseconds_a_window for found in computing}
    erasing_ms = _erasing_ms() / RELEASED_AT_ONCE
    together: dict[int, list[ViewPlan]] = {}
    for view in plan.views.values():
        together.setdefault(Topics.of(plan).ledger_partition(view.ledger), []).append(view)
    return [_rate(views, took, erasing_ms) for _, views in sorted(together.items())]


def _rate(views: Sequence[ViewPlan], took: dict[str, float], erasing_ms: float) -> Rate:
    asked = {view.name: float(view.window.shape.per_second) for view in views}
    windows = sum(asked.values())
    computing_ms = sum(took[view.name] * asked[view.name] for view in views) / windows
    acknowledging_ms = ACKNOWLEDGEMENTS * ACKNOWLEDGED_MS
    return Rate(
        ledgers=list(dict.fromkeys(view.ledger.name for view in views)),
        windows_a_second=windows,
        records_a_second=sum(float(view.window.told.per_second) * len(view.audiences) for view in views),
        computing_ms=round(computing_ms, 2),
        erasing_ms=round(erasing_ms, 2),
        acknowledging_ms=acknowledging_ms,
        windows_possible=round(1000 / (computing_ms + erasing_ms + acknowledging_ms), 1),
    )


def _erasing_ms() -> float:
    """Time an erasure of a row amid stored ones, in a folder that vanishes again."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    with TemporaryDirectory() as folder:
        database = Database(rocksdict.Rdict(folder, options=options), Path(folder))
        for number in range(_STORED):
            database.put(b"%d" % number, token_bytes(1000))
        took = []
        for number in range(_ERASURES):
            key = b"%d" % (number * _STORED // _ERASURES)
            database.put(key, b"")
            begun = time.perf_counter()
            database.erase([(key, key + b"\0")])
            took.append(time.perf_counter() - begun)
        del database
    return 1000 * median(took)
