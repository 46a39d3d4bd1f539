"""By what clock the windows of a view get older: that which closes them.

With the wall clock it is the wall clock. With the event clock it is the stream: its time is the end of the newest
window of the view whose turn is over. Before the next one has its turn, all is carried out that is due by then. So what
is sharpened by age, and when in the stream, follows from the log alone, whether it is read as it is written or replayed
years later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.rows import ViewRow
from stream_dp.windows.shape import Shape
from stream_dp.windows.slots import Slots


def stream_ms(questions: Sequence[tuple[ViewPlan, int]]) -> int:
    """The time of the stream of a view: the end of the newest window whose turn is over.

    A question that begins with a later window, however far ahead, says nothing of it yet.

    Args:
        questions: those of the view, the first one first, each with the start of the next window that has its turn.
    """
    begun = [(view, next_ms) for view, next_ms in questions if not view.editions or view.begins_ms < next_ms]
    return max(_over_to(view.window.shape, next_ms) for view, next_ms in begun or questions[:1])


def _over_to(shape: Shape, next_ms: int) -> int:
    return shape.end(shape.next(next_ms, -1))


class Ages:
    """The times of the views of one partition."""

    def __init__(
        self,
        views: Mapping[str, ViewPlan],
        marks: Mapping[str, ViewRow],
        slots: Slots,
        last_slot: Callable[[ViewPlan], int],
    ) -> None:
        """Set up.

        Args:
            views: the views, by name.
            marks: by view, how far its releases have come.
            slots: when records leave.
            last_slot: the slot of the last window of a view that has one.
        """
        self._views = views
        self._marks = marks
        self._slots = slots
        self._last_slot = last_slot
        self._wall_ms = 0

    def tell(self, wall_ms: int) -> None:
        """Take note of the wall time."""
        self._wall_ms = max(self._wall_ms, wall_ms)

    @staticmethod
    def goes_by_the_wall(view: ViewPlan) -> bool:
        """Whether the time of a view goes on though no window is released."""
        return view.window.clock == "wall"

    def now_ms(self, view: ViewPlan) -> int:
        """The time of a view."""
        if self.goes_by_the_wall(view):
            return self._wall_ms
        questions = [one for one in self._views.values() if one.view == view.view]
        return stream_ms([(one, self._marks[one.name].next_ms) for one in questions])

    def slot(self, view: ViewPlan, due_ms: int) -> int:
        """The slot of what was due at a time of a view, with a window that it has; by the stream with its newest."""
        if self.goes_by_the_wall(view):
            return max(self._slots.after(due_ms), self._slots.first(self._wall_ms))
        return self._last_slot(view)
