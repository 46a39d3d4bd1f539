"""What clocks have told the partitions."""

from __future__ import annotations

from stream_dp.runtime.clock import Tick
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application
from stream_dp.windows.encoding import decode


async def told(app: Application, now_ms: int) -> bool:
    """Whether there is a tick of a time in every partition."""
    ticks = [decode(Tick, value or b"") for _, value in await app.read(Topics.of(app.plan).ticks)]
    return sum(tick.now_ms == now_ms for tick in ticks) >= app.plan.partitions
