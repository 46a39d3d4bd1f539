"""The life of a worker process: prepare, start, run until stopped or crashed."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn

from aiokafka.errors import KafkaError

from stream_dp.config.plan import Plan
from stream_dp.control.editions import differing
from stream_dp.errors import WRONG_CONFIGURATION, BrokerError, ConfigError, Fault, OutageError, StreamDPError, exit_code
from stream_dp.runtime.faust.host import Agent
from stream_dp.runtime.faust.membership import admit
from stream_dp.runtime.kafka.client import Client, connect
from stream_dp.runtime.kafka.cluster import Cluster, missing
from stream_dp.runtime.kafka.outages import explain_silence, not_allowed, patiently
from stream_dp.runtime.kafka.ownership import Owner, claimed
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.kafka.transactions import GaveWayError, PartitionLostError
from stream_dp.runtime.key_file import has_keys, load_keys
from stream_dp.runtime.limits import open_more_files
from stream_dp.runtime.settled import prepare
from stream_dp.runtime.sources.schema_registry import open_registry
from stream_dp.runtime.sources.survey import check_first_starts
from stream_dp.runtime.storage import OTHERS, locked
from stream_dp.runtime.worker.assembly import Options, Worker
from stream_dp.runtime.worker.health import START_SECONDS, Address, Exposition, Health, Start, serving
from stream_dp.runtime.worker.logs import last_line
from stream_dp.runtime.worker.reporting import CountersFile, reporting
from stream_dp.windows.durations import format_duration

log = logging.getLogger("stream_dp.worker")

REPORT_SECONDS = 10.0
COLLECTING = 200_000, 20, 20
"""New objects, and collections of younger ones, between two looks for garbage (`gc.set_threshold`). Counting makes
none, and each record that is unpacked is two objects to look through: a look is to be rarer than these."""
STOP_SECONDS = 30.0
"""Time that a worker may take to stop that is not a process of its own."""


async def run_worker(
    plan: Plan,
    agents: Mapping[str, Agent],
    options: Options = Options(),  # noqa: B008  (it never changes)
    *,
    start_within_s: float = START_SECONDS,
    http: Address | None = None,
) -> None:
    """Run a worker until SIGINT or SIGTERM, which end the process within 10 s, whatever it is doing.

    A worker that crashes ends its process, nothing else is safe; after an outage of the broker it starts over.

    Args:
        plan: the checked configuration.
        agents: by name (`stream_dp.agents.AGENTS`).
        options: how it is run.
        start_within_s: how long the start may wait for one thing without progress.
        http: where to answer operators; None: nowhere.

    Raises:
        StreamDPError: it could not start.
    """
    stop, start = Stop(), Start(start_within_s)
    health = Health(start, stop)
    stop.listen()
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)
    check_files(plan)
    os.umask(OTHERS)
    open_more_files()
    gc.set_threshold(*COLLECTING)
    gc.freeze()  # what was imported stays, and need not be looked through when the first records are there
    with locked(plan.data_dir):
        async with AsyncExitStack() as stack:
            if http is not None:
                at = await stack.enter_async_context(serving(http, health, Exposition(health)))
                log.info("/metrics, /livez and /readyz are on http://%s, for operators", at)
            watch = asyncio.create_task(_watch_start(plan, start, stop))
            log.info("connecting to the broker at %s", plan.broker.address)
            start.wait_for(f"the broker at {plan.broker.address}")
            client = await patiently(
                lambda: stack.enter_async_context(connect(plan.broker, patient=True)), explainer(plan)
            )
            life = running(plan, client, agents, options, health=health)
            try:
                worker = await stack.enter_async_context(life)
            except OutageError as error:  # threads of an application that started in part would keep the process
                leave(1, f"error: {error}")
            counters = CountersFile(plan.data_dir)
            crash = asyncio.create_task(_end_on_crash(worker, stop))
            if worker.crash_reason() is not None:
                await crash
            await worker.loaded()
            watch.cancel()
            gc.collect()
            gc.freeze()
            views = len(worker.plan.newest)
            log.info("worker of %s is running: %d views on %s%s", plan.id, views, plan.broker, worker.share)
            while not stop.given:
                await _first(stop.wait(), asyncio.sleep(REPORT_SECONDS))
                if not worker.is_recovering:
                    counters.write(worker.totals())
        crash.cancel()
    log.info("worker of %s stopped", plan.id)


def check_files(plan: Plan) -> None:
    """Make sure that the key file, if there is one, certificates and secrets can be used, before anything is made.

    Raises:
        ConfigError: some cannot; `faults` has everything.
    """
    faults: list[Fault] = []
    try:
        has_keys(plan.key_file)
    except ConfigError as error:
        faults += error.faults
    for server in (plan.broker, plan.registry):
        faults += [] if server is None else missing(server)
    if faults:
        raise ConfigError(faults)


async def _watch_start(plan: Plan, start: Start, stop: Stop) -> None:
    """End the process where it is told to stop, or waits too long: there is nothing at hand to finish."""
    await _first(stop.wait(), start.overdue())
    if stop.given:
        leave(0, f"worker of {plan.id} stopped while it waited for {start.waiting_for}")
    within = format_duration(round(start.within_s * 1000))
    leave(1, f"error: the worker did not start: for {within} it waited for {start.waiting_for}")


async def _end_on_crash(worker: Worker, stop: Stop) -> None:
    """End the process at once, with what was acknowledged and nothing more; the next start reads the rest again."""
    await worker.crashed()
    reason = worker.crash_reason()
    if reason is not None and not isinstance(reason, StreamDPError):
        reason = not_allowed(worker.plan.broker.address, reason) or reason
    if isinstance(reason, KafkaError) and not worker.was_cut_off:
        reason = await worker.look_at_topics() or reason
    if stop.given:
        leave(0, f"worker of {worker.plan.id} stopped; what it had at hand is read again by the next start")
    if isinstance(reason, StreamDPError) and exit_code(reason) == WRONG_CONFIGURATION:
        leave(WRONG_CONFIGURATION, f"error: {reason}")
    if isinstance(reason, GaveWayError):
        start_over(f"the worker starts over: {reason}")
    if isinstance(reason, PartitionLostError | BrokerError | KafkaError) and worker.was_cut_off:
        start_over(f"after the outage of the broker the worker starts over: {reason}")
    if isinstance(reason, StreamDPError):
        leave(1, f"error: {reason}")
    if reason is not None and not isinstance(reason, KafkaError | OSError):
        log.error("the worker crashes by an error of its own", exc_info=reason)
    leave(1, f"crashed by {type(reason).__name__}: {reason}; it can be started again")


def _is_news(record: logging.LogRecord) -> bool:
    """Return True if the end will not say it: Faust logs every part that an error of ours brings down."""
    return not (record.exc_info and isinstance(record.exc_info[1], StreamDPError))


@asynccontextmanager
async def running(
    plan: Plan,
    client: Client,
    agents: Mapping[str, Agent],
    options: Options = Options(),  # noqa: B008  (it never changes)
    *,
    health: Health | None = None,
) -> AsyncIterator[Worker]:
    """A worker that has joined, recovered its tables and owns its partitions, or has crashed.

    Leaving the context stops it: the chunk at hand is finished and committed.

    Args:
        plan: of the file; the settings in the control topic hold, if it was started before.
        client: of its broker, a patient one.
        agents: by name.
        options: how it is run.
        health: is told what the start waits for, and of the worker.
    """
    health = health or Health(Start())
    start = health.start
    registry = f", or of the schema registry at {plan.registry.url}" if plan.registry is not None else ""
    start.wait_for(f"the answers of the broker at {plan.broker.address} about the topics{registry}")
    explain = explainer(plan)
    if not options.unchecked_data and not options.accept_loss:
        await patiently(
            lambda: check_first_starts(plan, client, options.clock_ms(), backfill=options.backfill), explain
        )
    await patiently(lambda: _check_keys(plan, client), explain)
    settled = await patiently(
        lambda: prepare(
            plan,
            client,
            lambda: load_keys(plan.key_file).application,
            accept_loss=options.accept_loss,
            backfill=options.backfill,
            clock_bound_ms=options.clock_bound_ms,
        ),
        explain,
    )
    keys = load_keys(plan.key_file)
    if words := differing(plan, settled.plan.settings, settled.plan.raw, "the worker goes by the settings"):
        log.warning("%s", words)
    plan = settled.plan
    async with open_registry(plan) as schemas, reporting(plan, client, health):
        start.wait_for(f"what the broker says of the group {plan.id}")
        await patiently(lambda: admit(plan, settled, keys, client, start.wait_for))
        worker = Worker(settled, agents, client, keys=keys, schemas=schemas, options=options)
        health.worker = worker
        start.wait_for(worker.words)
        try:
            await worker.start()
        except KafkaError as error:
            if (refused := not_allowed(plan.broker.address, error)) is not None:
                raise refused from error
            raise OutageError(f"the broker went away during the start: {error}; start the worker again") from error
        try:
            yield worker
        finally:
            await asyncio.wait_for(worker.app.stop(), STOP_SECONDS)
            worker.host.forget()


def explainer(plan: Plan) -> Callable[[], Awaitable[str]] | None:
    """Return the function that finds out why the broker of a plan does not answer; None for the embedded log."""

    async def explain() -> str:
        return await explain_silence(Cluster.of(plan.broker))

    return None if plan.broker.is_embedded else explain


async def _check_keys(plan: Plan, client: Client) -> None:
    """Make sure that a key file is made for an application that has none, not for one whose file was forgotten.

    Raises:
        ConfigError: there is no key file, and topics are claimed with one.
    """
    if has_keys(plan.key_file):
        return
    try:
        await claimed(Topics.of(plan).owners.name, Owner(plan.id, ""), client)
    except ConfigError:
        if not has_keys(plan.key_file):  # another worker that starts makes it, and claims the topics with it
            raise


async def _first(*waiting: Any) -> None:
    tasks = [asyncio.ensure_future(one) for one in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


LEAVE_SECONDS = 7.0
"""Time that a stopping worker may take to finish and commit the chunk at hand."""


class Stop:
    """The order to stop, by SIGINT or SIGTERM.

    The process ends within `LEAVE_SECONDS` of the first signal, even if the event loop hangs, and at once on a second.
    What it had at hand is read again by the next start.
    """

    def __init__(self) -> None:
        """Set up the order; nobody listens yet."""
        self.given = False
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def listen(self) -> None:
        """Take the order from now on, in the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._told)

    async def wait(self) -> None:
        """Return when the order is given."""
        await self._event.wait()

    def _told(self, *_: Any) -> None:
        if self.given:
            _leave_now("told to stop a second time; what was at hand is read again by the next start")
        self.given = True
        threading.Thread(target=_watch, name="stop", daemon=True).start()
        self._loop.call_soon_threadsafe(self._event.set)


def _watch() -> None:
    time.sleep(LEAVE_SECONDS)
    _leave_now(
        f"not finished {LEAVE_SECONDS:g} s after it was told to stop, the worker ends without waiting for the chunk at "
        "hand and the broker; the next start reads it again"
    )


def _leave_now(why: str) -> NoReturn:
    """End the process from any thread; a logger might wait for the one that hangs."""
    os.write(sys.stderr.fileno(), f"{last_line(why, logging.WARNING)}\n".encode())
    os._exit(0)


def start_over(why: str) -> NoReturn:
    """Run the process's command again, under the same process id, as a supervisor would; a loss is accepted once."""
    _say(why, logging.WARNING)
    os.execv(sys.executable, [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--accept-loss")])  # noqa: S606


def leave(code: int, why: str) -> NoReturn:
    """End the process with what was acknowledged and nothing more; why is said on standard error."""
    _say(why, logging.ERROR if code else logging.INFO)
    os._exit(code)


def _say(why: str, level: int) -> None:
    sys.stderr.write(f"{last_line(why, level)}\n")
    sys.stderr.flush()
    logging.shutdown()
