"""By what clock the windows of a view get older: that which closes them.

With the wall clock it is the wall clock. With the event clock it is the stream: its time is the end of the newest
window of the view whose turn is over. Before the next one has its turn, all is carried out that is due by then. So what
is sharpened by age, and when in the stream, follows from the log alone, whether it is read as it is written or replayed
years later.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_dp.config.plan import ViewPlan
from stream_dp.releases.questions import Questions
from stream_dp.windows.slots import Slots


class Ages:
    """The times of the views of one partition."""

    def __init__(
        self,
        questions: Questions,
        slots: Slots,
        last_slot: Callable[[ViewPlan], int],
    ) -> None:
        """Set up.

        Args:
            questions: how far the releases of the views have come.
            slots: when records leave.
            last_slot: the slot of the last window of a view that has one.
        """
        self._questions = questions
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
        return self._wall_ms if self.goes_by_the_wall(view) else self._questions.stream_ms(view)

    def without_view_ms(self, view: ViewPlan) -> int:
        """The time by which windows of a view get older that was taken out.

        By the event clock it is that of the views here that are still counted of its source; the wall clock's, where
        there is none.
        """
        if self.goes_by_the_wall(view):
            return self._wall_ms
        alike = (one for one in self._questions.views.values() if one.source.name == view.source.name)
        return max(
            (self.now_ms(one) for one in alike if not (one.is_removed or self.goes_by_the_wall(one))),
            default=self._wall_ms,
        )

    def slot(self, view: ViewPlan, due_ms: int) -> int:
        """The slot of what was due at a time of a view, with a window that it has; by the stream with its newest."""
        if self.goes_by_the_wall(view):
            return max(self._slots.after(due_ms), self._slots.first(self._wall_ms))
        return self._last_slot(view)
