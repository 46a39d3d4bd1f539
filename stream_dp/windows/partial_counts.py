"""Partial counts of a closed window: what one partition of a source sends to be merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat

from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import bucket_of
from stream_dp.windows.gaps import is_interrupted, is_lost
from stream_dp.windows.handover import lost_partials
from stream_dp.windows.journals import Journals
from stream_dp.windows.merging import Partial, parts_of
from stream_dp.windows.open_windows import OpenWindow, ViewState, WindowMemory, tables_of
from stream_dp.windows.views import CountedView

Outlet = Callable[[Partial], Message]
"""Addresses a partial to the topic that the merge agent reads."""


class PartialCounts:
    """Makes the partial counts of the closed windows of one partition."""

    def __init__(self, partition: int, journals: Journals, outlet: Outlet, memory: WindowMemory) -> None:
        """Set up the maker of partial counts.

        Args:
            partition: the number of the partition.
            journals: of its windows.
            outlet: where partial counts go.
            memory: bounds what is held while they are made.
        """
        self._partition = partition
        self._journals = journals
        self._outlet = outlet
        self._memory = memory

    def messages(self, state: ViewState, start: int) -> Iterator[Message]:
        """Return the messages with the partial counts of a window; the mark of its view counts what they hold."""
        view = state.view
        mark = state.mark
        if is_lost(mark, start):
            yield from map(self._outlet, lost_partials(view, start, self._partition, mark))
            return
        interrupted = is_interrupted(mark, start)
        window = state.windows.get(start, OpenWindow())
        users = window.by_degree(self._journals.window_rows(view.name, start)) if view.groups_users else {}
        mark.counted += sum(degree * number for degree, number in users.items())
        for bucket, table in enumerate(self._tables(view, window, start, users)):
            mark.counted += 0 if view.groups_users else sum(table.values())
            parts = parts_of(table)
            for part, counts in enumerate(parts):
                place = view.name, start, bucket, self._partition
                partial = Partial(*place, mark.closed_ms, part, len(parts), counts, interrupted)
                yield self._outlet(partial)

    def _tables(
        self, view: CountedView, window: OpenWindow, start: int, users: Mapping[int, int]
    ) -> Iterable[dict[str, int]]:
        """Return the counts of every bucket of a window; in each, items are in the order of the journal."""
        if not view.degrees and (window.spill_store is not None or view.bounds is not None):
            return tables_of(lambda: self._amounts(view, window, start), view.buckets, self._memory.most_bytes)
        tables: list[dict[str, int]] = [{} for _ in range(view.buckets)]
        named = ((view.degrees[degree - 1], number) for degree, number in sorted(users.items()))
        for item, count in named if view.degrees else window.counts(view.weights):
            table = tables[bucket_of(item, view.buckets)]
            table[item] = table.get(item, 0) + count
        return tables

    def _amounts(self, view: CountedView, window: OpenWindow, start: int) -> Iterator[tuple[str, int]]:
        """Yield the items of a window as they were accepted, and what each adds to its count."""
        for row in self._journals.window_rows(view.name, start):
            weights = (view.weights[held - 1] for held in window.held(row.users)) if view.weights else repeat(1)
            yield from zip(row.items, weights, strict=False)
