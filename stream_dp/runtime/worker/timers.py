"""Timers of a worker: ticks for its agents, heartbeats that let the broker erase in time, and a watch over its topics.

A timer counts and releases nothing (Faust's leaders are not fenced): it sends a tick to every partition of this worker,
and the agent that reads the tick acts. What a tick means is fixed when it is made, however long it waits to be read.

A worker whose clock does not agree with the broker's makes no ticks. It asks the others for those of its partitions, by
a record in every partition of the ticks topic: a tick says the same whoever makes it. The answers to these records tell
it when the clocks agree again.

The watch looks whether the topics are what they were, and whether all partitions have owners. Kafka tells a consumer
nothing of that: a topic that was deleted is one without records, one whose settings were changed forgets in silence,
and a partition that a rebalance left out is nobody's until the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError
from stream_dp.runtime.adoption import Adoption
from stream_dp.runtime.clock import Clock, Difference, Tick, apart
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.host import Host
from stream_dp.runtime.faust.membership import STABLE, expected, hole, places_in_words, unowned
from stream_dp.runtime.faust.release_topics import ReleaseTopics
from stream_dp.runtime.kafka.client import Client, TopicState
from stream_dp.runtime.kafka.outages import diagnose
from stream_dp.runtime.kafka.topic_checks import (
    Deleted,
    deleted,
    deleted_records,
    grown_sources,
    look_at_topics,
    lost_topics,
)
from stream_dp.runtime.kafka.topics import MERGES, RELEASES, Topics, sources_of
from stream_dp.runtime.kafka.transactions import PartitionLostError
from stream_dp.windows.durations import format_duration
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode

log = logging.getLogger("stream_dp.worker")

TICK_SECONDS = 1.0
HEARTBEAT = b"\x00heartbeat"
"""Key of the records that exist only so that a topic's open segment is closed in time (Topics.erasing)."""
ASK_EVERY = 10
"""A worker whose clock is wrong asks others for ticks in place of every so many of its own."""
ASKED_MS = 30_000
"""For so long others make them."""


def beat_seconds(erase_within_ms: int) -> float:
    """Time between two beats: four fall into the quarter of `erase_within` after which a segment is closed."""
    return max(1.0, erase_within_ms / 16_000)


