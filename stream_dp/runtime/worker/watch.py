"""Looks again and again whether the topics of an application are what they were, and whether all have owners.

Kafka tells a consumer nothing of that: a topic that was deleted is one without records, one whose settings were changed
forgets in silence, and a partition that a rebalance left out is nobody's until the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError, Fault, OutageError
from stream_dp.runtime.bootstrap import Settled
from stream_dp.runtime.faust.application import App
from stream_dp.runtime.faust.membership import STABLE, expected, hole, places_in_words, unowned
from stream_dp.runtime.kafka.client import Client, TopicState
from stream_dp.runtime.kafka.deletions import Deleted, deleted, lost_topics
from stream_dp.runtime.kafka.outages import diagnose
from stream_dp.runtime.kafka.topic_settings import deleted_records, look_at_topics
from stream_dp.runtime.kafka.topics import sources_of

log = logging.getLogger("stream_dp.worker")

LOOK_SECONDS = 3.0
SHARED_SECONDS = 10.0
"""Between two looks at how the partitions are shared."""
REJOINS = 3
"""Number of times that the group is asked to rebalance before a worker gives up."""


class Watch:
    """The watch of one worker; the application calls `look` every `LOOK_SECONDS`."""

    def __init__(
        self, app: App, plan: Plan, settled: Settled, client: Client, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set up the watch.

        Args:
            app: the application of the worker.
            plan: its plan.
            settled: the topics that it began with.
            client: says which there are, and how they are shared.
            clock: seconds.
        """
        self._app = app
        self._client = client
        self._clock = clock
        self.follow(settled)
        self._sources: set[str] = set(sources_of(plan))
        self._gone: set[Deleted] = set()
        self._missing: set[TopicPartition] = set()
        self._rejoins = 0
        self._was_refused = False
        self._shared_at = clock()
        self._is_checked = False
        """Whether the topics were seen whole since partitions may have changed hands."""
        self.wrong: Sequence[Fault] = ()
        """What somebody has to put right of the topics."""

    def follow(self, settled: Settled) -> None:
        """Go on with the topics of newer settings."""
        self._plan = settled.plan
        self._ids: dict[str, str] = {name: life.id for name, life in settled.topics.items()}

    async def look(self) -> None:
        """Look once.

        Raises:
            ConfigError: a topic was deleted, whether or not it was made again; or records of it were; or it has other
                partitions.
            ConfigError: the cluster does not let us in any more.
            AccessError: the account lost a right.
            StateError: partitions stayed without an owner.
        """
        try:
            present = await self._client.describe({*self._ids, *self._sources})
            self._check_topics(present)
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

    def _check_topics(self, present: Mapping[str, TopicState]) -> None:
        """Another id tells at once; that one is gone is believed the second time: brokers start knowing none."""
        for topic in self._sources & present.keys():
            self._ids.setdefault(topic, present[topic].id)
        lost = deleted(self._ids, present)
        certain = [one for one in lost if one.again or one in self._gone]
        self._gone = set(lost)
        if certain:
            raise lost_topics(self._plan, certain)

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
        found = await look_at_topics(self._plan, self._client)
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
