"""Grants: as operators write them to the control topic, and as the partitions read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault, StateError

GRANT = b"grant/"
_OFFSET_BITS = 48


@dataclass(frozen=True, slots=True)
class Order:
    """A checked grant: an audience may see this level from now on.

    `number` rises from grant to grant, also where the control topic was deleted and made again in between.
    """

    number: int
    audience: str
    level: str


@dataclass(frozen=True, slots=True)
class UnknownGrant:
    """A record under a grant's key that is no grant of this plan; of what it says nothing is kept.

    Attributes:
        offset: where it stands in the control topic.
    """

    offset: int

    def __str__(self) -> str:
        return f"control record {self.offset} is not a grant that this configuration knows; it is passed over"


class Grant(BaseModel):
    """A control message: an audience may see a level from now on; its retained windows are sharpened to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["grant"] = "grant"
    audience: str = Field(description="The audience, as the configuration names it.")
    level: str = Field(description="The name of the level.")

    def key(self) -> bytes:
        """The record's key: of an audience's grants the last one stays."""
        return GRANT + self.audience.encode()

    def check(self, plan: Plan) -> None:
        """Refuse a grant that means nothing to the plan.

        Raises:
            ConfigError: there is no such audience, or none of its views has such a level.
        """
        if self.audience not in plan.audiences:
            raise ConfigError([Fault("audience", f"no audience {self.audience!r}; there are {_list(plan.audiences)}")])
        levels = [
            level.name for view in plan.views.values() if self.audience in view.audiences for level in view.levels
        ]
        if self.level not in levels:
            raise ConfigError(
                [Fault("level", f"no view of {self.audience} has a level {self.level!r}; there are {_list(levels)}")]
            )


def check_grant(
    key: bytes | None, value: bytes | None, offset: int, plan: Plan, life: int = 1
) -> Order | UnknownGrant | None:
    """What a control record comes to.

    Args:
        key: the record's key.
        value: its value.
        offset: its offset.
        plan: the application.
        life: which life of the control topic it is, the first being 1; with the offset it numbers the order.

    Returns:
        The order that it gives, or why it gives none; None for a tombstone and for what is about something else.
    """
    if key is None or value is None or not key.startswith(GRANT):
        return None
    try:
        grant = Grant.model_validate_json(value)
        grant.check(plan)
    except (ValidationError, ConfigError):
        return UnknownGrant(offset)
    return Order((life - 1 << _OFFSET_BITS) + offset, grant.audience, grant.level)


def encode_order(order: Order) -> bytes:
    """An order as it travels to the partitions."""
    return msgspec.msgpack.encode((order.number, order.audience, order.level))


def decode_order(value: bytes) -> Order:
    """The inverse of `encode_order`.

    Raises:
        StateError: not an order.
    """
    try:
        number, audience, level = msgspec.msgpack.decode(value, type=tuple[int, str, str])
    except msgspec.DecodeError:
        raise StateError("a record of the orders topic is not an order") from None
    return Order(number, audience, level)


def _list(names: object) -> str:
    return ", ".join(dict.fromkeys(map(str, names)))  # type: ignore[call-overload]
