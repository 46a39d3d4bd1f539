"""Totals since the start of a window, from events to records: what a plain loop over the events says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stream_dp.records.codec import AnyRecord, encode
from stream_dp.testing import Application, Event, Watermark
from tests.pipeline.test_hopping import MINUTE, crowd, encoded
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
RUNNING = (
    ("    kind: histogram\n", "    kind: running\n    catalogue: [/page/0, /page/1, /page/2, /page/3, /none]\n"),
    ('    delta: "1e-4"\n', ""),
    ("window: {size: 1m,", "window: {size: 4m, pane: 1m,"),
    ("items_per_user: 2", "items_per_user: 7"),
)
PANES = 8


async def test_totals_are_those_of_the_oracle_and_a_window_is_paid_for_once(launch: Launch) -> None:
    """Two windows of four minutes; users count once in each, in whatever minute. A grant comes in the midst."""
    app = await launch(*RUNNING)
    view = only_view(app)
    start = start_of(view)
    script: list[Event | Watermark] = []
    for at, event in enumerate(crowd(start, PANES)):
        script += [event]
        if at % 100 == 99:
            script += [Watermark(event.time_ms - 9000), Event("tardy", "/page/3", start)]
    script.append(Watermark(start + (PANES + 1) * MINUTE))
    await app.start()
    await app.publish(script)

    await app.wait_for_releases(view.name, PANES)
    counts = count_script(view, start, script).between(view, start, start + (PANES + 1) * MINUTE)
    assert sum(counts[start + 4 * MINUTE].values()) > sum(counts[start + 7 * MINUTE].values()) > 0
    first = {at: table for at, table in counts.items() if at < start + PANES * MINUTE}
    records = expected_records(view, first, prf_key=app.prf_key, entropy=app.entropy)
    found = {audience: rows[:PANES] for audience, rows in (await app.published(view.name)).items()}
    assert found == encoded(records)
    await app.grant("public", "detailed")

    async def sharper() -> list[AnyRecord] | None:
        found = (await app.releases(view.name))["public"]
        again = [record for record in found if record.revision == 2]
        return again if len(again) >= PANES else None

    again = await app.eventually(sharper)
    assert [record.window.end_ms for record in again] == [start + (n + 1) * MINUTE for n in range(PANES)]
    assert {record.level.name for record in again} == {"detailed"}
    assert len({encode(record) for record in again}) == PANES
    (ledger,) = (await app.ledgers()).values()
    (finest,) = [level.epsilon for level in view.levels if level.name == "detailed"]
    assert ledger.spent.epsilon == 2 * finest, "one price for each window"
