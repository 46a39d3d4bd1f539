"""On a real cluster: a first start that could count little makes nothing, and `check --sample` says the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.cli.check_command import check
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import application
from tests.support.faults import FAULTS, ITEM, USER
from tests.support.processes import WorkerProcess

pytestmark = pytest.mark.broker
FAULT = "librdkafka's partitioner"


async def test_a_first_start_on_users_in_wrong_partitions_ends_with_code_2_before_anything_is_made(
    kafka: str, visits: Callable[..., str], tmp_path: Path
) -> None:
    async with application(visits(), tmp_path, broker=kafka) as app:
        make, reason, words = FAULTS[FAULT]
        await app.publish(make(app, wall_clock_ms()))
        worker = WorkerProcess(app, "first", "--terse")
        worker.start()
        try:
            assert await asyncio.to_thread(worker.wait) == 2
        finally:
            worker.end()
        (said,) = [line for line in worker.ending().splitlines() if line.startswith("error: ")]
        assert (
            "error: sources.visits: a worker would refuse most records of more than half of the users in topic "
            f"{app.plan.name}.visits" in said
        )
        assert reason in said
        assert words in said
        made = await app.client.describe([spec.name for spec in Topics.of(app.plan).all(app.plan)])
        assert not made
        assert not [
            key
            for key, _ in await app.read(Topics.of(app.plan).owners.name)
            if (key or b"").startswith(app.plan.name.encode())
        ]

        def sampled() -> str:
            env = {"STREAM_DP_BROKER": kafka, "COLUMNS": "200"}
            result = CliRunner().invoke(check, [str(tmp_path / "application.yaml"), "--sample"], env=env)
            assert result.exit_code == 0, result.output
            return result.output

        page = await asyncio.to_thread(sampled)
        assert "60 are where crc32 puts them" in page
        assert words in page
        assert USER not in page + worker.ending()
        assert ITEM not in page + worker.ending()
