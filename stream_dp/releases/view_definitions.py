"""The definitions of the views of one partition: which come one after another, and how far each has come.

A view has one definition after another, as its settings change (`control.settings`). Each has state of its own, windows
of the later one leave behind all of the earlier one, and readers see one row of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.losses import Published, expired_windows
from stream_dp.releases.pieces import Change
from stream_dp.releases.rows import VIEW, ViewRow, stored_view, stored_window
from stream_dp.windows.effects import Rows
from stream_dp.windows.encoding import encode, text


def stream_ms(over: Iterable[tuple[ViewPlan, int]]) -> int:
    """The time of the stream of a view: the end of the newest window whose turn is over.

    Args:
        over: the definitions of the view that had such a window, each with the start of the next one; the first
            definition of all, where none had.
    """
    return max(view.window.shape.end(view.window.shape.next(next_ms, -1)) for view, next_ms in over)


class ViewDefinitions:
    """The definitions of one partition; a view in the sense of an operator is a list of them.

    Attributes:
        views: by name.
        marks: by name, how far the releases of each have come. Others go on with them.
    """

    def __init__(self, views: Mapping[str, ViewPlan], marks: Mapping[str, ViewRow]) -> None:
        """Set up; the arguments are the attributes."""
        self.views = views
        self.marks = marks
        self._of: dict[str, list[ViewPlan]] = {}
        for view in views.values():
            self._of.setdefault(view.view, []).append(view)

    def earlier(self, view: ViewPlan) -> Iterator[ViewPlan]:
        """The definitions of the same view that were decided before one."""
        return takewhile(lambda one: one.name != view.name, self._of[view.view])

    def is_over(self, view: ViewPlan) -> bool:
        """Return True if a definition has no window left to release."""
        return view.until_ms is not None and self.marks[view.name].next_ms >= view.until_ms

    def has_turn(self, view: ViewPlan) -> bool:
        """Return True if the next window of a view is one of this definition."""
        return not self.is_over(view) and all(map(self.is_over, self.earlier(view)))

    def with_earlier(
        self, lost: Mapping[str, Sequence[int]], published: Published, rows: Rows
    ) -> dict[str, Sequence[int]]:
        """Lost windows, and those lost of the definitions before them though nothing of them is public.

        Where a window of a definition was published, so was every window of those before it: the last one, where less
        is stored; and whatever has expired since may have been sharpened before.

        Args:
            lost: by definition, the starts of its lost windows, oldest first.
            published: all that was found in the public topics.
            rows: the partition's table.
        """
        found = dict(lost)
        for name in lost:
            for one in self.earlier(self.views[name]):
                gone = {*found.get(one.name, ()), *expired_windows(one, published.get(one.name, ()), rows)}
                if one.until_ms is not None and not self.is_over(one):
                    shape = one.window.shape
                    gone.add(shape.next(shape.first_from(one.until_ms), -1))
                if gone:
                    found[one.name] = sorted(gone)
        return found

    def first(self, view: ViewPlan, first_ms: int, rows: Rows) -> int:
        """The first window of a definition without state: none that an earlier one has released by then.

        An earlier one that another took the place of before it began has released none.
        """
        stored = [(one, stored_view(one.name, rows)) for one in self.earlier(view)]
        behind = [row.next_ms for one, row in stored if row is not None and row.next_ms > one.begins_ms]
        return view.window.shape.first_from(max([first_ms, *behind]))

    def stream_ms(self, view: ViewPlan) -> int:
        """The end of the newest window whose turn is over, of all definitions of a view; before that, the view's start.

        A definition that none of its windows had a turn of says nothing: it may begin any time from now.
        """
        asked = [(one, self.marks[one.name]) for one in self._of[view.view]]
        over = [(one, mark.next_ms) for one, mark in asked if mark.next_ms > mark.published_ms]
        return stream_ms(over or [(one, mark.next_ms) for one, mark in asked[:1]])

    def advance(self, view: ViewPlan, start_ms: int, *, publishes_window: bool) -> list[Change]:
        """A window is stored: how far its definition has come, and how long windows of those before it are kept.

        These go by the windows of the one that took their place: they are kept no longer than if their definition went
        on, and the newest no longer than until one behind it was published.

        Args:
            view: the definition, with the edition of the window.
            start_ms: start of the window.
            publishes_window: whether a window is published with it.

        Returns:
            The rows to store behind the window's, its own definition's behind the others'.
        """
        mark = self.marks[view.name]
        mark.next_ms = max(mark.next_ms, view.window.shape.next(start_ms))
        mark.kept_ms = max(mark.kept_ms, start_ms - view.window.kept_ms)
        mark.published_ms = max(mark.published_ms, start_ms) if publishes_window else mark.published_ms
        changed: list[Change] = []
        for one in self.earlier(view):
            mark = self.marks[one.name]
            kept_ms = max(mark.kept_ms, min(mark.next_ms, start_ms - one.window.kept_ms))
            published_ms = mark.next_ms if publishes_window else mark.published_ms
            if (kept_ms, published_ms) != (mark.kept_ms, mark.published_ms):
                mark.kept_ms, mark.published_ms = kept_ms, published_ms
                changed.append(self.row(one))
        return [*changed, self.row(view)]

    def aged(self, now_ms: Callable[[ViewPlan], int], rows: Rows) -> list[Change]:
        """Update how long windows of removed views are kept: they have no later window that would say it.

        Args:
            now_ms: the time by which they get older.
            rows: the partition's table.

        Returns:
            The rows to store.
        """
        changed: list[Change] = []
        for view in self.views.values():
            mark = self.marks[view.name]
            if view.is_removed and self.is_over(view):
                shape = view.window.shape
                newest = shape.next(shape.first_open(now_ms(view)), -1)
                kept_ms = min(mark.next_ms, newest - view.window.kept_ms)
                if kept_ms > mark.kept_ms:
                    first = stored_window(view.name, mark.published_ms, rows)
                    if first is not None and not first.publishes_window:  # panes, and no window of them
                        mark.published_ms = mark.next_ms
                    mark.kept_ms = kept_ms
                    changed.append(self.row(view))
        return changed

    def row(self, view: ViewPlan) -> Change:
        """The row that says how far a definition has come."""
        return VIEW + text(view.name), encode(self.marks[view.name])
