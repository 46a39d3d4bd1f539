"""Take the pictures of the two pages: the demo on the embedded log, the gateway and the console on it, Chromium.

    python docs/figures/dashboard.py [FOLDER]

The noise is fresh in every run, so no two pictures are the same.
"""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import aiohttp
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright
from rich.console import Console as Terminal
from starlette.types import ASGIApp

from stream_dp.cli.demo.runs import DESTINATIONS, TEMPLATE, DemoState, Feed, configuration, flights_file, read_flights
from stream_dp.cli.demo.walkthrough import Walkthrough, worker_here
from stream_dp.config.access import MEMORY
from stream_dp.config.file_schema import ServeConfig
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.console import Console
from stream_dp.gateway.reader import BoardReader, Connect
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.server import Server
from stream_dp.gateway.tokens import OPERATOR, OPERATORS_PREFIX, Tokens, new_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.kafka.topics import TopicSpec
from stream_dp.runtime.key_file import load_keys
from stream_dp.runtime.settled import prepare

FOLDER = Path(__file__).parent
AUDIENCE = "partner"
SETTLE_MS = 1000
COLORS = 128
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of the page: its size, its colors, and an address of the page."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"]
    address: str = f"{AUDIENCE}/{DESTINATIONS}"
    scale: int = 1


PICTURES = (
    Picture("dashboard", 1200, 760, "light"),
    Picture("dashboard-dark", 1200, 760, "dark"),
    Picture("dashboard-phone", 390, 780, "light", scale=2),
)


@asynccontextmanager
async def played(plan: Plan, log: MemoryLog) -> AsyncIterator[None]:
    """Run the demo to its end, and keep its worker."""
    source = plan.views[DESTINATIONS].source
    async with connect(plan.broker, MemoryClient(log)) as client:
        await client.create([TopicSpec(source.topic, source.partitions)])
        await prepare(plan, client, lambda: load_keys(plan.key_file).application, backfill=True)
        async with worker_here(plan, client, log) as check:
            state = DemoState(plan, Feed(read_flights(flights_file()), source, 0))
            await Walkthrough(state, client, [check], Terminal(file=io.StringIO())).run()
            yield


@asynccontextmanager
async def running(app: ASGIApp, end_streams: Callable[[], None]) -> AsyncIterator[str]:
    """Yield the address of an application that listens."""
    listening = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as place:
        server = Server(app, end_streams, listening.set)
        serving = asyncio.create_task(server.serve([place]))
        await listening.wait()
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def gateway_of(plan: Plan, connected: Connect) -> AsyncIterator[str]:
    """Yield the address of a gateway that has read everything."""
    boards = Boards()
    gateway = Gateway(ServeConfig(public=[AUDIENCE]), boards, Tokens(None, wall_clock_ms))
    async with running(gateway.app(BoardReader(plan, boards, connected).run), gateway.hub.shut_down) as url:
        async with aiohttp.ClientSession() as session:
            while (await session.get(f"{url}readyz")).status != 200:  # noqa: ASYNC110 - it is another server
                await asyncio.sleep(0.1)
        yield url


async def take_console(browser: Browser, plan: Plan, connected: Connect, folder: Path) -> None:
    """Take the picture of the operators' page, with a setting moved."""
    file = plan.folder / "operators.tokens"
    _, token = new_token(file, OPERATOR, wall_clock_ms(), prefix=OPERATORS_PREFIX)
    console = Console(plan, connected, Tokens(file, wall_clock_ms, OPERATORS_PREFIX))
    async with running(console.app(), console.hub.shut_down) as url:
        page = await browser.new_page(viewport={"width": 1200, "height": 860}, reduced_motion="reduce")
        await page.goto(url)
        await page.fill("#token", token)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#meaning h3")
        await page.focus('[id="tune-levels.detailed.epsilon"]')
        await page.keyboard.press("ArrowLeft")
        await page.wait_for_selector("#tiles:not(.stale) .tile")
        await page.evaluate("document.activeElement.blur(); document.getElementById('tune').scrollIntoView()")
        await page.wait_for_timeout(SETTLE_MS)
        await save(page, folder / "console.png")
        await page.close()


async def save(page: Page, file: Path) -> None:
    """Save what is seen of a page."""
    taken = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    taken.quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)


async def take(browser: Browser, picture: Picture, url: str, folder: Path) -> None:
    """Take one picture."""
    page = await browser.new_page(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        device_scale_factor=picture.scale,
        reduced_motion="reduce",
    )
    await page.goto(f"{url}#/{picture.address}")
    await page.wait_for_selector(".strip")
    await page.get_by_role("button", name="Earlier").click()  # the newest window begins on the last day of the data
    await page.wait_for_timeout(SETTLE_MS)
    await save(page, folder / f"{picture.name}.png")
    await page.close()


async def main(folder: Path) -> None:
    """Play, serve, and take all pictures."""
    log = MemoryLog()
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / TEMPLATE
        file.write_text(configuration("demo", MEMORY), encoding="utf-8")
        plan = load_plan(file)
        connected = partial(connect, plan.broker, MemoryClient(log))
        async with played(plan, log), gateway_of(plan, connected) as url, async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for picture in PICTURES:
                await take(browser, picture, url, folder)
            await take_console(browser, plan, connected, folder)
            await browser.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
