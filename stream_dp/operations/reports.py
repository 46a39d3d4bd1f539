"""Reports of an application: those of its workers, its consumer group and its ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import SettingsHistory
from stream_dp.operations.budgets import newest_statements
from stream_dp.records.models import PartitionStatus, WorkerStatus, decode_status
from stream_dp.records.statement import LedgerStatement
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client, Group
from stream_dp.runtime.kafka.topics import Topics

SILENT_MS = 30_000
"""A worker is silent after this time without a report; it reports every 10 s."""
GONE_MS = 300_000
"""A worker is not shown after this time without a report."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of the workers, the group and the ledgers of an application.

    Attributes:
        now_ms: time at which they were read.
        said: last report of each worker, by instance.
        partitions: last report about each partition, from any worker.
        stopped: instances that have reported that they stop.
        group: the consumer group of the workers.
        statements: of the newest charged period of each ledger.
        settings: all posted settings and the verdicts on them.
    """

    now_ms: int
    said: Mapping[str, WorkerStatus]
    partitions: Mapping[int, PartitionStatus]
    stopped: frozenset[str]
    group: Group
    statements: Sequence[LedgerStatement] = ()
    settings: SettingsHistory = field(default_factory=SettingsHistory)

    @property
    def workers(self) -> list[WorkerStatus]:
        """The workers that run, or fell silent less than 5 minutes ago."""
        running = [one for name, one in sorted(self.said.items()) if name not in self.stopped]
        return [one for one in running if self.now_ms - one.reported_ms <= GONE_MS]

    @property
    def running(self) -> list[WorkerStatus]:
        """The workers that run and are not silent."""
        return [one for one in self.workers if not self.is_silent(one)]

    @property
    def members(self) -> int:
        """Number of group members that have not stopped. A stopped worker stays a member for a minute, by its name."""
        stopped = tuple(f"{name}-" for name in self.stopped)
        return sum(not member.startswith(stopped) for member in self.group.owned)

    def is_silent(self, worker: WorkerStatus) -> bool:
        """Return True if the last report of a worker is too old."""
        return self.now_ms - worker.reported_ms > SILENT_MS


async def look(plan: Plan, client: Client, *, accounts: bool = True) -> Reports:
    """Read the reports once.

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
    statements = await newest_statements(plan, client) if accounts and topics.accounts in present else []
    now_ms = wall_clock_ms()
    return Reports(now_ms, said, partitions, frozenset(stopped), await client.group(plan.id), statements)
