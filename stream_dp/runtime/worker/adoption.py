"""A running worker takes new settings from the control topic, as a start would: nothing that runs has to know both.

The new plan is worked out, what it needs is read and made, and the host forgets every part of every partition: the
parts are loaded again from the tables with the new plan, which is what happens after a crash, too. That takes as long
as a load takes.

Settings that cannot be taken up (a right is missing, a list cannot be read) do not end a worker. It goes on with those
that it has, tries again every few seconds, and says so. What keeps this sound:

* windows that the newer settings are about are not closed. Its partitions hand none of them on, so no worker can
  release one, and what was counted goes to the next definition when they are taken up (`windows.handover`);
* nothing is loaded. A partition that changes hands may have been counted by a worker that has taken them up. It waits,
  and so do counts of views, and grants, that only the newer settings may know.

A worker reads the control topic to its end before it sends ticks, before it loads a part, and when it meets something
that is new to it; and each tick says which settings its maker knew. So whoever acts on a tick knows all that stood in
the control topic when the tick was made, and no window closes under settings that were posted well before its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted, plan_holding
from stream_dp.errors import AccessError, BrokerError, ConfigError, StateError
from stream_dp.runtime.bootstrap import Settled
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog
from stream_dp.runtime.kafka.lists import read_lists
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.windows.durations import format_time

log = logging.getLogger("stream_dp.worker")

RETRY_SECONDS = 10.0
"""Between two attempts to take up settings that could not be taken up."""


class Adoption:
    """The settings that one worker goes by, and the way to newer ones."""

    def __init__(
        self,
        settled: Settled,
        client: Client,
        key_id: str,
        outage: Outage,
        take: Callable[[Settled], None],
        hold: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Set up the adoption; nothing is read yet.

        Args:
            settled: what the worker was started with.
            client: of its broker.
            key_id: what the application is known by, `KeyRing.application`.
            outage: waits for a broker that does not answer.
            take: goes on with what is settled anew; it awaits nothing.
            hold: closes no window of some views from a start on, until something is settled anew; it awaits nothing.
        """
        self._settled = settled
        self._client = client
        self._key_id = key_id
        self._outage = outage
        self._take = take
        self._hold = hold
        self._tried: tuple[int, float] = (0, 0.0)
        """The number of the settings that were tried last, and when."""
        self.refusal = ""
        """Why the newest settings cannot be taken up; nothing if they are in effect here."""
        self._log = SettingsLog(settled.plan, client)
        self._lock = asyncio.Lock()

    @property
    def plan(self) -> Plan:
        """The plan that it goes by."""
        return self._settled.plan

    @property
    def place(self) -> TopicPartition:
        """Where settings stand."""
        return self._log.place

    async def catch_up(self, end: int | None = None) -> bool:
        """Go by all settings that stand in the control topic now.

        Args:
            end: where that ends, if it is known.

        Returns:
            Whether there are some that cannot be taken up now (`refusal`).

        Raises:
            StateError: they count other sources: it has to be started again.
            BrokerError: the control topic cannot be read.
        """
        async with self._lock:
            await self._outage.patiently(lambda: self._log.read(end))
            known = self._log.known
            if len(known) <= self.plan.settings:
                return False
            number, at = self._tried
            if self.refusal and number == len(known) and time.monotonic() - at < RETRY_SECONDS:
                return True
            try:
                await self._adopt(await asyncio.to_thread(plan_holding, known, self.plan))
            except (AccessError, BrokerError, ConfigError) as error:
                self._refuse(known, " ".join(str(error).split()))
            else:
                self.refusal = ""
            self._tried = len(known), time.monotonic()
            return bool(self.refusal)

    def _refuse(self, known: Sequence[Posted], why: str) -> None:
        """Stay with the settings that there are: no window is closed that newer ones are about."""
        held: dict[str, int] = {}
        for posted in known[self.plan.settings :]:
            for view, at_ms in [*posted.begins.items(), *posted.ends.items()]:
                held[view] = min(at_ms, held.get(view, at_ms))
        self._hold(held)
        if (len(known), why) != (self._tried[0], self.refusal):
            log.warning(
                "settings %d cannot be taken up: %s. The worker goes on with settings %d, holds back windows that the "
                "newer ones are about, and tries again every %.0f s",
                len(known),
                why,
                self.plan.settings,
                RETRY_SECONDS,
            )
        self.refusal = why

    async def _adopt(self, plan: Plan) -> None:
        former = self._settled
        if sources_of(plan).keys() != sources_of(former.plan).keys():
            raise StateError(
                f"settings {plan.settings} count other sources than this worker reads, which it chose when it started: "
                "it ends here, and reads them when it is started again"
            )
        lists, faults = await self._outage.patiently(lambda: read_lists(plan, self._client))
        if faults:
            raise ConfigError(faults)
        claim = await self._outage.patiently(lambda: create_owned(plan, self._client, self._key_id))
        former.lists.join(lists)
        self._settled = Settled(plan, former.lists, claim.topics, former.uncounted)
        self._take(self._settled)
        log.info("settings %d hold now: %s", plan.settings, _in_words(former.plan, plan))


def _in_words(former: Plan, plan: Plan) -> str:
    """Return the news of settings, in words: no count, no item, no user."""
    said = [
        f"edition {one.number} of view {view.view} from the window of {format_time(one.first_ms)} on"
        for view in plan.views.values()
        for one in view.editions
        if view.name not in former.views or one.number not in {had.number for had in former.views[view.name].editions}
    ]
    ended = [view for name, view in former.newest.items() if name not in plan.newest]
    said += [f"view {view.view} ends at {format_time(plan.views[view.name].until_ms or 0)}" for view in ended]
    return "; ".join(said) or "no view begins anew"
