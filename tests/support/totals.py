"""The totals that an application has stored, as the changelogs of its tables have them."""

from __future__ import annotations

from stream_dp.releases.rows import TOTALS, TotalsRow
from stream_dp.runtime.faust.delivery import Counters
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics
from stream_dp.testing import Application
from stream_dp.windows.count_rows import MARKER, REKEYED, Marker, SourceProgress
from stream_dp.windows.effects import Increment
from stream_dp.windows.encoding import decode


async def stored_totals_of(app: Application) -> Counters:
    """The sum over all partitions, whoever has them."""
    found, topics = Counters(), Topics.of(app.plan)
    for table in (COUNTS, RELEASES):
        newest: dict[tuple[int, bytes], bytes] = {}
        async for record in app.client.follow([topics.changelog(table)], until_end=True):
            if record.key is not None and record.value is not None:
                newest[record.partition, record.key] = record.value
        for (_, key), value in newest.items():
            if table == COUNTS and key.startswith(MARKER):
                found.take(decode(Marker, value).totals())
            elif table == COUNTS and key.startswith(REKEYED):
                found.take(decode(SourceProgress, value).totals())
            elif table == RELEASES and key == TOTALS:
                views = decode(TotalsRow, value).views.items()
                found.take(Increment(name, n, (("view", view),)) for view, one in views for name, n in one.items())
    return found
