"""Execution of effects: rows into the table, messages into Kafka, records into outboxes, and from there at their slots.

One task for a worker publishes, whatever the release engines compute meanwhile. What it publishes is in the outboxes of
stored windows, so a worker that stops, or loses a partition, leaves the rest to whoever loads it next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from stream_dp.records.codec import decode_entry
from stream_dp.records.models import LedgerEntry
from stream_dp.records.statement import caps
from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.faust.app import App
from stream_dp.runtime.faust.letters import LETTERS_DROPPED, DeadLetterBox
from stream_dp.runtime.faust.release_topics import ReleaseTopics
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import RELEASES, Topics
from stream_dp.runtime.kafka.transactions import PartitionLostError, Writer
from stream_dp.windows.effects import (
    ROWS_LOADED,
    Commit,
    Effect,
    Erase,
    Increment,
    Leave,
    Long,
    Message,
    Publish,
    Send,
    SendLetters,
    Step,
    Warn,
)

if TYPE_CHECKING:
    from stream_dp.runtime.faust.host import Host

log = logging.getLogger("stream_dp.worker")

OF_A_PROCESS = frozenset({"events_replayed", "partials_repeated", ROWS_LOADED, "grants", LETTERS_DROPPED})
"""The counters that say what a process did. All others say what became of the data, and are stored with it."""


class Counters:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, count: Increment) -> None:
        """Carry out a `Increment`."""
        self._totals[count.name, count.labels] += count.amount

    def take(self, counts: Iterable[Increment]) -> None:
        """Carry out several."""
        for count in counts:
            self.add(count)

    def __iter__(self) -> Iterator[Increment]:
        """All counters, as what they have come to."""
        return (Increment(name, amount, labels) for (name, labels), amount in self._totals.items())

    def total(self, name: str, **labels: str) -> int:
        """The sum of a counter over all label values that contain `labels`."""
        wanted = set(labels.items())
        return sum(amount for (key, found), amount in self._totals.items() if key == name and wanted <= set(found))

    def by_labels(self, name: str) -> dict[tuple[tuple[str, str], ...], int]:
        """The totals of a counter, by its labels."""
        return {labels: amount for (key, labels), amount in self._totals.items() if key == name}

    def lines(self) -> dict[str, int]:
        """Every counter as text, sorted: `events_refused{reason=late,view=x}`."""
        return {
            name + ("{" + ",".join(f"{key}={value}" for key, value in labels) + "}" if labels else ""): amount
            for (name, labels), amount in sorted(self._totals.items())
        }


class Balances:
    """The entries about the newest window of every view; each is taken when it has left at its slot, not before."""

    def __init__(self, accounts: str) -> None:
        """Set up the balances; nothing has left yet.

        Args:
            accounts: the topic of the accounts.
        """
        self._accounts = accounts
        self._newest: dict[bytes, tuple[int, dict[bytes, bytes]]] = {}
        """By view: start of the newest window, and the entries about it by their keys, the last one last."""

    def take(self, messages: Iterable[Message]) -> None:
        """Take note of records that have left."""
        for message in messages:
            if message.topic == self._accounts and message.key is not None and message.value is not None:
                view, start_ms, *_ = message.key.split(b"/")
                newest, entries = self._newest.get(view, (0, {}))
                if int(start_ms) > newest:
                    entries = {}
                if int(start_ms) >= newest:
                    self._newest[view] = int(start_ms), {**entries, message.key: message.value}

    def forget(self) -> None:
        """Forget all: partitions, and the ledgers in them, may have changed hands."""
        self._newest.clear()

    def entries(self) -> list[LedgerEntry]:
        """The entries, those of a view in the order in which they left; may be asked for in a thread."""
        return [decode_entry(value) for _, entries in [*self._newest.values()] for value in entries.values()]

    def ratios(self) -> dict[str, float]:
        """By ledger, what share of the caps of its newest period is left, of the cap that has the least."""
        newest: dict[str, tuple[int, float]] = {}
        for entry in self.entries():
            name, period, ratio = entry.ledger.name, entry.ledger.period.start_ms, _ratio(entry)
            known, least = newest.get(name, (period, ratio))
            if period >= known:
                newest[name] = period, min(ratio, least) if period == known else ratio
        return {name: ratio for name, (_, ratio) in sorted(newest.items())}


def _ratio(entry: LedgerEntry) -> float:
    capped = [(left, cap) for left, cap in zip(entry.remaining.cost, caps(entry.ledger), strict=True) if cap]
    return min((float(left / cap) for left, cap in capped), default=0.0)


MOMENT_SECONDS = 0.01
"""Time that a step is worked out ahead of the effects it has asked for."""


def next_effects(step: Step) -> list[Effect | None]:
    """Return the next effects of a step: up to one that it waits for, or as many as take a moment; None is its end.

    To hand a step to a thread takes longer than most effects, and a group of windows has hundreds. None that is worked
    out ahead depends on those before it, but for a `Commit`, a `Send` or a `Long`.
    """
    until, effects = time.monotonic() + MOMENT_SECONDS, list[Effect | None]()
    for effect in step:
        effects.append(effect)
        if isinstance(effect, Commit | Send | Long) or time.monotonic() > until:
            return effects
    return [*effects, None]


class Carrier:
    """Carries out steps.

    Attributes:
        counters: what was counted since the start of the worker.
        letters: sends dead letters.
        balances: what its ledgers have left, by what was published.
        outboxes: what waits to be published (`Publisher`), by partition and the owner as whom
            it was loaded.
        outboxes_changed: set when more waits.
        release_topics: the release topics of the loaded partitions.
        publishing: held while records are published.
    """

    def __init__(self, app: App, client: Client, topics: Topics) -> None:
        """Set up.

        Args:
            app: the application that sends.
            client: a client of its broker.
            topics: the topics of the application.
        """
        self.counters = Counters()
        self.letters = DeadLetterBox(self.counters.add)
        self.balances = Balances(topics.accounts)
        self.release_topics = ReleaseTopics(topics.release)
        self.publishing = asyncio.Lock()
        self._accounts = topics.accounts
        self.outboxes: dict[tuple[int, Writer], Outboxes] = {}
        self.outboxes_changed = asyncio.Event()
        self._app = app
        self._client = client

    async def carry_out(self, step: Step, table: DurableTable, partition: int, *, threaded: bool = False) -> None:
        """Do what a step asks for, effect by effect; `Erase`s that follow one another are one.

        Where a step fails, memory is ahead of the table. So this worker gives up the partition of that table: whoever
        asks for it until the process ends meets the same error, and works nothing out from what was not stored.

        Args:
            step: the step.
            table: the agent's table.
            partition: the partition that the step is about.
            threaded: compute the step off the event loop from its beginning, not from the first `Long` on.

        Raises:
            PartitionLostError: the group was rebalanced since the step began, so the partition may have another owner;
                nothing more of the step is done.
        """
        owner = table.owner(partition)
        try:
            await self._carry_out(step, table, partition, owner, threaded)
        except PartitionLostError:  # the writer is refused by itself; whoever finds that it is the owner has to end
            raise
        except Exception as error:
            table.give_up(partition, owner, error)
            raise

    async def _carry_out(self, step: Step, table: DurableTable, partition: int, owner: Writer, threaded: bool) -> None:
        erased: list[tuple[bytes, bytes]] = []
        while True:
            for effect in await asyncio.to_thread(next_effects, step) if threaded else next_effects(step):
                table.check_owner(partition, owner)
                if erased and not isinstance(effect, Erase):
                    await asyncio.to_thread(table.erase, partition, erased)
                    table.check_owner(partition, owner)
                    erased = []
                match effect:
                    case None:
                        return
                    case Commit(rows):
                        await table.commit(partition, rows, owner)
                    case Leave():
                        self.outboxes.setdefault((partition, owner), Outboxes(self._accounts)).add(effect)
                        self.outboxes_changed.set()
                    case SendLetters(messages):
                        await self.letters.send(messages, owner)
                    case Send(messages):
                        await self.send(messages, owner)
                    case Erase(first, last):
                        erased.append((first, last))
                    case Increment():
                        self.counters.add(effect)
                    case Warn(words):
                        log.warning(words)
                    case Long():
                        threaded = True

    async def send(self, messages: Sequence[Message], owner: Writer | None = None) -> Sequence[int | None]:
        """Send messages and wait for every acknowledgement, through any outage of the broker.

        Args:
            messages: to send, each partition's in order.
            owner: as whom they were worked out; None: they are nobody's in particular.

        Returns:
            Of messages that are nobody's, when the broker appended them (`Client.publish`).

        Raises:
            PartitionLostError: a successor of the owner has sent to one of their topics.
        """
        if not messages:
            return ()
        async with self._app.outage.waiting():
            if owner is not None:
                await owner.publish(messages)
                return ()
            return await self._client.publish(messages)

    async def publish(
        self, messages: Sequence[Message], owner: Writer, slot_ms: int, check_owner: Callable[[], None]
    ) -> None:
        """Publish records as the owner of the partition that stored them, with the time of their slot.

        Records for stopped release topics are left out (`ReleaseTopics`).

        Args:
            messages: the records.
            owner: the owner.
            slot_ms: the slot.
            check_owner: raises `PartitionLostError` once the partition has another owner. This worker no longer
                watches its topics then, so without the check it would wait forever for a deleted one.

        Raises:
            PartitionLostError: the partition has another owner, or a successor has published to one of the topics.
        """
        async with self.publishing, self._app.outage.waiting():
            while not await self._publish_or_stop(messages, owner, slot_ms, check_owner):
                owner.give_up(self.release_topics.stopped)
        self.balances.take(messages)

    async def leave_out(self, topics: Collection[str]) -> None:
        """Store that records are about to be left out of stopped release topics."""

    async def _publish_or_stop(
        self, messages: Sequence[Message], owner: Writer, slot_ms: int, check_owner: Callable[[], None]
    ) -> bool:
        """Publish records; return False if one of their topics may have stopped before they were acknowledged."""
        stopped = self.release_topics.stopped
        await self.leave_out({message.topic for message in messages} & stopped)
        going = [message for message in messages if message.topic not in stopped]
        if not self.release_topics.stopped.isdisjoint(message.topic for message in going):
            return False  # One of their topics stopped while rows were stored.
        return await _write_or_stop(going, owner, slot_ms, self.release_topics, check_owner)


OWNER_CHECK_S = 0.5
"""Interval between two checks that a partition still has its owner, while records wait to be acknowledged."""


async def _write_or_stop(
    messages: Sequence[Message],
    owner: Writer,
    slot_ms: int,
    topics: ReleaseTopics,
    check_owner: Callable[[], None],
) -> bool:
    """Publish records; return False if one of their topics may have stopped before they were acknowledged.

    The caller then gives up what waits for the stopped topics, and tries again.
    """
    if not messages:
        return True
    names = {message.topic for message in messages}
    writing = asyncio.ensure_future(owner.publish(messages, slot_ms))
    try:
        while not writing.done() and names.isdisjoint(topics.stopped):
            await _wait_or_stop(writing, topics)
            if not writing.done():
                check_owner()
        if writing.done():
            writing.result()
        return writing.done()
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _wait_or_stop(writing: asyncio.Future[None], topics: ReleaseTopics) -> None:
    """Wait until records are written, another topic is stopped, or it is time to look at the owner."""
    stop = asyncio.ensure_future(topics.until_stopped())
    try:
        await asyncio.wait((writing, stop), timeout=OWNER_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()
        await asyncio.gather(stop, return_exceptions=True)


BEHIND_MS = 10_000
"""A view is behind if nothing of it has left at its slot for so long. One late window is a large one, not a backlog."""


@dataclass(slots=True)
class _Late:
    since_ms: int
    windows: int = 0
    told: bool = False


class Lateness:
    """Time that the views of a worker have been late."""

    def __init__(self) -> None:
        self._late: dict[str, _Late] = {}

    def left(self, view: str, slot_ms: int, late: int) -> None:
        """Take note of what left of a view at a slot.

        Args:
            view: its name.
            slot_ms: the slot.
            late: how many windows were to leave earlier; 0 if none was.
        """
        if late:
            found = self._late.setdefault(view, _Late(slot_ms))
            found.windows += late
            if not found.told and slot_ms - found.since_ms >= BEHIND_MS:
                found.told = True
                log.warning(
                    "view %s is behind: since %s its windows leave later than their slots, %d of them so far; "
                    "`stream-dp check` says how many windows a second are asked for and how many this machine releases",
                    view,
                    datetime.fromtimestamp(found.since_ms // 1000, UTC).isoformat().replace("+00:00", "Z"),
                    found.windows,
                )
        elif (over := self._late.pop(view, None)) is not None and over.told:
            log.info("view %s has caught up: after %d late windows they leave at their slots", view, over.windows)


class Publisher:
    """Publishes what the outboxes of a host hold, at the slots that its clock shows."""

    def __init__(self, app: App, host: Host) -> None:
        """Set up the publisher; the application has yet to be told to run it.

        Args:
            app: the application whose partitions it serves.
            host: has the outboxes, and sends what they hold.
        """
        self._app = app
        self._host = host
        self._slots = host.plan.slots
        self._lateness = Lateness()

    async def run(self) -> None:
        """Publish at every slot that something waits for, until the application stops."""
        while True:
            slot = await self._next_slot()
            for (partition, owner), step in self._due(slot):
                if not self._app.should_stop:
                    await self._publish(partition, owner, step, slot)

    async def _next_slot(self) -> int:
        """Wait for the next slot that something waits for.

        What waits for a slot that is over leaves at the next one. A slot is over at once: only what was ready when it
        came leaves. If the event loop was held up and wakes late, the slot is missed as well, since by how long it was
        held up could depend on what was computed.
        """
        host, slots = self._host, self._slots
        aim: int | None = None
        while True:
            host.outboxes_changed.clear()
            waiting = (outboxes.next_ms for outboxes in host.outboxes.values())
            planned = min((slot for slot in waiting if slot is not None), default=None)
            if planned is None:
                aim = None
                await host.outboxes_changed.wait()
                continue
            now = host.clock_ms()
            slot = slots.first(max(now, planned))
            aim = slot if aim is None else min(aim, slot)
            if await self._slept(aim - now):
                if not slots.missed(aim, host.clock_ms()):
                    return aim
                aim = None

    async def _slept(self, wait_ms: int) -> bool:
        """Sleep, and say whether the time has passed, or something came to wait that may have to leave earlier."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._host.outboxes_changed.wait()
        except TimeoutError:
            return True
        return False

    def _due(self, slot_ms: int) -> list[tuple[tuple[int, Writer], Step]]:
        """Publish the records of a slot: all that is ready now, and nothing that gets ready meanwhile.

        Where the partition has changed hands since windows were loaded, their outboxes are forgotten: they are stored.
        """
        host = self._host
        for key in [key for key in host.outboxes if not host.keeps(*key)]:
            del host.outboxes[key]
        table = host.tables[RELEASES]
        return [
            (key, outboxes.publish(slot_ms, table.rows(key[0])))
            for key, outboxes in host.outboxes.items()
            if outboxes.next_ms is not None and outboxes.next_ms <= slot_ms
        ]

    async def _publish(self, partition: int, owner: Writer, step: Step, slot_ms: int) -> None:
        """Publish what a partition has for a slot, as long as the group is not rebalanced."""
        host = self._host
        for effect in step:
            if not host.keeps(partition, owner):
                return
            match effect:
                case Publish(messages):
                    try:
                        check_owner = partial(host.tables[RELEASES].check_owner, partition, owner)
                        await host.publish(messages, owner, slot_ms, check_owner)
                    except PartitionLostError:  # it may have been this worker that claimed the partition anew
                        if host.keeps(partition, owner):
                            raise
                        return
                case Increment(_, late, ((_, view),)):
                    host.counters.add(effect)
                    self._lateness.left(view, slot_ms, late)
        self._app.add_future(host.settle(partition, owner))  # it may have to wait for the engine
