"""The candidates of a top-k selection: the exact kbar largest counts and the one that comes next."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

from stream_dp.errors import StateError

Row = tuple[bytes, int]
"""An item and the number of users who have it."""


def rank(row: Row) -> tuple[int, bytes]:
    """Sort key of the one order used everywhere: count descending, then item bytes ascending.

    The tie rule depends on nothing but the items themselves; arrival order, offsets or insertion order would
    let one user reorder many ties at once and break the guarantee (topk 1.1, P8).
    """
    item, count = row
    return -count, item


def candidates(counts: Mapping[bytes, int], kbar: int) -> tuple[list[Row], int]:
    """Find the kbar largest positive counts and h_next, the count that follows them.

    Merging shards is this same function. Let every shard send its own best kbar + 1 rows, that is
    `candidates(shard, kbar + 1)[0]`; then `candidates` of the union of what was sent equals `candidates` of the
    union of the shards, ties included. Proof: the shards hold disjoint items and `rank` is one total order on
    items. A row that its shard did not send has kbar + 1 rows of that shard before it, so it is neither among
    the first kbar of the union nor the one that follows; dropping it changes neither answer. Sending only kbar
    rows would lose h_next, and with it the guarantee (topk P6).

    Args:
        counts: item to exact number of users; zero counts are skipped, as if the item were not there.
        kbar: number of candidates, at least 1.

    Returns:
        At most `kbar` rows in the order of `rank`, and h_next: the (kbar+1)-st count, 0 if there are fewer.

    Raises:
        StateError: a count is negative or not an integer.

    Time: O(n log kbar). Source: topk 1.3, 2.2 (positive support), 5.2.3, test 40.
    """
    for item, count in counts.items():
        if not isinstance(count, int) or count < 0:
            raise StateError(f"a count must be a whole number of users; item {item.hex()} does not hold one")
    best = nsmallest(kbar + 1, ((item, count) for item, count in counts.items() if count > 0), key=rank)
    return best[:kbar], best[kbar][1] if len(best) > kbar else 0
