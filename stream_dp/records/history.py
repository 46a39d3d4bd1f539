"""What was read of release topics: for every window the release that holds, and the one it replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from stream_dp.accounting import Cost
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Price, Refusal, Release
from stream_dp.records.parts import Joiner


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

    def take(self, record: AnyRecord) -> bool:
        """Add a record; False if it, or one that replaced it, was there already."""
        if isinstance(record, Refusal):
            fresh = self.refusal is None or record.revision > self.refusal.revision
            self.refusal = record if fresh else self.refusal
            return fresh
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
    """The record that was taken last."""
    _joiner: Joiner = field(default_factory=Joiner)

    def take(self, record: AnyRecord) -> Seen | None:
        """Add a record; None if it is an old one, or a part of a release of which others are missing."""
        whole = self._joiner.take(record)
        if whole is None:
            return None
        windows = self.seen.setdefault((whole.view, whole.audience), {})
        seen = windows.setdefault((whole.window.start_ms, whole.window.end_ms), Seen())
        if not seen.take(whole):
            return None
        self.newest = whole
        return seen

    def windows(self, view: str, audience: str) -> dict[int, Seen]:
        """What was read of a view and audience by start of the window, in order of time.

        Of windows of panes that start alike, because their length was changed, it is the longest.
        """
        windows = sorted(self.seen.get((view, audience), {}).items(), key=lambda window: window[0])
        return {start: seen for (start, _), seen in windows}

    def releases(self, audience: str | None = None) -> Iterator[Release]:
        """The releases that hold, of one audience or of all."""
        for (_, reader), windows in self.seen.items():
            if audience in (None, reader):
                yield from (seen.release for seen in windows.values() if seen.release is not None)


def cost(price: Price) -> Cost:
    """The exact cost that a record names."""
    return _cost(price.epsilon.exact, price.delta.exact)


@lru_cache(maxsize=4096)  # the records of a year name a few hundred prices, and a screen adds them up all the time
def _cost(epsilon: str, delta: str) -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta))
