"""Records of the application's own topics that cannot be read.

In a source, such a record becomes a dead letter, and counting continues. The application's own topics hold settings,
counts and spending, and no record of them may be missed. So such a record there ends the reader with an error that says
where the damage is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from stream_dp.errors import StateError
from stream_dp.windows.events import unreadable_reason
from stream_dp.windows.records import Records


class Place(Protocol):
    """A partition of a topic."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def partition(self) -> int:
        """Number of the partition."""


def describe_unreadable(place: Place, record: Any) -> str | None:
    """Return where an unreadable record is and why it cannot be read; None if the record was read."""
    reason = unreadable_reason(record)
    if reason is None:
        return None
    return f"topic {place.topic}, partition {place.partition}, offset {record.offset} cannot be read: {reason}"


def check_readable(place: Place, records: Iterable[Any]) -> None:
    """Make sure that records of the application's own topic could be read.

    Raises:
        StateError: a record cannot be read.
    """
    if isinstance(records, Records) and not records.headers:
        return
    for record in records:
        words = describe_unreadable(place, record)
        if words is not None:
            raise StateError(
                f"{words}. Only stream-dp writes to this topic: check the disks of the brokers "
                "(kafka-dump-log.sh), and restore the topic from an intact replica"
            )


def check_all_readable(fetched: Mapping[Any, Iterable[Any]], foreign: Iterable[str] = ()) -> None:
    """Make sure that all records fetched from the application's own topics could be read.

    Args:
        fetched: records by partition.
        foreign: topics that others write; their unreadable records become dead letters.

    Raises:
        StateError: a record cannot be read.
    """
    others = frozenset(foreign)
    for place, records in fetched.items():
        if place.topic not in others:
            check_readable(place, records)
