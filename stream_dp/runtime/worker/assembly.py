"""A worker: the Faust application of a plan, the host that its agents run on, and its timers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError, StateError
from stream_dp.exact.bits import Entropy, system_entropy
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.adoption import Adoption
from stream_dp.runtime.clock import CLOCK_BOUND_MS, Clock, wall_clock_ms
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.faust.app import new_app, new_tables, register_agents
from stream_dp.runtime.faust.copies import Copies, reading
from stream_dp.runtime.faust.delivery import OF_A_PROCESS, Counters, Publisher
from stream_dp.runtime.faust.host import Agent, Host
from stream_dp.runtime.faust.membership import protocol
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.list_topics import ListWatch
from stream_dp.runtime.kafka.open_transactions import LOOK_SECONDS as TRANSACTIONS_SECONDS
from stream_dp.runtime.kafka.open_transactions import OpenTransactions
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.runtime.kafka.transactions import RENEWAL_SECONDS
from stream_dp.runtime.sources.schema_registry import SourceSchemas
from stream_dp.runtime.worker.advice import ADVICE_SECONDS, Advice
from stream_dp.runtime.worker.reporting import Standing, standings
from stream_dp.runtime.worker.timers import LOOK_SECONDS, TICK_SECONDS, Timers, Watch, beat_seconds

log = logging.getLogger("stream_dp.worker")


_STANDBYS = "standbys"
"""The entry beside the changelogs' ids that says: the data folder may hold copies of other workers' partitions."""
STALE_SECONDS = 12 * 3600
"""Half of Kafka's `delete.retention.ms`: what was deleted longer ago, a changelog need not say any more."""


def discard_former_copies(plan: Plan, settled: Settled, tables: Path) -> None:
    """Delete the local rows of tables whose changelog was deleted: the rows of the new one are not behind them.

    Which changelogs the copies in a data folder were made from stands beside them; where that cannot be read, after a
    failure of the disk, all are deleted. Deleting comes first, so it is done again if it was cut short. With standbys,
    copies that were not kept up for long are deleted too: others had the partitions, and deletions may be missed. When
    there are standbys no more, all are: nobody would erase from those of others' partitions.

    Args:
        plan: the application.
        settled: the topics that there are.
        tables: the folder of the copies.
    """
    topics, beside = Topics.of(plan), plan.data_dir / "changelogs.json"
    ids = {table: settled.topics[topics.changelog(table)].id for table in (COUNTS, MERGES, RELEASES)}
    former = _read(beside)
    had_standbys = former.pop(_STANDBYS, "") != ""
    for table, changelog in ids.items():
        copies = sorted(tables.glob(f"{table}-*.db")) if former.get(table) != changelog else []
        for copy in copies:
            shutil.rmtree(copy)
        if copies:
            made = "a changelog that was deleted" if table in former else "nobody knows which changelog"
            log.warning("the local copy of %s was made from %s; it is discarded and read again", table, made)
    for copy in sorted(tables.glob("*-*.db")):
        if plan.standbys and _age_s(copy) > STALE_SECONDS:
            log.warning("the local copy %s was not kept up for half a day; it is discarded and read again", copy.name)
        elif had_standbys and not plan.standbys:
            log.warning("the local copy %s is discarded: standbys are off, and it may be another worker's", copy.name)
        else:
            continue
        shutil.rmtree(copy)
    if former != ids or had_standbys != (plan.standbys > 0):
        _write(beside, ids | ({_STANDBYS: str(plan.standbys)} if plan.standbys else {}))


def _age_s(copy: Path) -> float:
    return time.time() - max((file.stat().st_mtime for file in copy.iterdir()), default=0.0)


