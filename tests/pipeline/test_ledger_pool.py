"""A ledger with a pool in a running application: what short lists return, and where the pool ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from fractions import Fraction

from stream_dp.records.by_kind import TopKRelease
from stream_dp.testing import Application, Event, Watermark
from tests.support.oracle import count_script
from tests.support.views import TOPK, oracle_bytes

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
CHOOSERS = """ledgers:
  choosers:
    population: choosers
    epsilon: "80"
    delta: "1/100"
    period: 366d
    zcdp: {epsilon: "20", slack: "1e-3"}"""
WINDOWS = 11


async def test_short_lists_pay_for_more_windows_until_the_pool_is_spent(launch: Launch) -> None:
    """Rho 7.26; counts take 0.64 a window, each draw 1/8: six full windows, or eight, all but one of them empty."""
    app = await launch(("views:", "views:" + TOPK.replace("size: 2m", "size: 1m").rstrip()), ("ledgers:", CHOOSERS))
    view = next(iter(app.plan.views.values()))
    start = view.window.first_ms or 0
    pages = [f"/page/{number}" for number in range(5)]
    visitors = [Event(f"u{user}", pages[(user + turn) % 5], start + user) for user in range(300) for turn in range(3)]
    script: list[Event | Watermark] = [*visitors, Watermark(start + (WINDOWS + 1) * MINUTE)]
    worker = await app.start()
    await app.publish(script)

    records = (await app.wait_for_releases(view.name, WINDOWS))["internal"]

    counts = count_script(view, start, script).between(view, start, start + WINDOWS * MINUTE)
    assert await app.published(view.name) == oracle_bytes(app, view, counts)
    assert [record.type for record in records] == ["release"] * 8 + ["refusal"] * 3
    assert [len(record.items) for record in records if isinstance(record, TopKRelease)] == [4] + [0] * 7
    budget = view.ledger.budget
    assert budget.fits(view.cost(1)) == 6
    (ledger,) = (book for book in (await app.ledgers()).values() if book.budget.rho)
    assert ledger.spent.delta == 8 * Fraction("1e-4")
    assert ledger.spent.rho == 8 * view.levels[1].rho + Fraction(4 + 7, 8)
    assert ledger.spent.epsilon == (4 + 7) * Fraction("1e-4")
    assert ledger.left.rho < view.cost(1).rho
    assert not ledger.reserved

    async def counted() -> bool:
        return worker.counters.total("windows_refused", view=view.name) == 3

    assert await app.eventually(counted)  # counted behind the publication
