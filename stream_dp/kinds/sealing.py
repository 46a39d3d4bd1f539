"""From the exact counts of a closed window to its sealed table, and from that to what an audience may see.

Both are pure functions of their arguments; nothing here knows of tables, topics or ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.lossless.sealed import SALT_BYTES, prune, read_levels, seal, snapshot_digest
from stream_dp.windows.keys import moment


class SealedTable(msgspec.Struct, array_like=True, frozen=True):
    """What remains of a window: integers noised at the finest level (lossless 6.4)."""

    digest: bytes
    """Names the snapshot; salted, so that it does not confirm a guess of the counts."""
    items: list[str]
    """The keys: in the order of the selection for a top-k, sorted for a histogram."""
    values: list[int]
    """The count of each key with the noise of the finest level."""
    complete: bool
    """Whether a top-k found k keys."""
    draws: int
    """What the selection of a top-k has cost, in draws."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A sealed table as one level shows it, in the order in which it is published."""

    items: list[tuple[str, int]]
    complete: bool


def noise_window(view: ViewPlan, start_ms: int) -> bytes:
    """The window field of the noise: no two questions and no two windows share one (lossless 6.3)."""
    return view.query_id + moment(start_ms)


def seal_window(
    view: ViewPlan, start_ms: int, counts: Mapping[str, int], *, prf_key: bytes, entropy: Entropy
) -> SealedTable:
    """Draw everything that is ever random about a window; afterwards the counts can be erased.

    Args:
        view: the view's plan.
        start_ms: start of the window.
        counts: the exact bounded counts: of every key for a histogram, for a top-k of what its selection looks at.
        prf_key: secret of the application's coarser levels.
        entropy: where the salt, the selection and the finest noise come from.

    Returns:
        The sealed table; a histogram's holds no key that no level shows.

    Guarantee: with every release read from it, `view.cost(finest level)`-DP. Source: lossless 6.4, 6.7, topk 2.2.
    """
    window = noise_window(view, start_ms)
    salt = entropy(b"salt" + window).bits(8 * SALT_BYTES).to_bytes(SALT_BYTES)
    finest = view.levels[-1].threshold
    bits = entropy(b"noise" + window)
    if view.topk is not None:
        chosen = view.topk.choose(counts, entropy(b"selection" + window))
        # What is frozen of a top-k is what was chosen; nothing is ever noised again under this salt.
        exact = {item.encode(): counts.get(item, 0) for item in chosen.items}
        digest = snapshot_digest(exact, salt)
        fine = seal(exact, finest, bits)
        names, complete, draws = list(exact), chosen.complete, chosen.draws
    else:
        exact = {item.encode(): counts[item] for item in sorted(counts)}  # in the order of the bytes too: sorted once
        digest = snapshot_digest(exact, salt)
        ladder = [(level.threshold, level.minimum_count or 1) for level in view.levels]
        sealed = seal(exact, finest, bits)
        fine = prune(sealed, prf_key=prf_key, window=window, digest=digest, ladder=ladder)
        names, complete, draws = list(fine), True, 0
    items, values = [name.decode() for name in names], [fine[name] for name in names]
    return SealedTable(digest, items, values, complete, draws)


def read_window(view: ViewPlan, start_ms: int, table: SealedTable, levels: list[int], prf_key: bytes) -> list[Reading]:
    """Read a sealed table at several levels; each reading is computed from its own level's values alone.

    Args:
        view: the view's plan.
        start_ms: start of the window.
        table: what `seal_window` returned.
        levels: indices into `view.levels`.
        prf_key: the secret that was used to seal.

    Returns:
        One reading per level: for a histogram the keys that reach the level's minimum count.
    """
    fine = {item.encode(): value for item, value in zip(table.items, table.values, strict=True)}
    columns = read_levels(
        fine,
        prf_key=prf_key,
        window=noise_window(view, start_ms),
        digest=table.digest,
        thresholds=[view.levels[level].threshold for level in levels],
        finest=view.levels[-1].threshold,
    )
    readings = []
    for level, column in zip(levels, columns, strict=True):
        least = view.levels[level].minimum_count
        rows = zip(table.items, column, strict=True)
        readings.append(Reading([row for row in rows if least is None or row[1] >= least], table.complete))
    return readings
