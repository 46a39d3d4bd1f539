"""The one question the local Kafka is asked: can a client list topics?"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError


def answers(address: str, within_s: float = 5.0) -> bool:
    """Whether a client can list the topics of a cluster. Blocks: from an event loop, use `asyncio.to_thread`.

    Args:
        address: "host:port", or several with commas between.
        within_s: how long to wait for an answer.
    """
    with ThreadPoolExecutor(1) as own_loop:  # the calling thread may have an event loop
        return own_loop.submit(lambda: asyncio.run(_list_topics(address, within_s))).result()


async def _list_topics(address: str, within_s: float) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=round(within_s * 1000))
    try:
        async with asyncio.timeout(within_s):
            await admin.start()
            await admin.list_topics()
    except (KafkaError, OSError, TimeoutError, ValueError):
        return False
    finally:
        await admin.close()
    return True
