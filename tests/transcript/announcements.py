"""Records about views: what a reader of one audience is told of each edition (section 3, stage 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stream_dp.config.plan import ViewPlan
from tests.transcript.editions import Edition, State
from tests.transcript.predictions import Outbox, Place, Record


@dataclass
class Announcements:
    """Records that were posted about editions.

    Attributes:
        population: of the ledger.
        said: by audience, view and number of the edition, the content of the last record.
    """

    population: str
    said: dict[tuple[str, str, int], object] = field(default_factory=dict)
    _posted: list[tuple[int, str, str]] = field(default_factory=list)

    def announce(self, state: State, outbox: Outbox, place: Place) -> None:
        """Post what settings change in the records about views, by audience, view and first window."""
        for audience, edition in sorted(self._told(state), key=_order):
            key = (audience, edition.view, edition.number)
            content = self._content(audience, edition, state)
            if self.said.get(key) == content:
                continue
            self.said[key] = content
            record = Record(place, "view", edition.view, audience, edition.number)
            self._posted.append((outbox.post(record, state.plan.slots), edition.view, audience))
        self._take_back_superseded(state, outbox, place)

    def void(self, tick_ms: int, state: State, outbox: Outbox) -> None:
        """Void records for audiences that were taken out."""
        for at, view, audience in self._posted:
            newest = state.newest(view)
            if newest is None or audience not in newest.audiences:
                outbox.void(at, tick_ms, state.plan.slots)

    def take_back(self, edition: Edition, state: State, outbox: Outbox, place: Place) -> None:
        """Take back the records about an edition whose last windows expired."""
        for audience, view, number in sorted(self.said):
            if (view, number) == (edition.view, edition.number):
                outbox.post(Record(place, "tombstone", view, audience, number), state.plan.slots)
                del self.said[audience, view, number]

    def _told(self, state: State) -> Iterator[tuple[str, Edition]]:
        """Yield each edition that has windows with each present audience."""
        for view, editions in state.editions.items():
            newest = state.newest(view)
            if newest is None:
                continue
            for edition in editions:
                has_windows = edition.until_ms is None or edition.first_ms < edition.until_ms
                if has_windows and edition.plan.ledger.population == self.population:
                    for audience in newest.audiences:
                        yield audience, edition

    def _content(self, audience: str, edition: Edition, state: State) -> object:
        newest = state.newest(edition.view) or edition.plan
        later = [one for one in state.editions[edition.view] if one.number > edition.number]
        following = [(one.number, one.first_ms) for one in later if one.until_ms is None or one.first_ms < one.until_ms]
        return (_disclosure(audience, newest), newest.words, edition.first_ms, edition.until_ms, following[:1])

    def _take_back_superseded(self, state: State, outbox: Outbox, place: Place) -> None:
        """Take back the records about editions that never begin."""
        for _view, editions in sorted(state.editions.items()):
            for edition in editions:
                if edition.until_ms is not None and edition.until_ms <= edition.first_ms:
                    self.take_back(edition, state, outbox, place)


def _order(told: tuple[str, Edition]) -> tuple[str, str, int]:
    audience, edition = told
    return audience, edition.view, edition.first_ms


def _disclosure(audience: str, newest: ViewPlan) -> object:
    """Return what an audience is told about its own level, now and later."""
    level = newest.levels[newest.audiences[audience]].name
    unlocks = [(newest.levels[one.level].name, one.after_ms) for one in newest.unlocks.get(audience, ())]
    return level, unlocks, newest.window.retention_ms, newest.ledger.total