class Timers:
    """The timers of one worker: `tick` and `tell_time` for what waits for a time, `beat`, `renew` for its claims."""

    def __init__(self, app: App, host: Host, client: Client, adoption: Adoption, clock: Clock) -> None:
        """Set up the timers; the application has yet to be told to run them.

        Args:
            app: the application whose partitions they serve.
            host: sends what they send.
            client: says where the sources end, and the settings.
            adoption: goes by the settings.
            clock: of the worker; learns from ticks what the broker's shows.
        """
        self._clock = clock
        self._left_out = 0
        """How many ticks in a row were not made."""
        self._difference = Difference(0, 0)
        """How far the worker's clock was from the broker's when that was last looked at."""
        self._adoption = adoption
        self._app = app
        self._host = host
        self._client = client
        self._started: set[int] = set()
        self.ticked_ms: int | None = None
        """When the last tick was sent, by the host's clock."""

    def forget(self) -> None:
        """Greet every partition anew: partitions may have changed hands."""
        self._started.clear()

    async def tick(self) -> None:
        """Tell the time to every partition of this worker; a new one also gets a heartbeat, which wakes its agents.

        They load what was stored and finish what was cut short. Where the sources end has to be known: while the broker
        does not say it there is no tick, and the next one is for the events that wait. Nor is there one while the
        worker's clock is wrong, or while accepted settings cannot be used.

        Raises:
            ConfigError: a source was deleted and created again, or its number of partitions changed: the process must
            end.
        """
        ticks = await self._app.outage.patiently(self._ticks)
        if self._app.rebalancing or self._adoption.is_blocked:
            return
        new = [partition for partition in self._owned() if partition not in self._started]
        self._started.update(new)
        await self._tell(ticks, [heartbeat for partition in new for heartbeat in self._heartbeats(partition)])
        if not self._clock.is_wrong:
            self.ticked_ms = self._host.clock_ms()

    async def compare_clocks(self) -> None:
        """Learn what the brokers' clocks show, before anything waits for a time."""
        if self._clock.bound_ms is not None:
            await self._tell(self._without_time(()))

    async def _tell(self, ticks: Sequence[Message], greetings: Sequence[Message] = ()) -> None:
        """Send ticks, and what goes with them; their append times tell what the brokers' clocks show."""
        sent_ms = self._clock.steady_ms()
        appended = await self._host.send([*ticks, *greetings])
        known = zip(ticks, appended, strict=False)
        self._clock.learn({tick.partition: at_ms for tick, at_ms in known if at_ms is not None}, sent_ms)

    async def _ticks(self) -> list[Message]:
        """Return the ticks to send now; none while it is not known which partitions this worker has.

        Raises:
            OutageError: the broker does not say where the sources end.
        """
        if self._app.rebalancing:
            return []
        if await self._is_wrong():
            await self._ends(())
            self._left_out += 1
            return self._without_time(tuple(self._owned())) if self._left_out % ASK_EVERY == 1 else []
        owned, now_ms, self._left_out = self._owned(), self._host.clock_ms(), 0
        asked = {at for at, when_ms in self._host.asked.items() if now_ms - when_ms < ASKED_MS}
        told = sorted(asked.intersection(self._everywhere).union(owned))
        ends = await self._ends(told)  # after the clock: what stood in the log at that time is before them
        if self._adoption.is_blocked:
            return []
        topic, settings = self._host.topics.ticks, self._adoption.plan.settings
        return [Message(topic, None, encode(Tick(now_ms, ends[at], None, settings)), at) for at in told]

    def _without_time(self, asks: tuple[int, ...]) -> list[Message]:
        """Records for the whole ticks topic that say no time, and which partitions want ticks."""
        said = encode(Tick(self._host.clock_ms(), {}, None, self._adoption.plan.settings, asks))
        return [Message(self._host.topics.ticks, None, said, at) for at in self._everywhere]

    async def _is_wrong(self) -> bool:
        """Return True if the worker's clock is wrong; log one line when it gets so, and one when it is right again."""
        was_wrong, self._difference = self._clock.is_wrong, self._clock.check()
        if self._clock.is_wrong and not was_wrong:  # unless the machine was asleep, or the broker's clock was set
            await self.compare_clocks()
            self._difference = self._clock.check()
        if self._clock.is_wrong and not was_wrong:
            log.warning(
                "%s, more than %s: the worker makes no ticks, so it closes no window, until they agree; set the clock "
                "of this machine or, if that is right, of the broker",
                apart(self._difference, self._host.topics.ticks),
                format_duration(self._clock.bound_ms or 0),
            )
        elif was_wrong and not self._clock.is_wrong:
            log.warning("the clocks of this machine and of the broker agree again: the worker makes ticks")
        return self._clock.is_wrong

    @property
    def words(self) -> str:
        """Reason why ticks wait, other than the broker, in words; empty if they do not."""
        return f"clocks that agree: {apart(self._difference, self._host.topics.ticks)}" if self._clock.is_wrong else ""

    @property
    def _everywhere(self) -> range:
        return range(self._adoption.plan.partitions)

    async def tell_time(self) -> None:
        """Let release engines go on with what has waited for a time."""
        if not self._app.rebalancing:
            self._host.tell_time()

    async def beat(self) -> None:
        """Send a heartbeat to every partition of this worker, and write one to the tables that hold its counts.

        What is counted of re-keyed events is deleted, and what expired of releases is erased.
        """
        for partition in self._owned():
            if self._app.rebalancing:
                return
            now = str(self._host.clock_ms()).encode()
            await self._host.send(self._heartbeats(partition))
            for name in (MERGES, RELEASES):
                await self._host.tables[name].beat(partition, HEARTBEAT, now)
            with suppress(PartitionLostError):
                await self._app.outage.patiently(partial(self._host.delete_counted, partition))
            with suppress(AccessError, BrokerError):  # the next beat tries again
                await self._host.give_up_expired(partition)
            self._app.add_future(self._host.erase_expired(partition))  # it may have to wait for the engine

    async def renew(self) -> None:
        """Keep the claims of this worker's tables known to the broker.

        Raises:
            PartitionLostError: another worker has taken a partition over.
        """
        if not self._app.rebalancing:
            for table in self._host.tables.values():
                await table.renew()

    async def _ends(self, partitions: Collection[int]) -> Mapping[int, Mapping[str, int]]:
        """Where the sources end, by partition and topic; the settings that stand there now are known afterwards."""
        counted, control = self._host.counted_to(), self._adoption.place
        places = [TopicPartition(topic, partition) for partition in partitions for topic in sorted(self._app.sources)]
        ends: dict[int, dict[str, int]] = {partition: {} for partition in partitions}
        # High watermarks, so that a tick waits until the transactions that were open when it was made have ended.
        found = dict(await self._client.ends([*places, control]))
        await self._check_partitions()
        await self._adoption.advance(found.pop(control, None))
        for (topic, partition), end in found.items():
            if end < counted.get(TopicPartition(topic, partition), 0):
                raise ConfigError(
                    "is shorter than what was counted of it, so it was made anew; give the source and the views on it "
                    "new names, since their stored counts belong to the former topic",
                    path=f"topic {topic}",
                )
            ends[partition][topic] = end
        return ends

    async def _check_partitions(self) -> None:
        """Check that sources have the configured number of partitions: otherwise windows might miss records.

        The time of the tick was read before this check. So at the time of a tick, no other partition existed.

        Raises:
            ConfigError: a source has another number of partitions than configured.
        """
        states = await self._client.describe(self._app.sources)
        if faults := grown_sources(self._adoption.plan, states):
            raise ConfigError(faults)

    def _owned(self) -> list[int]:
        ticks = self._host.topics.ticks
        return sorted(tp.partition for tp in self._app.consumer.assignment() if tp.topic == ticks)

    def _heartbeats(self, partition: int) -> list[Message]:
        topics = self._host.topics
        return [Message(topic, HEARTBEAT, None, partition) for topic in (topics.partials, topics.merged)]


