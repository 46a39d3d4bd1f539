"""Every kind from events to records: a worker on the embedded log and on Kafka publishes what the oracle expects."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest

from stream_dp.records.codec import AnyRecord, encode
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.effects import Message
from tests.kinds.cases import CASES, Case
from tests.support.chosen import kept_ordinary
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, released, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WINDOWS = 3


def visits(case: Case, start: int) -> list[Event | Watermark]:
    """Three minutes in which the keys of the case are common, and others rare; the last one is empty."""
    chance, keys = random.Random(9), list(case.counts)
    script: list[Event | Watermark] = []
    for minute in range(WINDOWS - 1):
        for user in range(240):
            at = start + minute * MINUTE + chance.randrange(MINUTE)
            item = keys[min(int(chance.expovariate(1)), len(keys) - 1)] if user % 10 else f"other {user}"
            script.append(Event(f"u{minute}-{user}", item, at))
    return [*script, Watermark(start + (WINDOWS + 1) * MINUTE)]


@pytest.mark.parametrize("kind", kept_ordinary(["catalogue", "histogram"], sorted(CASES)), indirect=True)
async def test_a_worker_releases_and_sharpens_what_the_oracle_expects(case: Case, launch: Launch) -> None:
    generous = ('delta: "1/100", period: 366d', 'delta: "1/5", period: 366d')
    window = ("window: {size: 1m", "window: {size: 1m" + case.window.replace("1s", "1m"))
    app = await launch(generous, window, ("    kind: histogram\n", ""), ('    delta: "1e-4"\n', case.settings))
    for topic, listed in case.lists.items():
        await app.client.create([TopicSpec(topic, 2)])
        await app.client.publish([Message(topic, key.encode(), b"1", len(key) % 2) for key in listed.keys])
    view = only_view(app)
    start = start_of(view)
    script = visits(case, start)
    await app.start()
    await app.publish(script)

    records = await app.wait_for_releases(view.name, WINDOWS)

    counts = count_script(view, start, script).between(view, start, start + WINDOWS * MINUTE)
    expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy, lists=case.lists)
    assert await app.published(view.name) == {
        audience: [encode(record) for record in rows] for audience, rows in expected.items()
    }
    assert any(record.items for record in released(records["public"]))

    await app.grant("public", "detailed")

    async def sharpened() -> list[AnyRecord] | None:
        public = (await app.releases(view.name))["public"]
        return public[WINDOWS:] if len(public) >= 2 * WINDOWS else None

    sharper = released(await app.eventually(sharpened))
    assert [(record.revision, record.level.name) for record in sharper] == [(2, "detailed")] * WINDOWS
    (ledger,) = (await app.ledgers()).values()
    held = sum((record.privacy.window.cost.epsilon for record in sharper), start=0 * ledger.spent.epsilon)
    assert ledger.spent.epsilon == held, "the sharpest reader has all that was charged"
