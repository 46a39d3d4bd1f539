"""The list that a window uses (section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.transcript.editions import Edition
from tests.transcript.transcript import StoredList

if TYPE_CHECKING:
    from tests.transcript.ledger import Ledger


@dataclass
class Lists:
    """Public lists, and those made of releases.

    Attributes:
        stored: by population and topic, the versions that took effect.
        ledgers: by population; they know the records that lists are made of.
    """

    stored: Mapping[tuple[str, str], tuple[StoredList, ...]]
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)

    def version(self, population: str, edition: Edition, tick_ms: int) -> str | None:
        """Return the version of the list of a window; None if its view has no list that can change.

        A list in a topic has the version that its content was stored with. One made of releases is named by the last
        number in its topic of a record whose planned slot is before the tick.
        """
        topics = edition.plan.kind.topics
        if not topics:
            return None
        found = [self._made_of_releases(topic, tick_ms) or self._stored(population, topic, tick_ms) for topic in topics]
        return " ".join(found)

    def _stored(self, population: str, topic: str, tick_ms: int) -> str:
        versions = self.stored.get((population, topic), ())
        behind = [one.version for one in versions if one.tick_ms <= tick_ms]
        return f"{topic}={behind[-1] if behind else 'none'}"

    def _made_of_releases(self, topic: str, tick_ms: int) -> str | None:
        """Return the version of a list made of releases; None if the topic does not belong to the application."""
        for ledger in self.ledgers.values():
            feeding = ledger.feeding(topic)
            if feeding is not None:
                return f"{topic}#{ledger.newest_before(feeding, tick_ms)}"
        return None
