"""The scores of a table as selections see them, and the utility classes that follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.subset.noises import FloatArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Bar:
    """Requirement on a selection: the best `kept` ranks are all in it, and none behind rank `last` is.

    Ranks count from 1.
    """

    kept: int
    last: int


def great(k: int) -> Bar:
    """The best tenth is in, and nothing further than a tenth of k behind rank k."""
    return Bar(-(-k // 10), k + k // 10)


def good(k: int) -> Bar:
    """The best hundredth is in, and nothing further than half of k behind rank k."""
    return Bar(-(-k // 100), k + k // 2)


@dataclass(frozen=True)
class Profile:
    """Scores in falling order: the best k one by one, those behind them in runs of equal score.

    A class of k-subsets is given by the number h of leading ranks that it holds, h < k, and its worst rank; all subsets
    of a class have the same loss. Classes are taken together where their worst ranks lie in the same run. Runs end at
    the ranks of `great` and `good`, too, so that every run is wholly inside or outside.

    Attributes:
        best: the k largest scores, shape (k,).
        scores: that of each run behind them, shape (runs,).
        first: where each run begins, 0 for rank k + 1.
        last: where it ends, inclusive.
    """

    best: FloatArray
    scores: FloatArray
    first: IntArray
    last: IntArray

    @classmethod
    def of(cls, scores: ArrayLike, k: int, *, merged: bool = True) -> Profile:
        """Of any table, in any order; `merged=False` keeps every rank a run of its own."""
        falling = np.sort(np.asarray(scores, float))[::-1]
        tail = falling[k:]
        starts = np.diff(tail, prepend=np.inf) != 0 if merged else np.ones(len(tail), bool)
        for bar in (great(k), good(k)):
            starts[bar.last - k : bar.last - k + 1] = True
        (first,) = np.nonzero(starts)
        return cls(falling[:k].copy(), tail[first], first, np.append(first[1:], len(tail)) - 1)

    @property
    def k(self) -> int:
        """Number of items selected."""
        return len(self.best)

    @property
    def domain(self) -> int:
        """Number of items in all."""
        return self.k + int(self.last[-1]) + 1

    @property
    def sizes(self) -> IntArray:
        """Number of items of each run."""
        return self.last - self.first + 1

    @property
    def tied(self) -> bool:
        """True if rank k + 1 is as good as rank k: no selection can tell them apart."""
        return bool(self.best[-1] == self.scores[0])

    def runs_within(self, bar: Bar) -> int:
        """Return the number of runs before the last rank that a bar allows."""
        return int(np.searchsorted(self.last, bar.last - self.k))

    @cached_property
    def log_sizes(self) -> FloatArray:
        """The logarithm of the number of subsets, by leading ranks held and run of the worst rank: shape (k, runs).

        C(n1 + j + 1, j + 1) - C(n0 + j, j + 1), j = k - 1 - h, for ranks n0 to n1 of the run: only positive terms are
        added up, so that nothing cancels (specs/subset 2.5).
        """
        first, last = self.first.astype(float), self.last.astype(float)
        table = np.empty((self.k, len(first)))
        whole, part = np.zeros(len(first)), np.zeros(len(first))
        with np.errstate(divide="ignore"):  # a run at the very front has nothing before it: log 0
            for j in range(self.k):
                whole += np.log((last + 1 + j) / (j + 1))
                part += np.log1p(-(last + 1 - first) / (last + 1 + j))
                table[self.k - 1 - j] = whole + np.log(-np.expm1(part))
        return table


def log_choose(n: int, r: int) -> float:
    """The logarithm of the number of r-subsets of n things, as a sum of logarithms."""
    steps = np.arange(1, min(r, n - r) + 1, dtype=float)
    return float(np.log1p((n - len(steps)) / steps).sum())
