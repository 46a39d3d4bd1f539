"""Public lists of keys: in the configuration, in a file beside it, in a topic, a range of numbers, or made of releases.

And the counts of the keys of one, for kinds that select some.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Self, TypedDict

from pydantic import PlainValidator

from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import Inexact
from stream_dp.kinds.fields import Section, Text, Topic, check_topic
from stream_dp.select.candidates import Unseen
from stream_dp.text_files import read_fault, read_text
from stream_dp.windows.events import MAX_ITEM_BYTES

MOST_KEYS = 1_000_000
"""Of a list whose keys are stored; a release of so many is published in parts."""
LARGEST_NUMBER = (1 << 64) - 1
"""That a range may go to."""
VERSION_BYTES = 8

LEFT_OUT = "Values that are not on the list are left out; a metric of the worker counts them."
"""Of keys that are not on the list."""

PUBLIC = "releases"
"""Part behind the application's id in the names of the topics of releases."""


def release_topic(application: str, view: str, audience: str) -> str:
    """Return the public topic of a view and audience."""
    return f"{application}.{PUBLIC}.{view}.{audience}"


DEFAULT_KEEP, MOST_KEEP = 4, 1000
"""Windows whose keys a list that is made of releases has."""

Counts = Mapping[str, int]
"""Exact counts by key: how many users had the key in a window, within their bounds."""


@dataclass(frozen=True)
class KeyList:
    """A public list whose keys are stored.

    Attributes:
        keys: sorted, each once.
        version: a hash over the keys: equal lists have equal versions wherever they stand, so a reader can tell which
            list a record was made from.
    """

    keys: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        """The list of some keys, in any order."""
        listed = tuple(sorted(set(keys)))
        state = blake2b(digest_size=VERSION_BYTES, person=b"stream-dp keys 1")
        for key in listed:
            state.update(len(key.encode()).to_bytes(4) + key.encode())
        return cls(listed, state.hexdigest())

    @property
    def size(self) -> int:
        """Number of keys."""
        return len(self.keys)

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.keys)

    def __contains__(self, key: object) -> bool:
        """Return True if a key is on the list."""
        return key in self._members

    def __iter__(self) -> Iterator[str]:
        """Every key, in order."""
        return iter(self.keys)

    def key(self, place: int) -> str:
        """The key at a place, from 0."""
        return self.keys[place]

    def places(self, keys: Collection[str]) -> list[int]:
        """The places of those of some keys that are on the list, ascending, each once."""
        wanted = keys if isinstance(keys, Set | Mapping) else frozenset(keys)
        return [place for place, key in enumerate(self.keys) if key in wanted]


@dataclass(frozen=True)
class NumberRange:
    """A public list of the whole numbers of a range, in decimal without leading zeros, smallest first.

    Nothing is stored for a number.

    Attributes:
        first: not below 0.
        last: of the range, not below `first`.
    """

    first: int
    last: int

    @cached_property
    def version(self) -> str:
        """A hash over both ends; the same numbers written out have another version."""
        state = blake2b(f"{self.first} {self.last}".encode(), digest_size=VERSION_BYTES, person=b"stream-dp nums 1")
        return state.hexdigest()

    @property
    def size(self) -> int:
        """Number of numbers."""
        return self.last - self.first + 1

    def __contains__(self, key: object) -> bool:
        """Return True if a key is the decimal form of one of the numbers."""
        if not isinstance(key, str) or len(key) > self._most_digits or not key.isdigit() or not key.isascii():
            return False
        return (key[0] != "0" or key == "0") and self.first <= int(key) <= self.last

    @cached_property
    def _most_digits(self) -> int:
        return len(str(self.last))

    def __iter__(self) -> Iterator[str]:
        """Every number, as text."""
        return map(str, range(self.first, self.last + 1))

    def key(self, place: int) -> str:
        """The number at a place, from 0, as text."""
        return str(self.first + place)

    def places(self, keys: Collection[str]) -> list[int]:
        """The places of those of some keys that are numbers of the range, ascending, each once."""
        return sorted({int(key) - self.first for key in keys if key in self})


