"""Windows that are made of panes: a small shop, and what should be published of it, worked out anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.kinds.sealing import Sealing, own_secret, read_counts
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Refusal
from tests.support.releasing import KEY, ONLY_PAGES, Desk, keyed, plan

LIST = ["cart", "help", "home", "rare"]
CATALOGUE = (
    ONLY_PAGES,
    ("kind: histogram", f"kind: catalogue\n    catalogue: [{', '.join(LIST)}]"),
    ('    delta: "1/100"\n', ""),
)
COUNTS: Sequence[Mapping[str, int]] = [
    {"home": 40, "cart": 12, "rare": 1},
    {},
    {"home": 9},
    {"home": 30, "cart": 30, "unlisted": 7},
    {"cart": 5},
    {"home": 2},
    {"help": 3, "rare": 2},
    {"home": 1},
]


def paned(size: int, step: int, *changes: tuple[str, str]) -> Plan:
    """The shop with one view, a catalogue in panes of a second."""
    return plan(*CATALOGUE, ("{size: 1s,", f"{{size: {size}s, step: {step}s, pane: 1s,"), *changes)


def counts_at(view: ViewPlan, start: int, level: int, counts: Mapping[str, int]) -> list[int]:
    """What a pane shows of every listed key at a level, from its exact counts and the keyed entropy."""
    name = view.noise_name(start)
    noise = WindowNoise.of(name, KEY, own_secret(name, keyed))
    table = view.kind.seal({key: count for key, count in counts.items() if key in LIST}, Sealing(noise, keyed, {}))
    return read_counts(table, view.levels, [level], noise)[0]


@dataclass
class PaneOracle:
    """What an audience should have in the end: panes at levels, and the windows that are their sums.

    Attributes:
        levels: by start of a pane, the level that the audience has of it; none of a pane that was refused.
        counts: by start of a pane, its exact counts.
    """

    view: ViewPlan
    levels: Mapping[int, int]
    counts: Mapping[int, Mapping[str, int]]
    reason: str = field(default="budget")

    def window(self, starts: Sequence[int]) -> dict[str, object]:
        """What the newest record of the window that is made of some panes says."""
        if any(start not in self.levels for start in starts):
            return {"type": "refusal"}
        level = min(self.levels[start] for start in starts)
        columns = [counts_at(self.view, start, level, self.counts[start]) for start in starts]
        loss = sum((self.view.counts(self.levels[start]) for start in starts), Cost.ZERO)
        return {
            "type": "release",
            "level": self.view.levels[level].name,
            "items": dict(zip(LIST, map(sum, zip(*columns, strict=True)), strict=True)),
            "loss": loss,
        }


def said(record: AnyRecord) -> dict[str, object]:
    """The same of a record."""
    if isinstance(record, Refusal):
        return {"type": "refusal"}
    items = {entry.item: entry.count for entry in record.items}
    return {"type": "release", "level": record.level.name, "items": items, "loss": record.privacy.window.cost}


def newest_windows(records: Iterable[AnyRecord]) -> dict[tuple[int, int], AnyRecord]:
    """By start and end, the record that holds: the newest release, a refusal where there is none."""
    found: dict[tuple[int, int], AnyRecord] = {}
    for record in records:
        window = record.window.start_ms, record.window.end_ms
        if not isinstance(record, Refusal) or window not in found:
            found[window] = record
    return found


def give_all(desk: Desk, starts: Iterable[int]) -> None:
    """Give the counts of panes."""
    for start in starts:
        desk.give("pages", start, COUNTS[start // 1000])
