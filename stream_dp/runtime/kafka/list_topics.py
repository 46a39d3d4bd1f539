"""Public lists of keys that stand in a topic, or follow from releases in one: read when a worker starts, and followed.

A window is made with the list that the worker which seals it had read when the window closed, by the time of the tick
that closed it; a worker that began to read later goes by the list that it began with. Windows of panes go by that of
their first pane, which is stored with it. So one window has one list, and
which one does not tell how long counting and sealing took. A window that is drawn anew after a crash has shown nothing
before. A list that cannot be used is not taken: the last one that could be goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Self

import msgspec
from aiokafka import TopicPartition

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import BrokerError, ConfigError, Fault, OutageError
from stream_dp.kinds.public_lists import KeyList
from stream_dp.runtime.kafka.client import Client, TopicState
from stream_dp.runtime.kafka.unreadable import describe_unreadable
from stream_dp.windows.encoding import UNDECODABLE

log = logging.getLogger("stream_dp.worker")

KEPT = 16
"""Of the lists of a view, the last so many are kept for windows that are closed and not sealed yet."""

ListsByTopic = Mapping[str, KeyList]


@dataclass(slots=True)
class _KeysOfRecords:
    """The keys of the records of a topic, those that have a value."""

    _keys: set[bytes] = field(default_factory=set)

    def forked(self) -> Self:
        """Return a copy, which may be thrown away if not all can be read."""
        return type(self)(set(self._keys))

    def take(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Add records."""
        for key, value in records:
            if key is not None:
                (self._keys.discard if value is None else self._keys.add)(key)

    def keys(self, _keep: int) -> Iterable[str]:
        """Return the keys.

        Raises:
            UnicodeDecodeError: one is no text.
        """
        return [key.decode() for key in self._keys]


class _ItemOfRelease(msgspec.Struct):
    item: str
    count: int = 0


class _SpanOfRelease(msgspec.Struct):
    start_ms: int
    end_ms: int


class _PartOfRelease(msgspec.Struct):
    number: int
    of: int


class _TypeOfRecord(msgspec.Struct):
    type: str


class _KeysOfRelease(msgspec.Struct):
    """The part of a release of any kind that a list follows from."""

    window: _SpanOfRelease
    revision: int
    items: list[_ItemOfRelease]
    part: _PartOfRelease | None = None
    stays_from: int | None = None

    def listed(self) -> tuple[str, ...]:
        """Return its keys; of a view that remembers keys, those that a public rule on noisy counts keeps known."""
        least = self.stays_from
        return tuple([one.item for one in self.items if least is None or one.count >= least])


class _ReadRelease(NamedTuple):
    """Keys of a window that one record shows."""

    window: tuple[int, int]
    revision: int
    part: int
    parts: int
    keys: tuple[str, ...]


