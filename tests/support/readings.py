"""Sealed tables read key by key: as shipped, and by the words of specs/lossless 6.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stream_dp.exact.bits import BitSource
from stream_dp.kinds.sealing import Pruning
from stream_dp.lossless.sealed import WindowNoise, laplace_excess, lock, read_levels
from tests.support.threshold_process import excess_of_words, words

NOISE, DIGEST = WindowNoise(b"view\x00 window", bytes(range(32))), bytes(reversed(range(32)))


def rows_of(
    fine: Mapping[bytes, int],
    thresholds: Sequence[int],
    bits: BitSource,
    asked: Sequence[int] | None = None,
    least: Sequence[int] | None = None,
) -> dict[bytes, tuple[int, ...]]:
    """For every key of a sealed table its value at every level that is asked for, from the drawing on.

    Args:
        fine: what `seal` returned.
        thresholds: the ladder, coarse to fine.
        bits: where the excess comes from.
        asked: indices of levels; None: all.
        least: minimum counts by which the table is pruned; None: it is not.
    """
    excess = laplace_excess(thresholds, len(fine), bits)
    values, kept = np.array(list(fine.values()), np.int64), np.arange(len(fine))
    if least is not None:
        kept = Pruning(least).kept(values, excess)
    asked, stored = range(len(thresholds)) if asked is None else asked, values[kept].tolist()
    locked = lock(excess[kept], NOISE, DIGEST)
    columns = read_levels(stored, locked, NOISE, DIGEST, levels=asked, finest=len(thresholds) - 1)
    keys = [list(fine)[at] for at in kept]
    return {key: tuple(column[at] for column in columns) for at, key in enumerate(keys)}


def read_rows_lmr1(
    fine: Mapping[bytes, int],
    *,
    prf_key: bytes,
    window: bytes,
    digest: bytes,
    thresholds: Sequence[int],
    finest: int,
    step: tuple[bytes, ...] = (),
) -> dict[bytes, tuple[int, ...]]:
    """Values by the words of `LMR1`, with the fields of a step where there is one (specs/lossless 6.3, 6.5)."""
    rows = {}
    for key, value in fine.items():
        plus, minus = (words(prf_key, window, digest, key, side, *step) for side in (b"+", b"-"))
        rows[key] = tuple(value + up for up in excess_of_words(plus, minus, thresholds=thresholds, finest=finest))
    return rows
