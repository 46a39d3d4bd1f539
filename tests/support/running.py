"""Windows of which a total is told at the end of every pane: a small shop, and what should be published of it.

It is worked out anew, from the exact counts of the panes: what blocks a total is made of follows from the binary tree
of `lossless.factorization`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.kinds.sealing import Sealing, own_secret, read_counts
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.models import Refusal, Release
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.rows import BLOCK
from stream_dp.windows.encoding import window_start
from tests.support.factorization import cover
from tests.support.panes import LIST
from tests.support.releasing import KEY, ONLY_PAGES, Desk, keyed, plan

SECOND = 1000
PANES = 6
RUNNING = (
    ONLY_PAGES,
    ("kind: histogram", f"kind: running\n    catalogue: [{', '.join(LIST)}]"),
    ('    delta: "1/100"\n', ""),
    ("{size: 1s,", f"{{size: {PANES}s, pane: 1s,"),
    ("period: 4s", "period: 12s"),
)


def running(*changes: tuple[str, str]) -> Plan:
    """The shop with one view: windows of six seconds, a total every second, two windows in a period."""
    return plan(*RUNNING, *changes)


def first_of(start: int) -> int:
    """Start of the window of a pane."""
    return start - start % (PANES * SECOND)


def total(view: ViewPlan, start: int, level: int, counts: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """What is told at a level at the end of a pane, from the exact counts of the panes and the keyed entropy."""
    found: Counter[str] = Counter()
    first, number = first_of(start), (start - first_of(start)) // SECOND
    for begin, end in cover(0, number + 1, 4):
        exact: Counter[str] = Counter()
        for pane in range(begin, end):
            exact.update({key: n for key, n in counts[first + pane * SECOND].items() if key in LIST})
        name = view.noise_name(first + (end - 1) * SECOND)
        noise = WindowNoise.of(name, KEY, own_secret(name, keyed))
        table = view.kind.seal(exact, Sealing(noise, keyed, {}))
        for key, count in zip(LIST, read_counts(table, view.levels, [level], noise)[0], strict=True):
            found[key] += count
    return {key: found[key] for key in LIST}


def give_panes(desk: Desk, *, counts: Mapping[int, Mapping[str, int]], starts: Iterable[int]) -> None:
    """Give the counts of panes."""
    for start in starts:
        desk.give("pages", start, counts[start])


def newest_totals(desk: Desk, audience: str) -> dict[int, tuple[str, dict[str, int]]]:
    """By start of the pane, level and counts of the newest release."""
    found = {}
    for record in desk.records("pages", audience):
        if isinstance(record, Release):
            items = {entry.item: entry.count for entry in record.items}
            found[record.window.end_ms - SECOND] = record.level.name, dict(sorted(items.items()))
    return found


def refusals(desk: Desk, audience: str) -> dict[int, str]:
    """By start of the pane, why there is no total, or no finer one."""
    records = [record for record in desk.records("pages", audience) if isinstance(record, Refusal)]
    return {record.window.end_ms - SECOND: record.reason for record in records}


def terms(desk: Desk, audience: str) -> set[tuple[str, bool]]:
    """What refusals refuse, and whether that is final."""
    records = [record for record in desk.records("pages", audience) if isinstance(record, Refusal)]
    return {(record.refuses, record.final) for record in records}


def spent(desk: Desk) -> Cost:
    """What all periods were charged."""
    return sum((ledger.spent for ledger in read_ledgers(desk.machine.rows.items()).values()), Cost.ZERO)


def kept_blocks(desk: Desk) -> set[int]:
    """Starts of the last panes of the blocks whose exact counts are stored."""
    return {window_start(BLOCK, "pages", key) for key in desk.machine.rows if key.startswith(BLOCK)}
