"""The kinds over public lists, from a configuration in the documents: killed workers, replays and grants."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.models import Release
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.testing import application
from stream_dp.windows.effects import Message
from tests.support.visits import PAGES, Stream, new_name

pytestmark = pytest.mark.broker

DOCUMENT = Path(__file__).parents[2] / "docs" / "pages.yaml"
DEATHS = ["send release:1"]
"""When a window has been sealed, and its records are about to leave."""
MORE_DEATHS = [
    "send partials:2",
    "commit merges:2",
    "commit releases:2",
    "commit releases:3",
    "commit releases:4",
    *DEATHS,
]
LISTED = [*PAGES, *(f"/archive/{number}" for number in range(20))]
GRANTED = {"public": "detailed"}


def configuration(name: str) -> str:
    """The document's, with names of its own on the broker, and minutes for days."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for old, new in (
        ("name: pages\n", f"name: {name}\n"),
        ("{topic: visits,", f"{{topic: {name}.visits,"),
        ("{topic: page-list}", f"{{topic: {name}.pages}}"),
        ("  front:\n", f"  {name}-front:\n"),
        ("  most-read:\n", f"  {name}-most-read:\n"),
        ("size: 1d,", "size: 1m,"),
        ("grace: 1h,", "grace: 10s,"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [DEATHS, MORE_DEATHS], ids=["one", "more"])
async def test_the_views_of_the_document_survive_crashes_replays_and_a_grant(
    kafka: str, tmp_path: Path, spawn: Any, deaths: list[str]
) -> None:
    name = new_name()
    async with application(configuration(name), tmp_path, broker=kafka) as app:
        await app.client.create([TopicSpec(f"{name}.pages", 1)])
        await app.client.publish([Message(f"{name}.pages", page.encode(), b"1") for page in LISTED])
        stream, worker = Stream(app, visits=900), spawn(app, "state")
        await stream.go_on()
        for death in deaths:
            worker.start("--die-before", death)
            await stream.go_on()
            assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL, worker.said()
        worker.start()
        await stream.assert_released()
        worker.signal(signal.SIGKILL)
        assert await asyncio.to_thread(worker.wait) == -signal.SIGKILL
        worker.start()
        await app.grant("public", "detailed")
        await stream.wait_until_sharpened(GRANTED)
        said = worker.log.read_text()
        assert await asyncio.to_thread(worker.terminate) == 0

        (await stream.audit(GRANTED)).assert_clean()
        version = KeyList.of(LISTED).version
        for view in app.plan.views:
            for records in (await app.releases(view)).values():
                for record in records:
                    assert isinstance(record, Release)
                    shown = [entry.item for entry in record.items]
                    assert set(shown) <= set(LISTED)
                    assert (len(shown), shown == sorted(shown)) == (4, True) or view.endswith("front")
                    assert getattr(record, "catalogue").version == version  # noqa: B009
        assert not any(f'"{page}"' in said or f"'{page}'" in said for page in LISTED), "a log names a page"
