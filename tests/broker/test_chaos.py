"""Whatever happens to workers, networks, folders and brokers: the short form of `python -m tests.chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_dp.runtime.localkafka import jars
from tests.chaos.acts import KINDS
from tests.chaos.driver import run

pytestmark = [pytest.mark.broker, pytest.mark.nightly]


async def test_two_minutes_of_chaos_leave_every_window_released_in_time_drawn_once_counted_right_and_paid(
    tmp_path: Path,
) -> None:
    if (problem := jars.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    result = await run(tmp_path, KINDS, seed=268, minutes=1.6, workers=(2, 3), say=print)

    print(result)
    result.report.assert_clean()
