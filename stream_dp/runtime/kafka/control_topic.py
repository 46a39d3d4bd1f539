"""Settings in the control topic: how they are read, and posted."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import (
    USES,
    VERDICTS,
    SettingsHistory,
    Use,
    Verdict,
    decode_use,
    decode_verdict,
    encode_decision,
)
from stream_dp.control.editions import SETTINGS, Posted, decode_posted, encode_posted, plan_holding
from stream_dp.control.grant_records import Grant, Order, Withdrawal, check_grant, grant_key
from stream_dp.errors import ConfigError
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.effects import Message


class SettingsLog:
    """The settings of an application, as far as its control topic was read.

    Attributes:
        place: the partition in which they stand.
    """

    def __init__(self, plan: Plan, client: Client) -> None:
        """Set up the log; nothing is read yet.

        Args:
            plan: the application.
            client: a client of its broker.
        """
        self.place = TopicPartition(Topics.of(plan).control, 0)
        self._client = client
        self._read_to = 0
        self._records: list[Posted | Verdict | Use] = []

    @property
    def history(self) -> SettingsHistory:
        """The settings and what was decided on them, as far as they were read."""
        return SettingsHistory.from_records(self._records)

    async def read(self, end: int | None = None) -> bool:
        """Read what is new up to where the topic ends now. A topic that is not there yet holds none.

        Args:
            end: where it ends, if that is known.

        Returns:
            True if there were settings, verdicts or statements of use among the records.

        Raises:
            BrokerError: the cluster does not answer.
        """
        if end is None:
            if await self._client.partitions(self.place.topic) is None:
                return False
            end = (await self._client.ends([self.place])).get(self.place, 0)
        before = len(self._records)
        if end > self._read_to:
            # Records from the start of an open transaction on are read when it ends.
            end = (await self._client.stable_ends([self.place])).get(self.place, 0)
        if end > self._read_to:
            since = {self.place: self._read_to}
            async for record in self._client.follow([self.place.topic], until_end=True, since=since):
                if record.offset >= self._read_to:
                    self._add_record(record)
                    self._read_to = record.offset + 1
            self._read_to = max(end, self._read_to)
        return len(self._records) > before

    def _add_record(self, record: Any) -> None:
        found = (
            decode_posted(record.key, record.value)
            or decode_verdict(record.key, record.value, record.timestamp)
            or decode_use(record.key, record.value)
        )
        if found is not None:
            self._records.append(found)

    async def post(self, posted: Posted) -> bool:
        """Write settings to the control topic, which is there.

        Args:
            posted: the settings, from `next_record`.

        Returns:
            Whether they wait for a verdict. If not, others of that number came first, and these never count.

        Raises:
            ConfigError: they are too large for one record.
            StateError: a transaction is open in the control topic.
            BrokerError: the cluster does not answer.
        """
        value = encode_posted(posted)
        await self._client.check_decided([self.place])
        await self.read()
        if posted.number != self.history.next_number:
            return False
        await self._write(SETTINGS, posted.number, value)
        return self.history.posted[posted.number - 1 :][:1] == [posted]

    async def judge(self, verdict: Verdict) -> None:
        """Write a verdict on settings to the control topic. The records before it decide whether it counts.

        Args:
            verdict: a verdict on settings that were read.

        Raises:
            StateError: a transaction is open in the control topic, so the verdict could not be read.
            BrokerError: the cluster does not answer.
        """
        await self._client.check_decided([self.place])
        await self._write(VERDICTS, verdict.number, encode_decision(verdict))

    async def state_use(self, number: int) -> bool:
        """State that a worker uses settings. The worker may do nothing with them until this has returned True.

        Args:
            number: number of accepted settings that were read.

        Returns:
            True if these settings are in use now. If not, they were taken back first.

        Raises:
            StateError: a transaction is open in the control topic, so the statement could not be read.
            BrokerError: the cluster does not answer.
        """
        await self._client.check_decided([self.place])
        await self._write(USES, number, encode_decision(Use(number)))
        return self.history.is_in_use(number)

    async def _write(self, prefix: bytes, number: int, value: bytes) -> None:
        key = prefix + f"{number}/{uuid.uuid4()}".encode()
        await self._client.publish([Message(self.place.topic, key, value, self.place.partition)])
        await self.read()


async def read_history(plan: Plan, client: Client) -> SettingsHistory:
    """Read the settings of an application and the verdicts on them; there are none before its first start.

    Args:
        plan: the application, by a file of it.
        client: a client of its broker.

    Raises:
        BrokerError: the cluster does not answer.
    """
    log = SettingsLog(plan, client)
    await log.read()
    return log.history


async def read_accepted(plan: Plan, client: Client) -> list[Posted]:
    """Read the accepted settings, oldest first; see `read_history`."""
    return (await read_history(plan, client)).accepted


async def post(plan: Plan, client: Client, posted: Posted) -> bool:
    """Write settings to the control topic, which is there; see `SettingsLog.post`."""
    return await SettingsLog(plan, client).post(posted)


async def post_accepted(plan: Plan, client: Client, posted: Posted) -> bool:
    """Write settings that were already checked to the control topic, and accept them.

    Returns:
        Whether they were posted. If not, others of that number came first.
    """
    log = SettingsLog(plan, client)
    if not await log.post(posted):
        return False
    await log.judge(Verdict(posted.number, posted.at_ms))
    return True


async def holding(plan: Plan, client: Client) -> Plan:
    """Return the plan in effect, with every definition of every view; of an application that never started, its file's.

    Args:
        plan: of the file.
        client: a client of its broker.

    Raises:
        ConfigError: as `plan_holding`.
        BrokerError: the cluster does not answer.
    """
    return await asyncio.to_thread(plan_holding, await read_accepted(plan, client), plan)


log = logging.getLogger("stream_dp.control")


async def write_grant(plan: Plan, client: Client, wanted: Grant) -> None:
    """Write a grant that was checked against the plan to the application's control topic.

    Raises:
        StateError: a transaction is open in the control topic, so no worker could read the grant.
        BrokerError: the cluster does not answer.
    """
    record = Message(Topics.of(plan).control, wanted.key(), wanted.model_dump_json().encode())
    await client.check_decided([TopicPartition(record.topic, 0)])
    await client.publish([record])


async def withdraw_grant(plan: Plan, client: Client, order: Order) -> None:
    """Let a grant that waits for its time be forgotten: a record in the place of the grant's; see `write_grant`."""
    key = grant_key(order.audience, order.id)
    record = Message(Topics.of(plan).control, key, Withdrawal().model_dump_json().encode())
    await client.check_decided([TopicPartition(record.topic, 0)])
    await client.publish([record])


async def known_grants(plan: Plan, client: Client) -> list[Order]:
    """The grants on the control topic that were not withdrawn, oldest first; of one scope and time the last one."""
    found: dict[tuple[str, str], Order] = {}
    async for record in client.follow([Topics.of(plan).control], until_end=True):
        order = read_order(record, plan)
        if order is not None:
            found.pop((order.audience, order.id), None)
            if order.level is not None:
                found[order.audience, order.id] = order
    return list(found.values())


def read_order(record: Any, plan: Plan, life: int = 1) -> Order | None:
    """The order that a consumed control record gives; an unknown grant gives none, and a line in the log.

    Args:
        record: the record.
        plan: the application.
        life: which life of the control topic it was read in.
    """
    try:
        return check_grant(record.key, record.value, record.offset, plan, life, record.timestamp)
    except ConfigError as error:
        log.warning("%s", error)
        return None
