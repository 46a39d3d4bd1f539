"""The published secure Noisy Top-k with Gap as it stands in the paper: exact, key by key, refined while there are ties.

It is here for what the paper measured of it: calls, and the time of its parts. Its number of refinements tells about
the data, so it must never run where somebody can see or time it. What the project releases has no such loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_dp.exact.bits import BitSource

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

REFINEMENT = 10
"""Factor by which every level is finer than the one before."""


class CountedCoins:
    """The integer samplers of the paper, which count their calls; uniform bits are their only randomness."""

    def __init__(self, bits: BitSource) -> None:
        self._bits = bits.bits
        self.geometrics = 0
        self.bernoullis = 0
        self.uniforms = 0

    def uniform(self, n: int) -> int:
        """A number below n; rejection on the bits that n - 1 needs."""
        self.uniforms += 1
        size = (n - 1).bit_length()
        while True:
            value = self._bits(size)
            if value < n:
                return value

    def bernoulli_exp(self, n: int, d: int) -> bool:
        """True with probability e^(-n/d), n at most d."""
        k = 1
        while True:
            self.bernoullis += 1
            if self.uniform(d * k) >= n:
                return k % 2 == 1
            k += 1

    def geometric(self, s: int, t: int) -> int:
        """P(m) proportional to e^(-m s/t)."""
        self.geometrics += 1
        while True:
            remainder = self.uniform(t)
            if self.bernoulli_exp(remainder, t):
                break
        whole = 0
        while self.bernoulli_exp(1, 1):
            whole += 1
        return (remainder + t * whole) // s

    def shuffle(self, n: int) -> list[int]:
        """A uniform order of 0, ..., n - 1."""
        order = list(range(n))
        for last in range(n - 1, 0, -1):
            other = self.uniform(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


@dataclass(frozen=True, slots=True)
class SecureRun:
    """Result of a run, and its cost.

    Attributes:
        items: places in the table, best first.
        gaps: to the next rank, in steps of the grid, rounded down.
        refined: how many keys each refinement drew again.
        candidates_s: processor seconds for noise and the first search for the best k.
        ties_s: those for refinements.
        gaps_s: those for gaps.
    """

    items: tuple[int, ...]
    gaps: tuple[int, ...]
    refined: tuple[int, ...]
    candidates_s: float
    ties_s: float
    gaps_s: float

    @property
    def levels(self) -> int:
        """Number of refinements of the noise."""
        return len(self.refined)

    @property
    def total_s(self) -> float:
        """All three parts."""
        return self.candidates_s + self.ties_s + self.gaps_s


def secure_gap_top_k(
    steps: Sequence[int], k: int, scale: tuple[int, int], coins: CountedCoins, *, pruned: bool = True
) -> SecureRun:
    """Algorithm 4 of the paper.

    Args:
        steps: answers in steps of the grid, more than k.
        k: how many to select.
        scale: s and t, the noise being geometric with ratio e^(-s/t).
        coins: where noise and order come from.
        pruned: refine only keys that can still be among the best k + 1 (early query pruning), not all.

    Guarantee: s/t times 2 k times the steps of one user, for `items` and `gaps`; not for the rest of what is returned.
    Source: specs/gap 2.3.
    """
    s, t = scale
    began = time.process_time()
    noisy = {key: step + coins.geometric(s, t) for key, step in enumerate(steps)}
    best = _largest(noisy, k + 2)
    found = time.process_time()
    fineness, refined = 1, []
    while len({noisy[key] for key in best}) < len(best):
        if pruned:
            noisy = _contenders(noisy, best, k)
        fineness *= REFINEMENT
        common = math.gcd(s, t * fineness)
        finer = s // common, t * fineness // common
        noisy = {key: REFINEMENT * noisy[key] + coins.geometric(*finer) % REFINEMENT for key in sorted(noisy)}
        refined.append(len(noisy))
        best = _largest(noisy, k + 2)
    distinct = time.process_time()
    order = coins.shuffle(k + 1)
    gaps = tuple((noisy[best[i]] - noisy[best[i + 1]] - (order[i] < order[i + 1])) // fineness for i in range(k))
    ended = time.process_time()
    return SecureRun(tuple(best[:k]), gaps, tuple(refined), found - began, distinct - found, ended - distinct)


def _largest(noisy: dict[int, int], number: int) -> list[int]:
    return sorted(noisy, key=noisy.__getitem__, reverse=True)[:number]


def _contenders(noisy: dict[int, int], best: list[int], k: int) -> dict[int, int]:
    """Those that are not below rank k + 1, and rank k + 2 where there are no more."""
    line = noisy[best[k]]
    kept = {key: value for key, value in noisy.items() if value >= line}
    return kept if len(kept) >= len(best) else kept | {key: noisy[key] for key in best}


def insecure_gap_top_k(
    counts: Sequence[int], k: int, scale: float, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """The baseline of the paper: exponential noise in doubles, key by key, which betrays the counts by its low bits."""
    noisy = np.array([count + rng.exponential(scale) for count in counts])
    best = np.argsort(noisy)[: -(k + 2) : -1]
    return best[:k], -np.diff(noisy[best])
