"""Adoption of settings by a running worker.

A running worker adopts accepted settings as a start would, so no running part has to know two plans. It makes the new
plan, reads and creates what the plan needs, and the host forgets every part of every partition. The parts are loaded
again from the tables with the new plan, as after a crash.

A worker states in the control topic that it uses accepted settings before it makes any part with them. A worker that
cannot plan accepted settings ends and does nothing by them: another version of stream-dp accepted them, or a file that
they name was changed.

What a missing right prevents makes records late and nothing else. A worker that may not read or create what accepted
settings need makes no ticks and loads no parts until it may, or until other settings are in effect. A release topic
that cannot be created only makes the records of its audience late (`ReleaseTopics`). The worker tries again every
`RETRY_SECONDS`.

A worker reads the control topic to its end before it sends ticks, before it loads a part, and when it meets something
that is new to it; and each tick says which settings its maker knew. So a worker that acts on a tick knows all settings
that were accepted when the tick was made, and no window closes under settings that were replaced well before its end.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted
from stream_dp.errors import AccessError, BrokerError, ConfigError, StateError
from stream_dp.runtime.clock import Clock
from stream_dp.runtime.construction import describe_faults, plan_accepted
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog
from stream_dp.runtime.kafka.list_topics import read_lists
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import Claim, create_owned
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.runtime.verdicts import added_definitions, judge
from stream_dp.windows.durations import format_time

log = logging.getLogger("stream_dp.worker")

RETRY_SECONDS = 10.0
"""Interval between two attempts at something that a missing right prevents."""
LOOK_SECONDS = 1.0
"""Interval between two looks for newer settings while accepted ones cannot be used."""


class Adoption:
    """The settings that one worker uses, and the change to newer ones.

    Attributes:
        problem: why settings cannot be judged or used yet, in words; empty if they can.
    """

    def __init__(
        self,
        settled: Settled,
        client: Client,
        key_id: str,
        outage: Outage,
        take: Callable[[Settled], None],
        clock: Clock,
        is_judge: Callable[[], bool],
    ) -> None:
        """Set up the adoption; nothing is read yet.

        Args:
            settled: results of the preparation that the worker started with.
            client: a client of its broker.
            key_id: what the application is known by, `KeyRing.application`.
            outage: waits for a broker that does not answer.
            take: called with the results of a new preparation; it awaits nothing.
            clock: the clock of the worker.
            is_judge: returns whether the worker owns the control partition now.
        """
        self._settled = settled
        self._client = client
        self._key_id = key_id
        self._outage = outage
        self._take = take
        self._clock = clock
        self._is_judge = is_judge
        self._tried_at = -math.inf
        self._has_begun = False
        """It has stated since it joined which settings it uses. It does so only if settings wait for a verdict."""
        self.problem = ""
        self._log = SettingsLog(settled.plan, client)
        self._lock = asyncio.Lock()

    @property
    def plan(self) -> Plan:
        """The plan in use."""
        return self._settled.plan

    @property
    def place(self) -> TopicPartition:
        """The partition of the control topic, which has the settings."""
        return self._log.place

    @property
    def is_blocked(self) -> bool:
        """True if nothing may be counted or closed now, as far as the settings were read."""
        history = self._log.history
        is_behind = bool(history.accepted) and history.accepted[-1].number > self.plan.settings
        return is_behind or bool(history.waiting and not self._has_begun)

    def forget(self) -> None:
        """Note that this worker joins the group again."""
        self._has_begun = False
        self._tried_at = -math.inf

    async def catch_up(self) -> None:
        """Return when this worker uses all settings accepted so far.

        Raises:
            ConfigError: this worker cannot plan the settings, so it must end.
            StateError: the settings count other sources, so the worker must be restarted.
            BrokerError: the control topic cannot be read.
        """
        await self.advance()
        while self.is_blocked:  # not under the lock, and newer settings end it
            await asyncio.sleep(LOOK_SECONDS)
            await self.advance()

    async def advance(self, end: int | None = None) -> None:
        """Adopt all settings accepted so far, unless a right is missing (`is_blocked`).

        If this worker is the judge, it first gives its verdict on waiting settings.

        Args:
            end: where the control topic ends, if known.

        Raises:
            ConfigError: as `catch_up`.
            StateError: as `catch_up`.
            BrokerError: as `catch_up`.
        """
        async with self._lock:
            is_news = await self._outage.patiently(lambda: self._log.read(end))
            has_failed = self.problem or self._settled.uncreated
            if has_failed and not is_news and time.monotonic() - self._tried_at < RETRY_SECONDS:
                return
            problem = await self._judge_waiting()
            accepted = self._log.history.accepted
            if accepted and accepted[-1].number > self.plan.settings:
                problem = await self._adopt(accepted) or problem
            elif self._settled.uncreated:
                await self._create_topics()
            self._note(problem)

    async def _judge_waiting(self) -> str:
        """Judge the settings that wait for a verdict; return what prevents it, in words; empty if nothing does."""
        number = 0
        try:
            while waiting := self._log.history.waiting:
                number = waiting[0].number
                if not self._has_begun:
                    # A starting worker may have found no other and be about to accept them without any lead. Its
                    # verdict does not count if it comes after this statement.
                    await self._outage.patiently(lambda: self._log.state_use(self.plan.settings))
                    self._has_begun = True
                elif not self._is_judge():
                    break
                else:
                    await self._outage.patiently(self._judge)
        except (AccessError, BrokerError, StateError) as error:
            return f"settings {number} cannot be judged yet: {error}"
        return ""

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s; the worker tries again every %.0f s", problem, RETRY_SECONDS)
        self.problem = problem
        self._tried_at = time.monotonic()

    async def _judge(self) -> None:
        if not self._log.history.waiting:
            return  # the verdict was written and read before the broker fell silent
        verdict = await judge(self._log.history, self.plan, self._client, self._clock(), self._key_id, self.plan)
        if self._clock.bound_ms is None:  # its clock is not the broker's
            verdict = msgspec.structs.replace(verdict, latest_ms=None)
        await self._log.judge(verdict)
        if self._log.history.state(verdict.number) == "refused":
            reason = self._log.history.reason(verdict.number)
            log.warning(
                "settings %d are refused; settings %d stay in effect: %s", verdict.number, self.plan.settings, reason
            )

    async def _adopt(self, accepted: Sequence[Posted]) -> str:
        """Go on by accepted settings; return what prevents it, in words; empty if nothing does.

        Raises:
            ConfigError: they cannot be planned here, or topics belong to another application.
            StateError: they count other sources.
        """
        former = self._settled
        number = accepted[-1].number
        plan = await asyncio.to_thread(plan_accepted, accepted, self._log.history.used, self.plan)
        if sources_of(plan).keys() != sources_of(former.plan).keys():
            raise StateError(
                f"settings {number} count other sources than this worker reads, which it chose when it started: "
                "it ends here, and reads them when it is started again"
            )
        unusable = f"settings {number} are accepted, but cannot be used yet"
        try:
            added = added_definitions(plan, former.plan)
            lists, faults = await self._outage.patiently(lambda: read_lists(added, self._client))
            if faults:
                return f"{unusable}: {describe_faults(ConfigError(faults))}"
            claim = await self._create(plan)
            if not await self._state_use(number):
                return f"{unusable}: their state in the control topic has changed"
        except (AccessError, BrokerError) as error:
            return f"{unusable}: {error}"
        former.lists.join(lists)
        self._settled = replace(former, plan=plan, topics=claim.topics)
        self._take(self._settled)
        log.info("settings %d are in effect: %s", number, _describe_changes(former.plan, plan))
        return ""

    async def _state_use(self, number: int) -> bool:
        """State that this worker uses settings, unless one has stated that; return whether it may use them."""
        if self._log.history.is_in_use(number):
            return True
        try:
            return await self._outage.patiently(lambda: self._log.state_use(number))
        except StateError as error:
            raise BrokerError(str(error)) from None

    async def _create_topics(self) -> None:
        """Try again to create the topics that could not be created before."""
        claim = await self._create(self.plan)
        settled = replace(self._settled, topics=claim.topics)
        if settled.uncreated != self._settled.uncreated:
            self._settled = settled
            self._take(settled)

    async def _create(self, plan: Plan) -> Claim:
        return await self._outage.patiently(lambda: create_owned(plan, self._client, self._key_id, allow_missing=True))


def _describe_changes(former: Plan, plan: Plan) -> str:
    """Return what settings change, in words, without counts, items or users."""
    said = [
        f"edition {one.number} of view {view.view} from the window of {format_time(one.first_ms)} on"
        for view in plan.views.values()
        for one in view.editions
        if view.name not in former.views or one.number not in {had.number for had in former.views[view.name].editions}
    ]
    ended = [view for name, view in former.newest.items() if name not in plan.newest]
    said += [f"view {view.view} ends at {format_time(plan.views[view.name].until_ms or 0)}" for view in ended]
    return "; ".join(said) or "no view has a new edition"
