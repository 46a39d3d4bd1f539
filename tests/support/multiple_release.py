"""Lossless multiple release: counts released at many levels, asked in any order, at the cost of the finest held.

`MultipleRelease` keeps the exact counts and can always go finer. `RangeRelease` fixes its finest level at once and
erases the counts; its state then costs no more than that level (specs/lossless 2.2, 2.3).

A noise family needs kernels for that. A *level* is the exact parameter of the family (a, a rate, a variance, a number
of bits); a *reading* is what is kept of one released count: the released integer, or the parts it is made of. For
levels fine, level, coarse in that order (specs/lossless 1.5, 2.1):

    fresh    noise of a level
    coarsen  fine reading + W,   W ~ C(fine, level)
    between  fine reading + W1,  W1 ~ [C(fine, level) | W1 + W2 = coarse reading - fine reading], W2 ~ C(level, coarse)
    sharpen  exact count + Z,    Z ~ [noise of level | Z + W = coarse reading - exact count],      W ~ C(level, coarse)

C(fine, coarse) is the bridge: what has to be added to fine noise to get coarse noise, independently of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import reduce
from itertools import pairwise
from typing import Generic, Protocol, Self, TypeVar

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource


class Reading(Protocol):
    """A value that can be moved by an exact count and gives the released integer; an int is one."""

    def __add__(self, count: int, /) -> Self:
        """The reading of a count larger by `count` under the same noise."""

    def __int__(self) -> int:
        """The released integer."""


Level = TypeVar("Level", bound=Hashable)
LevelT_contra = TypeVar("LevelT_contra", bound=Hashable, contravariant=True)
Value = TypeVar("Value", bound=Reading)


class NoiseFamily(Protocol[LevelT_contra, Value]):
    """An integer noise law at every level, such that coarse noise is fine noise plus something independent.

    All kernels raise ParameterError for something that is not a level or stands in the wrong order, and StateError for
    readings that no run can have left behind.
    """

    @property
    def zero(self) -> Value:
        """The reading of a count of 0 without noise; `zero + y` is all that is known of a released y."""

    def is_finer(self, a: LevelT_contra, b: LevelT_contra) -> bool:
        """Return true if a has strictly less noise than b."""

    def fresh(self, level: LevelT_contra, bits: BitSource) -> Value:
        """Noise of a level."""

    def coarsen(self, value_fine: Value, fine: LevelT_contra, level: LevelT_contra, bits: BitSource) -> Value:
        """A coarser reading from the nearest finer one."""

    def between(
        self,
        value_fine: Value,
        fine: LevelT_contra,
        value_coarse: Value,
        coarse: LevelT_contra,
        level: LevelT_contra,
        bits: BitSource,
    ) -> Value:
        """A reading between its two nearest ones."""

    def sharpen(
        self, value_coarse: Value, coarse: LevelT_contra, exact: int, level: LevelT_contra, bits: BitSource
    ) -> Value:
        """A reading finer than all so far, from the nearest coarser one and the exact count."""


def check_order(family: NoiseFamily[Level, Value], *levels: Level) -> None:
    """Refuse levels that do not go strictly from fine to coarse.

    Every family's parameter shrinks with the noise or grows with it, and mixing that up is the commonest error
    (specs/lossless 1.1; specs/lossless 5, no. 10).

    Raises:
        ParameterError: a level is not finer than the next one.
    """
    for fine, coarse in pairwise(levels):
        if not family.is_finer(fine, coarse):
            raise ParameterError(f"level {fine} must be finer than level {coarse}")


class _Sortable(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...


Key = TypeVar("Key", bound=_Sortable)


def insert(
    family: NoiseFamily[Level, Value], path: Mapping[Level, Value], exact: int | None, level: Level, bits: BitSource
) -> Value:
    """Draw the reading of one more level of one count, given those of other levels.

    Args:
        family: the noise.
        path: the readings so far; `level` is not among them.
        exact: the count, or None where it has been erased.
        level: the level asked for.
        bits: source of uniform bits.

    Raises:
        ParameterError: not a level of the family.
        StateError: the path contradicts itself, or the level needs an erased count.

    Source: specs/lossless 2.2.
    """
    coarser = [other for other in path if family.is_finer(level, other)]
    finer = [other for other in path if family.is_finer(other, level)]
    # Of a path only the two nearest readings matter: it is a Markov chain in the level.
    if finer:
        fine = reduce(lambda a, b: b if family.is_finer(a, b) else a, finer)
    if coarser:
        coarse = reduce(lambda a, b: a if family.is_finer(a, b) else b, coarser)
    if finer and coarser:
        return family.between(path[fine], fine, path[coarse], coarse, level, bits)
    if finer:
        return family.coarsen(path[fine], fine, level, bits)
    if exact is None:
        raise StateError(f"level {level} is finer than all that is left of an erased count")
    if coarser:
        return family.sharpen(path[coarse], coarse, exact, level, bits)
    return family.fresh(level, bits) + exact


class _Readings(Generic[Key, Level, Value]):
    """One path of readings per key, all of them at the same levels."""

    def __init__(self, family: NoiseFamily[Level, Value], paths: Mapping[Key, Mapping[Level, Value]]) -> None:
        self._family = family
        # In the order of the keys: that of the counts would tell which key came first.
        self._paths = {key: dict(paths[key]) for key in sorted(paths)}
        self._levels = {level for path in self._paths.values() for level in path}
        if any(path.keys() != self._levels for path in self._paths.values()):
            raise StateError("the stored readings do not hold the same levels for every key")

    @property
    def paths(self) -> Mapping[Key, Mapping[Level, Value]]:
        """The state: for every key its reading at every level drawn so far. Store it before anything leaves."""
        return {key: dict(path) for key, path in self._paths.items()}

    def _read(self, level: Level, exact: Mapping[Key, int] | None, bits: BitSource) -> dict[Key, int]:
        if level not in self._levels:
            drawn = {
                key: insert(self._family, path, None if exact is None else exact[key], level, bits)
                for key, path in self._paths.items()
            }
            for key, value in drawn.items():
                self._paths[key][level] = value
            self._levels.add(level)
        return {key: int(path[level]) for key, path in self._paths.items()}


class MultipleRelease(_Readings[Key, Level, Value]):
    """Counts that can be released at any level at any time; the counts stay, encrypted or in trusted hands.

    Whatever the order of the requests, the joint law of the releases is that of one noise path per key, read at the
    levels asked; each marginal is the family's. So a set of releases costs what its finest does, under every notion
    of privacy closed under post-processing.

    Args:
        family: the noise.
        exact: the counts of one frozen snapshot. Changed counts are another snapshot, with noise of its own.
        paths: readings drawn before, from `paths` of an earlier object over the same counts.

    Raises:
        StateError: the stored readings are not those of these keys at common levels.

    Source: specs/lossless 2.2 (GenericMultipleRelease).
    """

    def __init__(
        self,
        family: NoiseFamily[Level, Value],
        exact: Mapping[Key, int],
        paths: Mapping[Key, Mapping[Level, Value]] | None = None,
    ) -> None:
        if paths is not None and paths.keys() != exact.keys():
            raise StateError("the stored readings belong to other keys than the counts")
        super().__init__(family, {key: {} for key in exact} if paths is None else paths)
        self._exact = dict(exact)

    def release(self, level: Level, bits: BitSource) -> dict[Key, int]:
        """The released integers at a level: the same at every repetition, which draws nothing.

        Raises:
            ParameterError: not a level of the family.
            StateError: the stored readings contradict one another; nothing has been drawn or changed.

        Time: one kernel per key.
        """
        return self._read(level, self._exact, bits)


class RangeRelease(_Readings[Key, Level, Value]):
    """Counts that can be released at any level of a fixed range, after the exact ones have been erased.

    The state is post-processing of the finest level at all times: stolen, it costs what that level costs.

    Args:
        family: the noise.
        paths: the state, from `paths` of an earlier object.

    Raises:
        StateError: the stored readings do not hold a range of levels, the same for every key.

    Source: specs/lossless 2.3 (SimplifiedGenericMultipleRelease).
    """

    def __init__(self, family: NoiseFamily[Level, Value], paths: Mapping[Key, Mapping[Level, Value]]) -> None:
        super().__init__(family, paths)
        if paths and len(self._levels) < 2:
            raise StateError("the stored readings hold no range of levels")

    @classmethod
    def close(
        cls,
        family: NoiseFamily[Level, Value],
        exact: Mapping[Key, int],
        *,
        coarsest: Level,
        finest: Level,
        bits: BitSource,
    ) -> Self:
        """Draw both ends of the range; nothing of the counts but their finest release is kept.

        Args:
            family: the noise.
            exact: the counts, which the caller erases.
            coarsest: lower end of the range, included.
            finest: upper end of the range, included; nothing finer can ever be released.
            bits: source of uniform bits.

        Raises:
            ParameterError: not levels of the family, or in the wrong order.
        """
        paths: dict[Key, dict[Level, Value]] = {}
        for key, count in exact.items():
            # Only the released integer goes on: the parts of the finest reading would tell more than it does.
            end = family.zero + int(family.fresh(finest, bits) + count)
            paths[key] = {finest: end, coarsest: family.coarsen(end, finest, coarsest, bits)}
        return cls(family, paths)

    def release(self, level: Level, bits: BitSource) -> dict[Key, int]:
        """The released integers at a level of the range: the same at every repetition, which draws nothing.

        Raises:
            ParameterError: not a level of the family.
            StateError: the level lies outside the range, or the stored readings contradict one another; nothing has
                been drawn or changed.

        Time: one kernel per key.
        """
        if level not in self._levels and self._levels:
            above = any(self._family.is_finer(other, level) for other in self._levels)
            below = any(self._family.is_finer(level, other) for other in self._levels)
            if not (above and below):
                raise StateError(f"level {level} lies outside the range fixed when the exact counts were erased")
        return self._read(level, None, bits)
