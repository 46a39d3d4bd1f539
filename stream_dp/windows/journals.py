"""Stored journals of open windows: the contributions that each window accepted, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from stream_dp.windows.count_rows import JOURNAL, JournalRow, JournalRowHead, ViewMark, journal_key
from stream_dp.windows.effects import Commit, Effect, Erase, Rows
from stream_dp.windows.encoding import MESSAGE_BYTES, after, cut, decode, text, window_key, window_start
from stream_dp.windows.open_windows import ViewState


class Journals:
    """Journals of the windows of one partition."""

    def __init__(self, rows: Rows) -> None:
        """Set up the journals; `rows` is the table that has them."""
        self._rows = rows

    def stored_rows(self, state: ViewState) -> Iterator[tuple[bytes, bytes]]:
        """Return the stored rows of a view, even those after the commit point, without those that will be purged."""
        name = state.view.name
        purging = {start for start, _ in state.mark.purging}
        prefix = JOURNAL + text(name)
        stored = self._rows.scan(prefix, after(prefix))
        return ((key, value) for key, value in stored if window_start(JOURNAL, name, key) not in purging)

    def are_equal(self, one: ViewState, other: ViewState, offset: int) -> bool:
        """Return True if the journals of two views have the same rows for the same windows, up to an offset."""

        def counted(state: ViewState) -> Iterator[tuple[bytes, bytes]]:
            at = len(JOURNAL + text(state.view.name))
            for key, value in self.stored_rows(state):
                if decode(JournalRowHead, value).last_offset <= offset:
                    yield key[at:], value

        return all(row == others for row, others in zip_longest(counted(one), counted(other)))

    def window_rows(self, view: str, start: int) -> Iterator[JournalRow]:
        """Return the rows of a window."""
        prefix = window_key(JOURNAL, view, start)
        return (decode(JournalRow, value) for _, value in self._rows.scan(prefix, after(prefix)))


def purge_journals(marks: Mapping[str, ViewMark], windows: Mapping[str, int]) -> Iterator[Effect]:
    """Delete the journals of windows that were handed on, for all views at once; again after a crash.

    Args:
        marks: by view, its progress.
        windows: by view, the number of windows whose journals are deleted.
    """
    purging = {name: marks[name].purging[:number] for name, number in windows.items() if number}
    keys = (
        journal_key(name, start, sequence)
        for name, over in purging.items()
        for start, rows in over
        for sequence in range(rows)
    )
    for some in cut(keys, len, MESSAGE_BYTES):
        yield Commit([(key, None) for key in some])
    for name, over in purging.items():
        yield Erase(window_key(JOURNAL, name, over[0][0]), after(window_key(JOURNAL, name, over[-1][0])))
    for name, over in purging.items():  # the next marker says so; until then a crash only purges once more
        marks[name].purging = marks[name].purging[len(over) :]
