"""Settings in effect: what a worker settles at its start (`prepare`), and takes up while it runs (`Adoption`).

A running worker takes new settings from the control topic, as a start would: nothing that runs has to know both.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from secrets import token_bytes
from time import thread_time

from aiokafka import TopicPartition

from stream_dp.config.forecast import backlog_faults
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.control.editions import Posted, first_record, plan_holding
from stream_dp.errors import AccessError, BrokerError, ClockError, ConfigError, Fault, StateError
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import Sealing
from stream_dp.lossless.sealed import KEY_BYTES, WindowNoise
from stream_dp.runtime.clock import Clock, Tick, apart, wall_clock_ms
from stream_dp.runtime.construction import construct
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog, post
from stream_dp.runtime.kafka.list_topics import Lists, read_lists
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topic_checks import look_at_topics
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.windows.durations import format_duration, format_time
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode

log = logging.getLogger("stream_dp.worker")


async def prepare(
    plan: Plan,
    client: Client,
    key_id: Callable[[], str],
    *,
    accept_loss: bool = False,
    backfill: bool = False,
    now_ms: Callable[[], int] = wall_clock_ms,
    clock_bound_ms: int | None = None,
) -> Settled:
    """Claim and create the topics of an application, read its public lists, settle which settings hold.

    Those that stand in the control topic do; where there are none, the file is posted as the first ones. Safe to run by
    any number of workers at once: a topic is created once, and of several first settings the first in the control
    topic's log hold for all.

    Args:
        plan: of the file that the worker is started with.
        client: a client of its broker.
        key_id: says what it is known by, `KeyRing.application`. It may make a key: asked when the rest is right.
        accept_loss: go on where a topic that the application had was deleted. With the control topic it may have lost
            its settings, so nothing is asked about when its views began.
        backfill: begin views of the first settings whose first windows are over already.
        now_ms: the wall clock.
        clock_bound_ms: how far it may be from the broker's at a first start; None: they are not compared.

    Returns:
        What a worker starts with.

    Raises:
        ConfigError: a source topic is missing or has another number of partitions than the plan says, a public list
            cannot be used, views have not begun and windows of them are over, topics belong to another application,
            were deleted, or are not what they must be, or this machine computes windows of strict noise too slowly; or
            the settings that hold cannot be planned here.
        ClockError: at a first start, the clock of this machine does not agree with the broker's.
        BrokerError: the cluster refused something.
    """
    topics, settings = Topics.of(plan), SettingsLog(plan, client)
    now = now_ms()
    first, measured = first_record(plan, now), tuple[str, ...]()
    while True:
        await settings.read()
        known = settings.known
        holding = await asyncio.to_thread(plan_holding, known or [first], plan)
        await asyncio.to_thread(construct, holding)
        lists, faults = await read_lists(holding, client)
        faults = [*await wrong_sources(holding, client), *faults]
        if not known and not backfill and not accept_loss:
            faults += backlog_faults(plan, plan.views.keys(), now)
        faults = faults or await asyncio.to_thread(never_in_time, holding, lists, measured)
        measured = tuple(holding.views)
        if faults:
            raise ConfigError(faults)
        claim = await create_owned(holding, client, key_id(), accept_loss=accept_loss, now_ms=now)
        await _check_topics(holding, client)
        if known:
            return Settled(holding, lists, claim.topics, claim.uncounted)
        await _check_clock(topics.ticks, client, Clock(now_ms, clock_bound_ms))
        await post(plan, client, first)


async def _check_clock(ticks: str, client: Client, clock: Clock) -> None:
    """Make sure that views begin with the windows that they are in.

    Raises:
        ClockError: the clock of this machine does not agree with the broker's.
    """
    if clock.bound_ms is None:
        return
    sent_ms = clock.steady_ms()
    (at_ms,) = await client.publish([Message(ticks, None, encode(Tick(clock(), {})))])
    clock.learn({} if at_ms is None else {0: at_ms}, sent_ms)
    difference = clock.check()
    if clock.is_wrong:
        raise ClockError(
            f"{apart(difference, ticks)}, more than {format_duration(clock.bound_ms)}: views would begin with other "
            "windows than those of today; set the clocks and start again"
        )


async def _check_topics(plan: Plan, client: Client) -> None:
    """Put the topics right as far as that loses nothing.

    Raises:
        ConfigError: some are not what they must be; every one is named.
    """
    found = await look_at_topics(plan, client)
    for words in found.righted:
        log.warning("%s", words)
    if faults := [*found.lost, *found.wrong]:
        raise ConfigError(faults)


def _no_topic(source: SourcePlan) -> str:
    words = f"the broker has no topic {source.topic}; create it with {source.partitions} partitions"
    if source.format != "json" or source.time_field is None:
        return words
    return f"{words}, or write history: `stream-dp feed FILE {source.name} --from EVENTS` creates the topic"


async def wrong_sources(plan: Plan, client: Client) -> list[Fault]:
    """The sources that have no topic, or one with other partitions than the plan says."""
    faults, states = [], await client.describe(sources_of(plan))
    for topic, source in sources_of(plan).items():
        path = f"sources.{source.name}"
        if topic not in states:
            faults.append(Fault(f"{path}.topic", _no_topic(source)))
        elif (count := states[topic].partitions) != source.partitions:
            faults.append(Fault(f"{path}.partitions", f"topic {topic} has {count}, not {source.partitions}"))
    return faults


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
        faults = faults or await asyncio.to_thread(never_in_time, plan, lists, former.plan.views.keys())
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


# -- strict noise ------------------------------------------------------------------------------------------------------
# A window of strict noise takes the same steps whatever is in it, so a made-up one says how long each real one takes:
# a public number, measured before any event is counted. Where none could be ready at its slot, a worker refuses the
# plan. `check` warns earlier, since much else takes time, too.

TIMES = 3
"""A window that takes too long is measured so often, and the least counts: other work only ever adds to it."""


def strict_seconds(view: ViewPlan, lists: Mapping[str, KeyList]) -> float | None:
    """Return the computing seconds of one window of a view, None where they depend on the window's counts.

    Args:
        view: the view.
        lists: the view's public lists that are kept in topics, by topic.
    """
    keys = view.kind.made_up_keys
    if keys is None:
        return None
    counts = {f"{number:0{len(str(keys))}d}": 1 for number in range(keys)}
    sealing = Sealing(WindowNoise(b"made up", token_bytes(KEY_BYTES)), system_entropy, lists)
    began = thread_time()
    view.kind.seal(counts, sealing)
    return thread_time() - began


def never_in_time(plan: Plan, lists: Lists, known: Collection[str] = ()) -> list[Fault]:
    """Return a fault for each view whose windows take longer here than `release.offset` plus one slot.

    Args:
        plan: the views.
        lists: the public lists that are kept in topics.
        known: names of view definitions that were measured before; they are passed over.
    """
    faults, most_ms = [], plan.slots.offset_ms + plan.slots.every_ms
    for view in plan.newest.values():
        took = 0.0 if view.name in known else _least_seconds(view, lists.at(view.name, 0), most_ms / 1000)
        if took * 1000 > most_ms:
            words = (
                f"a window takes {took:.2g} s to compute on this machine, whatever is in it, and release.offset and "
                f"release.slot leave it {format_duration(most_ms)}: every release would be late; raise "
                "release.offset, make the view smaller, or use a faster machine"
            )
            faults.append(Fault(f"views.{view.view}", words))
    return faults


def _least_seconds(view: ViewPlan, lists: Mapping[str, KeyList], enough: float) -> float:
    """Return the least of some measurements; no more of them than it takes to find one that is short enough."""
    least = strict_seconds(view, lists) or 0.0
    for _ in range(TIMES - 1):
        if least <= enough:
            break
        least = min(least, strict_seconds(view, lists) or 0.0)
    return least
