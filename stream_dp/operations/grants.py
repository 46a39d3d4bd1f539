"""Grants: post one, list them, withdraw one."""

from __future__ import annotations

from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Change, Grant, Order, changes_of
from stream_dp.errors import ConfigError
from stream_dp.operations import check_topic
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import known_grants, withdraw_grant, write_grant
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_time


async def weigh_grant(plan: Plan, client: Client, grant: Grant) -> list[Change]:
    """Check a grant and return its effect on each view; nothing is written.

    Args:
        plan: in effect.
        client: of its broker.
        grant: what is to be granted.

    Raises:
        ConfigError: the grant names something unknown, or its time has passed.
        BrokerError: the cluster does not answer, or the application was never started.
    """
    grant.check(plan)
    now_ms = wall_clock_ms()
    if grant.at_ms is not None and grant.at_ms <= now_ms:
        raise ConfigError(f"{grant.at} is in the past. Leave --at out to grant it now", "at")
    await check_topic(Topics.of(plan).control, plan, client)
    return changes_of(plan, grant, await known_grants(plan, client), now_ms)


async def post_grant(plan: Plan, client: Client, grant: Grant) -> list[Change]:
    """Write a grant to the control topic and return its effect on each view; as `weigh_grant`."""
    changes = await weigh_grant(plan, client, grant)
    await write_grant(plan, client, grant)
    return changes


async def read_grants(plan: Plan, client: Client) -> list[Order]:
    """Read the grants that were not withdrawn, oldest first; of one scope and time only the last one.

    Args:
        plan: in effect.
        client: of its broker.

    Raises:
        BrokerError: the cluster does not answer, or the application was never started.
    """
    await check_topic(Topics.of(plan).control, plan, client)
    return await known_grants(plan, client)


async def withdraw(plan: Plan, client: Client, grant_id: str) -> list[Order]:
    """Withdraw a grant that has not started.

    Args:
        plan: in effect.
        client: of its broker.
        grant_id: the id of the grant.

    Returns:
        The other grants.

    Raises:
        ConfigError: no grant with this id is planned.
        BrokerError: as for `read_grants`.
    """
    orders, now_ms = await read_grants(plan, client), wall_clock_ms()
    chosen = next((order for order in orders if order.id == grant_id), None)
    if chosen is None:
        raise ConfigError(f"no grant has the id {grant_id}. List them: `stream-dp grants FILE`", "--withdraw")
    if chosen.time_ms <= now_ms:
        message = f"grant {grant_id} has started. Grant a coarser level to lower windows to come: `stream-dp grant`"
        raise ConfigError(message, "--withdraw")
    await withdraw_grant(plan, client, chosen)
    return [order for order in orders if order is not chosen]


def grant_json(order: Order, now_ms: int) -> dict[str, Any]:
    """Return a grant for machines.

    Args:
        order: the grant.
        now_ms: the wall clock.
    """

    def time(time_ms: int | None) -> str | None:
        return None if time_ms is None else format_time(time_ms)

    scope = order.scope
    return {
        "id": order.id,
        "audience": order.audience,
        "level": order.level,
        "views": scope.views,
        "windows": scope.windows,
        "start_from": time(scope.from_ms),
        "start_until": time(scope.until_ms),
        "time": time(order.time_ms),
        "waits": order.time_ms > now_ms,
    }
