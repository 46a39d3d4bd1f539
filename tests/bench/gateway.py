"""Releases fanned out to streams by the gateway, beside a plain Starlette echo: `python -m tests.bench.gateway`.

Each side runs in a process of its own on this machine, gets the same bytes at the same pace, and serves the clients of
a third one. docs/benchmarks.md says what is measured and what the figures do not say.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from rich.console import Console
from rich.table import Table
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_dp.config.file_schema import ServeConfig
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.gateway import server
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.reader import BoardReader
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.streams import MOST_OF_TOKEN
from stream_dp.gateway.tokens import Tokens, new_token
from stream_dp.records.codec import encode_parts
from stream_dp.releases.publication import Revision, account
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.limits import open_more_files
from tests.support.published import DAY_MS, VISITS
from tests.support.sealing import fields_of

SIDES = {"product": "stream-dp serve", "plain": "plain Starlette, a queue for each client"}
START = re.compile(rb'"window":{[^}]*"start_ms":(\d+)')
CONNECTING_AT_ONCE = 50
SETTLED_SECONDS = 2.0
WITHIN_SECONDS = 120

_say = Console(stderr=True, highlight=False).print


def record(plan: Plan, day: int, size: int) -> tuple[bytes, bytes]:
    """Return key and value of a release of a day, of about so many bytes."""
    view = plan.views["pages"]
    counts = {f"/page/{day}/{number:06}": 1000 + number for number in range(max(1, (size - 2500) // 40))}
    made = Revision(
        view,
        audience="public",
        level=0,
        start_ms=day * DAY_MS,
        number=1,
        period_loss=view.cost(0),
        ledger=account(view.ledger, 0),
    ).release(fields=fields_of(view, 0, counts.items(), complete=True), window_loss=view.cost(0))
    ((key, value),) = encode_parts(made, 1 << 20)
    return key, value


def memory_kib() -> int:
    """Return what this process has in memory."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


@dataclass
class Peer:
    """Plain Starlette: every client has a queue, and every event is made for it."""

    queues: set[asyncio.Queue[str]] = field(default_factory=set)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/views/pages/events", self.events)])

    async def events(self, _: Request) -> Response:
        return EventSourceResponse(self.follow(), sep="\n")

    async def follow(self) -> AsyncIterator[dict[str, str]]:
        mine: asyncio.Queue[str] = asyncio.Queue()
        self.queues.add(mine)
        try:
            while True:
                yield {"event": "release", "data": await mine.get()}
        finally:
            self.queues.discard(mine)

    def publish(self, value: bytes) -> None:
        for queue in self.queues:
            queue.put_nowait(value.decode())


async def serve(side: str, folder: Path, releases: int, rate: float, size: int) -> None:
    """Serve one side; publish when told to on standard input, and say when each release was."""
    (folder / "visits.yaml").write_text(VISITS)
    plan = load_plan(folder / "visits.yaml")
    records = [record(plan, day, size) for day in range(releases + 1)]
    log, peer = MemoryLog(), Peer()
    topic = Topics.of(plan).release("pages", "public")
    log.create(topic, 1)
    log.append(topic, 0, *records[0])
    tokens = folder / "readers.tokens"
    credentials = [new_token(tokens, "public", wall_clock_ms())[1] for _ in range(100)]
    boards = Boards()
    gateway = Gateway(ServeConfig(), boards, Tokens(tokens, wall_clock_ms))
    reader = BoardReader(plan, boards, lambda: connect(plan.broker, MemoryClient(log)))
    place = socket.create_server(("127.0.0.1", 0), backlog=4096)
    if side == "product":
        http: uvicorn.Server = server.Server(gateway.app(reader.run), gateway.hub.shut_down, lambda: None)
    else:
        http = uvicorn.Server(
            uvicorn.Config(peer.app(), http="httptools", log_config=None, access_log=False, ws="none")
        )
    running = asyncio.create_task(http.serve([place]))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    tell({"port": place.getsockname()[1], "tokens": credentials})
    while await lines.readline() == b"memory\n":
        tell({"memory_kib": memory_kib()})
    published, before, began = {}, time.process_time(), time.monotonic()
    ended: list[float] = []
    noting = asyncio.create_task(note_ends(gateway, ended))
    for day, (key, value) in enumerate(records[1:], start=1):
        await asyncio.sleep(max(0.0, began + day / rate - time.monotonic()))
        published[day * DAY_MS] = time.monotonic_ns()
        if side == "product":
            log.append(topic, 0, key, value)
        else:
            peer.publish(value)
    await lines.readline()
    noting.cancel()
    tell({"published": published, "cpu_seconds": time.process_time() - before, "ended_after_s": ended})
    http.should_exit = http.force_exit = True
    await asyncio.wait([running], timeout=10)


async def note_ends(gateway: Gateway, ended: list[float]) -> None:
    """Note after how many seconds streams were ended."""
    began, held = time.monotonic(), len(gateway.hub.streams)
    while True:
        await asyncio.sleep(0.1)
        gone = held - len(gateway.hub.streams) - len(ended)
        ended += [round(time.monotonic() - began, 1)] * gone


