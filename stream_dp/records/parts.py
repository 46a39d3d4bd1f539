"""How a reader puts together a release that was published in parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Release

_Window = tuple[str, str, int, int]
"""View, audience, start and end."""


@dataclass
class Joiner:
    """Waits for the parts of releases, of any number of views and audiences.

    A topic may repeat records after a crash, and compaction may leave some parts of a revision that a later one
    replaced. Neither is taken for a release: one counts when all parts of its revision were read, and what is left of
    lower revisions then never does. A release that is read again as a whole is handed out again.
    """

    _windows: dict[_Window, dict[int, dict[int, Release]]] = field(default_factory=dict)
    """By revision the parts that were read, by number."""

    def take(self, record: AnyRecord) -> AnyRecord | None:
        """Add a record as it stands in a topic.

        Returns:
            The record that is whole with it: itself, or the release of which it is the last part that was missing.
            None if parts are missing still.
        """
        window = record.view, record.audience, record.window.start_ms, record.window.end_ms
        if not isinstance(record, Release):
            return record
        if record.part is None:
            self._forget(window, record.revision)
            return record
        parts = self._windows.setdefault(window, {}).setdefault(record.revision, {})
        parts[record.part.number] = record
        if len(parts) < record.part.of:
            return None
        self._forget(window, record.revision)
        items = tuple(item for _, part in sorted(parts.items()) for item in part.items)
        return record.model_copy(update={"items": items, "part": None})

    def _forget(self, window: _Window, revision: int) -> None:
        """Let go of the parts of a revision that is whole, and of those that it replaces."""
        later = {number: parts for number, parts in self._windows.pop(window, {}).items() if number > revision}
        if later:
            self._windows[window] = later
