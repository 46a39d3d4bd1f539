"""What leaves the trust boundary: nothing raw; only the released items depend on the data (specs/topk 5.2.8)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from stream_dp.cli.status_command import page
from stream_dp.operations.reports import look
from stream_dp.operations.status import summary
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.worker import advice, assembly, reporting
from stream_dp.runtime.worker.health import LOOPBACK, Address, Exposition, Health, Start, serving
from stream_dp.runtime.worker.logs import JsonLines
from stream_dp.testing import Application, Event, Raw, Watermark
from stream_dp.windows.shapes.shape import Interval
from tests.support.probes import get, parsed
from tests.support.views import CHOOSERS, TOPK, released, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
SECRETS = [b"zelda", b"cellar-door", b"47110815", b"badly-formed"]
"""Parts of a user's name, of an item that few have, of the number of users of an item, of a record that is refused."""
REASONS = {"malformed_json", "missing_field", "clipped", "before_start"}
"""Why some of `visits_of` are not counted."""
ADVISED = (
    r"sources.visits: malformed_json \(about 20 % of the newest records\): ",
    r"sources.visits: malformed_json \(.+ of the records\): ",  # of the first ones, or of all
    r"sources.visits: missing_field \(.+ of the records\): ",
    r": clipped \(",
    r": before_start \(",
    "windows of the last hour: ",
    "budget lasts until ",
)
"""What a start and a running worker say of such data."""
DEPENDENT = {"items", "complete", "privacy"}
"""Fields of a record that may depend on the data: what is released, and for a top-k how many draws it took."""


def visits_of(start_ms: int, pages: int, users: int) -> list[Any]:
    """Two minutes of visits: some pages that many have, one that two have, and records that are refused."""
    many = [Event(f"u{user}", f"/{user % pages}", start_ms + user) for user in range(users)]
    few = [Event(f"zelda{user}", "/cellar-door", start_ms + 9000) for user in range(2)]
    bad = [Raw(0, b"zelda", b'{"badly-formed": 47110815', {}), Raw(1, b"zelda", b'{"user": "cellar-door"}', {})]
    return [*many, *few, *bad, Watermark(start_ms + 2 * MINUTE + 10_000)]


async def public(app: Application) -> dict[str, list[bytes]]:
    """All that stands in topics that readers or operators, of this or of other services, may read."""
    views, names = app.plan.views, Topics.of(app.plan)
    topics = {names.release(name, audience) for name, view in views.items() for audience in view.audiences}
    letters, accounts = {view.source.dead_letter_topic for view in views.values()}, {names.accounts}
    return {
        topic: [(key or b"") + (value or b"") for key, value in await app.read(topic)]
        for topic in topics | letters | accounts
    }


async def answers(app: Application) -> dict[str, str]:
    """What the HTTP port of a worker says, by path."""
    health = Health(Start())
    health.worker = app.worker
    async with serving(Address(LOOPBACK, 0), health, Exposition(health)) as (_, port):
        return {path: (await get(port, path))[1] for path in ("/metrics", "/livez", "/readyz", "/nothing")}


async def status_of(app: Application) -> dict[str, list[bytes]]:
    """What the workers say of themselves in their topic, and what `stream-dp status` makes of it."""
    reports = await look(app.plan, app.client)
    assert any(part.counters for one in reports.said.values() for part in one.partitions.values())
    found, text = summary(app.plan, reports), StringIO()
    Console(file=text, width=500).print(page(app.plan, found, Path("app.yaml")))
    rows = await app.read(Topics.of(app.plan).status)
    return {
        "status topic": [(key or b"") + (value or b"") for key, value in rows],
        "status output": [text.getvalue().encode(), json.dumps(found.as_json()).encode()],
    }


async def test_no_user_rare_item_or_refused_content_is_in_public_topics_logs_counters_metrics_or_answers_to_probes(
    launch: Launch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.1)
    caplog.set_level(logging.DEBUG, "stream_dp")
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(assembly, "ADVICE_SECONDS", 0.2)
    for name in ("REFUSED_PERCENT", "CLIPPED_PERCENT", "LEAST_CONTRIBUTIONS", "HOUR_SECONDS"):
        monkeypatch.setattr(advice, name, 0)
    app = await launch(("views:", "views:" + TOPK), ("ledgers:", CHOOSERS))
    start = start_of(next(iter(app.plan.views.values())))
    first: list[Any] = [Raw(0, b"zelda", b'{"badly-formed": 47110815', {}), Event("zelda", "/cellar-door", 47110815)]
    many = [Event("zelda", f"/cellar-door/{number}", start + number) for number in range(4)]
    await app.publish([*first, *many])  # the first start looks at them
    worker = await app.start()
    await app.publish(visits_of(start, pages=3, users=471))
    for view in app.plan.views:
        await app.wait_for_releases(view, 1)
    await app.eventually(lambda: dead_letters(app, 4))
    await app.eventually(lambda: said_what_was_released(app))
    for said in ADVISED:
        await app.eventually(lambda words=said: is_in(caplog, words))  # type: ignore[misc]

    found = await public(app)
    said = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    assert said
    answered = await answers(app)
    metrics = parsed(answered.pop("/metrics"))
    assert answered == {"/livez": "ok\n", "/readyz": "ok\n", "/nothing": "404: Not Found"}
    partitions = {str(number) for number in range(app.plan.partitions)}
    names = {*app.plan.views, *app.plan.ledgers, *REASONS, *partitions, ""}
    assert {value for _, labels in metrics for _, value in labels} <= names
    private = {
        "log": [said.encode()],
        "log of json": [JsonLines().format(record).encode() for record in caplog.records],
        "counters": [str(worker.counters.lines()).encode(), str(worker.totals().lines()).encode()],
        **(await status_of(app)),
        "metrics": [str(list(metrics)).encode()],
    }
    for place, texts in {**found, **private}.items():
        for secret in SECRETS:
            assert not any(secret in text for text in texts), (place, secret)
    assert any(b'"/0"' in text for texts in found.values() for text in texts), "the search would find what is there"


async def said_what_was_released(app: Application) -> bool:
    """Whether the worker has said so since the first window of every view was released."""
    totals = summary(app.plan, await look(app.plan, app.client)).totals
    return all(totals.get(f"windows_released{{view={view}}}") for view in app.plan.views)


async def is_in(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return re.search(words, caplog.text) is not None


async def dead_letters(app: Application, number: int) -> bool:
    return len(await app.dead_letters()) == number


async def test_records_of_other_data_differ_in_nothing_but_what_is_released(launch: Launch) -> None:
    """The number of keys, of users and of events; how large the counts are, and which is the first that is left out."""
    app = await launch(("views:", "views:" + TOPK), ("ledgers:", CHOOSERS))
    await app.start()
    start = start_of(next(iter(app.plan.views.values())))
    for number, (pages, users) in enumerate(((3, 400), (40, 1200), (1, 0))):
        await app.publish(visits_of(start + 2 * MINUTE * number, pages, users))
    for name, view in app.plan.views.items():
        number = view.window.shape.whole_in(Interval(start, start + 3 * 2 * MINUTE))
        for rows in (await app.wait_for_releases(name, number)).values():
            records = released(rows)
            shapes = [shape(record) for record in records]
            assert len(shapes) == number
            assert shapes == shapes[:1] * number
            assert len({len(record.items) for record in records}) > 1, "the data do differ"


def shape(record: Any) -> dict[str, Any]:
    """A record without its window and without what may depend on the data."""
    fields: dict[str, Any] = msgspec.json.decode(record.model_dump_json())
    return {name: value for name, value in fields.items() if name not in {"window", *DEPENDENT}}
