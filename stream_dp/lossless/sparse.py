"""Histograms over a known, huge domain: only bins that some release shows are ever drawn, in the law of drawing all.

Bins are numbered 0, 1, ..., and every one has noise, the empty ones too: a release shows the bins whose noisy count
reaches a threshold. That is post-processing of the dense noisy table, so there is no delta, and a set of releases
costs what its finest does. `LadderSparse` is for levels and thresholds fixed in advance; one level alone is the
one-shot trick. `SparseRounds` takes any level and threshold in any order (specs/lossless 2.9.2, 2.9.4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Self

from stream_dp.errors import ParameterError
from stream_dp.exact import coins
from stream_dp.exact.bits import BitSource
from stream_dp.lossless.kernels import Level, TailFamily, Value, check_order
from stream_dp.lossless.multiple_release import MultipleRelease, insert


@dataclass(frozen=True)
class LadderSparse(Generic[Level]):
    """All that a fixed ladder of levels and thresholds will ever show of one snapshot; the counts are erased.

    The state costs what the finest level of the ladder does. Each release is a look-up.

    Attributes:
        ladder: (level, threshold) of every release, coarse to fine; a bin is shown where its reading >= threshold.
        table: the readings at all levels of every bin that is shown at one of them, in the order of the bins.
    """

    ladder: tuple[tuple[Level, int], ...]
    table: Mapping[int, tuple[int, ...]]

    @classmethod
    def close(
        cls,
        family: TailFamily[Level, Value],
        exact: Mapping[int, int],
        bins: int,
        ladder: Sequence[tuple[Level, int]],
        bits: BitSource,
    ) -> Self:
        """Draw the table once, when the window closes.

        Args:
            family: the noise.
            exact: the counts of the non-zero bins; zeros may stand among them. The caller erases them.
            bins: size of the domain, known to everybody: bins are 0, ..., bins - 1.
            ladder: (level, threshold >= 0), coarse to fine.
            bits: source of uniform bits.

        Raises:
            ParameterError: a bin outside the domain, a negative threshold, or a ladder that is not coarse to fine.

        Guarantee: that of the finest level, without a delta, for any thresholds. Time: kernels in the number of bins
        shown, whatever the size of the domain; with thresholds so low that the tails add up to more than 1, in the
        size of the domain. Source: specs/lossless 2.9.2 (one level), 2.9.4, vectors H02, H07.
        """
        counts = _occupied(exact, bins)
        if not ladder:
            raise ParameterError("a ladder holds at least one level")
        check_order(family, *(level for level, _ in reversed(ladder)))
        empty = bins - len(counts)
        if sum(_tails(family, ladder)) <= 1:
            paths = {bin_: _path(family, ladder, count, bits) for bin_, count in counts.items()}
            phantoms = _appearing(family, ladder, empty, bits)
            paths.update(zip(_free_bins(len(phantoms), bins, counts, bits), phantoms, strict=True))
        else:
            paths = {bin_: _path(family, ladder, counts.get(bin_, 0), bits) for bin_ in range(bins)}
        table = {bin_: tuple(int(paths[bin_][level]) for level, _ in ladder) for bin_ in sorted(paths)}
        return cls(tuple(ladder), {bin_: row for bin_, row in table.items() if any(_reached(paths[bin_], ladder))})

    def release(self, level: Level) -> dict[int, int]:
        """The bins shown at a level of the ladder and their readings.

        Raises:
            ParameterError: not a level of the ladder: a bin that no level of it shows may be shown elsewhere.
        """
        for place, (known, threshold) in enumerate(self.ladder):
            if known == level:
                return {bin_: row[place] for bin_, row in self.table.items() if row[place] >= threshold}
        raise ParameterError(f"{level} is not a level of the ladder; those are {[known for known, _ in self.ladder]}")


class SparseRounds(Generic[Level, Value]):
    """Sparse releases of one snapshot at levels and thresholds chosen one after the other, in any order.

    An empty bin that has never been shown is not drawn. When a round shows it for the first time, its readings at all
    levels so far are drawn given that it was silent in every earlier round; from then on it is tracked like a
    non-zero one. The exact counts stay, as in `MultipleRelease`.

    Args:
        family: the noise.
        exact: the counts of the non-zero bins; zeros may stand among them.
        bins: size of the domain, known to everybody: bins are 0, ..., bins - 1.
        rounds: (level, threshold) of all rounds so far, from `rounds` of an earlier object over the same counts.
        paths: the readings of the tracked bins, from `paths` of that object.

    Raises:
        ParameterError: a bin lies outside the domain.
        StateError: the stored readings are not those of these counts and rounds.

    Guarantee: that of the finest level so far, without a delta, for any thresholds.
    Source: specs/lossless 2.9.4 (SparseRound).
    """

    def __init__(
        self,
        family: TailFamily[Level, Value],
        exact: Mapping[int, int],
        bins: int,
        *,
        rounds: Sequence[tuple[Level, int]] = (),
        paths: Mapping[int, Mapping[Level, Value]] | None = None,
    ) -> None:
        counts = _occupied(exact, bins)
        if paths is not None:
            counts = dict.fromkeys(paths, 0) | counts
        self._family = family
        self._bins = bins
        self._tracked = MultipleRelease(family, counts, paths)
        self._rounds = list(rounds)

    @property
    def rounds(self) -> tuple[tuple[Level, int], ...]:
        """(level, threshold) of every round so far. Store it with `paths` before anything leaves."""
        return tuple(self._rounds)

    @property
    def paths(self) -> Mapping[int, Mapping[Level, Value]]:
        """For every tracked bin its readings at all levels so far; which bins are tracked tells who is non-zero."""
        return self._tracked.paths

    def release(self, level: Level, threshold: int, bits: BitSource) -> dict[int, int]:
        """The bins whose reading at the level is at least the threshold, and those readings, in the order of bins.

        A round that was asked before is repeated without randomness.

        Raises:
            ParameterError: the threshold is negative, or the tails of all rounds add up to more than 1: such thresholds
                show a large part of the domain, and a dense `MultipleRelease` over all bins is cheaper. Nothing has
                been drawn.

        Time: kernels in the number of bins shown and the number of rounds, whatever the size of the domain.
        """
        if (level, threshold) not in self._rounds:
            rounds = [*self._rounds, (level, threshold)]
            if sum(_tails(self._family, rounds)) > 1:
                raise ParameterError(
                    f"threshold {threshold} is too low: over the rounds the chances of an empty bin to be shown add "
                    "up to more than 1; raise the threshold, or release all bins with noise"
                )
            newcomers = self._newcomers(rounds, bits)
            self._tracked.release(level, bits)
            free = _free_bins(len(newcomers), self._bins, self._tracked.paths, bits)
            self._tracked.track(dict.fromkeys(free, 0), dict(zip(free, newcomers, strict=True)))
            self._rounds = rounds
        readings = self._tracked.release(level, bits)
        return {bin_: reading for bin_, reading in readings.items() if reading >= threshold}

    def _newcomers(self, rounds: Sequence[tuple[Level, int]], bits: BitSource) -> list[dict[Level, Value]]:
        """Readings of the empty bins that the last round is the first to show."""
        newcomers = []
        pending = self._bins - len(self._tracked)
        while pending:
            appearing = _appearing(self._family, rounds, pending, bits)
            silent = [path for path in appearing if not any(_reached(path, rounds[:-1]))]
            newcomers += silent
            # The others contradict the silence of the past: those bins are drawn again, from the start.
            pending = len(appearing) - len(silent)
        return newcomers


def _appearing(
    family: TailFamily[Level, Value], rounds: Sequence[tuple[Level, int]], empty: int, bits: BitSource
) -> list[dict[Level, Value]]:
    """Readings of those of `empty` empty bins that reach a threshold in some round; the others are not drawn.

    A bin is a candidate once for every threshold it reaches, and a candidate that reaches c of them is kept with
    probability 1 / c: the readings kept have their law restricted to reaching one. It needs tails of sum at most 1.
    """
    tails = _tails(family, rounds)
    kept = []
    for _ in range(coins.binomial(empty, sum(tails, Fraction(0)), bits)):
        level, threshold = rounds[coins.weighted(tails, bits)]
        path = {level: family.above(level, threshold, bits)}
        for other, _ in rounds:
            if other not in path:
                path[other] = insert(family, path, 0, other, bits)
        if coins.bernoulli(Fraction(1, sum(_reached(path, rounds))), bits):
            kept.append(path)
    return kept


def _path(
    family: TailFamily[Level, Value], ladder: Sequence[tuple[Level, int]], count: int, bits: BitSource
) -> dict[Level, Value]:
    """Readings of a count at all levels of a ladder, from the finest to the coarsest."""
    path: dict[Level, Value] = {}
    for level, _ in reversed(ladder):
        path[level] = insert(family, path, count, level, bits)
    return path


def _reached(path: Mapping[Level, Value], rounds: Sequence[tuple[Level, int]]) -> list[bool]:
    return [int(path[level]) >= threshold for level, threshold in rounds]


def _tails(family: TailFamily[Level, Value], rounds: Sequence[tuple[Level, int]]) -> list[Fraction]:
    if any(threshold < 0 for _, threshold in rounds):
        raise ParameterError("a threshold of a sparse release must be at least 0")
    return [family.tail(level, threshold) for level, threshold in rounds]


def _occupied(exact: Mapping[int, int], bins: int) -> dict[int, int]:
    outside = [bin_ for bin_ in exact if not 0 <= bin_ < bins]
    if outside:
        raise ParameterError(f"{len(outside)} of the bins lie outside 0, ..., {bins - 1}")
    return {bin_: count for bin_, count in exact.items() if count}


def _free_bins(number: int, bins: int, taken: Collection[int], bits: BitSource) -> list[int]:
    """So many distinct uniformly random bins outside `taken`."""
    order = sorted(taken)
    ranks: dict[int, None] = {}
    while len(ranks) < number:
        ranks[coins.uniform(bins - len(order), bits)] = None
    # Before the taken bin number i there are order[i] - i free ones.
    before = [bin_ - i for i, bin_ in enumerate(order)]
    return [rank + bisect_right(before, rank) for rank in ranks]
