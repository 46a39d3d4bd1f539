"""Which parts of merged buckets have come, of the windows that wait for their turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stream_dp.windows.merge_rows import MergedBucket


class _Cut(NamedTuple):
    """Into how many parts a bucket was cut, and which of them have come."""

    parts: int
    come: set[int]


class Arrivals:
    """Which parts have come. Memory holds numbers; the counts are in the table."""

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], dict[int, _Cut]] = {}

    def take(self, bucket: MergedBucket) -> Sequence[MergedBucket]:
        """Note a part; it takes the place of the one that came under its key.

        Returns:
            The parts, without counts, that are void because the bucket was cut otherwise for them: an item could be in
            one of them and in one of the new parts.
        """
        window = self._windows.setdefault((bucket.view, bucket.start_ms), {})
        known = window.get(bucket.bucket)
        void: list[MergedBucket] = []
        if known is None or known.parts != bucket.parts:
            former = sorted(known.come) if known is not None else []
            void = [msgspec.structs.replace(bucket, part=part, counts={}) for part in former]
            known = window[bucket.bucket] = _Cut(bucket.parts, set())
        known.come.add(bucket.part)
        return void

    def complete(self, view: str, start_ms: int) -> int:
        """How many buckets of a window have all their parts."""
        return sum(len(cut.come) == cut.parts for cut in self._windows.get((view, start_ms), {}).values())

    def forget(self, view: str, start_ms: int) -> None:
        """A window has had its turn."""
        self._windows.pop((view, start_ms), None)
