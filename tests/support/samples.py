"""Samples of a source of flights: when events were, and when their records were written."""

from __future__ import annotations

import json
from collections import defaultdict

from stream_dp.config.plan import SourcePlan
from stream_dp.runtime.embedded import LogRecord
from stream_dp.runtime.factory import partitioner
from stream_dp.runtime.sources.sampling import Sample
from stream_dp.windows.events import WATERMARK_HEADER, Partitioner

Act = tuple[int, int]
"""When an event was, and when its record was written."""


def sample_of(
    source: SourcePlan, *acts: Act, marks: tuple[tuple[int, int], ...] = (), place: Partitioner | None = None
) -> Sample:
    """A record of another user for each act, in its partition.

    Args:
        source: the source.
        acts: in order.
        marks: watermarks, in all partitions: their time, and the number of the act that they stand behind.
        place: the partitioner, if not that of the source.
    """
    place = place or partitioner(source)
    assert place is not None
    found: defaultdict[int, list[LogRecord]] = defaultdict(list)
    for number, (at, written) in enumerate(acts):
        user = f"u{number}"
        value = json.dumps({"tailnum": user, "dest": "ORD", "time_hour": at}).encode()
        (own,) = place([user.encode()])
        found[own].append(LogRecord("flights", own, len(found[own]), user.encode(), value, written))
        for time, behind in marks:
            if behind == number:
                for partition in range(source.partitions):
                    header = [(WATERMARK_HEADER, str(time).encode())]
                    offset = len(found[partition])
                    found[partition].append(LogRecord("flights", partition, offset, None, b"", written, header))
    return Sample(dict(found))
