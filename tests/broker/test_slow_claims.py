"""Taking partitions over may take longer than the group waits for a silent worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from faust.types import TP

from stream_dp.runtime.faust import app as runtime
from stream_dp.runtime.kafka.cluster import Cluster
from stream_dp.runtime.kafka.transactions import KafkaWriter
from stream_dp.testing import Event, Watermark, application
from tests.support.processes import SESSION_SECONDS
from tests.support.views import only_view, start_of

pytestmark = pytest.mark.broker
MINUTE = 60_000
CLAIM_SECONDS = 2.5
"""Of each of the three tables, one after another: more than a session."""


async def test_a_worker_whose_takeover_lasts_longer_than_a_session_stays_in_the_group_and_takes_over_once(
    kafka: str, tmp_path: Path, visits: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, claimed = KafkaWriter.claim, list[TP]()

    async def slow(cluster: Cluster, tp: TP) -> KafkaWriter:
        claimed.append(tp)
        await asyncio.sleep(CLAIM_SECONDS)
        return await claim(cluster, tp)

    monkeypatch.setattr(runtime, "SESSION_SECONDS", SESSION_SECONDS)
    monkeypatch.setattr(KafkaWriter, "claim", staticmethod(slow))
    async with application(visits(), tmp_path, broker=kafka) as app:
        view, start = only_view(app), start_of(only_view(app))
        await app.publish([Event("u1", "/", start), Watermark(start + 2 * MINUTE)])
        await app.start()

        await app.wait_for_releases(view.name, 1)

        assert len(claimed) == len(set(claimed)) == 3 * app.plan.partitions
