"""The views of small applications: a second view to add to that of the `visits` fixture, and what is often asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.config.shares import Shares
from stream_dp.records.codec import AnyRecord, encode
from stream_dp.records.models import Refusal, Release
from stream_dp.releases.accounts import Balance
from stream_dp.testing import Application, Event, Watermark
from tests.support.oracle import count_script, expected_records

TOPK = """
  NAME-top:
    kind: topk
    source: visits
    item: page
    k: 4
    kbar: 5
    selection: {epsilon: "1", delta: "1e-4"}
    items_per_user: 3
    window: {size: 2m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    ledger: choosers
    ladder: standard
    audiences: [internal, public]
    retention: 1d
    buckets: 2
"""
MINUTE = 60_000
CHOOSERS = 'ledgers:\n  choosers: {population: choosers, epsilon: "200", delta: "1/100", period: 366d}'


def balance(view: ViewPlan, left: Cost, views: Iterable[ViewPlan] = ()) -> Balance:
    """What the account of a view that leaves so much says, where these views share it; by default the view alone."""
    mine = [one for one in views or [view] if one.ledger.name == view.ledger.name]
    return Balance(view.ledger, left, left, Shares.of(view.ledger.budget, view.ledger.periods.longest, mine))


def only_view(app: Application) -> ViewPlan:
    """The view of an application that has one."""
    (view,) = app.plan.views.values()
    return view


def start_of(view: ViewPlan) -> int:
    """The start of a view's first window, where it is configured."""
    assert view.window.first_ms is not None
    return view.window.first_ms


def released(records: Iterable[AnyRecord]) -> list[Release]:
    """The records, of which none is a refusal."""
    found = list(records)
    releases = [record for record in found if not isinstance(record, Refusal)]
    assert len(releases) == len(found)
    return releases


def oracle_bytes(app: Application, view: ViewPlan, counts: Mapping[int, Mapping[str, int]]) -> dict[str, list[bytes]]:
    """What the release topics of a view have to hold, by audience, of the exact counts of its windows."""
    expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
    return {audience: [encode(record) for record in records] for audience, records in expected.items()}


async def assert_released_first(app: Application, script: Sequence[Event | Watermark], windows: int) -> None:
    """The first windows of a minute of the only view are what the events come to, and there is something in each."""
    view = only_view(app)
    start = start_of(view)
    await app.wait_for_releases(view.name, windows)
    counts = count_script(view, start, script).between(view, start, start + windows * MINUTE)
    assert all(sum(table.values()) > 60 for table in counts.values())
    published = {name: found[:windows] for name, found in (await app.published(view.name)).items()}
    assert published == oracle_bytes(app, view, counts)
