"""Sealed tables read key by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream_dp.lossless.sealed import read_levels


def read_rows(fine: Mapping[bytes, int], **asked: Any) -> dict[bytes, tuple[int, ...]]:
    """For every key of a sealed table its value at every level that is asked for."""
    columns = read_levels(fine, **asked)
    assert all(len(column) == len(fine) for column in columns)
    return {key: tuple(column[at] for column in columns) for at, key in enumerate(fine)}
