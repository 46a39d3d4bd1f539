"""The Faust application of a plan: its settings, its tables, and the topics that its agents read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

import faust
import mode
import rocksdict
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from faust.stores import STORES
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers import TRANSPORTS
from faust.types import TP

from stream_dp.config.access import Broker
from stream_dp.config.plan import Plan
from stream_dp.errors import OutageError
from stream_dp.runtime import storage
from stream_dp.runtime.clock import CLOCK_BOUND_MS
from stream_dp.runtime.embedded import MemoryLog, MemoryWriter
from stream_dp.runtime.faust.coalescing import ChunkSchema
from stream_dp.runtime.faust.membership import Assignor, instance_id
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.faust.transport import KAFKA, MEMORY
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.outages import Outage, is_silence
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, counted_in, sources_of
from stream_dp.runtime.kafka.transactions import Claim, KafkaWriter


class PatientRecovery(Recovery):
    """A recovery that asks again what the broker did not answer.

    Faust's ends without a word when an answer takes longer than a request may, and the tables are never recovered.
    """

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        await super()._wait(coro)

    async def _build_highwaters(self, *given: Any) -> None:
        await self._asked(super()._build_highwaters, *given)

    async def _build_offsets(self, *given: Any) -> None:
        await self._asked(super()._build_offsets, *given)

    async def _seek_offsets(self, *given: Any) -> None:
        await self._asked(super()._seek_offsets, *given)

    async def _asked(self, ask: Any, *given: Any) -> None:
        async def once() -> None:
            try:
                await ask(*given)
            except (KafkaError, OSError) as error:
                if is_silence(error):
                    raise OutageError(str(error)) from error
                raise  # Faust knows what it means

        await self.app.outage.patiently(once)


class Tables(TableManager):
    """The tables of an application. All are made before it starts; Faust's manager waits a second for more."""

    async def on_rebalance(self, assigned: set[TP], *given: Any) -> None:
        """Claim the partitions of all tables at once: most of a claim is waiting."""
        await asyncio.gather(*(table.claim(assigned) for table in self.values()))
        await super().on_rebalance(assigned, *given)

    async def on_start(self) -> None:
        """Let the topics be subscribed to, and recover."""
        await self._update_channels()
        await self.recovery.start()


CHUNK_RECORDS = 10_000
BUFFERED_CHUNKS = 16
SESSION_SECONDS = 60.0
HEARTBEAT_SECONDS = 0.5
"""By the answer to one a worker learns that the group shares anew; Faust waits 3 s."""

TRANSPORTS.aliases[KAFKA] = "stream_dp.runtime.faust.transport:Transport"
TRANSPORTS.aliases[MEMORY] = "stream_dp.runtime.faust.transport:MemoryTransport"
STORES.aliases[storage.SCHEME] = "stream_dp.runtime.faust.tables:Store"

H = TypeVar("H")


async def _as_committed(_: Mapping[TP, int | None]) -> Mapping[TP, int]:
    return {}


async def _nothing_to_forget(_: str) -> None:
    """Do nothing: without tables there are no positions to forget."""


class App(faust.App):
    """A Faust application whose consumer hands out chunks for the topics in `coalesced` and `changelogs`.

    Those of `sources` and `ticks` come in one order; a tick that is ahead of its append time by more than
    `clock_bound_ms` says nothing. Only workers with the same `protocol` share partitions.
    """

    sources: frozenset[str] = frozenset()
    coalesced: frozenset[str] = frozenset()
    changelogs: frozenset[str] = frozenset()
    ticks: str = ""
    clock_bound_ms: int | None = CLOCK_BOUND_MS
    memory_log: MemoryLog | None = None
    cluster: Cluster | None = None
    ends: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]]
    """Returns the high watermarks of partitions (`Client.ends`)."""
    claim: Claim
    protocol: str = ""
    find_positions: Callable[[Mapping[TP, int | None]], Awaitable[Mapping[TP, int]]] = staticmethod(_as_committed)
    """Returns the offsets at which reading continues (`Positions.find`)."""
    topic_made_again: Callable[[str], Awaitable[None]] = staticmethod(_nothing_to_forget)
    """Called with a topic that was deleted and created again (`Positions.begin_again`)."""
    outage: Outage
    block_cache: rocksdict.Cache


