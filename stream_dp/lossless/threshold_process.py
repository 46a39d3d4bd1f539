"""The threshold process: one stream of uniform words holds a geometric clock for every level at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from stream_dp.errors import StateError


def clocks(words: Iterable[int], thresholds: Sequence[int]) -> tuple[int, ...]:
    """Read one stream at several levels: for each A the number of words before the first that is >= A.

    On independent uniform words of 64 bits the clock at A is geometric, P(G = k) = (1 - a) a^k with a = A / 2^64,
    for all A at once. A coarser clock is never below a finer one, and their difference is independent of every
    clock at the finer level or below it: reading more levels tells nothing that the finest did not.

    Args:
        words: integers in [0, 2^64); read up to the first that is >= every threshold.
        thresholds: at least one level A, 1 <= A < 2^64, in any order.

    Returns:
        The clocks, in the order of `thresholds`.

    Raises:
        StateError: the words end too early.

    Time: 1 / (1 - a) words for the coarsest level, on average. Source: specs/lossless 7.5, vectors D11, X01.
    """
    coarsest = max(thresholds)
    best = -1
    records, positions = [], []  # only words above all earlier ones can stop a clock
    for position, word in enumerate(words):
        if word > best:
            best = word
            records.append(word)
            positions.append(position)
            if word >= coarsest:
                return tuple(positions[bisect_left(records, threshold)] for threshold in thresholds)
    raise StateError("the stream of words ended before a clock stopped")
