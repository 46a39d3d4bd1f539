"""Deleting the records of a source before they are counted, as its retention does, and what must come of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from faust.types import TP

from stream_dp.config.plan import ViewPlan
from stream_dp.records.by_kind import CatalogueRelease
from stream_dp.records.codec import decode
from stream_dp.records.models import Refusal
from stream_dp.testing import Application, Event, Watermark
from stream_dp.testing.scripts import Script
from stream_dp.windows.events import iso_ms
from tests.support.oracle import count_script
from tests.support.views import oracle_bytes, start_of
from tests.support.visits import MINUTE, visits_of

AHEAD = ("max_ahead: 1h", "max_ahead: 1m")
"""A change that lets a gap touch few windows."""
GRACE = 10_000


def minutes(start: int, first: int, until: int, each: int = 200) -> list[Event | Watermark]:
    """The visits of some minutes, and behind each of them the word that it is over."""
    script: list[Event | Watermark] = []
    for minute in range(first, until):
        script += [*visits_of(start, minute, each), Watermark(start + (minute + 1) * MINUTE + GRACE)]
    return script


async def ends_of(app: Application, partitions: Iterable[int], source: str | None = None) -> dict[TP, int]:
    """Where partitions of the application's source end."""
    (topic,) = {view.source.topic for view in app.plan.views.values() if source in (None, view.source.name)}
    return dict(await app.client.ends([TP(topic, partition) for partition in partitions]))


async def assert_lost(app: Application, view: ViewPlan, script: Script, windows: int, lost: Sequence[int]) -> None:
    """Of the first windows of a minute, some are refused as lost and cost nothing; all others are exact.

    Args:
        app: the application; the view is alone on its ledger.
        view: the view.
        script: everything that was published.
        windows: how many windows are looked at: all that were released.
        lost: the numbers of those that are refused.
    """
    whole = await _whole(app, view, script, windows, lost)
    start = start_of(view)
    expected = oracle_bytes(app, view, whole)
    for audience, found in (await app.published(view.name)).items():
        records = {one: decode(one) for one in found}
        refused = [one for one in records.values() if isinstance(one, Refusal)]
        assert {one.reason for one in refused} <= {"lost"}
        assert numbers(refused, start) == sorted(lost)
        assert [one for one, record in records.items() if not isinstance(record, Refusal)] == expected[audience]
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent == view.cost(view.start_level) * (windows - len(lost))


async def assert_lost_exact(
    app: Application, view: ViewPlan, script: Script, windows: int, lost: Sequence[int]
) -> None:
    """As `assert_lost`, of an exact view whose noise is that of a process of its own."""
    whole = await _whole(app, view, script, windows, lost)
    start = start_of(view)
    for records in (await app.releases(view.name)).values():
        assert numbers([one for one in records if isinstance(one, Refusal)], start) == sorted(lost)
        released = [one for one in records if isinstance(one, CatalogueRelease)]
        shown = {iso_ms(one.window.start): {row.item: row.count for row in one.items if row.count} for one in released}
        assert shown == whole
    ledgers = [one for one in (await app.ledgers()).values() if one.budget == view.ledger.budget]
    assert [one.spent for one in ledgers] == [view.cost(view.start_level) * (windows - len(lost))]


async def _whole(
    app: Application, view: ViewPlan, script: Script, windows: int, lost: Sequence[int]
) -> Mapping[int, Mapping[str, int]]:
    """The counts of the windows that are not lost, when all are published."""
    start = start_of(view)
    await app.wait_for_releases(view.name, windows)
    counts = count_script(view, start, list(script)).between(view, start, start + windows * MINUTE)
    whole = {at: table for at, table in counts.items() if (at - start) // MINUTE not in lost}
    assert all(whole.values())
    return whole


def numbers(refused: Collection[Refusal], start: int) -> list[int]:
    """The numbers of the windows of a minute that were refused."""
    return sorted((iso_ms(one.window.start) - start) // MINUTE for one in refused)