@dataclass(slots=True)
class _KeysOfReleases:
    """The keys that the releases of a topic show, of its newest windows.

    What is deleted in the topic, since its window has expired, is gone here as well, so that it is no matter when a
    worker began to read.
    """

    keep: int
    _entries: dict[tuple[bytes, int], _ReadRelease] = field(default_factory=dict)
    """By key and revision; of a window those below its newest whole revision are left out."""

    def forked(self) -> Self:
        """Return a copy, which may be thrown away if not all can be read."""
        return type(self)(self.keep, dict(self._entries))

    def take(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Add records.

        Raises:
            ConfigError: one is no record of stream-dp.
        """
        for key, value in records:
            if key is None:
                continue
            if value is None:
                self._entries = {at: entry for at, entry in self._entries.items() if at[0] != key}
                continue
            try:
                if msgspec.json.decode(value, type=_TypeOfRecord).type != "release":
                    continue
                record = msgspec.json.decode(value, type=_KeysOfRelease)
            except UNDECODABLE:
                raise ConfigError("it holds a record that is none of stream-dp") from None
            part, parts = (1, 1) if record.part is None else (record.part.number, record.part.of)
            window = record.window.end_ms, record.window.start_ms
            self._entries[key, record.revision] = _ReadRelease(window, record.revision, part, parts, record.listed())
        windows = sorted({entry.window for entry in self._entries.values()})
        newest, whole = set(windows[-self.keep - _SPARE :]), self._whole()
        # `keys` shows the newest whole revision only: leaving out older ones here saves memory and changes no list.
        self._entries = {
            at: entry
            for at, entry in self._entries.items()
            if entry.window in newest and entry.revision >= whole.get(entry.window, 0)
        }

    def keys(self, keep: int) -> Iterable[str]:
        """Return the keys of the newest windows of which a whole release was read."""
        whole = self._whole()
        newest = {window: whole[window] for window in sorted(whole)[-keep:]}
        shown = (entry for entry in self._entries.values() if newest.get(entry.window) == entry.revision)
        return {key for entry in shown for key in entry.keys}

    def _whole(self) -> dict[tuple[int, int], int]:
        """By window, the newest revision of which all parts were read."""
        read: dict[tuple[tuple[int, int], int], set[int]] = {}
        found: dict[tuple[int, int], int] = {}
        for entry in self._entries.values():
            parts = read.setdefault((entry.window, entry.revision), set())
            parts.add(entry.part)
            if len(parts) == entry.parts:
                found[entry.window] = max(entry.revision, found.get(entry.window, 0))
        return found


_SPARE = 2
"""Windows that are kept besides: the parts of a newer one may not be there yet."""
_AT_ONCE = 64
"""Records that are handed to a thread together."""


@dataclass(slots=True)
class ListTopic:
    """A topic that a list stands in or follows from, as far as it was read.

    Attributes:
        name: of the topic.
        keep: of a topic of releases, how many windows are needed; 0: the keys of its records are the list.
    """

    name: str
    keep: int = 0
    _id: str = ""
    _content: _KeysOfRecords | _KeysOfReleases | None = None
    _read_to: Mapping[TopicPartition, int] = field(default_factory=dict)

    async def read_on(self, client: Client, state: TopicState) -> bool:
        """Read what is new up to the present end of the topic, whatever its number of partitions; all if it is another.

        Args:
            client: of its broker.
            state: of the topic as it is now.

        Returns:
            Whether there was anything new.

        Raises:
            ConfigError: a record cannot be read.
        """
        places = [TopicPartition(self.name, partition) for partition in range(state.partitions)]
        ends = await client.stable_ends(places)  # with `ends`, records that an open transaction hides would be skipped
        anew = state.id != self._id or any(ends.get(tp, 0) < offset for tp, offset in self._read_to.items())
        since = {} if anew else self._read_to
        if ends == since:
            return False
        fresh = _KeysOfReleases(self.keep) if self.keep else _KeysOfRecords()
        content = fresh if anew or self._content is None else self._content.forked()
        read_to = dict(ends)
        waiting: list[tuple[bytes | None, bytes | None]] = []
        async for record in client.follow([self.name], until_end=True, since=since, foreign=True):
            place = TopicPartition(record.topic, record.partition)
            unreadable = describe_unreadable(place, record)
            if unreadable is not None:
                raise ConfigError(f"{unreadable}; without this record the list is not known")
            read_to[place] = max(read_to.get(place, 0), record.offset + 1)
            waiting.append((record.key, record.value))
            if len(waiting) == _AT_ONCE:
                await asyncio.to_thread(content.take, waiting)
                waiting = []
        await asyncio.to_thread(content.take, waiting)
        self._id, self._content, self._read_to = state.id, content, read_to
        return True

    def listed(self, keep: int = 0) -> KeyList:
        """The list.

        Args:
            keep: of a list that follows from releases, how many windows count.

        Raises:
            ConfigError: a key is no text.
        """
        try:
            return KeyList.of(() if self._content is None else self._content.keys(keep))
        except UnicodeDecodeError:
            raise ConfigError(f"topic {self.name} holds a key that is not text in UTF-8") from None


class Lists:
    """The lists of views that a worker has read, and since when it has each of them.

    Attributes:
        topics: as far as they were read.
    """

    def __init__(
        self,
        views: Mapping[str, ListsByTopic] = MappingProxyType({}),
        topics: Mapping[str, ListTopic] = MappingProxyType({}),
    ) -> None:
        """Set up the lists that a worker begins with.

        Args:
            views: by view and topic, the lists; views that need none may be left out.
            topics: what they were read from.
        """
        self.topics = topics
        self._kept: dict[str, tuple[tuple[float, ListsByTopic], ...]] = {
            name: ((-math.inf, lists),) for name, lists in views.items()
        }
        """By view, in the order in which they were read, each with its time; a tuple, since engines look in threads."""

    def at(self, view: str, closed_ms: int) -> ListsByTopic:
        """The lists of a view, by topic, for a window that closed at a time: those read last before it.

        Where the worker had read none of those that it keeps, it is the first of them.
        """
        kept = self._kept.get(view, ((-math.inf, {}),))
        return next((lists for since_ms, lists in reversed(kept) if since_ms < closed_ms), kept[0][1])

    def newest(self, view: str) -> ListsByTopic:
        """The lists of a view that were read last, by topic."""
        return self._kept[view][-1][1]

    def join(self, others: Lists) -> None:
        """Go on with the lists of further views, too."""
        known = {
            name: topic for name, topic in self.topics.items() if topic.keep >= others.topics.get(name, topic).keep
        }
        self.topics = {**others.topics, **known}
        self._kept = {**others._kept, **self._kept}

    def take(self, view: str, lists: ListsByTopic, now_ms: int) -> None:
        """Go on with other lists in windows that close behind a time."""
        self._kept[view] = (*self._kept[view], (now_ms, lists))[-KEPT:]


async def read_lists(plan: Plan, client: Client) -> tuple[Lists, list[Fault]]:
    """Read the lists that the views of an application need.

    Returns:
        The lists; and the faults: a topic is missing, holds a key that is no text, or a view cannot use it.
    """
    needed = [view for view in plan.views.values() if view.kind.topics]
    topics: dict[str, ListTopic] = {}
    for view in needed:
        keep = 0 if view.kind.made_of is None else view.kind.made_of.keep
        for topic in view.kind.topics:
            topics[topic] = ListTopic(topic, max(keep, topics[topic].keep if topic in topics else 0))
    present = await client.describe(topics) if topics else {}
    unread: dict[str, str] = {}
    for name, state in present.items():
        try:
            await topics[name].read_on(client, state)
        except ConfigError as error:
            unread[name] = str(error)
    views: dict[str, ListsByTopic] = {}
    faults: list[Fault] = []
    for view in needed:
        missing = [topic for topic in view.kind.topics if topic not in present]
        if missing and view.kind.made_of is None:  # a topic of releases is created after this, with the others
            faults += [Fault(f"views.{view.view}", _missing(topic)) for topic in missing]
            continue
        if damaged := [f"topic {topic}: {unread[topic]}" for topic in view.kind.topics if topic in unread]:
            faults += [Fault(f"views.{view.view}", words) for words in damaged]
            continue
        try:
            views[view.name] = await asyncio.to_thread(_usable, view, topics)
        except ConfigError as error:
            faults += [Fault(".".join(filter(None, ("views", view.view, f.path))), f.message) for f in error.faults]
    return Lists(views, topics), faults


def _missing(topic: str) -> str:
    return f"the broker has no topic {topic}, which its list stands in; create it first"


def _usable(view: ViewPlan, topics: Mapping[str, ListTopic]) -> ListsByTopic:
    """The lists that a view needs, by topic; of a million keys that takes seconds.

    Raises:
        ConfigError: they cannot be used.
    """
    keep = 0 if view.kind.made_of is None else view.kind.made_of.keep
    lists = {topic: topics[topic].listed(keep) for topic in view.kind.topics}
    view.kind.check_lists(lists)
    return lists


class ListWatch:
    """Follows the lists of one worker; the application calls `look` again and again."""

    def __init__(self, plan: Plan, lists: Lists, client: Client, clock_ms: Callable[[], int]) -> None:
        """Set up the watch.

        Args:
            plan: its views, those that `follow` does not replace.
            lists: what they go by, and which topics that is read from.
            client: of the broker.
            clock_ms: the wall clock, that of the ticks.
        """
        self.follow(plan)
        self._lists = lists
        self._client = client
        self._clock_ms = clock_ms
        self._looking = asyncio.Lock()
        self._unread: set[str] = set()
        """The topics that were gone, or that the broker refused to let read, when they were looked at last."""
        self._warned: dict[str, str] = {}
        """By view, what was said last of lists that it cannot use."""

    @property
    def topics(self) -> Collection[str]:
        """Topics of the lists that are read."""
        return self._lists.topics.keys()

    def follow(self, plan: Plan) -> None:
        """Go on with the views of a plan."""
        self._views = [view for view in plan.views.values() if view.kind.topics and not view.never_holds]

    async def look(self) -> None:
        """Read on; take what has changed for windows that close from now on, or say why not."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        if not self._views:
            return
        try:
            changed = await self._read_on()
        except OutageError:
            return  # others say so
        except BrokerError as error:
            self._unread = set(self._lists.topics)
            for view in self._views:
                self._warn(view, str(error))
            return
        for view in self._views:
            if not changed.isdisjoint(view.kind.topics):
                await self._take(view)

    async def _read_on(self) -> set[str]:
        """The topics in which there is something new, and those that can be read again."""
        topics = self._lists.topics
        present = await self._client.describe(topics)
        gone = topics.keys() - present.keys()
        for topic in gone & self._unread:  # believed the second time: brokers start knowing none
            for view in self._views:
                if topic in view.kind.topics:
                    self._warn(view, f"the broker has no topic {topic}")
        new = {name for name, state in present.items() if await self._has_new(topics[name], state)}
        back, self._unread = self._unread - gone, gone
        return new | back

    async def _has_new(self, topic: ListTopic, state: TopicState) -> bool:
        try:
            return await topic.read_on(self._client, state)
        except ConfigError as error:
            for view in self._views:
                if topic.name in view.kind.topics:
                    self._warn(view, str(error))
            return False

    async def _take(self, view: ViewPlan) -> None:
        try:
            lists = await asyncio.to_thread(_usable, view, self._lists.topics)
        except ConfigError as error:
            self._warn(view, "; ".join(map(str, error.faults)))
            return
        mended = self._warned.pop(view.name, None) is not None
        if lists != self._lists.newest(view.name):
            self._lists.take(view.name, lists, self._clock_ms())
        elif not mended:
            return
        log.info("windows of view %s that close from now on are made with %s", view.view, _in_words(lists))

    def _warn(self, view: ViewPlan, fault: str) -> None:
        if self._warned.get(view.name) != fault:
            self._warned[view.name] = fault
            log.warning(
                "view %s cannot use what stands in %s now: %s; its windows go on with %s",
                view.view,
                " and ".join(f"topic {topic}" for topic in view.kind.topics),
                fault,
                _in_words(self._lists.newest(view.name)),
            )


def _in_words(lists: ListsByTopic) -> str:
    return " and ".join(f"list {one.version} of topic {topic}, {one.size} keys" for topic, one in lists.items())
