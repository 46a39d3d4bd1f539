"""Records of views on a worker: the settings alone make them, and other words reach readers without an edition."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.records.codec import parse
from stream_dp.records.view_record import ViewRecord
from stream_dp.testing import Application, Event, Watermark, plan_from
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


@pytest.mark.parametrize("users", [0, 300])
async def test_what_a_topic_says_of_its_view_stands_before_its_releases_whatever_is_counted(
    launch: Launch, users: int
) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    await app.start()
    await app.publish([*[Event(f"u{n}", f"/{n % 7}", start + n) for n in range(users)], Watermark(start + 3 * MINUTE)])
    await app.wait_for_releases(view.name, 2)
    await app.stop()
    await app.start()
    await app.wait_for_releases(view.name, 2)
    for audience, values in (await app.described(view.name)).items():
        (value,) = values
        record = parse(value)
        assert isinstance(record, ViewRecord)
        data = json.loads(value)
        for own in ("view", "code_version", "title"):
            del data[own]
        assert data["edition"] == {"number": 1, "first_window_ms": start, "first_window": record.edition.first_window}
        assert (data["audience"], data["unit"]) == (audience, view.ledger.population)
        assert [one["name"] for one in data["levels"]] == [view.levels[view.audiences[audience]].name]
        await _is_first(app, view.name, audience, value)


async def _is_first(app: Application, view: str, audience: str, value: bytes) -> None:
    rows = await app.read(f"{app.plan.id}.releases.{view}.{audience}")
    assert rows[0] == (f"{view}/{audience}/view/1".encode(), value)


async def test_other_words_reach_readers_and_begin_no_edition(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    await app.start()
    await app.publish([Watermark(start + MINUTE + 20_000)])
    await app.wait_for_releases(view.name, 1)
    text = (app.plan.folder / "application.yaml").read_text(encoding="utf-8")
    assert "    kind: " in text
    words = text.replace("    kind: ", "    title: Other words\n    unit: people\n    kind: ", 1)
    await app.apply(plan_from(words, app.plan.folder / "changed", app.plan.broker.address), {})

    news = b'"title":"Other words","type":"view","unit":"people"'

    async def told() -> bool:
        found = (await app.described(view.name)).values()
        return all(len(values) == 2 and news in values[1] for values in found)

    await app.eventually(told)
    await app.publish([Watermark(start + 2 * MINUTE + 20_000)])
    records = await app.wait_for_releases(view.name, 2)
    assert {record.edition for rows in records.values() for record in rows} == {1}
