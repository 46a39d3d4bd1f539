"""What the topic `<app>-status` holds: how each worker is, for operators alone.

Nothing in it comes from a user or an item. How many events were counted is in it, of windows that are closed; how many
records wait is in it, too. So it stands inside the trust boundary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stream_dp.errors import StateError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class ViewStatus(_Part):
    """How far one partition has counted a view."""

    clock_ms: int = Field(description="What the view's clock shows: everything before it has been seen.")
    open_from_ms: int = Field(description="Start of the first window that is open.")


class GapStatus(_Part):
    """Records of a source that were deleted before they were counted, side by side in one partition."""

    first: int = Field(description="Offset of the first.")
    last: int = Field(description="Offset of the last.")
    at_ms: int = Field(description="The time of the first tick behind them.")


class PartitionStatus(_Part):
    """How far one partition is, by what is stored of it."""

    lag: Mapping[str, int] = Field(description="By source: records that stand in it and are not counted.")
    views: Mapping[str, ViewStatus] = Field(description="By view; none that was never counted.")
    released: Mapping[str, int] = Field(
        description="Start of the first window that is not released or refused, of the views whose ledger lives here."
    )
    totals: Mapping[str, int] = Field(description="Counters since the first record, those that are not zero.")
    missing: Mapping[str, tuple[GapStatus, ...]] = Field(
        {}, description="By source: which records were deleted before they were counted, the newest last."
    )


class WorkerStatus(_Part):
    """How a worker is."""

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that runs.")
    instance: str = Field(description="Name of the worker: its application, its machine, and a hash of its folder.")
    since_ms: int = Field(description="When its process began.")
    at_ms: int = Field(description="When it said so.")
    settings: int = Field(description="Number of the settings that it goes by; 0 if there are none yet.")
    waits_for: str = Field(description="What it waits for; nothing if it is ready.")
    refusal: str = Field("", description="Why it cannot take newer settings up; nothing if all are in effect there.")
    topics: Sequence[str] = Field(
        default_factory=list, description="What somebody has to put right of the topics, in words."
    )
    clock_ahead_ms: int = Field(
        0, description="How far its clock is ahead of the broker's (below 0: behind), if that is too far; else 0."
    )
    partitions: Mapping[int, PartitionStatus] = Field(description="Those that it has, by number.")


def encode_status(status: WorkerStatus) -> bytes:
    """The bytes of a record."""
    return status.model_dump_json().encode()


def decode_status(data: bytes) -> WorkerStatus:
    """The inverse; fields that it does not know are left out.

    Raises:
        StateError: it is no such record.
    """
    try:
        return WorkerStatus.model_validate_json(data)
    except ValidationError:
        raise StateError(
            "a record of the status topic cannot be read: use the stream-dp that the workers run, or a later one"
        ) from None
