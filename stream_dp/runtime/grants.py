"""Grants on the control topic: how they are written, and how they are read back."""

from __future__ import annotations

import logging
from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.control.grants import Grant, Order, UnknownGrant, Withdrawal, check_grant, grant_key
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.topics import Topics

log = logging.getLogger("stream_dp.control")


async def write_grant(plan: Plan, client: Client, wanted: Grant) -> None:
    """Write a grant that was checked against the plan to the application's control topic."""
    record = Outgoing(Topics.of(plan).control, 0, wanted.key(), wanted.model_dump_json().encode())
    await client.publish([record])


async def withdraw_grant(plan: Plan, client: Client, order: Order) -> None:
    """Let a grant that waits for its time be forgotten: a record in the place of the grant's."""
    key = grant_key(order.audience, order.id)
    await client.publish([Outgoing(Topics.of(plan).control, 0, key, Withdrawal().model_dump_json().encode())])


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
    found = check_grant(record.key, record.value, record.offset, plan, life, record.timestamp)
    if isinstance(found, UnknownGrant):
        log.warning("%s", found)
        return None
    return found
