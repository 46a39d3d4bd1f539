"""Sums over panes of a stream by noisy tree nodes: prefix sums as A = L R with integer noise.

R forms the exact counts of the nodes, which are blocks of 1, 2, 4, ... panes; noise is added there. L adds up a few
nodes per answer. L is linear, so answers at any levels are lossless as the nodes are: given the answers at the finest
level nothing about the data remains in the others (specs/lossless 2.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.bits import BitSource
from tests.support.multiple_release import Key, Level, NoiseFamily, RangeRelease, Value

Node = tuple[int, int]
"""The panes first, ..., end - 1; end - first is a power of two and divides first."""


@dataclass(frozen=True)
class Factorization:
    """Sums over panes through nodes: answer i is the sum of the nodes at the places `left[i]`.

    Attributes:
        panes: number of panes.
        nodes: the rows of R; each is one number per pane, 1 inside the node.
        left: the rows of L, as the places of their ones.
    """

    panes: int
    nodes: tuple[Node, ...]
    left: tuple[tuple[int, ...], ...]

    @property
    def sensitivity(self) -> int:
        """Number of nodes that one unit of one pane changes, each by 1: Delta1 of R, and Delta2^2 of R.

        Noise is scaled to this, not to the answers. Somebody who counts in p panes changes p times as much in L1.
        """
        return max(sum(first <= pane < end for first, end in self.nodes) for pane in range(self.panes))

    def node_counts(self, counts: Sequence[int]) -> tuple[int, ...]:
        """R x: the exact counts of the nodes, from one count per pane.

        Raises:
            ParameterError: another number of panes.
        """
        if len(counts) != self.panes:
            raise ParameterError(f"there are {self.panes} panes, not {len(counts)}")
        return tuple(sum(counts[first:end]) for first, end in self.nodes)

    def answers(self, readings: Sequence[int]) -> tuple[int, ...]:
        """L y: the answers from one reading per node, exact or noisy.

        Raises:
            ParameterError: another number of nodes.
        """
        if len(readings) != len(self.nodes):
            raise ParameterError(f"there are {len(self.nodes)} nodes, not {len(readings)}")
        return tuple(sum(readings[place] for place in row) for row in self.left)


def prefix_sums(panes: int) -> Factorization:
    """The sums over the first 1, 2, ..., `panes` panes, by a binary tree.

    Raises:
        ParameterError: no panes.

    Source: specs/lossless 2.8, vector F01.
    """
    if panes < 1:
        raise ParameterError(f"a tree needs at least one pane, not {panes}")
    largest = 1 << (panes.bit_length() - 1)
    sizes = [1 << power for power in range(panes.bit_length())]
    nodes = [(first, first + size) for size in sizes for first in range(0, panes - size + 1, size)]
    place = {node: i for i, node in enumerate(nodes)}
    left = (tuple(sorted(place[node] for node in cover(0, end, largest))) for end in range(1, panes + 1))
    return Factorization(panes, tuple(nodes), tuple(left))


def cover(first: int, end: int, largest: int) -> tuple[Node, ...]:
    """The fewest nodes of at most `largest` panes that make up the panes first, ..., end - 1, in their order."""
    nodes = []
    while first < end:
        size = largest
        while first % size or first + size > end:
            size //= 2
        nodes.append((first, first + size))
        first += size
    return tuple(nodes)


class RunningState(NamedTuple, Generic[Key, Level, Value]):
    """All that running sums are made of: store it whenever a pane has closed or a level was read for the first time.

    Attributes:
        closed: number of panes closed so far.
        open: blocks that may still become halves, largest first, and their exact counts.
        paths: for every node and key the readings at all levels drawn so far.
    """

    closed: int
    open: tuple[tuple[Node, Mapping[Key, int]], ...]
    paths: Mapping[Node, Mapping[Key, Mapping[Level, Value]]]


class RunningSums(Generic[Key, Level, Value]):
    """Counts summed over the panes of a stream while it runs, at any level of a range.

    A node gets its noise when its last pane closes and its exact count is erased when it can no longer become part of
    a larger node: exact counts of at most log2(largest) + 1 nodes are held at a time. A reader whose clearance rises
    in mid-stream reads every node at the finer level, those of the past too.

    Args:
        family: the noise. The sum of m nodes has the noise of m nodes, and m times its mean where it has one.
        keys: the public keys; every pane has a count for each.
        coarsest: lower end of the range of levels.
        finest: its upper end; scale it to `sensitivity`.
        largest: panes of the largest node, a power of two. Longer sums add up several of these.
        state: `state` of an earlier object with the same arguments.

    Guarantee: what one pane's counts change is `sensitivity` times each count's change, and a set of levels costs
    its finest.

    Raises:
        ParameterError: `largest` is not a power of two.
        StateError: the stored sums belong to other keys.

    Source: specs/lossless 2.8.
    """

    def __init__(
        self,
        family: NoiseFamily[Level, Value],
        keys: Sequence[Key],
        *,
        coarsest: Level,
        finest: Level,
        largest: int,
        state: RunningState[Key, Level, Value] | None = None,
    ) -> None:
        if largest < 1 or largest & (largest - 1):
            raise ParameterError(f"the largest node must have a power of two of panes, not {largest}")
        self._family = family
        self._keys = tuple(keys)
        self._coarsest, self._finest = coarsest, finest
        self._largest = largest
        closed, waiting, paths = state or RunningState(0, (), {})
        self._open = [(node, dict(counts)) for node, counts in waiting]
        self._nodes = {node: RangeRelease(family, readings) for node, readings in paths.items()}
        self._closed = closed
        if any(counts.keys() != set(self._keys) for counts in (*dict(self._open).values(), *paths.values())):
            raise StateError("the stored sums belong to other keys")

    @property
    def sensitivity(self) -> int:
        """Number of nodes that one unit of one pane changes, each by 1: Delta1, and Delta2^2."""
        return self._largest.bit_length()

    @property
    def closed(self) -> int:
        """Number of panes closed so far."""
        return self._closed

    @property
    def state(self) -> RunningState[Key, Level, Value]:
        """State from which the object can be made again; it holds exact counts of the open blocks."""
        return RunningState(
            self._closed,
            tuple((node, dict(counts)) for node, counts in self._open),
            {node: release.paths for node, release in self._nodes.items()},
        )

    def close(self, counts: Mapping[Key, int], bits: BitSource) -> None:
        """Close the next pane: draw the noise of every node that it completes.

        Args:
            counts: the exact counts of the pane; a key that is left out counts 0.
            bits: source of uniform bits.

        Raises:
            ParameterError: a key that is not public.
        """
        if not counts.keys() <= set(self._keys):
            raise ParameterError("a pane holds a key that is not one of the public keys")
        node: Node = (self._closed, self._closed + 1)
        total = {key: counts.get(key, 0) for key in self._keys}
        nodes = {node: self._draw(total, bits)}
        waiting = list(self._open)
        # What waits are blocks of falling size; two of one size side by side are the halves of the next one.
        while waiting and _size(waiting[-1][0]) == _size(node):
            half, earlier = waiting.pop()
            node = (half[0], node[1])
            total = {key: earlier[key] + total[key] for key in self._keys}
            nodes[node] = self._draw(total, bits)
        self._open = [*waiting, (node, total)] if _size(node) < self._largest else waiting
        self._nodes.update(nodes)
        self._closed += 1

    def read(self, first: int, end: int, level: Level, bits: BitSource) -> dict[Key, int]:
        """The sums over the panes first, ..., end - 1 at a level; a repetition gives the same and draws nothing.

        `read(0, closed, ...)` is the running total, `read(closed - width, closed, ...)` the sliding sum.

        Raises:
            StateError: a pane is not closed yet, or the level lies outside the range.
        """
        if not 0 <= first < end <= self._closed:
            raise StateError(f"panes {first} to {end} are not all closed; {self._closed} are")
        readings = [self._nodes[node].release(level, bits) for node in cover(first, end, self._largest)]
        return {key: sum(reading[key] for reading in readings) for key in self._keys}

    def _draw(self, total: Mapping[Key, int], bits: BitSource) -> RangeRelease[Key, Level, Value]:
        return RangeRelease.close(self._family, total, coarsest=self._coarsest, finest=self._finest, bits=bits)


def _size(node: Node) -> int:
    return node[1] - node[0]
