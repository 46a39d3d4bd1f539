"""The rows of the merges table, which the merge agent writes, and the messages on both sides of it.

| key | value |
|---|---|
| `p` view, start, bucket, partition | `Partial`: what one partition counted in a bucket |
| `d` view, start, bucket | empty: the bucket is finished, and was handed on |

A `MergedBucket` is a message here and a row in the table of the release agent (`releases.rows`).
"""

from __future__ import annotations

import msgspec

from stream_dp.windows.keys import bucket_key, bucket_number

PARTIAL, FINISHED = b"p", b"d"


def partial_key(view: str, start_ms: int, bucket: int, partition: int) -> bytes:
    """The key of what one source partition counted in one bucket of a window."""
    return bucket_key(PARTIAL, view, start_ms, bucket) + bucket_number(partition)


class Partial(msgspec.Struct, array_like=True):
    """What one source partition counted in one bucket of a window; it replaces any earlier one under its key."""

    view: str
    start_ms: int
    bucket: int
    partition: int
    closed_ms: int
    """The wall time at which the partition closed the window."""
    counts: dict[str, int]


class MergedBucket(msgspec.Struct, array_like=True):
    """Exact counts of one bucket of a window, summed over all partitions of the source: all of them, or a part."""

    view: str
    start_ms: int
    bucket: int
    closed_ms: int
    """The wall time at which the last of the partitions closed the window."""
    part: int
    """Number of the part, from 0."""
    parts: int
    """How many parts the bucket has; no item is in two of them."""
    counts: dict[str, int]
