"""Records of visits with one fault in all of them, as producers make it who know nothing of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from zlib import crc32

from stream_dp.testing import Application, Raw, SourceWriter

DAY = 86_400_000
USER, ITEM = "zelda", "/cellar-door"
"""Parts of every user and every item."""


def _users(count: int) -> list[str]:
    return [f"{USER}{number}" for number in range(count)]


def visits(app: Application, now_ms: int, count: int = 60, **changes: object) -> list[Raw]:
    """A visit of each of some users, a second apart, the last one now; with other values of some fields."""
    writer = SourceWriter(app.plan)
    found = []
    for number, user in enumerate(_users(count)):
        at = now_ms - (count - number) * 1000
        event = {"user": user, "page": f"{ITEM}/{number % 3}", "at": at}
        event |= {name: change(at) if callable(change) else change for name, change in changes.items()}
        value = json.dumps({name: value for name, value in event.items() if value is not None}).encode()
        found.append(Raw(writer.place(user), user.encode(), value))
    return found


def _avro(app: Application, now_ms: int) -> list[Raw]:
    return [Raw(r.partition, r.key, b"\0\0\0\0\7\x0a" + (r.key or b"") + b"\x82\xff") for r in visits(app, now_ms)]


def _null_keys(app: Application, now_ms: int) -> list[Raw]:
    return [Raw(record.partition, None, record.value) for record in visits(app, now_ms)]


def _librdkafka(app: Application, now_ms: int) -> list[Raw]:
    partitions = app.plan.partitions
    return [Raw(crc32(r.key or b"") % partitions, r.key, r.value) for r in visits(app, now_ms)]


def _missing_field(app: Application, now_ms: int) -> list[Raw]:
    return visits(app, now_ms, page=None, pages=ITEM)


Make = Callable[[Application, int], list[Raw]]
FAULTS: Mapping[str, tuple[Make, str, str]] = {
    "avro": (_avro, "malformed_json", "Avro or Protobuf of a schema registry"),
    "null keys": (_null_keys, "null_key", "let the producers write it"),
    "seconds for milliseconds": (
        lambda app, now: visits(app, now, at=lambda at: at // 1000),
        "wrong_unit",
        "set sources.visits.time.unit: s",
    ),
    "missing field": (_missing_field, "missing_field", "field 'page' (views.NAME-pages.item) is missing"),
    "librdkafka's partitioner": (_librdkafka, "wrong_partition", "set partitioner: crc32"),
    "clocks two days ahead": (
        lambda app, now: visits(app, now, at=lambda at: at + 2 * DAY),
        "future",
        "set the clocks of the producers",
    ),
    "text for milliseconds": (
        lambda app, now: visits(app, now, at="2026-01-31T09:30:00Z"),
        "wrong_type",
        "set sources.visits.time.unit: iso",
    ),
}
"""By name: the records, the reason, and words of the remedy; in them NAME is that of the application."""
