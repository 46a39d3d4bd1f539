"""What the workers, the group and the ledgers of an application report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted
from stream_dp.records.codec import decode_entry
from stream_dp.records.models import LedgerEntry, PartitionStatus, WorkerStatus, decode_status
from stream_dp.records.statement import LedgerStatement, periods_of, read_statements
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client, Group
from stream_dp.runtime.kafka.topics import Topics

SILENT_MS = 30_000
"""A worker is silent after so long without a report; it reports every 10 s."""
GONE_MS = 300_000
"""A worker is not shown any more after so long without a report."""


@dataclass(frozen=True, slots=True)
class Reports:
    """What was read.

    Attributes:
        now_ms: when.
        said: by instance, what each worker said last.
        partitions: by number, what was said last of each partition, by whomever.
        stopped: instances that have said that they stop.
        group: the group of the workers.
        statements: of the newest period of each ledger that entries tell of.
        settings: those that were ever posted, by number.
    """

    now_ms: int
    said: Mapping[str, WorkerStatus]
    partitions: Mapping[int, PartitionStatus]
    stopped: frozenset[str]
    group: Group
    statements: Sequence[LedgerStatement] = ()
    settings: Sequence[Posted] = ()

    @property
    def workers(self) -> list[WorkerStatus]:
        """The workers that run, or that have fallen silent lately."""
        running = [one for name, one in sorted(self.said.items()) if name not in self.stopped]
        return [one for one in running if self.now_ms - one.reported_ms <= GONE_MS]

    @property
    def running(self) -> list[WorkerStatus]:
        """The workers that run, and have said so lately."""
        return [one for one in self.workers if not self.is_silent(one)]

    @property
    def members(self) -> int:
        """How many members the group has that have not stopped: who stops stays one for another minute, by its name."""
        stopped = tuple(f"{name}-" for name in self.stopped)
        return sum(not member.startswith(stopped) for member in self.group.owned)

    def is_silent(self, worker: WorkerStatus) -> bool:
        """Whether a worker has not said how it is for too long."""
        return self.now_ms - worker.reported_ms > SILENT_MS

    @property
    def owners(self) -> dict[int, str]:
        """By partition, the worker that has it, the one that said so last."""
        running = sorted(self.running, key=lambda one: one.reported_ms)
        return {partition: one.instance for one in running for partition in one.partitions}


async def look(plan: Plan, client: Client, *, accounts: bool = True) -> Reports:
    """Read once what there is to be read.

    Args:
        plan: the application.
        client: of its broker.
        accounts: read the ledgers, too.

    Raises:
        BrokerError: the broker does not answer.
        StateError: a record cannot be read.
    """
    topics = Topics.of(plan)
    present = await client.describe([topics.status, topics.accounts])
    said: dict[str, WorkerStatus] = {}
    partitions: dict[int, PartitionStatus] = {}
    stopped: set[str] = set()
    if topics.status in present:
        async for record in client.follow([topics.status], until_end=True):
            if record.value is None:
                stopped.add(record.key.decode())
            else:
                one = decode_status(record.value)
                said[one.instance] = one
                partitions.update(one.partitions)
                stopped.discard(one.instance)
    statements = await _newest_statements(plan, client) if accounts and topics.accounts in present else []
    now_ms = wall_clock_ms()
    group = await client.group(plan.id)
    return Reports(now_ms, said, partitions, frozenset(stopped), group, statements)


async def _newest_statements(plan: Plan, client: Client) -> list[LedgerStatement]:
    """Return the statement of the newest period of each ledger."""
    entries = await read_entries(Topics.of(plan).accounts, client)
    found = read_statements((time_ms, entry) for time_ms, entry in entries if entry.ledger.name in plan.ledgers)
    return [found[newest] for *_, newest in periods_of(found).values()]


async def read_entries(topic: str, client: Client) -> list[tuple[int, LedgerEntry]]:
    """Return every entry of a topic of accounts, with the time it was published."""
    found = [record async for record in client.follow([topic], until_end=True) if record.value is not None]
    return [(record.timestamp, decode_entry(record.value)) for record in found]
