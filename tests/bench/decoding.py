"""Records per second from bytes to events, in JSON and in Avro: `python -m tests.bench.decoding`.

The same events in both, in chunks as a worker has them, on one core and without anything around. Avro is measured with
a schema of the fields that are needed, and with one that has lists besides, which are passed over.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from stream_dp.windows.avro import AvroEventDecoder
from stream_dp.windows.events import EventDecoder, EventFormat
from tests.support.avro import schemas, written
from tests.support.counting import Entry

FORM = EventFormat(("page",), "user", "at", "ms")
FIELDS = [("user", "string"), ("page", ["null", "string"]), ("at", "long"), ("session", "string"), ("price", "double")]
LISTS = [*FIELDS, ("tags", {"type": "array", "items": "string"})]
CHUNK = 10_000


def _schema(fields: Sequence[tuple[str, Any]]) -> Mapping[str, Any]:
    return {"type": "record", "name": "E", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def _seconds(decoder: EventDecoder, chunk: Sequence[Entry]) -> float:
    begun = time.perf_counter()
    found = decoder.decode(chunk)
    seconds = time.perf_counter() - begun
    assert len(found.offsets) == len(chunk)
    return seconds


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    chance = random.Random(1)
    events: list[dict[str, Any]] = [
        {
            "user": f"u{chance.randrange(9999)}",
            "page": f"/page/{chance.randrange(99)}",
            "at": 1_700_000_000_000 + number,
        }
        | {"session": f"{chance.getrandbits(64):x}", "price": 9.5, "tags": ["a", "b"]}
        for number in range(CHUNK)
    ]
    avro = AvroEventDecoder(FORM)
    avro.learn(schemas(FORM, _schema(FIELDS), _schema(LISTS)))
    sides = {
        "JSON": (EventDecoder(FORM), [msgspec.json.encode(event) for event in events]),
        "Avro": (avro, [written(_schema(FIELDS), event, 1) for event in events]),
        "Avro, lists passed over": (avro, [written(_schema(LISTS), event, 2) for event in events]),
    }
    base = 0.0
    for name, (decoder, values) in sides.items():
        chunk = [
            Entry(at, event["user"].encode(), value)
            for at, (event, value) in enumerate(zip(events, values, strict=True))
        ]
        rate = CHUNK / median(_seconds(decoder, chunk) for _ in range(runs))
        base = base or rate
        print(f"{name}: {rate:,.0f} records/s, {rate / base:.2f} of JSON")


if __name__ == "__main__":
    main()
