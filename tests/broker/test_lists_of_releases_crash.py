"""A list made of releases through kill -9 and a takeover: every window has a list that was published before it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.by_kind import CatalogueRelease
from stream_dp.records.models import Release
from stream_dp.testing import application
from tests.pipeline.test_lists_of_releases_run import COUNTED, LONGER, minute
from tests.support.views import start_of

pytestmark = pytest.mark.broker

DEATHS = [None, "send release:2", "commit releases:3", "commit merges:2"]
"""Where the worker of a pair of minutes dies; none in the first."""


@pytest.mark.slow
async def test_lists_are_of_what_was_published_whoever_dies(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    async with application(visits(LONGER, COUNTED), tmp_path, broker=kafka) as app:
        finds, counts = (next(name for name in app.plan.views if name.endswith(end)) for end in ("-pages", "-counted"))
        start, first, second = start_of(app.plan.views[finds]), spawn(app, "state"), spawn(app, "other")
        second.start()
        for pair, death in enumerate(DEATHS):
            first.start(*([] if death is None else ["--die-before", death]))
            for at in (2 * pair, 2 * pair + 1):
                await app.publish(minute(start, at))
            if death is not None:
                try:
                    async with asyncio.timeout(30):
                        assert await asyncio.to_thread(first.wait) == -signal.SIGKILL, first.said()
                except TimeoutError:
                    first.signal(signal.SIGKILL)  # the other worker had what it waited for
                    await asyncio.to_thread(first.wait)
            await app.wait_for_releases(counts, 2 * pair + 2)
            await app.wait_for_releases(finds, pair + 1)
            if death is None:
                first.signal(signal.SIGKILL)
                await asyncio.to_thread(first.wait)

        shown = [
            {entry.item for entry in one.items}
            for one in (await app.releases(finds))["public"]
            if isinstance(one, Release)
        ]
        published = [set[str](), *shown]
        versions = {KeyList.of(keys).version: keys for keys in published}
        records = (await app.releases(counts))["public"]
        assert len({record.window.start_ms for record in records}) == len(records) == 2 * len(DEATHS)
        for record in records:
            assert isinstance(record, CatalogueRelease)
            keys = {entry.item for entry in record.items}
            assert versions[record.catalogue.version] == keys
            assert "/rare" not in keys
        assert all(one.window.end_ms <= other.window.end_ms for one, other in pairwise(records))
        assert await asyncio.to_thread(second.terminate) == 0
