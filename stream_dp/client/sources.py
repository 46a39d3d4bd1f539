"""Parts that both sources share: what they hand out, records from bytes, and patience."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from stream_dp.errors import StateError, StreamDPError
from stream_dp.records.codec import AnyRecord, decode
from stream_dp.records.models import SCHEMA_VERSION

FIRST_SECONDS, MOST_SECONDS, JITTER = 1.0, 30.0, 0.2
"""Time to the next attempt: after the first failure, and at most; each is longer or shorter by up to a part of it."""
LOG = logging.getLogger("stream_dp.client")


class Mark(Enum):
    """Bounds of a full read: after `BEGIN` comes everything that is there, after `END` what is new."""

    BEGIN = "begin"
    END = "end"


class Tombstone(NamedTuple):
    """A window that is gone; end in ms, None where it is not known."""

    start_ms: int
    end_ms: int | None


Item = AnyRecord | Tombstone | Mark


class _Typed(msgspec.Struct, frozen=True):
    schema_version: int
    type: str


def record_of(value: bytes, view: str, audience: str, place: str) -> AnyRecord | None:
    """Return a record of a view and an audience, found at a place; None if its type is not known here.

    Raises:
        StateError: it cannot be read, or is of another view or audience (an empty one is any).
    """
    try:
        typed = msgspec.json.decode(value, type=_Typed)
        if typed.schema_version <= SCHEMA_VERSION and typed.type not in ("release", "refusal"):
            return None
        record = decode(value)
    except StateError as error:
        raise StateError(f"{place}: {error}") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StateError(f"{place}: not a release record: {error}") from None
    if record.view != view or audience not in ("", record.audience):
        raise StateError(f"{place}: the record is of another view or audience; stream-dp did not write it there")
    return record


@dataclass
class Patience:
    """Waits between attempts, longer after each failure.

    Attributes:
        seconds: time without success after which reading ends; None: never.
    """

    seconds: float | None
    _failures: int = 0
    _good_at: float = field(default_factory=time.monotonic)

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures, self._good_at = 0, time.monotonic()

    def check(self, error: StreamDPError) -> None:
        """Raise the error if the last success was too long ago."""
        if self.seconds is not None and time.monotonic() - self._good_at > self.seconds:
            raise error

    async def wait(self, error: StreamDPError, least_s: float = 0) -> None:
        """Wait for the next attempt, for as long as the other side asks at least; or raise the error of the last."""
        self.check(error)
        if not self._failures:
            LOG.warning("%s; trying again", error)
        delay = min(MOST_SECONDS, FIRST_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        await asyncio.sleep(max(least_s, delay * random.uniform(1 - JITTER, 1 + JITTER)))  # noqa: S311 - spreads load
