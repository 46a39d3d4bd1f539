"""The one question the local Kafka is asked: can a client list topics, and of which cluster?"""

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
    return cluster_of(address, within_s) is not None


def cluster_of(address: str, within_s: float = 5.0) -> str | None:
    """The id of a cluster whose topics a client can list, None if it cannot. Blocks as `answers` does.

    Args:
        address: "host:port", or several with commas between.
        within_s: how long to wait for an answer.
    """
    with ThreadPoolExecutor(1) as own_loop:  # the calling thread may have an event loop
        return own_loop.submit(lambda: asyncio.run(_describe(address, within_s))).result()


async def _describe(address: str, within_s: float) -> str | None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, request_timeout_ms=round(within_s * 1000))
    try:
        async with asyncio.timeout(within_s):
            await admin.start()
            return str((await admin.describe_cluster())["cluster_id"])
    except (KafkaError, OSError, TimeoutError, ValueError):
        return None
    finally:
        await admin.close()
