"""The console on the embedded log, asked over HTTP: a change that is agreed to, from the question to the workers."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway.server import Server
from stream_dp.testing.application import WITHIN_SECONDS
from tests.pipeline.test_gateway import heard
from tests.support.console import Desk
from tests.support.published import visits, visits_file  # noqa: F401 - fixtures


@asynccontextmanager
async def serving(desk: Desk) -> AsyncIterator[aiohttp.ClientSession]:
    """A console that listens, and an operator's client."""
    listening = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as place:
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        http = Server(desk.console.app(), desk.console.hub.shut_down, listening.set)
        running = asyncio.create_task(http.serve([place]))
        await asyncio.wait_for(listening.wait(), WITHIN_SECONDS)
        headers = {"Authorization": f"Bearer {desk.token}", "Origin": url}
        async with aiohttp.ClientSession(url, headers=headers) as session:
            try:
                yield session
            finally:
                http.should_exit = True
                await running


async def test_from_the_question_over_consent_to_the_workers_everybody_hears_of_it(
    visits: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.operations.settings_changes.LOOK_SECONDS", 0.2)
    desk = Desk(visits, tmp_path / "operators.tokens")
    desk.console.watch.look_seconds = desk.console.watch.status_seconds = 0.02
    desk.report()
    await desk.start()
    async with serving(desk) as session, session.get("/v1/events") as stream, asyncio.timeout(WITHIN_SECONDS):
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        events = heard(stream)
        question = {"view": "pages", "assignments": ["ladders.pages.fine=3/2"]}
        async with session.post("/v1/plan", json=question) as answer:
            plan = await answer.json()
        assert [one["noise_interval_95"] for one in plan["levels"] if one["level"] == "fine"] == [
            {"before": 3, "after": 2}
        ]
        agreed = {**question, "plan": plan["plan"], "settings": plan["settings"]}
        async with session.post("/v1/settings", json=agreed) as answer:
            assert (answer.status, (await answer.json())["settings"]) == (202, 2)
        seen = [False]
        async for event in events:
            rollout = event.data.get("rollout")
            if event.name == "settings" and rollout is not None:
                if not seen[-1]:
                    desk.report(settings=2)
                seen.append(rollout["by_all"])
                if rollout["over"] and event.data["settings"] == 2:  # the console reads them on its own
                    break
        assert (seen[1], seen[-1]) == (False, True)
        posted: list[dict[str, Any]] = []
        while len(posted) < 2:  # the console reads the topic again a moment after it has posted
            async with session.get("/v1/settings") as answer:
                posted = (await answer.json())["settings"]
        assert posted[1]["sections"]["ladders"]["pages"][1]["epsilon"] == "3/2"
        assert posted[1]["state"] == "waiting"