def new_app(plan: Plan, log: MemoryLog | None = None, protocol: str = "") -> App:
    """The application of a plan, without tables and agents; its data folder is made.

    Args:
        plan: the checked configuration.
        log: the embedded log, for `memory://`.
        protocol: from `membership.protocol`.

    Raises:
        ConfigError: a certificate or a secret of the broker cannot be read.
        StorageError: nothing can be written to the data folder.
    """
    storage.make_folder(plan.data_dir)
    cluster = None if plan.broker.is_embedded else Cluster.of(plan.broker)
    app = App(
        plan.id,
        broker=_transport_address(plan.broker),
        broker_client_id=plan.broker.client_id,
        broker_credentials=cluster and credentials(cluster),
        store=f"{storage.SCHEME}://",
        datadir=str(plan.data_dir),
        Table=DurableTable,
        TableManager=Tables,
        PartitionAssignor=Assignor,
        topic_partitions=plan.partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        agent_supervisor=mode.CrashingSupervisor,
        broker_max_poll_records=CHUNK_RECORDS,
        broker_commit_interval=0.5,
        broker_commit_every=100,
        broker_session_timeout=SESSION_SECONDS,
        broker_heartbeat_interval=HEARTBEAT_SECONDS,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=instance_id(plan),
        consumer_max_fetch_size=4 << 20,
        stream_buffer_maxsize=BUFFERED_CHUNKS,
        table_standby_replicas=plan.standbys,
        web_enabled=False,
        web_tables_enabled=False,
        web_router_enabled=False,
        worker_redirect_stdouts=False,
    )
    topics = Topics.of(plan)
    app.protocol = protocol
    app.sources = frozenset(sources_of(plan))
    app.coalesced = app.sources.union(topics.internal)
    app.changelogs = frozenset(topics.changelogs)
    app.ticks = topics.ticks
    app.memory_log = log
    app.cluster = cluster
    app.claim = claims(plan.broker, log)
    app.outage = Outage(plan.broker.address)
    app.block_cache = rocksdict.Cache(plan.block_cache_bytes)
    app.tables._recovery = PatientRecovery(app, app.tables, beacon=app.tables.beacon)
    return app


def new_tables(app: App, partitions: int) -> dict[str, DurableTable]:
    """The tables of an application by name, each with so many partitions."""
    options = {"key_type": bytes, "value_type": bytes, "partitions": partitions}
    # Two chunks of rows are enough for one batch. With 1, Faust reads changelogs on when they are recovered.
    of_changelog = {"schema": ChunkSchema(), "recovery_buffer_size": 2}
    return {name: app.Table(name, **options, **of_changelog) for name in (COUNTS, MERGES, RELEASES)}


def register_agents(app: App, plan: Plan, agents: Mapping[str, Callable[[Any, H], Any]], host: H) -> None:
    """Let every agent of an application read its topics.

    Args:
        app: the application.
        plan: its plan.
        agents: by name; an agent is an async function of a stream and the host.
        host: what the agents are given beside their streams.
    """
    topics = Topics.of(plan)
    inputs = {
        "ingest": [*{**sources_of(plan), **counted_in(plan)}, topics.ticks],
        "merge": [topics.partials],
        "release": [topics.merged],
        "sharpen": [topics.orders],
        "control": [topics.control],
    }
    for name, names in inputs.items():
        body = agents[name]

        def agent(stream: Any, body: Callable[[Any, H], Any] = body) -> Any:
            return body(stream, host)

        app.agent(app.topic(*names, schema=ChunkSchema()), name=f"stream_dp.{name}")(agent)


def claims(broker: Broker, log: MemoryLog | None = None) -> Claim:
    """Return the claim of a partition of a changelog.

    Args:
        broker: the cluster.
        log: the embedded log, for `memory://`.
    """
    if log is not None:
        return partial(MemoryWriter.claim, log)
    return partial(KafkaWriter.claim, Cluster.of(broker))


def _transport_address(broker: Broker) -> str:
    """A plan's broker as Faust writes it, under the schemes of our own transports."""
    if broker.is_embedded:
        return f"{MEMORY}://"
    return ";".join(f"{KAFKA}://{address}" for address in broker.address.split(","))


def credentials(cluster: Cluster) -> Any:
    """The login of a cluster as Faust takes it; None where nobody has to log in."""
    context, sasl = cluster.options["ssl_context"], cluster.broker.sasl
    if sasl is None:
        return None if context is None else faust.SSLCredentials(context)
    if not sasl.username:
        return faust.OAuthCredentials(oauth_cb=cluster.options["sasl_oauth_token_provider"], ssl_context=context)
    return faust.SASLCredentials(
        username=sasl.username,
        password=cluster.options["sasl_plain_password"],
        mechanism=cluster.options["sasl_mechanism"],
        ssl_context=context,
    )
