"""Grants on the control topic: how they are written, and how they are read back."""

from __future__ import annotations

import logging
from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.control.grants import Grant, Order, UnknownGrant, check_grant
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.topics import Topics

log = logging.getLogger("stream_dp.control")


async def write_grant(plan: Plan, client: Client, wanted: Grant) -> None:
    """Write a grant that was checked against the plan to the application's control topic."""
    record = Outgoing(Topics.of(plan).control, 0, wanted.key(), wanted.model_dump_json().encode())
    await client.publish([record])


async def last_grant(plan: Plan, client: Client, audience: str) -> str | None:
    """The level of an audience's last grant, None if there was none."""
    level = None
    async for record in client.follow([Topics.of(plan).control], until_end=True):
        order = read_order(record, plan)
        if order is not None and order.audience == audience:
            level = order.level
    return level


def read_order(record: Any, plan: Plan, life: int = 1) -> Order | None:
    """The order that a consumed control record gives; an unknown grant gives none, and a line in the log.

    Args:
        record: the record.
        plan: the application.
        life: which life of the control topic it was read in.
    """
    found = check_grant(record.key, record.value, record.offset, plan, life)
    if isinstance(found, UnknownGrant):
        log.warning("%s", found)
        return None
    return found
