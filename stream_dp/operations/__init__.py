"""Tasks of operators, as functions from a plan and a client to data. Nothing here prints or asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from stream_dp.accounting import Cost
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError
from stream_dp.records.models import PrivacyCost
from stream_dp.runtime.kafka.client import Client

T = TypeVar("T")


def named(what: str, name: str, known: Mapping[str, T], path: str) -> T:
    """Return what has a name.

    Args:
        what: its kind, for the message.
        name: the name.
        known: everything of this kind, by name.
        path: the argument that names it.

    Raises:
        ConfigError: nothing has this name.
    """
    if name not in known:
        raise ConfigError(f"no {what} is named {name!r}; {unknown(name, known)}", path)
    return known[name]


async def check_topic(topic: str, plan: Plan, client: Client) -> None:
    """Check that workers have created a topic.

    Raises:
        BrokerError: they have not, or the cluster does not answer.
    """
    if await client.partitions(topic) is None:
        raise BrokerError(f"{plan.broker} has no topic {topic}. Start a worker to create it: `stream-dp worker FILE`")


def plain(value: object) -> Any:  # noqa: ANN401  whatever JSON has
    """Return data classes as JSON has them; costs are exact numbers beside decimals that are rounded up."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain)


def _plain(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, Cost):
        return PrivacyCost.spent(value).model_dump(mode="json", exclude_none=True)
    raise NotImplementedError(f"{type(value).__name__} has no JSON")