LOOK_SECONDS = 3.0
SHARED_SECONDS = 10.0
"""Between two looks at how the partitions are shared."""
REJOINS = 3
"""Number of times that the group is asked to rebalance before a worker gives up."""


class Watch:
    """The watch of one worker; the application calls `look` every `LOOK_SECONDS`."""

    def __init__(
        self,
        app: App,
        plan: Plan,
        settled: Settled,
        client: Client,
        releases: ReleaseTopics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the watch.

        Args:
            app: the application of the worker.
            plan: its plan.
            settled: the topics that it began with.
            client: says which there are, and how they are shared.
            releases: the release topics of this worker's partitions.
            clock: seconds.
        """
        self._app = app
        self._client = client
        self._releases = releases
        self._clock = clock
        self.follow(settled)
        self._sources: set[str] = set(sources_of(plan))
        self._gone: set[Deleted] = set()
        self._unseen: set[str] = set()
        """Release topics that did not exist at the last look."""
        self._missing: set[TopicPartition] = set()
        self._rejoins = 0
        self._was_refused = False
        self._shared_at = clock()
        self._is_checked = False
        """Whether the topics were seen whole since partitions may have changed hands."""
        self.wrong: Sequence[Fault] = ()
        """What somebody has to put right of the topics."""
        self.uncreated: dict[str, str] = {}
        """Reasons why topics without state could not be created again, in words, by topic."""

    def follow(self, settled: Settled) -> None:
        """Go on with the topics of newer settings."""
        self._plan = plan = settled.plan
        self._unclaimed = settled.unclaimed
        topics = Topics.of(plan)
        self._stateless = {spec.name: spec for spec in topics.all(plan) if spec.name in topics.stateless(plan)}
        watched = {spec.name for spec in topics.all(plan)} - topics.releases(plan)
        self._ids: dict[str, str] = {name: life.id for name, life in settled.topics.items() if name in watched}

    async def look(self) -> None:
        """Look once.

        Raises:
            ConfigError: a topic with state was deleted, even if it was created again; or its records were deleted; or
            its
                number of partitions changed.
            ConfigError: the cluster does not let us in any more.
            AccessError: the account lost a right.
            StateError: partitions stayed without an owner.
        """
        try:
            released = self._releases.claimed
            present = await self._client.describe({*self._ids, *self._sources, *released})
            self._look_at_releases(released, present)
            await self._check_topics(present)
            if self._clock() - self._shared_at >= SHARED_SECONDS:
                self._shared_at = self._clock()
                await self.check_settings()
                await self._check_shared(present)
        except BrokerError as error:
            log.debug("the topics cannot be looked at: %s", error)
            if isinstance(error, OutageError):
                await self._check_access()

    async def _check_access(self) -> None:
        """A cluster that does not let us in looks like one that is gone, but is not waited for.

        It is believed the second time: accounts change one after another.
        """
        refused = None if self._app.cluster is None else await diagnose(self._app.cluster)
        if refused is not None and self._was_refused:
            raise refused
        self._was_refused = refused is not None

    def _look_at_releases(self, released: Collection[str], present: Mapping[str, TopicState]) -> None:
        """Stop deleted release topics; one that does not exist counts as deleted at the second look."""
        gone = {topic for topic in released if topic not in present}
        self._releases.look(present, {topic for topic in released if topic in present or topic in self._unseen})
        self._unseen = gone

    async def _check_topics(self, present: Mapping[str, TopicState]) -> None:
        """Another id tells at once; that one is gone is believed the second time: brokers start knowing none."""
        for topic in self._sources & present.keys():
            self._ids.setdefault(topic, present[topic].id)
        lost = deleted(self._ids, present)
        certain = [one for one in lost if one.again or one in self._gone]
        self._gone = set(lost)
        if state := [one for one in certain if one.topic not in self._stateless]:
            raise lost_topics(self._plan, state)
        for topic in self.uncreated.keys() - {one.topic for one in lost}:
            del self.uncreated[topic]
        for one in certain:
            await self._make_again(one)

    async def _make_again(self, lost: Deleted) -> None:
        """Create a topic without state again, and continue with the new one."""
        topic = lost.topic
        try:
            await self._client.create([self._stateless[topic]])
            present = await self._client.describe([topic])
        except OutageError:
            raise
        except (AccessError, BrokerError) as error:
            self._note_uncreated(lost, error)
            return
        if topic not in present:
            return  # it was deleted once more, which the next look finds
        log.warning(
            "topic %s %s; it holds no state, so it was created again, and the worker continues", topic, lost.what
        )
        self._ids[topic] = present[topic].id
        self.uncreated.pop(topic, None)
        if topic == self._app.ticks:
            await self._app.consumer.begin_again(topic)

    def _note_uncreated(self, lost: Deleted, error: Exception) -> None:
        topics = Topics.of(self._plan)
        effect = "refused records are counted, and their dead letters are dropped"
        if lost.topic == topics.ticks:
            effect = "no window closes by the wall clock"
        elif lost.topic == topics.status:
            effect = "`stream-dp status` shows no worker"
        words = (
            f"topic {lost.topic} {lost.what} and cannot be created again, so {effect}: {error}. Create it, or grant "
            "the rights that `stream-dp acl FILE --worker PRINCIPAL` lists; the worker tries again"
        )
        if self.uncreated.get(lost.topic) != words:
            log.warning("%s", words)
        self.uncreated[lost.topic] = words

    def forget(self) -> None:
        """Look at the topics before anything is read that was recovered: partitions may have changed hands."""
        self._is_checked = False

    async def check_whole(self) -> None:
        """Make sure that of what is recovered no records were deleted.

        Raises:
            ConfigError: some were.
        """
        if not self._is_checked:
            lost = await self._app.outage.patiently(lambda: deleted_records(self._plan, self._client))
            if lost:
                raise ConfigError(lost)
            self._is_checked = True

    async def check_settings(self) -> None:
        """Compare the topics with what they must be, and put right what can be.

        Raises:
            ConfigError: records of one were deleted, or it has other partitions.
            BrokerError: the cluster does not say how its topics are.
        """
        found = await look_at_topics(self._plan, self._client, self._unclaimed)
        if found.lost:
            raise ConfigError(found.lost)
        for words in [*found.righted, *(str(fault) for fault in found.wrong if fault not in self.wrong)]:
            log.warning("%s", words)
        self.wrong = found.wrong

    async def _check_shared(self, present: Mapping[str, TopicState]) -> None:
        group = await self._client.group(self._plan.id)
        if group.state != STABLE or self._app.rebalancing:
            return
        missing = unowned(group, expected(self._plan, present))
        stayed, self._missing = missing & self._missing, missing
        if not missing:
            self._rejoins = 0
        if stayed:
            if self._rejoins == REJOINS:
                raise hole(stayed)
            self._rejoins += 1
            log.warning("%s without a worker; the group is asked to share anew", places_in_words(stayed))
            self._missing = set()
            await self._app.consumer.rejoin()
