"""A ledger with parts in a running application: what short lists return, and where a part ends."""

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
    parts: {selection: {epsilon: "14", slack: "1e-3"}, zcdp: {epsilon: "60", slack: "1e-3"}}"""
WINDOWS = 11


async def test_short_lists_pay_for_more_windows_until_the_part_for_draws_is_spent(launch: Launch) -> None:
    """Squares 14: three windows at worst, four draws each; with one full list and then empty windows, eight."""
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
    assert budget.fits(view.cost(1)) == 3
    (ledger,) = (book for book in (await app.ledgers()).values() if book.budget.squares)
    assert ledger.spent.squares == 4 + 7
    assert ledger.spent.delta == 8 * Fraction("1e-4")
    assert ledger.spent.rho == 8 * view.levels[1].rho
    assert ledger.spent.epsilon == (4 + 7) * Fraction("1e-4")
    assert ledger.left.squares < view.keys_at_worst.squares
    assert not ledger.reserved

    async def counted() -> bool:
        return worker.counters.total("windows_refused", view=view.name) == 3

    assert await app.eventually(counted)  # counted behind the publication