PublicKeys = KeyList | NumberRange
"""The keys of a public list, each once, in a fixed order."""


def unseen(listed: PublicKeys, seen: Sequence[int], numbers: Sequence[int]) -> list[str]:
    """Find keys of a list by their number among those that were not seen, in the order of the list.

    Args:
        listed: the list.
        seen: the `places` of those that were.
        numbers: from 0.

    Raises:
        IndexError: there is no such number.

    Guarantee: exact. Time and memory: O(s) for s seen keys, and O(log s) for each number.
    """
    unseen_before = [place - rank for rank, place in enumerate(seen)]
    left = listed.size - len(seen)
    if any(not 0 <= number < left for number in numbers):
        raise IndexError(f"a number is not below {left}, which is how many keys were not seen")
    return [listed.key(number + bisect_right(unseen_before, number)) for number in numbers]


class FileSettings(Section):
    """A list in a file: UTF-8, one key a line, empty lines left out; relative to the folder of the configuration."""

    file: Text


class TopicSettings(Section):
    """A list in a compacted topic: the key of a record is a key of the list, a record without a value takes it out."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """A list of the keys that an audience was shown of a view, written `{from: pages, audience: public, keep: 4}`.

    Attributes:
        view: the view.
        audience: the audience.
        keep: the newest so many windows count.
    """

    view: str
    audience: str
    keep: int


class NumberSettings(Section):
    """A list of the whole numbers of a range, written `{numbers: {from: 1, to: 9}}`."""

    numbers: NumberRange


WrittenList = list[str] | FileSettings | NumberSettings
"""A list that does not change while a view has state."""
ListSettings = WrittenList | TopicSettings | ReleaseSettings
"""Place of a list."""


def _settings(value: object) -> ListSettings:
    match value:
        case FileSettings() | TopicSettings() | NumberSettings() | ReleaseSettings():
            return value
        case {"file": str(file), **rest} if file and not rest:
            return FileSettings(file=file)
        case {"topic": str(topic), **rest} if topic and not rest:
            return TopicSettings(topic=check_topic(topic))
        case {"numbers": {"from": int(first), "to": int(last), **more}, **rest} if not more and not rest:
            if isinstance(first, bool) or isinstance(last, bool) or not 0 <= first <= last <= LARGEST_NUMBER:
                raise ValueError(f"numbers go from one of 0 to {LARGEST_NUMBER} to one that is not smaller")
            return NumberSettings(numbers=NumberRange(first, last))
        case {"from": str(view), "audience": str(audience), **rest} if view and audience and rest.keys() <= {"keep"}:
            keep = rest.get("keep", DEFAULT_KEEP)
            if isinstance(keep, bool) or not isinstance(keep, int) or not 1 <= keep <= MOST_KEEP:
                raise ValueError(f"keep is a number of windows from 1 to {MOST_KEEP}")
            return ReleaseSettings(view, audience, keep)
        case [*keys] if keys:
            return _written_keys(keys)
    raise ValueError(
        'write a list of keys, {file: "keys.txt"}, {topic: name}, {numbers: {from: 1, to: 9}} or '
        "{from: VIEW, audience: NAME, keep: 4}"
    )


def _written_keys(keys: Sequence[object]) -> list[str]:
    """Return the keys of a list in the configuration.

    Raises:
        ValueError: a key is not text. Numbers are not converted, because YAML drops their leading zeros.
    """
    for number, key in enumerate(keys, start=1):
        if isinstance(key, str) and key:
            continue
        if isinstance(key, bool | int | Inexact):
            written = str(key).lower() if isinstance(key, bool) else getattr(key, "text", str(key))
            raise ValueError(
                f'key {number} is {written}, but a key must be text: quote it as it is in events, "{written}"'
            )
        raise ValueError(f"key {number} is empty or not text; quote it")
    return [str(key) for key in keys]


ListField = Annotated[ListSettings, PlainValidator(_settings)]


class ListPlace(TypedDict):
    """Place of a list, as fields of a `ListedPlan`."""

    listed: PublicKeys | None
    topics: tuple[str, ...]
    made_of: ReleaseSettings | None
    fewest_keys: int


def placed(
    settings: ListSettings, folder: Path, application: str, *, fewest: int = 1, most_numbers: int = MOST_KEYS
) -> ListPlace:
    """Find the list of a view: the keys themselves, or the topic that has them or the releases they are taken from.

    Args:
        settings: where the list stands.
        folder: what a file is relative to.
        application: the id of the application.
        fewest: how many keys the kind needs; one that is made of releases may have fewer.
        most_numbers: how many numbers a range may have.

    Raises:
        ConfigError: the list cannot be used; paths are relative to the view.
    """
    if isinstance(settings, ReleaseSettings):
        topic = release_topic(application, settings.view, settings.audience)
        return ListPlace(listed=None, topics=(topic,), made_of=settings, fewest_keys=0)
    if isinstance(settings, TopicSettings):
        return ListPlace(listed=None, topics=(settings.topic,), made_of=None, fewest_keys=fewest)
    listed = _loaded(settings, folder, most_numbers)
    if listed.size < fewest:
        raise ConfigError([Fault("catalogue", f"must have at least {fewest} keys, not {listed.size}")])
    return ListPlace(listed=listed, topics=(), made_of=None, fewest_keys=fewest)


def fixed_list(settings: ListSettings, folder: Path) -> PublicKeys:
    """The list of a selection of k keys that cannot have one in a topic.

    Args:
        settings: where the list stands.
        folder: what a file is relative to.

    Raises:
        ConfigError: the list stands in a topic, or cannot be used.
    """
    if isinstance(settings, TopicSettings | ReleaseSettings):
        place = "in a topic" if isinstance(settings, TopicSettings) else "that is made of releases"
        message = f"a list {place} may change, and k of it are drawn: write it here, or name a file"
        raise ConfigError([Fault("catalogue", message)])
    return _loaded(settings, folder, MOST_KEYS)


def _loaded(settings: WrittenList, folder: Path, most_numbers: int) -> PublicKeys:
    path = "catalogue"
    if isinstance(settings, NumberSettings):
        size = settings.numbers.size
        if size > most_numbers:
            raise ConfigError([Fault(path, f"the range must have at most {most_numbers} numbers, not {size}")])
        return settings.numbers
    keys = _lines(folder.joinpath(settings.file), f"{path}.file") if isinstance(settings, FileSettings) else settings
    faults = [Fault(path, f"duplicate key {key!r}") for key, times in Counter(keys).items() if times > 1]
    if faults:
        raise ConfigError(faults)
    check_keys(keys, path)
    return KeyList.of(keys)


def check_keys(keys: Sequence[str], path: str, fewest: int = 1) -> None:
    """Refuse a list of keys that nothing can be released for.

    Args:
        keys: what the list has.
        path: of the setting, for faults.
        fewest: how many the kind needs.

    Raises:
        ConfigError: there are too many keys or too few, or one is too long for an event to have it.
    """
    faults = []
    if not fewest <= len(keys) <= MOST_KEYS:
        faults.append(Fault(path, f"the list must have between {fewest} and {MOST_KEYS} keys, not {len(keys)}"))
    if long := [key for key in keys if len(key.encode()) > MAX_ITEM_BYTES]:
        sizes = f"{long[0][:40]!r}... has {len(long[0].encode())} bytes in UTF-8"
        faults.append(Fault(path, f"{sizes}; a key has {MAX_ITEM_BYTES} at most, and {len(long)} of them have more"))
    if faults:
        raise ConfigError(faults)


def _lines(file: Path, path: str) -> list[str]:
    try:
        lines = read_text(file).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(read_fault(error), path) from None
    return [line for line in (line.removesuffix("\r") for line in lines) if line]


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
        names = iter(unseen(self.listed, self.places, numbers))
        return [next(names) if isinstance(one, Unseen) else str(one) for one in chosen]
