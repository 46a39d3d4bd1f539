"""What holds of the application that a file describes: commands about what runs go by that, not by the file."""

from __future__ import annotations

import asyncio

import click

from stream_dp.config.plan import Plan
from stream_dp.control.editions import differing, presented
from stream_dp.errors import AccessError, BrokerError
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.control_topic import holding


def held(plan: Plan) -> Plan:
    """The plan that holds, as operators see it; the file's own where the application was never started.

    It is the file's own, too, for an account that may not read the settings. Where the file differs from what holds, a
    line on stderr says so.

    Args:
        plan: of the file.

    Raises:
        ConfigError: it cannot be planned here.
        BrokerError: the cluster does not answer, or refuses.
    """
    return presented(definitions_held(plan))


def definitions_held(plan: Plan) -> Plan:
    """The same with every definition of every view, by which workers count.

    Args:
        plan: of the file.

    Raises:
        ConfigError: it cannot be planned here.
        BrokerError: the cluster does not answer, or refuses.
    """
    found = asyncio.run(_held(plan))
    if words := differing(plan, found.settings, found.raw, "this goes by the settings"):
        click.echo(words, err=True)
    return found


async def _held(plan: Plan) -> Plan:
    try:
        async with connect(plan.broker) as client:
            return await holding(plan, client)
    except AccessError:
        return plan  # a reader's account, which reads its records and no settings
    except BrokerError:
        if plan.broker.is_embedded:  # it lives in another process, if anywhere
            return plan
        raise
