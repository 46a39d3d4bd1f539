"""Orders to write a release topic again, as `stream-dp republish` writes them to the control topic."""

from __future__ import annotations

import msgspec

from stream_dp.control.control_records import decode_control

REPUBLISH = b"republish/"


class Republication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order to write a release topic again, naming the topic and its id."""

    topic: str
    topic_id: str


def republish_key(topic: str) -> bytes:
    """Return the key of an order for a topic; a later order replaces an earlier one."""
    return REPUBLISH + topic.encode()


def encode_republication(wanted: Republication) -> bytes:
    """Return the order as bytes."""
    return msgspec.json.encode(wanted)


def read_republication(key: bytes | None, value: bytes | None) -> Republication | None:
    """Return the order that a record of the control topic or the orders topic gives.

    Returns:
        The order; None if the record is not such an order.
    """
    return decode_control(key, value, REPUBLISH, Republication)
