"""The example `docs/searches.yaml`: terms that nobody listed are shown and answered for, at the price that it names."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.planner import load_plan
from stream_dp.operations.check import check_plan
from stream_dp.records.by_kind import LookupRelease, PureTopKRelease
from stream_dp.testing import Event, Watermark, application
from tests.support.views import start_of
from tests.support.visits import new_name

SLOW_ON_KAFKA = True
DOCUMENT = Path(__file__).parents[2] / "docs" / "searches.yaml"
USERS = {"weather": 150, "news": 40, "rare": 3}
HOUR = 3_600_000


def configuration(name: str) -> str:
    """The document's, with names of its own on the broker, and a small table, which is soon made."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for old, new in (
        ("name: searches\n", f"name: {name}\n"),
        ("{topic: searches,", f"{{topic: {name}.searches,"),
        ("  frequent-terms:\n", f"  {name}-frequent:\n"),
        ("  any-term:\n", f"  {name}-any:\n"),
        ("rows: 2000", "rows: 200"),
        ("offset: 10s", "offset: 0s"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


async def test_the_views_of_the_document_show_frequent_terms_and_answer_for_every_one(
    broker: str, tmp_path: Path
) -> None:
    name = new_name()
    async with application(configuration(name), tmp_path, broker=broker) as app:
        await app.start()
        frequent, asked = (app.plan.views[f"{name}-{view}"] for view in ("frequent", "any"))
        start, end = start_of(asked), start_of(asked) + 24 * HOUR
        assert frequent.window.first_ms == start
        searches = [
            Event(f"{term} {user}", term, start + user) for term, users in USERS.items() for user in range(users)
        ]
        await app.publish([*searches, Watermark(end + HOUR)])
        ((shown,),) = (await app.wait_for_releases(frequent.name, 1)).values()
        ((table,),) = (await app.wait_for_releases(asked.name, 1)).values()
        (ledger,) = (await app.ledgers()).values()

    assert isinstance(shown, PureTopKRelease)
    assert isinstance(table, LookupRelease)
    assert [entry.item for entry in shown.items] == ["weather"], "the others are below the minimum count"
    for term, users in USERS.items():
        assert abs((table.count_of(term) or 0) - users) < 60, "noise of scale 1: one in e^60"
    assert table.count_of("nobody asked for this term") is None
    assert ledger.spent == Cost(Fraction(3), Fraction(0))


@pytest.mark.slow
def test_the_budget_of_the_document_pays_for_every_window() -> None:
    checked = check_plan(load_plan(DOCUMENT, {}))
    assert [one.lasts for one in checked.audiences] == ["31d", "31d"]
    assert not checked.warnings
