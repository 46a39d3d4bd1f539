"""The shipped selection with gaps on small tables whose values are given in steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource
from stream_dp.select.exponential import UNIT_CLOCK, WholeClock, first_of
from stream_dp.select.top_k_with_gaps import PIECE, GapParameters, GridNoise, in_steps, noisiest
from tests.support.gap_oracle import Cell


def published(
    a: Sequence[int],
    k: int,
    noise: GridNoise,
    bits: BitSource,
    *,
    pieces: int = 1,
    dtype: Any = np.int64,
    zeros: int = 0,
    clock: WholeClock = UNIT_CLOCK,
) -> Cell:
    """What is published of a table, of which the last `zeros` keys are not listed and the others come in pieces."""
    assert not any(a[len(a) - zeros :])
    listed = np.array(a[: len(a) - zeros], dtype)
    keys, gaps = noisiest(np.array_split(listed, pieces) if len(listed) else [], zeros, k + 1, noise, bits, clock)
    return tuple(keys[:-1].tolist()), gaps


def decision(k: int) -> Callable[[list[int], list[int]], Cell]:
    """The shipped rule on contenders in a random order and their noisy values."""

    def decide(keys: list[int], noisy: list[int]) -> Cell:
        first, gaps = first_of(np.array(keys), np.array(noisy), k + 1)
        return tuple(first[:-1].tolist()), tuple(gaps.tolist())

    return decide


def sample(draw: Callable[[], Cell], runs: int) -> Counter[Cell]:
    return Counter(draw() for _ in range(runs))


def listed_law(row: dict[str, Any]) -> dict[Cell, Fraction]:
    """The cells of a row of the vectors."""
    return {(tuple(order), tuple(gaps)): Fraction(chance) for order, gaps, chance in row["cells"]}


def gap_top_k_of_array(
    counts: NDArray[np.int64], zeros: int, p: GapParameters, bits: BitSource
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """`gap_top_k` of counts without names: places, or above them numbers of further keys, and gaps."""
    pieces = (in_steps(counts[first : first + PIECE], p.resolution) for first in range(0, len(counts), PIECE))
    keys, gaps = noisiest(pieces, zeros, p.k + 1, p.noise, bits)
    return keys[:-1], gaps
