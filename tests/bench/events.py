"""The events of the benchmark: synthetic baskets of a shop, or those of a file, the same on every machine."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import murmur2
from aiokafka.producer.message_accumulator import BatchBuilder

from stream_dp.config.access import Broker, check_broker
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.windows.events import WATERMARK_HEADER

PARTITIONS = 4
WINDOW_MS = 300_000
WINDOWS = 12
START_MS = 1_700_000_100_000
"""Start of the first window."""
GRACE_MS = 10_000

_VOCABULARY = 16_470
_TILLS = 50
"""Baskets that are open at once: events of one user do not stand side by side."""
_BATCH_BYTES = 1 << 17
_SEED = 20_231_114

Event = tuple[str, str, int]
"""User, item, time in ms."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a view that keeps `items_per_user` items does with the events, from the definition alone."""

    kept: int
    clipped: int
    duplicate: int


def synthetic_baskets(seed: int = _SEED) -> Iterator[list[str]]:
    """Baskets without end, shaped like a supermarket's: 8 distinct items in the middle one, 10 on average, 76 at most.

    Items are Zipf-distributed over a vocabulary of 16,470.
    """
    draw = random.Random(seed)
    weights = list(accumulate(1 / rank for rank in range(1, _VOCABULARY + 1)))
    names = [f"i{rank}" for rank in range(_VOCABULARY)]
    while True:
        size = max(1, min(76, round(draw.lognormvariate(2.08, 0.75))))
        items = draw.choices(names, cum_weights=weights, k=size)
        yield list(dict.fromkeys(items))


def read_baskets(file: Path) -> Iterator[list[str]]:
    """The baskets of a file in FIMI format: one line each, items separated by blanks; `.gz` is unpacked."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        for line in lines:
            if items := line.split():
                yield [f"i{item}" for item in items]


def events_of(baskets: Iterable[list[str]], count: int | None) -> list[Event]:
    """The first events of some baskets, each basket a user, spread evenly over the time of all windows.

    Args:
        baskets: the items of each basket.
        count: how many events; None for all.
    """
    pairs: list[tuple[str, str]] = []
    source = enumerate(baskets)
    tills: deque[tuple[str, Iterator[str]]] = deque((f"u{user}", iter(items)) for user, items in _some(source, _TILLS))
    while tills and (count is None or len(pairs) < count):
        user, items = tills.popleft()
        item = next(items, None)
        if item is not None:
            pairs.append((user, item))
            tills.append((user, items))
        else:
            tills.extend((f"u{user}", iter(items)) for user, items in _some(source, 1))
    span = WINDOWS * WINDOW_MS
    return [(user, item, START_MS + at * span // len(pairs)) for at, (user, item) in enumerate(pairs)]


def _some(source: Iterator[tuple[int, list[str]]], count: int) -> Iterator[tuple[int, list[str]]]:
    for _ in range(count):
        found = next(source, None)
        if found is not None:
            yield found


def expected(events: Sequence[Event], items_per_user: int) -> Expected:
    """Count by definition: of each user and window the first `items_per_user` distinct items, each once."""
    held: dict[tuple[str, int], set[str]] = {}
    tally: Counter[str] = Counter()
    for user, item, time in events:
        mine = held.setdefault((user, (time - START_MS) // WINDOW_MS), set())
        if item in mine:
            tally["duplicate"] += 1
        elif len(mine) >= items_per_user:
            tally["clipped"] += 1
        else:
            mine.add(item)
            tally["kept"] += 1
    return Expected(tally["kept"], tally["clipped"], tally["duplicate"])


@cache
def partition_of(user: str) -> int:
    """Where the events of a user are, as Kafka's producers place a key."""
    return int(murmur2(user.encode()) & 0x7FFFFFFF) % PARTITIONS


async def produce(broker: str, topic: str, events: Sequence[Event]) -> int:
    """Create a topic and write the events to it, keyed by user, with a watermark wherever a window is over.

    Record timestamps are those of sending: a record with an old one would fall to the topic's retention.

    Returns:
        How many records the topic holds.
    """
    async with connect(Broker(check_broker(broker))) as client:
        await client.create([TopicSpec(topic, PARTITIONS)])
    producer = AIOKafkaProducer(bootstrap_servers=broker, compression_type="lz4", max_batch_size=_BATCH_BYTES)
    await producer.start()
    try:
        sent = [
            await producer.send_batch(batch, topic, partition=partition)
            for partition, batch in _batches(producer.create_batch, events)
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
    return len(events) + PARTITIONS * WINDOWS


def _batches(new_batch: Callable[[], BatchBuilder], events: Sequence[Event]) -> Iterator[tuple[int, BatchBuilder]]:
    """Full batches of each partition, in the order of its records."""
    batches = [new_batch() for _ in range(PARTITIONS)]
    for partition, key, value, headers in _records(events):
        if batches[partition].append(key=key, value=value, timestamp=None, headers=headers) is None:
            yield partition, batches[partition]
            batches[partition] = new_batch()
            batches[partition].append(key=key, value=value, timestamp=None, headers=headers)
    yield from enumerate(batches)


def _records(events: Sequence[Event]) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """(partition, key, value, headers) of every event, and of the watermark that says that a window is over."""
    over = START_MS + WINDOW_MS
    for user, item, time in events:
        if time >= over:
            yield from _watermarks(over)
            over += WINDOW_MS
        key = user.encode()
        yield partition_of(user), key, b'{"user":"%s","item":"%s","ts":%d}' % (key, item.encode(), time), []
    while over <= START_MS + WINDOWS * WINDOW_MS:
        yield from _watermarks(over)
        over += WINDOW_MS


def _watermarks(time: int) -> Iterator[tuple[int, None, None, list[tuple[str, bytes]]]]:
    mark = str(time + GRACE_MS).encode()
    for partition in range(PARTITIONS):
        yield partition, None, None, [(WATERMARK_HEADER, mark)]
