"""Settings change that read other fields of a source: of one that is re-keyed, and of one in Avro.

What an event counts for is decided by its time alone, however late or early it is read.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Set
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.plan import ViewPlan
from stream_dp.runtime.sources import schema_registry as client
from stream_dp.runtime.sources.schema_registry import SourceSchemas
from stream_dp.testing import Event, Raw, SourceWriter, Watermark
from stream_dp.windows.events import WATERMARK_HEADER, Schemas
from tests.support.avro import bare, written
from tests.support.changing import Changing, Make
from tests.support.registry import FakeRegistry, fake_registry, named

SLOW_ON_KAFKA = True

RICH = ('epsilon: "100", delta: "1/100"', 'epsilon: "10000", delta: "9/10"')
REKEYED = ("user: user, time", "key: user, time")
ENOUGH = ("items_per_user: 2", "items_per_user: 6")
"""More than a user has: then it is no matter in which order the events of a user come."""


def visits_of(made: Changing, *minutes: int) -> list[Event]:
    """Visits of some minutes, of which each user has several pages."""
    return [
        Event(f"u{n % 40}", f"/{(n * n + minute) % 5}", made.at(minute) + 400 * n)
        for minute in minutes
        for n in range(150)
    ]


def said(event: Event) -> dict[str, Any]:
    """A visit, from which every edition takes what it counts."""
    tags = [f"{event.item}{end}" for end in "ab"]
    return {"user": event.user, "page": event.item, "place": f"in {event.item}", "tags": tags, "at": event.time_ms}


def seen(asked: ViewPlan, event: Event) -> Event:
    """What a definition reads of a visit."""
    found = said(event)[asked.item_field]
    return replace(event, item=found[0], more=tuple(found[1:])) if asked.has_lists else replace(event, item=found)


OTHER = {
    "another field, in windows of another size": (("item: page", "item: place"), ("size: 1m", "size: 2m")),
    "other bounds": (("items_per_user: 6", "items_per_user: 5"),),
    "other noise": (('standard, epsilon: "2"', 'standard, epsilon: "3"'),),
}


@pytest.mark.parametrize(
    "changes",
    [pytest.param(one, id=name, marks=pytest.mark.slow if "bounds" in name else ()) for name, one in OTHER.items()],
)
async def test_re_keyed_events_count_under_the_edition_of_their_time_however_far_their_partition_is_behind(
    changing: Make, changes: tuple[tuple[str, str], ...]
) -> None:
    """One partition of the source is read when the change is known. The others were before, and their time is past it.

    What was counted ahead of the change stays counted where the next edition accepts the same. Else it is given up, and
    windows that had begun by then in any partition are lost.
    """
    made = await changing(RICH, REKEYED, ENOUGH)
    app = made.app
    made.clock.now_ms = made.at(60)
    worker = await app.start(clock_ms=made.clock)
    before, ahead, later = visits_of(made, 0, 1), visits_of(made, 2, 7), visits_of(made, 6)
    place = {event: at % 3 for at, event in enumerate([*before, *ahead, *later])}

    async def publish(partition: int, events: list[Event], mark: int) -> None:
        values = [json.dumps(said(event)).encode() for event in events if place[event] == partition]
        marked = {WATERMARK_HEADER: str(made.at(mark) + 20_000).encode()}
        raw = [Raw(partition, None, value) for value in values]
        await app.publish([*raw, Raw(partition, None, b"", marked)])

    async def looked_at(number: int) -> None:
        def total(name: str, **labels: str) -> int:
            return worker.counters.total(name, **labels)

        async def all_of_them() -> bool:
            repeated = sum(total("events_refused", reason=reason) for reason in ("duplicate", "clipped"))
            return total("events_counted") + repeated >= number

        await app.eventually(all_of_them)

    for partition in (0, 2):
        await publish(partition, [*before, *ahead], 4)
    await looked_at(sum(place[event] != 1 for event in [*before, *ahead]))
    await made.apply(2, *changes)
    await made.learned(2)
    late = Event("u1", "/late", made.at(2))
    for partition in (0, 2):
        place[late] = partition
        await publish(partition, [late, *later], 5)
    del place[late]
    await looked_at(sum(place[event] != 1 for event in place))
    assert worker.counters.total("windows_closed") == 0, "no window closes before all partitions have passed it"
    await publish(1, list(place), 8)
    for partition in (0, 2):
        await publish(partition, [], 8)

    goes_along = changes == OTHER["other noise"]
    given_up = set() if goes_along else {event for event in ahead if place[event] != 1}

    def taken(asked: ViewPlan, event: Event) -> Event | None:
        return seen(asked, event) if asked is made.definitions()[0] or event not in given_up else None

    lost = [] if goes_along else list(made.definitions()[-1].window.shape.starts(made.at(2), made.at(5)))
    await made.assert_released(list(place), 8, taken, lost)
    too_late = 0 if goes_along else sum(place[event] == 1 and event.time_ms < made.at(5) for event in ahead)
    assert bool(worker.counters.total("events_refused", reason="changed")) == bool(given_up)
    assert worker.counters.total("events_refused", reason="late") == 2 + too_late, "by the time of their own partition"


FIELDS = {"user": "string", "page": "string", "place": "string", "tags": {"type": "array", "items": "string"}}
AT = {"type": "long", "logicalType": "timestamp-millis"}


def schema(*names: str) -> Any:
    fields = [{"name": name, "type": FIELDS[name]} for name in names] + [{"name": "at", "type": AT}]
    return {"type": "record", "name": "Visit", "fields": fields}


ALL, PAGES = schema(*FIELDS), schema("user", "page")


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with fake_registry() as registry:
        registry.add(1, ALL)
        registry.add(2, PAGES)
        yield registry


def in_avro(made: Changing, events: list[Event], number: int = 1) -> list[Raw]:
    """Events as a producer writes them, in one of the schemas."""
    writer = SourceWriter(made.app.plan)
    return [
        Raw(writer.place(one.user), one.user.encode(), written(bare([ALL, PAGES][number - 1]), said(one), number))
        for one in events
    ]


PLACES = (("item: page", "item: place"),)
LISTS = (("item: page", "items: tags"),)


async def test_another_field_of_avro_is_read_from_a_boundary_on_also_where_the_change_comes_while_schemas_are_asked_for(
    changing: Make, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another field, then the items of a list, then the first field again, in a schema that has no other."""
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.01)
    avro = ("partitions: 3", "partitions: 3, format: avro")
    made = await changing(RICH, avro, named(fake.url))
    app = made.app
    find = SourceSchemas.find_readers
    made.clock.now_ms = made.at(60)
    worker = await app.start(clock_ms=made.clock, unchecked_data=True)
    script: list[Event | Watermark] = []

    async def publish(minutes: tuple[int, int], number: int = 1) -> None:
        events, mark = visits_of(made, *minutes), Watermark(made.at(minutes[-1]) + 20_000)
        script.extend([*events, mark])
        await app.publish([*in_avro(made, events, number), mark])

    await publish((0, 1))
    await made.consumed(300 + 3)

    async def overtaken(self: SourceSchemas, wanted: Set[bytes], **options: float) -> Schemas:
        """Settings come to hold between the answer of the registry and the counting."""
        answer = await find(self, wanted, **options)
        if len(made.definitions()) == 1:
            await made.apply(2, *PLACES)
            await worker.host.catch_up()
        return answer

    monkeypatch.setattr(SourceSchemas, "find_readers", overtaken)
    await publish((2, 3))
    await made.learned(2)
    await made.consumed(2 * 303)
    monkeypatch.undo()

    fake.broken = 503, b""
    fake.add(3, ALL)
    await made.apply(4, *LISTS)
    await made.learned(3)
    asked = len(fake.asked)
    await publish((4, 5), 1)

    async def again() -> bool:
        return len(fake.asked) > asked

    await app.eventually(again)
    fake.broken = None
    await made.consumed(3 * 303)
    await made.apply(6)
    await made.learned(4)
    script.append(Watermark(made.at(6) + 20_000))
    await app.publish(script[-1:])
    await app.wait_for_releases(made.view.name, 6)
    await publish((6, 7), 2)
    script.append(Watermark(made.at(8) + 20_000))
    await app.publish(script[-1:])

    await made.assert_released(script, 8, seen)
    assert not await app.dead_letters(), "no record lacked a field that was needed"
