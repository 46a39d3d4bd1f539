"""Settings in effect: verdicts on them (`judge`), the preparation of a worker (`prepare`), and changes (`Adoption`).

Posted settings are not in effect yet. One worker, the owner of the control partition, plans them and writes its verdict
to the control topic: `accepted`, or `refused` with the reason. If no other worker runs, a worker that starts does this.
It does not matter if two workers give one: which verdict counts follows from the log (`stream_dp.control.acceptance`).
Workers use only accepted settings. Refused settings never take effect, and the next settings get the next number.

A running worker adopts accepted settings as a start would, so no running part has to know two plans. It makes the new
plan, reads and creates what the plan needs, and the host forgets every part of every partition. The parts are loaded
again from the tables with the new plan, as after a crash.

Before a worker does anything by accepted settings, it states in the control topic that it uses them. A worker that
cannot plan accepted settings ends and does nothing by them: another version of stream-dp accepted them, or a file that
they name was changed. Operators apply other settings then. If no worker has stated that it uses the unusable ones, the
judge of the next posting first takes their acceptance back. If a worker has, they stay, and only a worker that can plan
them can judge the next posting.

What a missing right prevents makes records late and nothing else. A worker that may not read or create what accepted
settings need makes no ticks and loads no parts until it may, or until other settings are in effect. Records for a
release topic that cannot be created wait in their outboxes. The worker tries again every `RETRY_SECONDS`.

A worker reads the control topic to its end before it sends ticks, before it loads a part, and when it meets something
that is new to it; and each tick says which settings its maker knew. So a worker that acts on a tick knows all settings
that were accepted when the tick was made, and no window closes under settings that were replaced well before its end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import token_bytes
from time import thread_time

import msgspec
from aiokafka import TopicPartition

from stream_dp.config.forecast import backlog_faults
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.control.acceptance import SettingsHistory, Verdict
from stream_dp.control.editions import Posted, first_record
from stream_dp.control.settings_change import fixed_faults, restart_faults
from stream_dp.errors import AccessError, BrokerError, ClockError, ConfigError, Fault, StateError
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import Sealing
from stream_dp.lossless.sealed import KEY_BYTES, WindowNoise
from stream_dp.runtime.clock import Clock, Tick, apart, wall_clock_ms
from stream_dp.runtime.construction import describe_faults, explain_unplannable, plan_accepted, plan_settings
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog, post_accepted
from stream_dp.runtime.kafka.list_topics import Lists, read_lists
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import Claim, create_owned
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

    The accepted settings are in effect. If there are none, the file is posted as the first settings and accepted. Safe
    to run by any number of workers at once: a topic is created once, and of several first settings, the first in the
    control topic's log take effect for all.

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
        history = settings.history
        known = history.accepted
        if history.waiting and (not known or await _has_no_workers(plan, client)):
            # A worker that begins meanwhile states that it uses the former settings. Then this verdict does not count.
            await settings.judge(await judge(history, plan, client, now))
            continue
        try:
            holding = await asyncio.to_thread(plan_settings, known or [first], plan)
        except ConfigError as error:
            if not known:
                raise
            if history.used:
                raise explain_unplannable(known[-1].number, history.used, error) from None
            # No settings were ever used, so this file posts the first ones that take effect.
            await settings.judge(await _take_back(history, plan, error, now))
            continue
        lists, faults = await read_lists(holding, client)
        faults = [*await wrong_sources(holding, client), *faults]
        if not known and not backfill and not accept_loss:
            faults += backlog_faults(plan, plan.views.keys(), now)
        faults = faults or await asyncio.to_thread(never_in_time, holding, lists, measured)
        measured = tuple(holding.views)
        if faults:
            raise ConfigError(faults)
        if known and history.used < holding.settings and not await settings.use(holding.settings):
            continue  # they were taken back
        claim = await create_owned(
            holding, client, key_id(), accept_loss=accept_loss, now_ms=now, allow_absent=bool(known)
        )
        absent = _absent(holding, claim)
        await _check_topics(holding, client, absent)
        if known:
            return Settled(holding, lists, claim.topics, claim.uncounted, absent)
        await _check_clock(topics.ticks, client, Clock(now_ms, clock_bound_ms))
        await post_accepted(plan, client, msgspec.structs.replace(first, number=history.next_number))


async def _has_no_workers(plan: Plan, client: Client) -> bool:
    return (await client.group(plan.id)).state in NO_MEMBERS


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


async def _check_topics(plan: Plan, client: Client, absent: Collection[str]) -> None:
    """Put the topics right as far as that loses nothing.

    Raises:
        ConfigError: some are not what they must be; every one is named.
    """
    found = await look_at_topics(plan, client, absent)
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


# -- acceptance --------------------------------------------------------------------------------------------------------

LEAST_LEAD_MS = 10_000
"""Shortest time from acceptance to the first changed window of a view with `clock: wall`, so that every worker knows
the settings before that window begins."""
NO_MEMBERS = ("Empty", "Dead")
"""States of a group without workers."""


async def judge(
    history: SettingsHistory, local: Plan, client: Client, now_ms: int, counted: Plan | None = None
) -> Verdict:
    """Plan the oldest settings that have no verdict, and return the verdict on them.

    They are planned after all accepted settings, whichever of these the workers use by now. If the newest accepted
    settings cannot be used here and no worker has used them, the verdict takes these back instead.

    Args:
        history: history of the settings; some have no verdict.
        local: the plan of a file of the application.
        client: a client of the broker, which has the public lists.
        now_ms: the clock of the worker.
        counted: the plan that this worker counts by; None: no worker runs, so no window has closed since.

    Raises:
        AccessError: this account may not read a public list. This is no reason to refuse the settings.
        ConfigError: settings that workers have used cannot be planned here, so this worker can judge no others.
        BrokerError: the broker refuses something.
    """
    posted = history.waiting[0]
    known = history.accepted
    before = counted
    if known and (counted is None or counted.settings != known[-1].number):
        try:
            before = await _plan_usable(history, local, client)
        except (AccessError, ConfigError) as error:
            return await _take_back(history, local, error, now_ms)
    latest_ms = None if counted is None or before is None else _latest_ms(posted, before)
    reason = ""
    try:
        plan = await asyncio.to_thread(plan_settings, [*known, posted], local)
        lists, faults = await read_lists(plan, client)
        measured = () if counted is None or before is None else before.views.keys()
        faults = faults or await asyncio.to_thread(never_in_time, plan, lists, measured)
        if before is not None:
            faults += fixed_faults(before, plan)
        if counted is not None and before is not None:
            faults += _change_faults(before, plan, latest_ms, now_ms)
        if faults:
            raise ConfigError(faults)
    except ConfigError as error:
        reason = describe_faults(error)
        latest_ms = None
    return Verdict(posted.number, now_ms, reason, latest_ms, history.decisions)


async def _plan_usable(history: SettingsHistory, local: Plan, client: Client) -> Plan:
    """Return the plan of the accepted settings. If no worker has used them, check their lists, too.

    Raises:
        AccessError: this account may not read a public list.
        ConfigError: they cannot be used here.
    """
    known = history.accepted
    plan = await asyncio.to_thread(plan_settings, known, local)
    if known[-1].number > history.used:
        _, faults = await read_lists(plan, client)
        if faults:
            raise ConfigError(faults)
    return plan


async def _take_back(history: SettingsHistory, local: Plan, error: AccessError | ConfigError, now_ms: int) -> Verdict:
    """Return the verdict that takes the newest accepted settings back.

    Args:
        history: history of the settings.
        local: the plan of a file of the application.
        error: the reason why this worker cannot use them.
        now_ms: the clock of the worker.

    Raises:
        ConfigError: workers have used them, or use earlier ones that cannot be planned here.
    """
    number = history.accepted[-1].number
    reason = describe_faults(error) if isinstance(error, ConfigError) else str(error)
    if number <= history.used:
        raise explain_unplannable(number, history.used, ConfigError(reason))
    if history.in_use:
        await asyncio.to_thread(plan_accepted, history.in_use, history.used, local)
    words = f"they were taken back before any worker used them: {reason}"
    return Verdict(number, now_ms, words, seen=history.decisions, takes_back=True)


def _change_faults(before: Plan, plan: Plan, latest_ms: int | None, now_ms: int) -> Iterator[Fault]:
    """Yield the reasons why running workers cannot change to other settings."""
    yield from restart_faults(before, plan)
    if latest_ms is not None and now_ms > latest_ms:
        yield Fault(
            "",
            f"a view would change in less than {LEAST_LEAD_MS // 1000} s; apply them again, so that it changes later",
        )


def _latest_ms(posted: Posted, before: Plan) -> int | None:
    """Return the latest time at which settings can be accepted; None if there is no such limit."""
    by_the_wall = {view.view for view in before.newest.values() if view.window.clock == "wall"}
    changes = [*posted.begins.items(), *posted.ends.items()]
    return min((at_ms - LEAST_LEAD_MS for view, at_ms in changes if view in by_the_wall), default=None)


RETRY_SECONDS = 10.0
"""Interval between two attempts at something that a missing right prevents."""
LOOK_SECONDS = 1.0
"""Interval between two looks for newer settings while accepted ones cannot be used."""


class Adoption:
    """The settings that one worker uses, and the change to newer ones.

    Attributes:
        problem: what a missing right prevents, in words; empty if nothing.
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
        self._tried_at = 0.0
        self._has_begun = False
        """It has stated since it joined which settings it uses. It does so only if settings wait for a verdict."""
        self.problem = ""
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

    @property
    def is_blocked(self) -> bool:
        """True if nothing may be counted or closed now, as far as the settings were read."""
        history = self._log.history
        is_behind = bool(history.accepted) and history.accepted[-1].number > self.plan.settings
        return is_behind or bool(history.waiting and not self._has_begun)

    def forget(self) -> None:
        """Take note that this worker joins the group anew."""
        self._has_begun = False

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
            if self.problem and not is_news and time.monotonic() - self._tried_at < RETRY_SECONDS:
                return
            problem = await self._judge_waiting()
            accepted = self._log.history.accepted
            if accepted and accepted[-1].number > self.plan.settings:
                problem = await self._adopt(accepted) or problem
            elif self._settled.missing:
                await self._create_topics()
            self._note(problem or _describe_absent(self._settled))

    async def _judge_waiting(self) -> str:
        """Judge the settings that wait for a verdict; return what prevents it, in words; empty if nothing does."""
        number = 0
        try:
            while waiting := self._log.history.waiting:
                number = waiting[0].number
                if not self._has_begun:
                    # Thus a verdict that is given in the belief that no worker runs does not count.
                    await self._outage.patiently(lambda: self._log.use(self.plan.settings))
                    self._has_begun = True
                elif not self._is_judge():
                    break
                else:
                    await self._outage.patiently(self._judge)
        except (AccessError, BrokerError, StateError) as error:
            return f"settings {number} cannot be looked at: {error}"
        return ""

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s; the worker tries again every %.0f s", problem, RETRY_SECONDS)
        self.problem = problem
        self._tried_at = time.monotonic()

    async def _judge(self) -> None:
        if not self._log.history.waiting:
            return  # the verdict was written and read before the broker fell silent
        verdict = await judge(self._log.history, self.plan, self._client, self._clock(), self.plan)
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
            lists, faults = await self._outage.patiently(lambda: read_lists(plan, self._client))
            if faults:
                return f"{unusable}: {describe_faults(ConfigError(faults))}"
            if not await self._state_use(number):
                return f"{unusable}: what the control topic says of them has changed"
            claim = await self._create(plan)
        except (AccessError, BrokerError) as error:
            return f"{unusable}: {error}"
        former.lists.join(lists)
        self._settled = replace(former, plan=plan, topics=claim.topics, absent=_absent(plan, claim))
        self._take(self._settled)
        log.info("settings %d are in effect: %s", number, _in_words(former.plan, plan))
        return ""

    async def _state_use(self, number: int) -> bool:
        """State that this worker uses settings, unless one has stated that; return whether it may use them."""
        if self._log.history.used >= number:
            return True
        try:
            return await self._outage.patiently(lambda: self._log.use(number))
        except StateError as error:
            raise BrokerError(str(error)) from None

    async def _create_topics(self) -> None:
        """Try again to create the topics that could not be created before."""
        claim = await self._create(self.plan)
        absent = _absent(self.plan, claim)
        if absent != self._settled.absent:
            self._settled = replace(self._settled, topics=claim.topics, absent=absent)
            self._take(self._settled)

    async def _create(self, plan: Plan) -> Claim:
        return await self._outage.patiently(lambda: create_owned(plan, self._client, self._key_id, allow_absent=True))


def _absent(plan: Plan, claim: Claim) -> tuple[str, ...]:
    """Return the release topics of a plan that do not exist."""
    release = Topics.of(plan).release
    public = dict.fromkeys(release(view.view, audience) for view in plan.views.values() for audience in view.readers)
    return tuple(topic for topic in public if topic not in claim.topics)


def _describe_absent(settled: Settled) -> str:
    """Return what is late because topics are missing, in words; empty if nothing is."""
    if not settled.missing:
        return ""
    return (
        f"this account cannot create {', '.join(settled.missing)}, so records for these topics, and those that leave "
        "with them, are late; grant the rights that `stream-dp acl FILE --worker PRINCIPAL` lists"
    )


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