def _read(beside: Path) -> dict[str, str]:
    try:
        found = json.loads(beside.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(beside: Path, ids: dict[str, str]) -> None:
    """Put the file in the place of the one before when its content is on the disk, so that one of them is there."""
    fresh = beside.with_suffix(".new")
    with fresh.open("w") as file:
        json.dump(ids, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(beside)


LOOK_AGAIN_SECONDS = 0.02


async def _until(is_so: Callable[[], bool]) -> None:
    while True:
        if is_so():
            return
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a worker's run.

    Attributes:
        accept_loss: charge windows at worst that were published and are not stored, and never release them again,
            instead of ending.
        backfill: begin views whose first windows are over already.
        unchecked_data: begin views though most of what their sources hold would be refused.
        log: the embedded log, for `memory://`.
        entropy: where fresh noise comes from.
        clock_ms: the wall clock.
        tick_seconds: time between two ticks.
        clock_bound_ms: how far the wall clock may be from the broker's; None: they are not compared, and ticks not
            with their append times, for tests with clocks of their own.
    """

    accept_loss: bool = False
    backfill: bool = False
    unchecked_data: bool = False
    log: MemoryLog | None = None
    entropy: Entropy = system_entropy
    clock_ms: Callable[[], int] = wall_clock_ms
    tick_seconds: float = TICK_SECONDS
    clock_bound_ms: int | None = CLOCK_BOUND_MS


class Worker:
    """One worker of an application, on Kafka or on an embedded log.

    Attributes:
        app: the Faust application; `app.stop()` ends it.
        tables: its tables by name.
        host: what its agents run on.
        clock: its clock.
        adoption: the settings that it uses.
        copies: of partitions that other workers own.
        timers: what it does again and again.
        watch: looks at the topics and their owners.
        lists: follows public lists in topics.
        transactions: watches for open transactions that block what the worker reads.
    """

    def __init__(
        self,
        settled: Settled,
        agents: Mapping[str, Agent],
        client: Client,
        *,
        keys: KeyRing,
        schemas: Mapping[str, SourceSchemas] = MappingProxyType({}),
        options: Options = Options(),
    ) -> None:
        """Build the application; `start` runs it.

        Args:
            settled: the plan that holds, and public lists, from `prepare`.
            agents: the agents by name (`stream_dp.agents.AGENTS`).
            client: of the plan's broker, open for as long as the worker runs.
            keys: the application's secrets, from `load_keys`.
            schemas: of the sources in Avro, by topic, from `open_registry`.
            options: how it is run.
        """
        plan = settled.plan
        self.app = new_app(plan, options.log, protocol(plan, settled, keys))
        self.app.clock_bound_ms = options.clock_bound_ms
        self.app.ends = client.ends
        self.clock = Clock(options.clock_ms, options.clock_bound_ms)
        self._factory = partial(Factory, keys=keys, entropy=options.entropy, cache=self.app.block_cache)
        discard_former_copies(plan, settled, self.app.conf.tabledir)
        self._session_s = float(self.app.conf.broker_session_timeout)
        self.tables = new_tables(self.app, plan.partitions)
        self.host = Host(
            self.app,
            self._factory(settled),
            self.tables,
            client=client,
            clock=self.clock,
            schemas=schemas,
            accept_loss=options.accept_loss,
        )
        self.adoption = Adoption(
            settled, client, keys.application, self.app.outage, self._take, self.clock, self._is_judge
        )
        self.host.catch_up = self.adoption.catch_up
        self.timers = Timers(self.app, self.host, client, self.adoption, self.clock)
        self.watch = Watch(self.app, plan, settled, client, self.host.release_topics)
        self.host.check_whole = self.watch.check_whole
        self._advice = Advice(plan, self.host.counters, self.host.balances)
        self.lists = ListWatch(plan, settled.lists, client, self.clock)
        self.transactions = OpenTransactions(client, self._assigned, lambda: self.lists.topics, self.clock.steady_ms)
        register_agents(self.app, plan, agents, self.host)
        self.app.timer(options.tick_seconds)(self.timers.tick)
        self.app.timer(options.tick_seconds)(self.timers.tell_time)
        self.app.timer(beat_seconds(plan.erase_within_ms))(self.timers.beat)
        self.app.timer(RENEWAL_SECONDS)(self.timers.renew)
        self.app.timer(LOOK_SECONDS)(self.watch.look)
        self.app.timer(ADVICE_SECONDS)(self._advice.look)
        self.app.timer(options.tick_seconds)(self.lists.look)
        self.app.timer(TRANSACTIONS_SECONDS)(self.transactions.look)
        self.app.task()(Publisher(self.app, self.host).run)
        read = reading(self.app.cluster) if plan.standbys and self.app.cluster is not None else None
        self.copies = Copies(self.app, self.tables, read)
        self.app.task()(self.copies.run)
        self.app.timer(beat_seconds(plan.erase_within_ms))(self.copies.erase)
        self._joined = False
        self.app.on_partitions_revoked.connect(self._leave)
        self.app.on_partitions_assigned.connect(self._join)
        self.app.on_rebalance_complete.connect(self._complete)

    @property
    def plan(self) -> Plan:
        """The plan that holds, as far as this worker knows."""
        return self.host.plan

    async def look_at_topics(self) -> ConfigError | None:
        """Look at the topics once more, behind a crash; what somebody has to put right, if anything."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.watch.check_settings()
        except ConfigError as error:
            return error
        except (BrokerError, TimeoutError):
            return None
        return ConfigError(self.watch.wrong) if self.watch.wrong else None

    def _is_judge(self) -> bool:
        """Return True if this worker owns the control partition, and so gives the verdicts on settings."""
        return not self.app.rebalancing and self.adoption.place in self.app.consumer.assignment()

    def _take(self, settled: Settled) -> None:
        """Go on with newer settings; every part is loaded anew, and woken up by a greeting."""
        self.host.adopt(self._factory(settled))
        self.timers.forget()
        self.watch.follow(settled)
        self._advice.follow(settled.plan)
        self.lists.follow(settled.plan)

    @property
    def counters(self) -> Counters:
        """Counters of this process since its start, open windows included."""
        return self.host.counters

    def standings(self) -> dict[int, Standing]:
        """Return the progress of its partitions, by number."""
        return standings(self.plan, self.tables)

    def totals(self) -> Counters:
        """Return the counters of its partitions since their first records, and those of this process."""
        totals = Counters()
        for standing in self.standings().values():
            totals.take(standing.totals)
        totals.take(count for count in self.counters if count.name in OF_A_PROCESS)
        return totals

    async def start(self) -> None:
        """Start the application, and return when it has joined and recovered, or has crashed."""
        await self.timers.compare_clocks()
        self._starting = asyncio.ensure_future(self.app.start())
        crashed = asyncio.ensure_future(self.crashed())
        await asyncio.wait((self._starting, crashed), return_when=asyncio.FIRST_COMPLETED)
        crashed.cancel()
        if self._starting.done():
            self._starting.result()
        await _until(lambda: self.app.crashed or not self._joining())

    async def loaded(self) -> None:
        """Return when the parts of its partitions have read what is stored, and nothing was wrong with it."""
        await _until(lambda: not self.words())

    def words(self) -> str:
        """Reason why it does not run yet, in words; empty if it does."""
        if joining := self._joining() or self.host.waiting_for:
            return joining
        waiting = [partition for partition in self.partitions if not self.host.has_loaded(partition)]
        return f"the stored state of {len(waiting)} partitions, which is read and checked" if waiting else ""

    def _joining(self) -> str:
        if not self._joined:
            return f"the group: the session of a worker that died may last up to {self._session_s:g} s"
        if self.is_recovering:
            return f"the recovery of the tables: {self.rows_to_recover:,} rows of the changelogs to go"
        return ""

    @property
    def is_recovering(self) -> bool:
        """True if it recovers its tables, or is about to, in a rebalance."""
        is_complete = self.app.tables.recovery.completed.is_set()
        recovered = is_complete and all(table.is_recovered for table in self.tables.values())
        return self.app.rebalancing or not recovered

    @property
    def rows_to_recover(self) -> int:
        """Number of changelog rows that are still to be read; 0 if it does not recover."""
        return max(0, self.app.tables.recovery.active_remaining_total()) if self.is_recovering else 0

    @property
    def was_cut_off(self) -> bool:
        """True if it could not reach the broker, now or so recently that others may have had its partitions."""
        return self.app.outage.was_within(2 * self._session_s)

    @property
    def partitions(self) -> list[int]:
        """Partitions that it has."""
        return sorted(set().union(*(table.owned for table in self.tables.values())))

    def _assigned(self) -> set[TopicPartition]:
        """Return the partitions of all topics that the group has assigned to this worker."""
        assigned: set[TopicPartition] = self.app.consumer.assignment()
        return assigned

    @property
    def share(self) -> str:
        """The same, for the log."""
        owned = self.partitions
        if not owned:
            return "; it has no partition yet, since other workers have them all"
        return f"; partition{'s' if owned[1:] else ''} {', '.join(map(str, owned))}"

    async def crashed(self) -> None:
        """Return when the worker has crashed."""
        await self.app._crashed.wait()

    def crash_reason(self) -> BaseException | None:
        """Error that the worker crashed of, None while it runs."""
        if not self.app.crashed:
            return None
        reason: BaseException | None = self.app.crash_reason
        return reason or StateError("an agent failed")

    async def _leave(self, *_: Any, **__: Any) -> None:
        self._joined = False
        self.copies.pause()
        await self._forget()

    async def _join(self, *_: Any, **__: Any) -> None:
        self._joined = True

    async def _complete(self, *_: Any, **__: Any) -> None:
        await self._forget()
        self.copies.go_on()

    async def _forget(self) -> None:
        """When a rebalance begins, and when its recovery is over, before tables are owned: read everything anew."""
        self.host.forget()
        self.adoption.forget()
        self.timers.forget()
        self.watch.forget()
