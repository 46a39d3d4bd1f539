"""Records of the control topic whose values are JSON of one type, by the prefix of their keys."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from stream_dp.windows.encoding import UNDECODABLE

Record = TypeVar("Record")


def decode_control(key: bytes | None, value: bytes | None, prefix: bytes, form: type[Record]) -> Record | None:
    """Return what a control record holds; None if it holds something else.

    Args:
        key: of the record.
        value: of the record.
        prefix: of the keys of such records.
        form: type of such records.
    """
    if key is None or value is None or not key.startswith(prefix):
        return None
    try:
        return msgspec.json.decode(value, type=form)
    except UNDECODABLE:
        return None
