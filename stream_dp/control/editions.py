"""The editions of the views of an application: which settings hold for which of their windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_dp.control.settings import Posted


@dataclass(frozen=True, slots=True)
class Held:
    """An edition of a view, and the windows that it holds for.

    Attributes:
        view: the view's name.
        edition: its number; 1 for the settings that the view began with.
        settings: the number of the record that made it.
        from_ms: start of its first window.
        until_ms: start of the first window that it does not hold for; None: it holds for all that begin later.
    """

    view: str
    edition: int
    settings: int
    from_ms: int
    until_ms: int | None

    @property
    def never_holds(self) -> bool:
        """Whether another one was decided before it began, and took its place."""
        return self.until_ms is not None and self.until_ms <= self.from_ms


def editions(known: Sequence[Posted]) -> list[Held]:
    """Every edition of every view, views in the order in which they first began, their editions as they were decided.

    Of those that begin before a window the one that was decided last holds for it.

    Args:
        known: the settings so far (`stream_dp.control.settings.history`).
    """
    views = dict.fromkeys(view for record in known for view in record.begins)
    return [held for view in views for held in _of(view, known)]


def _of(view: str, known: Sequence[Posted]) -> Iterator[Held]:
    made = [record for record in known if view in record.begins]
    for number, record in enumerate(made, start=1):
        later = [one for one in known if one.number > record.number]
        ends = [at_ms for one in later for at_ms in (one.begins.get(view), one.ends.get(view)) if at_ms is not None]
        yield Held(view, number, record.number, record.begins[view], min(ends, default=None))
