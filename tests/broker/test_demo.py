"""`stream-dp demo` as a stranger runs it, on a real Kafka: the whole year, then `grant` and `tail` on what it left."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from stream_dp.config.access import Broker
from stream_dp.config.planner import load_plan
from stream_dp.records.codec import AnyRecord, parse
from stream_dp.records.models import Refusal, Release
from stream_dp.runtime.kafka.client import connect
from stream_dp.runtime.localkafka.processes import carries
from stream_dp.testing.application import WITHIN_SECONDS
from stream_dp.windows.durations import moment

pytestmark = pytest.mark.broker

WINDOWS = 14
UNLOCKED = 12
TUNED = "2013-07-16"
NEWCOMERS_SECONDS = 180
"""From the command to the page with data, of the demo, at most."""

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(kafka: str, tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "STREAM_DP_BROKER": kafka, "STREAM_DP_CACHE": str(tmp_path), "COLUMNS": "120"}


@pytest.fixture
def program(environment: dict[str, str]) -> Program:
    """Runs `stream-dp` with arguments."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stream_dp.cli", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_SECONDS,
        )

    return run


@pytest.fixture
def kept() -> Iterator[list[int]]:
    """Processes to end behind the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def epsilon(price: Any) -> Fraction:
    found = price["epsilon"]["exact"] if isinstance(price, dict) else price.epsilon.exact
    return Fraction(found)


def read(program: Program, file: str, view: str, audience: str) -> list[AnyRecord]:
    said = program("tail", file, view, audience, "--json", "--until-end")
    assert said.returncode == 0, said.stderr
    return about_windows(line.encode() for line in said.stdout.splitlines())


def about_windows(values: Iterable[bytes]) -> list[AnyRecord]:
    """The releases and refusals among some records."""
    return [one for value in values if isinstance(one := parse(value), Release | Refusal)]


def published(kafka: str, topics: Collection[str]) -> dict[str, list[AnyRecord]]:
    """The records of some topics."""

    async def all_of_them() -> dict[str, list[AnyRecord]]:
        async with connect(Broker(f"kafka://{kafka}")) as client:
            found: dict[str, list[bytes]] = {topic: [] for topic in topics}
            async for record in client.follow([*topics], until_end=True):
                if record.value is not None:
                    found[record.topic].append(record.value)
            return {topic: about_windows(values) for topic, values in found.items()}

    return asyncio.run(all_of_them())


@pytest.mark.slow
def test_demo_releases_a_year_and_sharpens_it_on_kafka(kafka: str, program: Program, kept: list[int]) -> None:
    done = program("demo", "--pace", "0", "--json", "--keep-running")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    kept += [told["worker_pid"], told["page_pid"]]
    assert f"Look at {told['page']} while it runs." in done.stderr.splitlines()[:3]
    assert carries(told["worker_pid"], told["configuration"]), "--keep-running leaves the worker up"
    assert told["first_release_seconds"] < 60
    assert "that STREAM_DP_BROKER names" in done.stderr.splitlines()[0]
    assert sum(" 2013: public " in line or " 2014: public " in line for line in done.stderr.splitlines()) == WINDOWS

    for audience in ("public", "partner", "internal"):
        with urlopen(f"{told['page']}v1/views/destinations/windows?audience={audience}&limit=100") as answer:
            assert len(json.load(answer)["windows"]) == WINDOWS
    with urlopen(told["page"]) as answer:
        assert b"<html" in answer.read()

    plan = load_plan(told["configuration"])
    (ledger,) = plan.ledgers.values()
    held: defaultdict[str, Fraction] = defaultdict(Fraction)
    shown: defaultdict[str, list[int]] = defaultdict(list)
    found = published(kafka, [topic for topics in told["topics"].values() for topic in topics.values()])
    for view, topics in told["topics"].items():
        assert list(topics) == ["public", "partner", "internal"]
        for audience, topic in topics.items():
            records = found[topic]
            revisions = Counter((record.revision, record.type) for record in records)
            finer = UNLOCKED if audience == "public" else WINDOWS
            expected = {(1, "release"): WINDOWS, (2, "release"): finer}
            assert revisions == expected | ({(3, "refusal"): WINDOWS} if audience == "internal" else {})
            assert all(
                record.edition == (2 if view == "carriers" and moment(record.window.start_ms) >= TUNED else 1)
                for record in records
            )
            newest = {record.window.start_ms: record for record in records if not isinstance(record, Refusal)}
            held[audience] += epsilon(newest[sorted(newest)[-2]].privacy.window)
            if view == "destinations":
                first = [record for record in records if not isinstance(record, Refusal) and record.revision == 1]
                shown[audience] += [len(record.items) for record in first]
    spent = ledger.budget.epsilon - epsilon(told["ledger"][-1]["left"])
    assert held["internal"] == spent, "the finest readers have all that was paid for"
    accounts = json.loads(program("ledger", told["configuration"], "--json").stdout)["ledgers"][0]
    assert sum(epsilon(row["charged"]) for row in accounts["spent_by"]) == epsilon(accounts["spent"])
    assert told["ledger"][1]["together"] == told["ledger"][0]["together"]
    sharpened = found[told["topics"]["destinations"]["public"]]
    unlocked = {moment(one.window.start_ms): one for one in sharpened if one.revision == 2}
    assert told["unlocked"] == {"public": {"windows": list(unlocked), "paid": "0"}}
    assert {one.level.name for one in unlocked.values()} == {"standard"}
    assert (told["tuned"]["settings"], told["tuned"]["from"]) == (2, TUNED)
    editions = json.loads(program("settings", told["configuration"], "--json").stdout)["editions"]
    begun = [(one["edition"], moment(one["from_ms"])) for one in editions if one["view"] == "carriers"]
    assert begun == [(1, "2013-01-01"), (2, TUNED)]
    typical = {audience: sorted(numbers)[len(numbers) // 2] for audience, numbers in shown.items()}
    assert 1 < typical["public"] < 20 < typical["internal"], "few places for the coarsest audience, most for the finest"

    view = next(iter(told["topics"]))
    granted = program("grant", told["configuration"], "public", "--level", "detailed", "--json")
    assert json.loads(granted.stdout)["changes"][0]["direction"] == "finer"
    until = time.monotonic() + WITHIN_SECONDS
    finest = {1: WINDOWS, 2: WINDOWS, 3: UNLOCKED}
    while Counter(r.revision for r in read(program, told["configuration"], view, "public")) != finest:
        assert time.monotonic() < until, "the grant was not carried out"


@pytest.mark.slow
def test_a_newcomer_sees_data_in_three_minutes_and_an_interrupted_demo_stops_its_worker_and_its_page(
    environment: dict[str, str], tmp_path: Path
) -> None:
    begun = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "stream_dp.cli", "demo"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A background job, and all it starts, ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no other thread runs)
    ) as running:
        assert running.stdout is not None
        page = next(found[1] for line in running.stdout if (found := re.search(r"Look at (\S+) while it runs", line)))
        while not has_data(page):
            assert time.monotonic() - begun < NEWCOMERS_SECONDS, "no data on the page"
            time.sleep(0.2)
        assert any("2013: public" in line for line in running.stdout), "nothing was released"
        (folder,) = (tmp_path / "demo").iterdir()
        pids = [process_of(command, folder / "flights.yaml") for command in ("worker", "serve")]
        os.kill(running.pid, signal.SIGINT)
        said = running.stdout.read().splitlines()
        assert running.wait(timeout=WITHIN_SECONDS) == 130
    assert said[-1] == "Stopped."
    assert not any(carries(pid, str(folder / "flights.yaml")) for pid in pids)


def has_data(page: str) -> bool:
    """Whether a page of the demo has a window of destinations."""
    with suppress(OSError), urlopen(f"{page}v1/views/destinations/windows") as answer:
        return bool(json.load(answer)["windows"])
    return False


def process_of(command: str, file: Path) -> int:
    """The process of a command on a configuration."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    (found,) = (line for line in listed.stdout.splitlines() if f"{command} {file}" in line)
    return int(found.split()[0])
