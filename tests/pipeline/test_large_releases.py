"""Releases of megabytes, whose every limit is that of a broker as brokers come: published, and sharpened, in parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pytest

from stream_dp.errors import ConfigError
from stream_dp.kinds.public_lists import MOST_KEYS, KeyList
from stream_dp.records.codec import encode, outline
from stream_dp.records.models import Release
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import MESSAGE_BYTES
from tests.support.oracle import count_script, expected_records
from tests.support.views import only_view, released, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
SLOW_ON_KAFKA = True
LEVELS = ("overview", "standard", "detailed")
SHARP = [
    (f'level: {name}, epsilon: "{was}"', f'level: {name}, epsilon: "{now}"')
    for name, was, now in zip(LEVELS, (1, 2, 6), (78, 79, 80), strict=True)
]
"""Of two items of a user: a count bears noise with a chance of 2 e^-39, so what is shown is what was counted."""
READERS = ("    retention: 1d\n", "    retention: 1d\n    audiences: [public, internal]\n")
KEYS, KEY_BYTES, AT_ONCE = 4000, 1000, 500


def events_of(start: int) -> list[Event]:
    """Each key once from each of two users, two keys from each user."""
    keys = [f"{number:0{KEY_BYTES}}" for number in range(KEYS)]
    return [
        Event(f"u{copy}-{number // 2}", key, start + number)
        for copy in ("first", "second")
        for number, key in enumerate(keys)
    ]


@pytest.mark.slow
async def test_a_histogram_of_megabytes_is_released_and_sharpened_in_parts_with_the_counts_of_the_oracle(
    launch: Launch,
) -> None:
    app = await launch(*SHARP, READERS, ("buckets: 4", "buckets: 32"))
    view = only_view(app)
    start, worker = start_of(view), await app.start()
    events = events_of(start)
    for at in range(0, len(events), AT_ONCE):
        await app.publish(events[at : at + AT_ONCE])
        counted = min(at + AT_ONCE, len(events))
        await app.eventually(lambda counted=counted: reached(worker.counters.total("events_consumed"), counted))  # type: ignore[misc]
    await app.publish([Watermark(start + MINUTE + 10_000)])

    records = await app.wait_for_releases(view.name, 1)

    counts = count_script(view, start, events).counts
    assert set(counts[start].values()) == {2}
    expected = expected_records(view, {start: counts[start]}, prf_key=app.prf_key, entropy=app.entropy)
    for audience in view.audiences:
        (record,) = released(records[audience])
        assert encode(record) == encode(expected[audience][0])
        assert items_of(record) == counts[start]
    await assert_in_parts(app, "public", 1)

    await app.grant("public", "detailed")

    async def sharpened() -> list[Release] | None:
        public = released((await app.releases(view.name))["public"])
        return public if len(public) == 2 else None

    _, sharper = await app.eventually(sharpened)
    assert (sharper.revision, sharper.level.name, sharper.part) == (2, "detailed", None)
    assert items_of(sharper) == counts[start]
    await assert_in_parts(app, "public", 2)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 80


async def reached(found: int, wanted: int) -> bool:
    return found >= wanted


def items_of(record: Release) -> Mapping[str, int]:
    return {entry.item: entry.count for entry in record.items}


async def assert_in_parts(app: Application, audience: str, revision: int) -> None:
    """A revision stands in the topic as records that each fit, more of them than a broker's limit would need."""
    rows = await app.read(Topics.of(app.plan).release(only_view(app).name, audience))
    found = [
        (key, value)
        for key, value in rows
        if value is not None and (one := outline(value)) and one.revision == revision
    ]
    assert len(found) > KEYS * KEY_BYTES // MESSAGE_BYTES
    assert all(len(key or b"") + len(value) <= MESSAGE_BYTES for key, value in found)
    assert len({key for key, _ in found}) == len(found)


@pytest.mark.parametrize("keys", [30_000, pytest.param(MOST_KEYS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("broker", ["memory"], indirect=True)
async def test_a_catalogue_of_many_keys_is_released_whole(launch: Launch, keys: int) -> None:
    listed = [f"a key of the list with the number {number:08}" for number in range(keys)]
    app = await launch(
        ("    kind: histogram\n", "    kind: catalogue\n    catalogue: {topic: places}\n"),
        ('    delta: "1e-4"\n', ""),
        ("    retention: 1d\n", "    retention: 1d\n    audiences: [public]\n"),
    )
    await app.client.create([TopicSpec("places", 1)])
    await app.client.publish([Message("places", key.encode(), b"1") for key in listed])
    view = only_view(app)
    start = start_of(view)
    events = [Event(f"u{number}", listed[number % 100], start + number) for number in range(1000)]
    await app.start()
    await app.publish([*events, Watermark(start + MINUTE + 10_000)])

    await app.eventually(lambda: some(app, view.name), within_s=600)

    (record,) = released((await app.releases(view.name))["public"])
    counts = count_script(view, start, events).counts
    (expected,) = expected_records(
        view,
        {start: counts[start]},
        prf_key=app.prf_key,
        entropy=app.entropy,
        lists={"places": KeyList.of(listed)},
    )["public"]
    assert record == expected
    assert [entry.item for entry in sorted(record.items, key=lambda entry: entry.item)] == listed
    (published,) = (await app.published(view.name)).values()
    assert len(published) > 1
    assert max(map(len, published)) <= MESSAGE_BYTES


async def some(app: Application, view: str) -> bool:
    return all((await app.releases(view)).values())


@pytest.mark.parametrize("broker", [pytest.param("kafka", marks=pytest.mark.broker)], indirect=True)
async def test_a_topic_that_takes_too_little_is_named_before_a_worker_starts(launch: Launch) -> None:
    app = await launch()
    release = Topics.of(app.plan).release(only_view(app).name, "public")
    await app.client.create([TopicSpec(release, 1, {"max.message.bytes": "600000"})])
    with pytest.raises(
        ConfigError, match=f"^topic {release}: it takes 600000 bytes at once; set its max.message.bytes"
    ):
        await app.start()
