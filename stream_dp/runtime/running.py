"""The life of a worker process: prepare, start, run until stopped or crashed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, ParameterError, StorageError, StreamDPError
from stream_dp.runtime.bootstrap import prepare
from stream_dp.runtime.client import Client, connect
from stream_dp.runtime.computing import measure
from stream_dp.runtime.host import Agent
from stream_dp.runtime.keys import key_id, load_key
from stream_dp.runtime.membership import admit
from stream_dp.runtime.metrics import CountersFile
from stream_dp.runtime.worker import Worker
from stream_dp.windows.durations import format_duration

log = logging.getLogger("stream_dp.worker")

REPORT_SECONDS = 10.0
STOP_SECONDS = 30.0


async def run_worker(plan: Plan, agents: Mapping[str, Agent], *, replication: int = 1, **options: Any) -> None:
    """Run a worker until SIGINT or SIGTERM. A worker that crashes ends its process: nothing else is safe.

    Args:
        plan: the checked configuration.
        agents: by name (`stream_dp.agents.AGENTS`).
        replication: copies of every created topic.
        options: passed on to `Worker`.

    Raises:
        StreamDPError: it could not start.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)
    for computing in await asyncio.to_thread(measure, plan):
        level = logging.INFO if computing.advised else logging.WARNING
        log.log(level, "%s", computing.words(format_duration(plan.slots.offset_ms)))
    async with (
        connect(plan.broker) as client,
        running(plan, client, agents, replication=replication, **options) as worker,
    ):
        counters = CountersFile(plan.data_dir)
        log.info("worker of %s is running: %d views on %s", plan.name, len(plan.views), plan.broker)
        while not stop.is_set():
            await _first(stop.wait(), worker.crashed(), asyncio.sleep(REPORT_SECONDS))
            reason = worker.crash_reason()
            if not isinstance(reason, StorageError):  # the disk has refused already
                counters.write(worker.counters)
            if reason is not None:
                _end(reason)
    log.info("worker of %s stopped", plan.name)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether `_end` does not say it: Faust reports every part that an error of ours brings down, with its stack."""
    return not (record.exc_info and isinstance(record.exc_info[1], StreamDPError))


def _end(reason: BaseException) -> None:
    """Leave at once, with what was acknowledged and nothing more; the next start reads the rest again."""
    kind = "error" if isinstance(reason, StreamDPError) else f"crashed by {type(reason).__name__}"
    sys.stderr.write(f"{kind}: {reason}\n")
    sys.stderr.flush()
    logging.shutdown()
    os._exit(2 if isinstance(reason, ConfigError | ParameterError) else 1)


@asynccontextmanager
async def running(
    plan: Plan, client: Client, agents: Mapping[str, Agent], *, replication: int = 1, **options: Any
) -> AsyncIterator[Worker]:
    """A started worker; leaving the context stops it: the chunk at hand is finished and committed."""
    prf_key = load_key(plan.key_file)
    accept_loss = bool(options.get("accept_loss"))
    settled = await prepare(plan, client, key_id(prf_key), replication=replication, accept_loss=accept_loss)
    await admit(plan, settled, client)
    worker = Worker(plan, settled, agents, client, prf_key=prf_key, **options)
    await worker.app.start()
    try:
        yield worker
    finally:
        await asyncio.wait_for(worker.app.stop(), STOP_SECONDS)
        worker.host.forget()


async def _first(*waiting: Any) -> None:
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
