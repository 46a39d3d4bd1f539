"""The page about the client and the examples do what they say: every block of code runs, by Kafka and by a gateway."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import os
import re
import runpy
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway.tokens import new_token, revoke_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.published import refusal, release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.serving import MemoryConsumer, World, ready

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = re.findall(r"(?ms)^```python\n(.*?)^```", (DOCS / "client.md").read_text(encoding="utf-8"))
PROGRAM, SCRIPT = DOCS / "examples" / "read_releases.py", DOCS / "examples" / "read-releases.mjs"
Make = Callable[..., Any]


@pytest.fixture
async def world(
    visits: Plan, tmp_path: Path, release: Make, refusal: Make, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """An application with three windows, and its gateway."""
    world = World(visits, tmp_path / "readers.tokens")
    world.publish(release({"home": 40, "about": 30}), release({"home": 44}, day=1), refusal(day=2))
    monkeypatch.setattr("stream_dp.client.from_kafka.AIOKafkaConsumer", MemoryConsumer(world.log))
    async with world.serving() as session:
        await ready(session)
        yield world


def run(block: str, world: World) -> dict[str, Any]:
    """Run a block in a thread; what follows for ever ends with what is there."""
    replaced = {
        '"https://releases.example.org"': f'"http://127.0.0.1:{world.port}"',
        '"flights"': '"visits"',
        '"destinations"': '"pages"',
    }
    for old, new in replaced.items():
        block = block.replace(old, new)
    names: dict[str, Any] = {"__name__": "block"}
    exec(compile(block, "client.md", "exec"), names)
    return names


def test_the_first_block_is_short() -> None:
    assert len(BLOCKS) == 5
    assert len([line for line in BLOCKS[0].splitlines() if line]) <= 10


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_every_block_of_the_page_runs(
    number: int, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stream_dp.client import reading

    known = reading.Releases.__post_init__

    def ending(self: Any) -> None:
        object.__setattr__(self, "follow", False)
        known(self)

    monkeypatch.setattr(reading.Releases, "__post_init__", ending)
    names = await asyncio.to_thread(run, BLOCKS[number], world)
    said = capsys.readouterr().out
    expected = [
        "1970-01-01T00:00:00Z 1 {'home': (1, ",
        "1970-01-02T00:00:00Z 1",
        "('1970-01-02T00:00:00Z', '1970-01-03T00:00:00Z'): {'home': (",
        "does not take the token",
        "low_95: int64",
    ]
    assert expected[number] in said
    if number == 2:
        assert list(names["table"]) == [
            ("1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"),
            ("1970-01-02T00:00:00Z", "1970-01-03T00:00:00Z"),
        ]


@pytest.mark.parametrize("source", ["kafka", "gateway"])
async def test_the_example_prints_releases_from_both(
    source: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [f"http://127.0.0.1:{world.port}", "pages"]
    if source == "kafka":
        where = ["kafka://127.0.0.1:9092", "pages", "public", "visits"]
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), *where, "--until-end"])
    await asyncio.to_thread(runpy.run_path, str(PROGRAM), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":00Z ")[2].partition(" to ")[0] for line in said] == [
        "revision 1: home 1",
        "revision 1: home 1",
        "refused: budget",
    ]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
async def test_the_example_in_javascript_follows_until_its_token_is_revoked(world: World, release: Make) -> None:
    world.publish(release({"home": 40}, audience="staff"), audience="staff")
    entry, token = new_token(world.tokens, "staff", wall_clock_ms())
    async with asyncio.timeout(WITHIN_SECONDS):
        while True:
            node = await asyncio.create_subprocess_exec(
                *("node", str(SCRIPT), f"http://127.0.0.1:{world.port}", "pages"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "TOKEN": token},
            )
            assert node.stdout is not None
            if line := (await node.stdout.readline()).decode():
                break
            await node.wait()  # the gateway does not know the token or the topic yet
        try:
            assert line.startswith("1970-01-01T00:00:00Z revision 1: home ")
            world.publish(release({"home": 44}, audience="staff", day=1), audience="staff")
            assert (await node.stdout.readline()).decode().startswith("1970-01-02T00:00:00Z revision 1: home ")
            world.publish(release({"home": 44}, audience="staff", revision=2, level=1), audience="staff")
            assert (await node.stdout.readline()).decode().startswith("1970-01-01T00:00:00Z revision 2: home ")
            revoke_token(world.tokens, entry.id)
            _, said = await node.communicate()
            assert (node.returncode, said.decode()) == (1, "the token is no longer good: revoked\n")
        finally:
            with suppress(ProcessLookupError):
                node.kill()
