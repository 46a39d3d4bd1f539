"""Common part of the kinds whose keys are on a public list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel, Field

from stream_dp.errors import ConfigError, Fault
from stream_dp.kinds.base import Counts, KindPlan
from stream_dp.kinds.lists import MOST_KEYS, KeyList, ListSettings, PublicKeys, TopicSettings, check_keys, load_list
from stream_dp.records.models import PublicRecord
from stream_dp.select.candidates import Unseen

LEFT_OUT = "What is counted besides is left out, and how often that was is a counter of the worker."
"""Of keys that are not on the list."""


class ListedIn(PublicRecord):
    """The public list that a release is about."""

    version: str = Field(
        pattern=r"^[0-9a-f]{16}$",
        description="Names the list by its content: equal lists have equal versions, wherever they stand. A range of "
        "numbers has a version of its own, which is not that of the same numbers written out.",
    )
    keys: int = Field(ge=1, description="How many keys it has.")


class ListDetails(BaseModel):
    """List that a plan is about."""

    keys: int | None = Field(description="How many keys the list has; null for one in a topic.")
    version: str | None = Field(description="Version of the list; null for one in a topic.")
    topic: str | None = Field(description="Topic of the list; null for one that is written down.")


class ListedPlan(KindPlan):
    """The plan of a kind whose keys stand on a public list.

    Attributes:
        listed: the list, None where it is in a topic.
        topics: that topic.
    """

    listed: PublicKeys | None

    @property
    def list_identity(self) -> Sequence[object]:
        """Where the list stands, and its version where that may not change."""
        return [None if self.listed is None else self.listed.version, *self.topics]

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys:
        """The list."""
        return lists[self.topics[0]] if self.listed is None else self.listed

    def check_lists(self, lists: Mapping[str, KeyList]) -> None:
        """Refuse a list in a topic that has too few keys, too many, or one that no event can have."""
        for topic in self.topics:
            check_keys(lists[topic].keys, "catalogue.topic", self.fewest_keys)

    @property
    def list_in_words(self) -> str:
        """Size of the list, or the place where it is."""
        if self.listed is None:
            return f"The list is in topic {self.topics[0]}; a changed one is in effect from the next window on."
        return f"The list has {self.listed.size} keys, version {self.listed.version}."

    @property
    def list_details(self) -> ListDetails:
        """The same in numbers."""
        if self.listed is None:
            return ListDetails(keys=None, version=None, topic=self.topics[0])
        return ListDetails(keys=self.listed.size, version=self.listed.version, topic=None)


def placed(
    settings: ListSettings, folder: Path, *, fewest: int = 1, most_numbers: int = MOST_KEYS
) -> tuple[PublicKeys | None, tuple[str, ...]]:
    """The list that a configuration has, None where it stands in a topic; and that topic.

    Args:
        settings: where the list stands.
        folder: what a file is relative to.
        fewest: how many keys the kind needs.
        most_numbers: how many numbers a range may have.

    Raises:
        ConfigError: the list cannot be used; paths are relative to the view.
    """
    if isinstance(settings, TopicSettings):
        return None, (settings.topic,)
    listed = load_list(settings, "catalogue", folder, most_numbers)
    if listed.size < fewest:
        raise ConfigError([Fault("catalogue", f"must have at least {fewest} keys, not {listed.size}")])
    return listed, ()


@dataclass(frozen=True, slots=True)
class ListedCounts:
    """Counts of the keys of a list.

    Attributes:
        listed: the list.
        places: of the keys that somebody had, ascending.
        counts: theirs, in that order.
    """

    listed: PublicKeys
    places: Sequence[int]
    counts: Mapping[str, int]

    @classmethod
    def of(cls, listed: PublicKeys, counts: Counts) -> ListedCounts:
        """Leave out what is not on the list."""
        places = listed.places(counts.keys())
        return cls(listed, places, {key: counts[key] for key in map(listed.key, places)})

    @property
    def zeros(self) -> int:
        """Number of keys of the list that nobody had."""
        return self.listed.size - len(self.places)

    def named(self, chosen: Iterable[object]) -> list[str]:
        """The keys that a selection has chosen, those by name that it knows as numbers among keys that nobody had."""
        chosen = list(chosen)
        numbers = [one.number for one in chosen if isinstance(one, Unseen)]
        unseen = iter(self.listed.unseen(self.places, numbers))
        return [next(unseen) if isinstance(one, Unseen) else str(one) for one in chosen]


def decimal(value: Fraction, places: int) -> str:
    """A number to so many decimal places, the nearest, for readers."""
    scaled = round(value * 10**places)
    sign, digits = "-" if scaled < 0 else "", str(abs(scaled)).rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else f"{sign}{digits}"