def tell(what: dict[str, Any]) -> None:
    """Say something to the process that measures."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Stream(asyncio.Protocol):
    """One client: notes when the whole of each event is there; a stalled one reads nothing at all."""

    def __init__(self, token: str, *, is_stalled: bool = False) -> None:
        self.token, self.is_stalled = token, is_stalled
        self.waiting, self.heard = bytearray(), dict[int, int]()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.is_stalled:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            transport.pause_reading()
        head = f"GET /v1/views/pages/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        transport.write(head.encode())

    def data_received(self, data: bytes) -> None:
        at = max(0, len(self.waiting) - 1)
        self.waiting += data
        while (end := self.waiting.find(b"\n\n", at)) >= 0:
            if (found := START.search(self.waiting, 0, end)) is not None:
                self.heard[int(found[1])] = time.monotonic_ns()
            del self.waiting[: end + 2]
            at = 0


def _itself(stream: Stream) -> Stream:
    return stream


async def measure(side: str, clients: int, releases: int, rate: float, size: int, stalled: int) -> dict[str, Any]:
    """Run one side and its clients; return what was measured."""
    async with started(side, releases, rate, size) as child:
        return {"side": side, **await _measure(child, clients, releases, stalled)}


@asynccontextmanager
async def started(side: str, releases: int, rate: float, size: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Serve one side in a process of its own."""
    with TemporaryDirectory() as folder:
        words = [side, folder, str(releases), str(rate), str(size)]
        command = [sys.executable, "-m", "tests.bench.gateway", "--serve", *words]
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=1 << 24)
        try:
            yield child
        finally:
            child.kill()
            await child.wait()


async def _measure(child: asyncio.subprocess.Process, clients: int, releases: int, stalled: int) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    async def ask(word: str = "") -> Any:
        stdin.write(word.encode())
        return json.loads(await stdout.readline())

    about = await ask()
    await asyncio.sleep(SETTLED_SECONDS)
    before = (await ask("memory\n"))["memory_kib"]
    loop, streams = asyncio.get_running_loop(), []
    for first in range(0, clients, CONNECTING_AT_ONCE):
        numbers = range(first, min(clients, first + CONNECTING_AT_ONCE))
        some = [Stream(about["tokens"][number // MOST_OF_TOKEN]) for number in numbers]
        await asyncio.gather(
            *(loop.create_connection(partial(_itself, one), "127.0.0.1", about["port"]) for one in some)
        )
        streams += some
        await asyncio.sleep(0.05)
    for number in range(stalled):
        one = Stream(about["tokens"][-1 - number // MOST_OF_TOKEN], is_stalled=True)
        await loop.create_connection(partial(_itself, one), "127.0.0.1", about["port"])
    await asyncio.sleep(SETTLED_SECONDS)
    held = (await ask("memory\n"))["memory_kib"]
    stdin.write(b"go\n")
    until = time.monotonic() + WITHIN_SECONDS
    while min(len(one.heard) for one in streams) < releases and time.monotonic() < until:
        await asyncio.sleep(0.1)
    found = await ask("end\n")
    published = {int(start): at for start, at in found["published"].items()}
    late = sorted(at - published[start] for one in streams for start, at in one.heard.items() if start in published)
    last = max(at for one in streams for at in one.heard.values())
    return {
        "clients": clients,
        "lost": clients * releases - len(late),
        "delivered_per_second": round(len(late) / ((last - min(published.values())) / 1e9)),
        "p50_ms": round(late[len(late) // 2] / 1e6, 1),
        "p99_ms": round(late[len(late) * 99 // 100] / 1e6, 1),
        "cpu_us_per_delivery": round(found["cpu_seconds"] * 1e6 / len(late)),
        "memory_kib_per_client": round((held - before) / (clients + stalled), 1),
        "ended_after_s": found["ended_after_s"],
    }


def main() -> None:
    """Measure both sides in turn and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gateway", description=__doc__)
    parser.add_argument("--clients", type=int, default=1000, help="streams held at once (default: 1000)")
    parser.add_argument("--rate", type=float, default=2.0, help="releases a second (default: 2)")
    parser.add_argument("--releases", type=int, default=40, help="how many (default: 40)")
    parser.add_argument("--bytes", type=int, default=20_000, help="about the size of one (default: 20000)")
    parser.add_argument("--stalled", type=int, default=0, help="streams besides that read nothing (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--serve", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    open_more_files()
    if asked.serve:
        side, folder, releases, rate, size = asked.serve
        asyncio.run(serve(side, Path(folder), int(releases), float(rate), int(size)))
        return
    found = []
    for side, name in SIDES.items():
        _say(f"{name}: {asked.clients} streams ...")
        found.append(asyncio.run(measure(side, asked.clients, asked.releases, asked.rate, asked.bytes, asked.stalled)))
    if asked.json:
        print(json.dumps({"machine": platform.processor(), "cpus": os.cpu_count(), "sides": found}))
        return
    product, plain = found
    table = Table("", *SIDES.values(), "ratio")
    for name in [name for name in product if name not in ("side", "ended_after_s")]:
        ratio = f"{product[name] / plain[name]:.2f}" if plain[name] else ""
        table.add_row(name.replace("_", " "), f"{product[name]:,}", f"{plain[name]:,}", ratio)
    Console(highlight=False).print(table)
    if ended := product["ended_after_s"]:
        Console(highlight=False).print(
            f"{len(ended)} of {asked.stalled} stalled streams ended, the last after {ended[-1]} s"
        )


if __name__ == "__main__":
    main()
