"""Events whose fields stand inside other fields, and events with several items, from the source to the releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stream_dp.testing import Event, Raw, SourceWriter, Watermark, application
from tests.support.oracle import count_script
from tests.support.views import only_view, oracle_bytes, start_of

SLOW_ON_KAFKA = True

MINUTE = 60_000
NESTED = (
    ("user: user, time: {field: at}", "user: $.who.id, time: {field: '$.when[\"the time\"]'}"),
    ("    item: page\n", "    items: $.page.tags\n"),
)


async def test_lists_inside_other_fields_are_released_as_the_oracle_counts_them(
    tmp_path: Path, visits: Callable[..., str]
) -> None:
    async with application(visits(*NESTED), tmp_path) as app:
        view = only_view(app)
        start, home = start_of(view), SourceWriter(app.plan).place("u1")
        events = [
            Event(f"u{n}", f"/{n % 4}", start + n * MINUTE // 200, tuple(f"/{m}" for m in range(n % 3)))
            for n in range(400)
        ]
        bad: list[dict[str, object]] = [
            {"page": {}},
            {"page": {"tags": ["/0", None]}},
            {"page": {"tags": "/0"}},
            {"page": {"tags": []}},
        ]
        raw = [
            Raw(home, b"u1", json.dumps({"who": {"id": "u1"}, "when": {"the time": start}, **said}).encode())
            for said in bad
        ]
        await app.publish([*raw, *events, Watermark(start + 2 * MINUTE + 10_000)])
        worker = await app.start()
        await app.wait_for_releases(view.name, 2)

        counted = count_script(view, start, events)
        windows = counted.between(view, start, start + 2 * MINUTE)
        assert sum(windows[start].values()) > 300
        assert set(counted.refused) == {"duplicate", "clipped"}
        assert await app.published(view.name) == oracle_bytes(app, view, windows)
        refused = {reason: worker.counters.total("events_refused", reason=reason) for reason in counted.refused}
        assert refused == dict(counted.refused)
        letters = [json.loads(letter)["reason"] for letter in await app.dead_letters()]
        assert sorted(letters) == ["missing_field", "wrong_type", "wrong_type"]
