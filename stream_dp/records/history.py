"""Records read from release topics: for every window the current release, and the one it replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Refusal, Release
from stream_dp.records.view_record import ViewRecord

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

    def take(self, record: AnyRecord | ViewRecord | None) -> AnyRecord | None:
        """Add a record as it was read from a topic.

        Returns:
            The record that is whole with it: itself, or the release of which it is the last part that was missing.
            None if parts are missing still, or it is not about a window.
        """
        if record is None or isinstance(record, ViewRecord):
            return None
        if not isinstance(record, Release):
            return record
        window = record.view, record.audience, record.window.start_ms, record.window.end_ms
        if record.part is None:
            self.settle(window, record.revision)
            return record
        parts = self._windows.setdefault(window, {}).setdefault(record.revision, {})
        parts[record.part.number] = record
        if len(parts) < record.part.of:
            return None
        self.settle(window, record.revision)
        items = tuple(item for _, part in sorted(parts.items()) for item in part.items)
        return record.model_copy(update={"items": items, "part": None})

    def drop(self, view: str, audience: str, start_ms: int, end_ms: int | None = None) -> None:
        """Forget the parts of windows that have a start, and an end if that is known."""
        for window in list(self._windows):
            if window[:3] == (view, audience, start_ms) and end_ms in (None, window[3]):
                del self._windows[window]

    def settle(self, window: _Window, revision: int) -> None:
        """Let go of the parts of a revision that is whole, and of those that it replaces."""
        later = {number: parts for number, parts in self._windows.pop(window, {}).items() if number > revision}
        if later:
            self._windows[window] = later


@dataclass(slots=True)
class Seen:
    """The records of one window of a view and audience.

    Attributes:
        release: the release with the highest revision, None when none was read.
        before: the release that it replaced, None when there was none or its topic no longer has it.
        refusal: the newest refusal, of the window or of a sharper revision of it.
    """

    release: Release | None = None
    before: Release | None = None
    refusal: Refusal | None = None

    @property
    def revision(self) -> int:
        """Return the highest revision of a release or a refusal; 0 without one."""
        return max((one.revision for one in (self.release, self.refusal) if one is not None), default=0)

    def take(self, record: AnyRecord) -> bool:
        """Add a record; False if it, or one that replaced it, was there already."""
        if isinstance(record, Refusal):
            known = self.revision
            self.refusal = record if record.revision > known else self.refusal
            return record.revision > known
        if self.release is not None and record.revision <= self.release.revision:
            return False
        self.before, self.release = self.release, record
        if self.refusal is not None and self.refusal.revision <= record.revision:
            self.refusal = None
        return True


@dataclass
class History:
    """The records of any number of views and audiences. Old ones may come again: topics repeat after a crash."""

    seen: dict[tuple[str, str], dict[tuple[int, int], Seen]] = field(default_factory=dict)
    newest: AnyRecord | None = None
    """The record about a window that was taken last."""
    views: dict[tuple[str, str], ViewRecord] = field(default_factory=dict)
    """By view and audience: the record of the view, of its newest edition."""
    _joiner: Joiner = field(default_factory=Joiner)

    def take(self, record: AnyRecord | ViewRecord | None) -> Seen | None:
        """Add a record as `parse` returns it.

        Returns:
            The records of its window. None if it is an old one, a part of a release of which others are missing, or not
            about a window.
        """
        if isinstance(record, ViewRecord):
            known = self.views.setdefault((record.view, record.audience), record)
            if known.edition.number <= record.edition.number:
                self.views[record.view, record.audience] = record
        whole = self._joiner.take(record)
        if whole is None:
            return None
        windows = self.seen.setdefault((whole.view, whole.audience), {})
        seen = windows.setdefault((whole.window.start_ms, whole.window.end_ms), Seen())
        if not seen.take(whole):
            return None
        self.newest = whole
        return seen

    def drop(self, view: str, audience: str, start_ms: int, end_ms: int | None = None) -> list[Seen]:
        """Forget the windows that have a start, and an end if that is known; returns the records that they had."""
        windows = self.seen.get((view, audience), {})
        gone = [window for window in windows if window[0] == start_ms and end_ms in (None, window[1])]
        self._joiner.drop(view, audience, start_ms, end_ms)
        return [windows.pop(window) for window in gone]

    def windows(self, view: str, audience: str) -> dict[int, Seen]:
        """Return the records of a view and audience by start of the window, in order of time.

        Of windows of panes that start alike, because their length was changed, it is the longest.
        """
        windows = sorted(self.seen.get((view, audience), {}).items(), key=lambda window: window[0])
        return {start: seen for (start, _), seen in windows}

    def releases(self, audience: str | None = None) -> Iterator[Release]:
        """The releases that hold, of one audience or of all."""
        for (_, reader), windows in self.seen.items():
            if audience in (None, reader):
                yield from (seen.release for seen in windows.values() if seen.release is not None)
