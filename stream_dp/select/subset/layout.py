"""The counts as a selection walks through them: the k largest in order, all others in blocks of nearly equal counts.

Any order among equal counts, and any layout of the blocks, gives the same law: a block only bounds what is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream_dp.select.candidates import MOST_USERS
from stream_dp.select.subset.logarithms import Integers, binomial
from stream_dp.select.subset.parameters import SubsetParameters, Variant

_DISTANCE_BITS = 31
_LN_TWO_ABOVE = Fraction(69314719, 10**8)
_SPARE_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks and blocks of a table of counts, and of further zeros that are nowhere stored.

    A position is a place of `counts`, or beyond them the number of a zero.

    Attributes:
        counts: the counts, at least k + 1 of them.
        top: positions of the k largest, best first.
        leads: for h = 0, ..., k - 1 how far the (h+1)-st count stands above what the top-k is measured by.
        labels: the number of each block, rising; the higher, the smaller its counts.
        label_of: the block number of each position, one that no block has for the top.
        distances: how far the largest count of each block lies below the k-th.
        sizes: how many positions each block has, `zeros` in the last included.
        zeros: how many zeros are nowhere stored.
    """

    counts: Integers
    top: NDArray[np.intp]
    leads: list[int]
    labels: Integers
    label_of: Integers
    distances: list[int]
    sizes: Integers
    zeros: int

    def least(self) -> int:
        """The k-th largest count."""
        return int(self.counts[self.top[-1]])

    def above(self, block: int) -> NDArray[np.intp]:
        """The positions of all blocks with larger counts."""
        return np.flatnonzero(self.label_of < self.labels[block])

    def inside(self, block: int) -> NDArray[np.intp]:
        """The positions of a block that are stored; in the last block `zeros` more follow behind all counts."""
        return np.flatnonzero(self.label_of == self.labels[block])


def depth_of(d: int, k: int) -> int:
    """How far below the k-th count blocks are worth telling apart, in units of what they weigh.

    All subsets that reach deeper than ln C(d, k) + 20 weigh together about e^-20 of the top-k (specs/subset 2.6).
    """
    exponent = _LN_TWO_ABOVE * (binomial(d, k).bit_length() - 1)
    return -(-exponent.numerator // exponent.denominator) + _SPARE_DEPTH


def lay_out(counts: Integers, zeros: int, p: SubsetParameters, *, rate: Fraction, depth: int) -> Layout:
    """Rank the k largest counts and cut the others into blocks.

    Args:
        counts: at least 0 and below 2^62.
        zeros: further zeros; more than k counts in all.
        p: the selection's parameters.
        rate: blocks per user; 0 makes one block.
        depth: the number of the last block, at least 0, below 2^30: it holds whatever is deeper.

    Time: some ten passes over the counts as arrays.
    """
    stored = min(zeros, p.k + 1)  # so that the top-k and the one that follows have positions
    if stored:
        counts = np.concatenate((counts, np.zeros(stored, np.int64)))
    top = _largest(counts, p.k)
    leading = counts[top].tolist()
    label_of = _labels(leading[-1] - counts, rate, depth)
    label_of[top] = depth + 1
    sizes = np.bincount(label_of, minlength=depth + 2)[: depth + 1]
    least_below = np.full(depth + 2, -1, np.int64)
    np.maximum.at(least_below, label_of, counts)
    labels = np.flatnonzero(sizes)
    distances = (leading[-1] - least_below[labels]).tolist()
    sizes = sizes[labels]
    sizes[-1] += zeros - stored
    measure = leading[-1] - (distances[0] if p.variant is Variant.SIGNED else 0)
    leads = [count - measure for count in leading]
    return Layout(counts, top, leads, labels, label_of, distances, sizes, zeros - stored)


def _largest(counts: Integers, k: int) -> NDArray[np.intp]:
    """The positions of the k largest, best first; among equal ones any order does."""
    least = np.partition(counts, len(counts) - k)[len(counts) - k]
    above = np.flatnonzero(counts > least)
    top = np.concatenate((above, np.flatnonzero(counts == least)[: k - len(above)]))
    return top[np.argsort(-counts[top], kind="stable")]


def _labels(distances: Integers, rate: Fraction, depth: int) -> Integers:
    """floor(rate distance), or one less, at most `depth`; distances are cut off where that is reached."""
    if not rate or not depth:
        return np.zeros(len(distances), np.int64)
    deepest = min(-(-depth * rate.denominator // rate.numerator), MOST_USERS)
    dropped = max(deepest.bit_length() - _DISTANCE_BITS, 0)
    scale = min((rate.numerator << _DISTANCE_BITS + dropped) // rate.denominator, depth + 1 << _DISTANCE_BITS)
    labels = np.clip(distances, 0, deepest)
    labels >>= dropped
    labels *= scale
    labels >>= _DISTANCE_BITS
    return np.minimum(labels, depth, out=labels)
