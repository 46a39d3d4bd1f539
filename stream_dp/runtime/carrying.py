"""How what steps ask for is done: rows into the table, messages into Kafka, records into outboxes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from stream_dp.releases.outboxes import Outboxes
from stream_dp.runtime.application import App
from stream_dp.runtime.balances import Balances
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.fence import Writer
from stream_dp.runtime.metrics import Counters
from stream_dp.runtime.tables import DurableTable
from stream_dp.windows.effects import Commit, Erase, Increment, Leave, Message, Send, Step, Warn

log = logging.getLogger("stream_dp.worker")


class Carrier:
    """Carries out steps.

    Attributes:
        counters: what was counted since the start of the worker.
        balances: what its ledgers have left, by what was published.
        outboxes: what waits to be published (`stream_dp.runtime.slots`), by partition and the owner as whom it was
            loaded.
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
