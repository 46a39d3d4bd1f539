"""Which parts of merged buckets have come, of the windows that wait for their turn."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stream_dp.windows.merge_rows import Come, MergedBucket


class Arrivals:
    """Which parts have come. Memory holds numbers; the counts are in the table.

    That a bucket is lost counts where it is not whole, and no more when all its parts come after all.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, int], dict[int, Come]] = {}

    def take(self, bucket: MergedBucket) -> Sequence[MergedBucket]:
        """Note a part; it takes the place of the one that came under its key.

        Returns:
            The parts, without counts, that are void because the bucket was cut otherwise for them: an item could be in
            one of them and in one of the new parts.
        """
        come = self._windows.setdefault((bucket.view, bucket.start_ms), {}).setdefault(bucket.bucket, Come())
        if bucket.lost:
            come.lost = True
            return ()
        void: list[MergedBucket] = []
        if come.parts != bucket.parts:
            void = [msgspec.structs.replace(bucket, part=part, counts={}) for part in sorted(come.numbers)]
            come.parts, come.numbers = bucket.parts, set()
        come.numbers.add(bucket.part)
        return void

    def complete(self, view: str, start_ms: int) -> int:
        """How many buckets of a window have all their parts, or are lost."""
        return sum(come.settled for come in self._windows.get((view, start_ms), {}).values())

    def is_lost(self, view: str, start_ms: int) -> bool:
        """Whether a bucket of a complete window is lost."""
        return not all(come.whole for come in self._windows.get((view, start_ms), {}).values())

    def forget(self, view: str, start_ms: int) -> None:
        """A window has had its turn."""
        self._windows.pop((view, start_ms), None)
