"""A worker process for tests of crashes and takeovers: the real `run_worker`, with ways to hurt it.

    python -m tests.broker.worker_process CONFIG --broker HOST:PORT --data-dir DIR --status FILE
        [--session-seconds N] [--tick-seconds N] [--start-within SECONDS] [--accept-loss] [--terse]
        [--die-before WHAT:N [--by-filling FOLDER | --by-locking FOLDER]] [--hang WHERE] [--trap FILE]
        [--through HOST:PORT,...] [--http PORT] [--log-format FORM] [--clock FILE]

It logs what `stream-dp worker --verbose` does, with `--terse` what that does otherwise. It writes its counters to the
status file ten times a second.
With `--die-before` it kills itself with SIGKILL before the N-th act of a kind: `commit counts` (a table), `erase
releases 0` (a table's partition), `send partials` (the end of a topic's name). With `--by-filling` it lives on, but
fills the disk of a folder; with `--by-locking` it makes that disk fail, so that nobody can write to it. With `--hang`
it gets no further than `preparing` its topics or `recovering` its tables, or its event loop is `busy` for ever. While
the file of `--trap` stands there and says
"TOPIC N ...", it stops itself with SIGSTOP as soon as its producers were given N more records or batches for the topic
of such an end; the last one is still in their buffers.
"TOPIC/KEY N ..." counts those alone that have a key whose beginning the regular expression matches.
With `--through` every connection to a broker goes to another address: that of its proxy, in the order of `--broker`.
With `--clock` its wall clock is wrong by as many seconds as the file says. On SIGUSR1 it prints where all its tasks
wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.producer.message_accumulator import BatchBuilder
from faust.tables.recovery import Recovery

from stream_dp.agents import AGENTS
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError, StreamDPError
from stream_dp.runtime.faust import app as application
from stream_dp.runtime.faust.host import Agent, Host
from stream_dp.runtime.faust.tables import DurableTable
from stream_dp.runtime.kafka.transactions import Row, Writer
from stream_dp.runtime.worker import process as running
from stream_dp.runtime.worker.assembly import Options
from stream_dp.runtime.worker.health import LOOPBACK, START_SECONDS, Address
from stream_dp.runtime.worker.logs import last_line, speak
from stream_dp.runtime.worker.process import run_worker
from stream_dp.windows.effects import Message
from tests.support.disks import fill, make_read_only


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--status", type=Path, required=True)
    parser.add_argument("--accept-loss", action="store_true")
    parser.add_argument("--die-before", default="")
    parser.add_argument("--by-filling", type=Path)
    parser.add_argument("--by-locking", type=Path)
    parser.add_argument("--hang", default="")
    parser.add_argument("--trap", type=Path)
    parser.add_argument("--through", default="")
    parser.add_argument("--clock", type=Path)
    parser.add_argument("--terse", action="store_true")
    parser.add_argument("--http", type=int)
    parser.add_argument("--log-format", default="text")
    parser.add_argument("--start-within", type=float, default=START_SECONDS)
    parser.add_argument("--session-seconds", type=float, default=application.SESSION_SECONDS)
    parser.add_argument("--tick-seconds", type=float, default=0.1)
    given = parser.parse_args()
    if given.clock:
        set_clock(given.clock)
    speak(given.log_format, verbose=not given.terse)
    application.SESSION_SECONDS = given.session_seconds
    if given.die_before:
        what, number = given.die_before.rsplit(":", 1)
        hurt = partial(fill, given.by_filling) if given.by_filling else die
        hurt_before(what, int(number), partial(make_read_only, given.by_locking) if given.by_locking else hurt)
    if given.hang:
        hang(given.hang)
    if given.trap:
        stop_in(given.trap)
    if given.through:
        go_through(given.broker.removeprefix("kafka://"), given.through)
    plan = replace(load_plan(given.config, {"STREAM_DP_BROKER": given.broker}), data_dir=given.data_dir)
    agents = {name: reporting(body, given.status) for name, body in AGENTS.items()}
    work = run_worker(
        plan,
        agents,
        Options(tick_seconds=given.tick_seconds, accept_loss=given.accept_loss, backfill=True),
        start_within_s=given.start_within,
        http=None if given.http is None else Address(LOOPBACK, given.http),
    )

    async def life() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, say_what_waits)
        await work

    try:
        uvloop.run(life())
    except ConfigError as error:
        print(last_line(f"error: {error}"), file=sys.stderr)
        sys.exit(2)
    except StreamDPError as error:
        sys.exit(last_line(f"error: {error}"))


def say_what_waits() -> None:
    """Print where every task waits, innermost last."""
    for task in asyncio.all_tasks():
        waits: Any = task.get_coro()
        while waits is not None:
            code = getattr(waits, "cr_code", None) or getattr(waits, "ag_code", None)
            frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
            print(f"{code.co_filename}:{frame.f_lineno} {code.co_name}" if code and frame else waits, end=" > ")
            waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
        print(flush=True)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def hurt_before(what: str, number: int, hurt: Callable[[], None]) -> None:
    """Hurt this process before the `number`-th act of a kind."""
    done: Counter[str] = Counter()

    def about_to(act: str) -> None:
        done[act] += 1
        if act == what and done[act] == number:
            hurt()

    commit, erase, send, publish = DurableTable.commit, DurableTable.erase, Host.send, Host.publish

    async def dying_commit(self: DurableTable, partition: int, rows: Sequence[Row], writer: Writer) -> None:
        about_to(f"commit {self.name}")
        await commit(self, partition, rows, writer)

    def dying_erase(self: DurableTable, partition: int, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        about_to(f"erase {self.name} {partition}")
        erase(self, partition, ranges)

    async def dying_send(self: Host, messages: Sequence[Message], owner: Writer | None = None) -> Sequence[int | None]:
        for topic in dict.fromkeys(message.topic for message in messages):
            kind = topic.removeprefix(f"{self.plan.name}-")
            if kind not in ("partials", "merged") or any(m.value is not None for m in messages if m.topic == topic):
                about_to(f"send {kind}")
        return await send(self, messages, owner)

    async def dying_publish(
        self: Host, messages: Sequence[Message], owner: Writer, slot_ms: int, check_owner: Callable[[], None]
    ) -> None:
        for topic in dict.fromkeys(message.topic for message in messages):
            about_to("send release" if topic.startswith(f"{self.plan.id}.releases.") else "send accounts")
        await publish(self, messages, owner, slot_ms, check_owner)

    DurableTable.commit = dying_commit  # type: ignore[method-assign]
    DurableTable.erase = dying_erase  # type: ignore[method-assign]
    Host.send = dying_send  # type: ignore[method-assign, assignment]
    Host.publish = dying_publish  # type: ignore[method-assign, assignment]


def hang(where: str) -> None:
    """Make this process get no further than to a place."""

    async def for_ever(*_: Any, **__: Any) -> None:
        print(f"hangs: {where}", flush=True)
        await asyncio.Event().wait()

    async def busy(*_: Any, **__: Any) -> None:
        print(f"hangs: {where}", flush=True)
        while True:
            pass

    match where:
        case "preparing":
            running.prepare = for_ever  # type: ignore[assignment, attr-defined]
        case "recovering":
            Recovery._build_offsets = for_ever
        case "busy":
            Host.carry_out = busy  # type: ignore[method-assign]


def stop_in(trap: Path) -> None:
    """Let a file stop this process where its producers hold what they have not sent."""
    seen: Counter[str] = Counter()

    def check(topic: str, keys: Sequence[bytes | None]) -> None:
        try:
            wanted = trap.read_text()
        except FileNotFoundError:
            return
        if wanted.count(" ") != 2:  # it has sprung meanwhile: who opened it before reads what stands there now
            return
        place, number, _ = wanted.split()
        end, _, key = place.partition("/")
        form = re.compile(key.encode(), re.DOTALL)
        if not topic.endswith(end) or not any(form.match(given or b"") for given in keys):
            return
        seen[wanted] += 1
        if seen[wanted] < int(number):
            return
        with suppress(FileNotFoundError):  # another worker was in it first
            sprung = trap.with_suffix(".sprung")
            sprung.unlink(missing_ok=True)
            trap.rename(sprung)
            sprung.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    append, send, send_batch = BatchBuilder.append, AIOKafkaProducer.send, AIOKafkaProducer.send_batch

    def noted_append(self: Any, *, key: bytes | None, **row: Any) -> Any:
        self.keys = [*getattr(self, "keys", ()), key]
        return append(self, key=key, **row)

    async def trapped_send(
        self: Any, topic: str, value: Any = None, key: bytes | None = None, *rest: Any, **options: Any
    ) -> Any:
        sent = await send(self, topic, value, key, *rest, **options)
        check(topic, [key])
        return sent

    async def trapped_send_batch(self: Any, batch: Any, topic: str, **options: Any) -> Any:
        sent = await send_batch(self, batch, topic, **options)
        check(topic, batch.keys)
        return sent

    BatchBuilder.append = noted_append
    AIOKafkaProducer.send = trapped_send
    AIOKafkaProducer.send_batch = trapped_send_batch


def set_clock(file: Path) -> None:
    """Let all of this process have a wall clock that is wrong by what a file says; no other clock of it is."""
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + int(file.read_text())
    time.time_ns = lambda: nanoseconds() + int(file.read_text()) * 10**9


def go_through(brokers: str, proxies: str) -> None:
    """Connect to its proxy wherever a connection to a broker is asked for."""
    begin = AIOKafkaConnection.__init__
    through = dict(zip(brokers.split(","), proxies.split(","), strict=True))
    otherwise = proxies if len(through) == 1 else None

    def elsewhere(self: Any, host: str, port: int, **options: Any) -> None:
        asked = f"{host}:{port}"
        proxy_host, _, proxy_port = through.get(asked, otherwise or asked).rpartition(":")
        begin(self, proxy_host, int(proxy_port), **options)

    AIOKafkaConnection.__init__ = elsewhere


def reporting(body: Agent, status: Path) -> Agent:
    """An agent that also writes the worker's counters to a file, again and again."""

    async def report(host: Host) -> None:
        while True:
            fresh = status.with_suffix(".new")
            fresh.write_text(json.dumps(host.counters.lines()))
            fresh.replace(status)
            await asyncio.sleep(0.1)

    async def agent(stream: Any, host: Host) -> None:
        if not hasattr(host, "report"):
            host.report = asyncio.create_task(report(host))  # type: ignore[attr-defined]
        await body(stream, host)

    return agent


if __name__ == "__main__":
    main()
