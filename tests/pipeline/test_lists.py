"""Public lists on a worker: one in a topic that changes while it runs, and a range of numbers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import pytest

from stream_dp.errors import ConfigError
from stream_dp.kinds.public_lists import KeyList, NumberRange
from stream_dp.records.by_kind import CatalogueRelease
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.testing import Application, Event, Watermark
from stream_dp.windows.effects import Message
from tests.support.oracle import count_script
from tests.support.sealing import read_window, seal_window, window_key_of
from tests.support.views import only_view, oracle_bytes, released, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
HISTOGRAM, DELTA = "    kind: histogram\n", '    delta: "1e-4"\n'
PAGES = ["home", "cart", "help", "rare", "odd"]


def catalogue(written: str) -> tuple[tuple[str, str], ...]:
    return (HISTOGRAM, f"    kind: catalogue\n    catalogue: {written}\n"), (DELTA, "")


def window(number: int, start: int) -> list[Event]:
    """A window in which the n-th page has 5n users of its own."""
    at = start + number * MINUTE
    return [Event(f"{page} {user}", page, at + user) for n, page in enumerate(PAGES, 1) for user in range(5 * n)]


class Listed:
    """An application with a list in a topic of its own."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.view = only_view(app)
        (self.topic,) = self.view.kind.topics
        self.start = start_of(self.view)
        self.windows = 0

    async def put(self, *keys: str) -> None:
        await self._write(keys, b"1")

    async def drop(self, *keys: str) -> None:
        await self._write(keys, None)

    async def _write(self, keys: tuple[str, ...], value: bytes | None) -> None:
        await self.app.client.publish([Message(self.topic, key.encode(), value, len(key) % 2) for key in keys])

    async def release(self) -> None:
        """Let a window pass, and wait until it is released."""
        self.windows += 1
        end = self.start + self.windows * MINUTE
        await self.app.publish([*window(self.windows - 1, self.start), Watermark(end + 10_000)])
        await self.app.wait_for_releases(self.view.name, self.windows)

    async def versions(self) -> list[str]:
        """By window, the list that all audiences are shown counts of: those that the oracle has for it."""
        found = []
        records = await self.app.releases(self.view.name)
        for number, together in enumerate(zip(*map(released, records.values()), strict=True)):
            start = self.start + number * MINUTE
            counts = count_script(self.view, start, window(number, self.start)).counts[start]
            for audience, record in zip(records, together, strict=True):
                assert isinstance(record, CatalogueRelease)
                listed = KeyList.of(entry.item for entry in record.items)
                lists, entropy = {self.topic: listed}, self.app.entropy
                key = window_key_of(self.view, start, self.app.prf_key, entropy)
                table = seal_window(self.view, start, counts, prf_key=key, entropy=entropy, lists=lists)
                (reading,) = read_window(self.view, start, table, [self.view.audiences[audience]], key)
                assert (record.catalogue, record.items) == (reading.fields["catalogue"], reading.fields["items"])
            (version,) = {record.catalogue.version for record in together if isinstance(record, CatalogueRelease)}
            found.append(version)
        return found


async def assert_unknown(app: Application, view: str, expected: int) -> None:
    """A window may be published before its step has come to the counter."""
    worker = app.worker
    assert worker is not None

    async def counted() -> bool:
        return worker.counters.total("events_unknown", view=view) >= expected

    await app.eventually(counted)
    assert worker.counters.total("events_unknown", view=view) == expected


def outside(*listed: str) -> int:
    """How much of a window is of other pages."""
    return sum(5 * n for n, page in enumerate(PAGES, 1) if page not in listed)


async def test_a_changed_list_holds_from_the_next_window_on_and_an_unusable_one_stops_nothing(
    launch: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stream_dp.worker")
    app = await launch(*catalogue("{topic: NAME.listed}"))
    shop = Listed(app)
    await app.client.create([TopicSpec(shop.topic, 2)])
    await shop.put("home", "cart")
    await app.start()
    await shop.release()

    async def said(text: str) -> bool:
        return any(text in message for message in caplog.messages)

    changed = KeyList.of(["cart", "help"])
    await shop.put("help")
    await shop.drop("home")
    await app.eventually(lambda: said(f"are made with list {changed.version}"))
    await shop.release()

    await shop.drop("cart", "help")
    await app.eventually(lambda: said("the list must have between 1 and 1000000 keys, not 0; its windows go on"))
    await shop.release()
    await assert_unknown(app, shop.view.name, outside("home", "cart") + 2 * outside("cart", "help"))

    await app.stop()
    with pytest.raises(ConfigError, match="the list must have between 1 and 1000000 keys, not 0"):
        await app.start()
    await shop.put("odd")
    await app.start()
    await shop.release()

    former, last = KeyList.of(["home", "cart"]), KeyList.of(["odd"])
    assert await shop.versions() == [former.version, changed.version, changed.version, last.version]
    await assert_unknown(app, shop.view.name, outside("odd"))
    assert len([message for message in caplog.messages if "cannot use what stands in topic" in message]) == 1


async def test_a_range_of_numbers_is_a_catalogue(launch: Launch) -> None:
    app = await launch(*catalogue("{numbers: {from: 3, to: 20}}"))
    view = only_view(app)
    start = start_of(view)
    script = [Event(f"u{user}", str(user % 30 if user % 7 else f"0{user % 9}"), start + user) for user in range(300)]
    await app.start()
    await app.publish([*script, Watermark(start + MINUTE + 10_000)])
    await app.wait_for_releases(view.name, 1)

    counts: Mapping[str, int] = count_script(view, start, script).counts[start]
    assert await app.published(view.name) == oracle_bytes(app, view, {start: counts})
    for record in released((await app.releases(view.name))["internal"]):
        assert isinstance(record, CatalogueRelease)
        assert {entry.item for entry in record.items} == {str(number) for number in range(3, 21)}
        assert record.catalogue.version == NumberRange(3, 20).version
        exact = {entry.item: counts.get(entry.item, 0) for entry in record.items}
        assert max(abs(entry.count - exact[entry.item]) for entry in record.items) < 60  # 2 e^-60: noise of epsilon 1
    others = count_script(view, start, script).refused["unlisted"]
    assert others > 100
    await assert_unknown(app, view.name, others)
