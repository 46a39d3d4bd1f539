"""The rows of the merges table, which the merge agent writes, and the messages on both sides of it.

| key | value |
|---|---|
| `p` view, start, bucket, partition, part | `Partial`: what one partition counted in a bucket, or a part of it |
| `d` view, start, bucket | empty: the bucket is finished, and was handed on |

A `MergedBucket` is a message here and a row in the table of the release agent (`releases.rows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from stream_dp.windows.keys import bucket_key, bucket_number
from stream_dp.windows.sizes import ENTRIES_BYTES, cut

PARTIAL, FINISHED = b"p", b"d"
LOST = 0xFFFF
"""The number of a part that is none."""


class Named(msgspec.Struct, array_like=True):
    """What partials and merged buckets begin with: the name of what they were counted for."""

    view: str


class PartialHead(msgspec.Struct, array_like=True):
    """What a partial says beside its counts; read alone, these are passed over."""

    view: str
    start_ms: int
    bucket: int
    partition: int
    closed_ms: int
    """The wall time at which the partition closed the window."""
    part: int
    parts: int
    """What the partition counted in the bucket stands in so many partials; this is number `part`, from 0.

    One that stands in for those that were handed on before, and may have been lost since, is number `LOST` of none;
    what it stands in for outranks it.
    """

    @property
    def lost(self) -> bool:
        """Whether it only stands in for others."""
        return self.part == LOST

    @property
    def key(self) -> bytes:
        """The key of the partial, as a row and as a message."""
        place = bucket_key(PARTIAL, self.view, self.start_ms, self.bucket)
        return place + bucket_number(self.partition) + bucket_number(self.part)


class Partial(PartialHead, array_like=True):
    """What one source partition counted in one bucket of a window; it replaces any earlier one under its key."""

    counts: dict[str, int]


class MergedBucket(msgspec.Struct, array_like=True):
    """Exact counts of one bucket of a window, summed over all partitions of the source: all of them, or a part."""

    view: str
    start_ms: int
    bucket: int
    closed_ms: int
    """The wall time at which the last of the partitions closed the window."""
    part: int
    parts: int
    """As in a partial; one that stands in says that counts of the bucket were lost."""
    counts: dict[str, int]

    @property
    def lost(self) -> bool:
        """Whether counts of it were lost on their way, so that it says nothing; one that says something outranks it."""
        return self.part == LOST


@dataclass(slots=True)
class Come:
    """What has come of something that is cut into parts."""

    parts: int = 0
    """How many there are; 0 before one has come."""
    numbers: set[int] = field(default_factory=set)
    """Those that have come."""
    lost: bool = False
    """Whether one came that stands in for them."""

    @property
    def whole(self) -> bool:
        """Whether all of them are there."""
        return bool(self.parts) and len(self.numbers) == self.parts

    @property
    def settled(self) -> bool:
        """Whether nothing more has to be waited for."""
        return self.whole or self.lost


def parts_of(counts: Mapping[str, int]) -> list[dict[str, int]]:
    """Counts as parts that each fit a message: the same for the same counts in the same order, and at least one."""
    return [dict(part) for part in cut(counts.items(), _size, ENTRIES_BYTES)] or [{}]


def _size(entry: tuple[str, int]) -> int:
    return len(entry[0].encode()) + 12
