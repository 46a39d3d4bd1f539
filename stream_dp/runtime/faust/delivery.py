"""Execution of effects: rows into the table, messages into Kafka, records into outboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from stream_dp.records.codec import decode_entry
from stream_dp.records.models import LedgerEntry
from stream_dp.records.statement import caps
from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.faust.application import App
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.kafka.transactions import Writer
from stream_dp.runtime.metrics import Counters
from stream_dp.windows.effects import Commit, Erase, Increment, Leave, Message, Send, Step, Warn


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
        """The entries, those of a view in the order in which they left."""
        return [decode_entry(value) for _, entries in self._newest.values() for value in entries.values()]

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


log = logging.getLogger("stream_dp.worker")


class Carrier:
    """Carries out steps.

    Attributes:
        counters: what was counted since the start of the worker.
        balances: what its ledgers have left, by what was published.
        outboxes: what waits to be published (`stream_dp.runtime.faust.slots`), by partition and the owner as whom
            it was loaded.
        outboxes_changed: set when more waits.
    """

    def __init__(self, app: App, client: Client, accounts: str) -> None:
        """Set up.

        Args:
            app: the application that sends.
            client: a client of its broker.
            accounts: the operators' topic of the accounts.
        """
        self.counters = Counters()
        self.balances = Balances(accounts)
        self.outboxes: dict[tuple[int, Writer], Outboxes] = {}
        self.outboxes_changed = asyncio.Event()
        self._app = app
        self._client = client

    async def carry_out(self, step: Step, table: DurableTable, partition: int, *, threaded: bool = False) -> None:
        """Do what a step asks for, effect by effect; `Erase`s that follow one another are one.

        Args:
            step: the step.
            table: the agent's table.
            partition: the partition that the step is about.
            threaded: compute the step off the event loop, for steps that may take long.

        Raises:
            PartitionLostError: the group was rebalanced since the step began, so the partition may have another owner;
                nothing more of the step is done.
        """
        owner = table.owner(partition)
        erased: list[tuple[bytes, bytes]] = []
        while True:
            effect = await asyncio.to_thread(next, step, None) if threaded else next(step, None)
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
                    self.outboxes.setdefault((partition, owner), Outboxes()).add(effect)
                    self.outboxes_changed.set()
                case Send(messages):
                    await self.send(messages, owner)
                case Erase(first, last):
                    erased.append((first, last))
                case Increment():
                    self.counters.add(effect)
                case Warn(words):
                    log.warning(words)

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
            return await self._client.publish(
                Outgoing(m.topic, m.partition, m.key, m.value, list(m.headers.items())) for m in messages
            )

    async def publish(self, messages: Sequence[Message], owner: Writer, slot_ms: int) -> None:
        """Publish records as the owner of the partition that stored them, with the time of their slot.

        Raises:
            PartitionLostError: a successor has published to one of their topics.
        """
        async with self._app.outage.waiting():
            await owner.publish(messages, slot_ms)
        self.balances.take(messages)
